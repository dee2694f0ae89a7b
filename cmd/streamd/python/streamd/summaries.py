"""Blocks of rows as sums, which any engine with Arrow makes and daemons learn from.

    blocks = streamd.summarise(duckdb.sql("FROM orders"), label="class", id="orders-2026-11")
    streamd.replay(blocks, "sums")

A daemon that reads a topic of such blocks has the model of their rows, bit for bit.
"""

import base64
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from . import _frames, _program

if TYPE_CHECKING:
    import pyarrow

COLUMNS = {"id": "string", "source": "string", "first_row": "int64", "rows": "int64", "digest": "string", "bytes": "binary"}


def summarise(rows: Any, *, id: str, label: str = "label", block_rows: int = 20_000, **flags: Any) -> "pyarrow.Table":
    """Sums the rows of a frame, and returns a table with a block in each row.

    rows are anything with __arrow_c_stream__ (polars, DuckDB, pyarrow, a block of Ray), a frame of
    pandas, a dataset of pyarrow or a scan of pyiceberg. They are read once, batch by batch. id is
    the name of the rows, by which their blocks are known: the block that begins with row 20000 of
    orders is file:orders/0/20000. Blocks of another call with that id take their place.

    label is the column of the labels, and block_rows are the rows of a block; the last one may have
    fewer. Further flags are those of `streamd summarise`: weight="w", ignore=["name", "*_at"],
    features=["x", "y"], schema="features.yaml", missing="mean", sample=100, time=datetime(…).

    The table has the columns id, source, first_row, rows, digest and bytes, of which bytes is the
    block's record in a topic. It is what replay writes, also from a file of Parquet.
    """
    pa = _frames.pyarrow_module()
    reader = _frames.reader_of(rows)
    made = blocks(reader.schema, reader, dict(id=id, label=label, block_rows=block_rows, **flags))
    return pa.Table.from_batches(made, schema())


def schema() -> "pyarrow.Schema":
    """The columns of a table of blocks."""
    pa = _frames.pyarrow_module()
    return pa.schema([(name, getattr(pa, kind)()) for name, kind in COLUMNS.items()])


def blocks(of: "pyarrow.Schema", batches: Iterable["pyarrow.RecordBatch"], settings: dict[str, Any]) -> Iterator["pyarrow.RecordBatch"]:
    """The blocks of batches of rows, one by one. Without a row there are none."""
    pa = _frames.pyarrow_module()
    if taken := settings.keys() & {"out", "to", "source", "file_format", "json"}:
        raise TypeError(f"summarise takes no {', '.join(sorted(taken))}")
    settings = {"source": settings["id"]} | {k: v for k, v in settings.items() if k != "id"}
    some = (batch for batch in batches if batch.num_rows > 0)
    if (first := next(some, None)) is None:
        return

    def feed(to: IO[bytes]) -> None:
        _frames.write_stream(to, of, itertools.chain([first], some))

    columns = schema()
    for line in _program.lines("summarise", "-", "--out=-", *_program.flags_of(settings), feed=feed):
        block = json.loads(line)
        yield pa.RecordBatch.from_pylist([block | {"bytes": base64.b64decode(block["bytes"])}], columns)
