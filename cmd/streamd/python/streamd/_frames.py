"""Frames in and out: anything with __arrow_c_stream__, or a list of dicts.

A list of dicts takes the standard library alone. Frames take pyarrow.
"""

import importlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

_MESSAGE_BYTES = 16 << 20  # of a message of a stream, about: rows may be of unequal lengths

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"

Rows = Sequence[Mapping[str, Any]]


def is_frame(data: Any) -> bool:
    return hasattr(data, "__arrow_c_stream__")


def pyarrow_module() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise ImportError("frames need pyarrow: pip install pyarrow; a list of dicts needs nothing") from None


def table_of(frame: Any) -> "pyarrow.Table":
    """The frame as a table of Arrow, without the index of pandas."""
    pa = pyarrow_module()
    return frame if isinstance(frame, pa.Table) else reader_of(frame).read_all()


def reader_of(frame: Any) -> "pyarrow.RecordBatchReader":
    """The frame's batches, one by one, without the index of pandas: also those of a dataset of pyarrow and of a scan of pyiceberg."""
    pa = pyarrow_module()
    if _is_pandas(frame):
        return pa.Table.from_pandas(frame, preserve_index=False).to_reader()
    if is_frame(frame):
        return pa.RecordBatchReader.from_stream(frame)
    if hasattr(frame, "to_arrow_batch_reader"):
        return frame.to_arrow_batch_reader()
    if hasattr(frame, "scanner"):
        return frame.scanner().to_reader()
    raise TypeError(f"a {type(frame).__name__} is no frame: it has no __arrow_c_stream__")


def like(table: "pyarrow.Table", frame: Any) -> Any:
    """The table as a frame of the same library, and with the index of pandas. Others get the table."""
    if _is_pandas(frame):
        answer = table.to_pandas()
        answer.index = frame.index
        return answer
    if type(frame).__module__.partition(".")[0] == "polars":
        return importlib.import_module("polars").from_arrow(table)
    return table


def _is_pandas(frame: Any) -> bool:
    return type(frame).__module__.partition(".")[0] == "pandas"


def stream_of(table: "pyarrow.Table") -> bytes:
    """The table as a stream of Arrow."""
    sink = pyarrow_module().BufferOutputStream()
    write_stream(sink, table.schema, table.to_batches())
    return sink.getvalue().to_pybytes()


def write_stream(to: Any, schema: "pyarrow.Schema", batches: Iterable["pyarrow.RecordBatch"]) -> None:
    """Writes batches as a stream of Arrow, of which the program takes messages of 64 MiB at most."""
    with pyarrow_module().ipc.new_stream(to, schema) as stream:
        for batch in batches:
            rows = max(1, _MESSAGE_BYTES * batch.num_rows // max(1, batch.nbytes))
            for begin, end in pieces(batch.num_rows, rows):
                stream.write_batch(batch.slice(begin, end - begin))


def read_stream(content: bytes) -> "pyarrow.Table":
    pa = pyarrow_module()
    return pa.ipc.open_stream(content).read_all()


def json_of(rows: Rows) -> bytes:
    """Rows as lines of JSON. NaN and None are missing values, and numbers of numpy count as numbers."""
    return "\n".join(json.dumps({str(k): _plain(v) for k, v in row.items()}, allow_nan=False) for row in rows).encode()


def _plain(value: Any) -> Any:
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value


def pieces(rows: int, at_most: int) -> Iterator[tuple[int, int]]:
    """Begin and end of pieces of the rows."""
    for begin in range(0, rows, at_most):
        yield begin, min(begin + at_most, rows)
