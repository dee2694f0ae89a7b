"""Labelled rows, or their sums, into a topic, as the blocks that a daemon learns from."""

import importlib
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from . import _frames, _program, summaries
from ._errors import StreamdError

_WAIT = 60.0  # s, for the cluster to take all messages
_SUMMARY = "application/vnd.streamd.summary"


def push(
    rows: Any,
    topic: str,
    *,
    label: str = "label",
    key: str | None = None,
    brokers: str = "127.0.0.1:9092",
    block_rows: int = 20_000,
    config: Mapping[str, Any] | None = None,
) -> list[str]:
    """Writes rows to a topic, and returns the last position of each partition, for Client.wait(includes=…).

    rows are a frame (anything with __arrow_c_stream__) or a list of dicts. label is the column of
    the labels, and is written as `label`, where daemons look for it. A message is a block of
    block_rows rows. With key it is all rows that have the same value in that column: the value is
    the message's key, for a daemon with blocks.unit: key, and the column is left out.

    It takes confluent-kafka, whose further settings are config. Without that module the program
    writes the rows, without keys, makes the topic if it is missing, and returns no positions.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows {block_rows}: must be 1 or more")
    if _frames.is_frame(rows):
        table = _frames.table_of(rows)
        names = table.column_names
    else:
        rows = [dict(row) for row in rows]
        table, names = None, list(rows[0]) if rows else []
    for name in (label, key):
        if name is not None and name not in names:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(map(str, names))}")
    try:
        kafka = importlib.import_module("confluent_kafka")
    except ImportError:
        if key is not None or config:
            raise ImportError("push: key and config need confluent-kafka: pip install confluent-kafka") from None
        _by_program(rows, table, topic, label, brokers, block_rows)
        return []
    if table is not None:
        messages = _of_table(table, label, key, block_rows)
        kind = _frames.ARROW
    else:
        messages = _of_dicts(rows, label, key, block_rows)
        kind = _frames.JSON
    return _write(kafka, brokers, config, topic, kind, messages)


def replay(
    what: Any, topic: str, *, brokers: str = "127.0.0.1:9092", config: Mapping[str, Any] | None = None, **flags: Any
) -> list[str]:
    """Writes a file, or a table of summarise, to a topic.

    The path of a file of rows, or of a table of blocks in Parquet or JSON, is what `streamd replay
    file` takes, with its flags: label="class", block_rows=1000, partitions=4, rate=6000. The program
    makes the topic if it is missing, and the list that is returned is empty.

    A table of blocks goes as push writes rows: by confluent-kafka, whose settings are config, and
    the list has the last position of each partition, or by the program without that module.
    """
    if isinstance(what, (str, os.PathLike)):
        if config:
            raise TypeError("replay: config is for a table, and a file is written by the program; its settings are flags")
        _program.run("replay", "file", what, *_program.flags_of({"topic": topic, "brokers": brokers} | flags))
        return []
    table = _frames.table_of(what)
    if missing := summaries.COLUMNS.keys() - set(table.column_names):
        raise ValueError(f"no table of blocks, which summarise makes: it has no column {', '.join(sorted(missing))}; push writes rows")
    try:
        kafka = importlib.import_module("confluent_kafka")
    except ImportError:
        if config:
            raise ImportError("replay: config needs confluent-kafka: pip install confluent-kafka") from None
        with tempfile.TemporaryDirectory(prefix="streamd-") as folder:
            file = pathlib.Path(folder) / "blocks.parquet"
            importlib.import_module("pyarrow.parquet").write_table(table.select(list(summaries.COLUMNS)), file)
            return replay(file, topic, brokers=brokers, **flags)
    if flags:
        raise TypeError(f"replay: {', '.join(flags)}: a table takes no flags")
    messages = ((block["id"], block["bytes"]) for batch in table.select(["id", "bytes"]).to_batches() for block in batch.to_pylist())
    return _write(kafka, brokers, config, topic, _SUMMARY, messages)


def _of_table(table: Any, label: str, key: str | None, block_rows: int) -> Any:
    """Keys and values of messages."""
    keys = None if key is None else table.column(key).to_pylist()
    if key is not None:
        table = table.drop_columns([key])
    table = table.rename_columns(["label" if name == label else name for name in table.column_names])
    for name, which in _groups(keys, table.num_rows, block_rows):
        yield name, _frames.stream_of(table.slice(which.start, len(which)) if isinstance(which, range) else table.take(which))


def _of_dicts(rows: list[dict[str, Any]], label: str, key: str | None, block_rows: int) -> Any:
    keys = None if key is None else [row.pop(key, None) for row in rows]
    for name, which in _groups(keys, len(rows), block_rows):
        yield name, _frames.json_of([{"label" if k == label else k: v for k, v in rows[i].items()} for i in which])


def _groups(keys: list[Any] | None, rows: int, block_rows: int) -> Any:
    """Keys of blocks, and the numbers of their rows."""
    if keys is None:
        yield from ((None, range(begin, end)) for begin, end in _frames.pieces(rows, block_rows))
        return
    of: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        if key is None or key != key:  # NaN
            raise ValueError(f"row {i} has no key")
        of.setdefault(str(key), []).append(i)
    yield from of.items()


def _write(kafka: Any, brokers: str, config: Mapping[str, Any] | None, topic: str, kind: str, messages: Any) -> list[str]:
    producer = kafka.Producer({"bootstrap.servers": brokers, "enable.idempotence": True} | dict(config or {}))
    last: dict[int, int] = {}
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            last[message.partition()] = max(message.offset(), last.get(message.partition(), -1))

    for key, value in messages:
        while True:
            try:
                producer.produce(topic, value, key=key, headers={"content-type": kind}, on_delivery=delivered)
                break
            except BufferError:  # its queue is full
                producer.poll(1.0)
            except kafka.KafkaException as e:
                raise StreamdError(f"write to {topic}: {e}") from e
        producer.poll(0)
        if failed:
            break
    left = producer.flush(_WAIT)
    if failed or left:
        raise StreamdError(f"write to {topic}: {failed[0] if failed else f'{left} messages were not taken within {_WAIT:g} s'}")
    return [f"{topic}/{partition}/{offset}" for partition, offset in sorted(last.items())]


def _by_program(rows: Any, table: Any, topic: str, label: str, brokers: str, block_rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="streamd-") as folder:
        file = pathlib.Path(folder) / ("rows.ndjson" if table is None else "rows.arrows")
        file.write_bytes(_frames.json_of(rows) if table is None else _frames.stream_of(table))
        _program.run(
            "replay", "file", file, "--topic", topic, "--brokers", brokers, "--label", label, "--block-rows", str(block_rows)
        )
