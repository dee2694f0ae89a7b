"""Rows into topics of the demo's broker, by either way."""

import json
import pathlib
import subprocess
import sys

import pytest
from conftest import PATIENCE, Daemon, customer, need
from streamd import Client, StreamdError, find_program, push

pa = need("pyarrow")


def topic_of(broker: str, name: str, folder: pathlib.Path) -> str:
    """Makes a topic: a file without rows does, and is an error then."""
    (folder / "none.csv").write_text("label,length\n")
    subprocess.run([find_program(), "replay", "file", folder / "none.csv", "--brokers", broker, "--topic", name], capture_output=True, env={})
    return name


def read(broker: str, topic: str, messages: int) -> list:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    got = consumer.consume(messages, PATIENCE)
    consumer.close()
    assert [m.error() for m in got] == [None] * messages
    return got


def test_blocks_of_frames_and_of_dicts(broker: str, tmp_path: pathlib.Path) -> None:
    need("confluent_kafka")
    topic = topic_of(broker, "pushed", tmp_path)
    table = pa.table({"kind": ["ham", "spam", "ham"], "length": [1.0, 2.0, 3.0]})
    assert push(table, topic, label="kind", brokers=broker, block_rows=2) == ["pushed/0/1"]
    assert push([{"label": "ham", "length": 5}], topic, brokers=broker) == ["pushed/0/2"]
    first, second, third = read(broker, topic, 3)
    assert dict(first.headers()) == {"content-type": b"application/vnd.apache.arrow.stream"}
    assert pa.ipc.open_stream(first.value()).read_all().to_pydict() == {"label": ["ham", "spam"], "length": [1.0, 2.0]}
    assert pa.ipc.open_stream(second.value()).read_all().num_rows == 1
    assert json.loads(third.value()) == {"label": "ham", "length": 5} and third.key() is None


def test_a_block_for_each_key(daemon: Daemon) -> None:
    pd = need("pandas")
    frame = pd.concat([pd.DataFrame(customer(i)).assign(customer=f"p{i}") for i in (51, 52)])
    positions = push(frame, "customers", key="customer", brokers=daemon.broker)
    with Client(daemon.url) as client:
        client.wait(includes=positions, timeout=PATIENCE)
        assert {"key:p51", "key:p52"} <= {b["id"] for b in client.blocks()}
        assert client.retire(keys=["p51", "p52"])["rows"] == 200


def test_the_program_writes_without_confluent_kafka(broker: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    table = pa.table({"kind": ["ham", "spam", "ham"], "length": [1.0, 2.0, 3.0]})
    assert push(table, "replayed", label="kind", brokers=broker, block_rows=2) == []
    assert push([{"label": "ham", "length": 5.0}], "replayed", brokers=broker) == []
    with pytest.raises(ImportError, match="key and config"):
        push(table, "replayed", label="kind", key="length", brokers=broker)
    monkeypatch.undo()
    need("confluent_kafka")
    first, _, third = read(broker, "replayed", 3)
    assert pa.ipc.open_stream(first.value()).read_all().num_rows == 2
    assert pa.ipc.open_stream(third.value()).read_all().column("length").to_pylist() == [5.0]


def test_clear_errors() -> None:
    with pytest.raises(ValueError, match="no column 'label'; there are x"):
        push([{"x": 1}], "t")
    with pytest.raises(ValueError, match="row 1 has no key"):
        push([{"label": "a", "k": 1}, {"label": "a", "k": None}], "t", key="k")
    need("confluent_kafka")
    with pytest.raises(StreamdError, match="write to t: "):
        push([{"label": "a"}], "t", brokers="127.0.0.1:9", config={"message.timeout.ms": 500, "log_level": 0})
