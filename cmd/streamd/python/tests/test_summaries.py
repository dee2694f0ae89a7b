"""Sums of rows of other engines: the blocks that the program makes of the file that the engines read."""

import json
import pathlib
import random
import subprocess
import sys
from typing import Any

import pytest
from conftest import PATIENCE, need
from streamd import Local, ProgramError, _frames, find_program, replay, summarise

pa = need("pyarrow")
need("pyarrow.parquet")
ROWS, CUT = 10_050, 500


def rows_of(seed: int, n: int = ROWS) -> Any:
    """Normal numbers of both precisions, prices, columns of 0 and 1, and labels."""
    r = random.Random(seed)
    kinds = [r.randrange(3) for _ in range(n)]
    return pa.table(
        {
            "label": [r.choice(["spam", "ham"]) for _ in range(n)],
            "x": [r.gauss(0, 1) for _ in range(n)],
            "y": [1e6 + r.gauss(0, 1e-3) for _ in range(n)],
            "f": pa.array([r.gauss(0, 1) for _ in range(n)], pa.float32()),
            "price": [round(1e4 * r.random(), 2) for _ in range(n)],
            "is_a": pa.array([kind == 1 for kind in kinds]),
            "is_b": pa.array([int(kind == 2) for kind in kinds], pa.int8()),
        }
    )


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pa.parquet.write_table(rows_of(6), path, row_group_size=700)
    return path


def by_program(*args: str | pathlib.Path, cut: int = CUT) -> list[dict]:
    """The rows of the table that the program writes, without the records, which have a time."""
    out = subprocess.run([find_program(), "summarise", *args, "--out=-", f"--block-rows={cut}"], check=True, capture_output=True, env={}).stdout
    return [{k: v for k, v in json.loads(line).items() if k != "bytes"} for line in out.splitlines()]


def without_bytes(table: Any) -> list[dict]:
    return table.drop_columns(["bytes"]).to_pylist()


def pyarrow_table(path: pathlib.Path) -> Any:
    return pa.parquet.read_table(path)


def pyarrow_dataset(path: pathlib.Path) -> Any:
    need("pyarrow.dataset")
    return pa.dataset.dataset(path)


def pandas_frame(path: pathlib.Path) -> Any:
    return need("pandas").read_parquet(path)


def polars_frame(path: pathlib.Path) -> Any:  # labels are a dictionary
    pl = need("polars")
    return pl.scan_parquet(path).with_columns(pl.col("label").cast(pl.Categorical)).collect()


def duckdb_relation(path: pathlib.Path) -> Any:  # prices are decimals, and labels an ENUM
    query = "SELECT * REPLACE (label::ENUM('ham', 'spam') AS label, price::DECIMAL(10, 2) AS price) FROM read_parquet(?)"
    return need("duckdb").sql(query, params=[str(path)])


@pytest.mark.parametrize("engine", [pyarrow_table, pyarrow_dataset, pandas_frame, polars_frame, duckdb_relation], ids=lambda f: f.__name__)
def test_blocks_are_those_of_the_file(engine: Any, parquet: pathlib.Path) -> None:
    got = summarise(engine(parquet), id="rows.parquet", block_rows=CUT)
    want = by_program(parquet)
    assert without_bytes(got) == want and len(want) == (ROWS + CUT - 1) // CUT
    assert want[1]["id"] == "file:rows.parquet/0/500"


def test_flags(parquet: pathlib.Path) -> None:
    table = pyarrow_table(parquet).rename_columns({"label": "kind", "price": "w"})
    got = summarise(table, id="r", label="kind", weight="w", ignore=["is_*"], features=["y", "x"], block_rows=5_000)
    pa.parquet.write_table(table, parquet.parent / "renamed.parquet")
    flags = ["--label=kind", "--weight=w", "--ignore=is_*", "--features=y,x"]
    want = by_program(parquet.parent / "renamed.parquet", *flags, cut=5_000)
    assert [b["digest"] for b in without_bytes(got)] == [b["digest"] for b in want] and len(want) == 3


def test_batches_of_any_size() -> None:
    """A frame that is one batch of more bytes than the program takes in a message."""
    np = need("numpy")
    x = np.random.default_rng(1).normal(size=(1_200_000, 8))
    table = pa.table({f"x{j}": x[:, j] for j in range(8)} | {"label": np.where(x[:, 0] > 0, "a", "b")})
    assert table.nbytes > 70e6 and len(table.to_batches()) == 1
    blocks = summarise(table, id="r", block_rows=400_000)
    assert blocks["rows"].to_pylist() == [400_000] * 3
    assert blocks.drop_columns(["bytes"]) == summarise(_in_batches(table), id="r", block_rows=400_000).drop_columns(["bytes"])
    wide = pa.table({f"x{j}": x[j * 100 : j * 100 + 2_500, 0] for j in range(4_000)})
    for batch in pa.ipc.open_stream(_frames.stream_of(wide)):
        assert 0 < batch.nbytes < 20e6


def _in_batches(table: Any) -> Any:
    return pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=5_000)))


def test_faults_are_told() -> None:
    table = rows_of(1, 100)
    with pytest.raises(ProgramError, match="colour"):
        summarise(table, id="r", label="colour")
    with pytest.raises(TypeError, match="no frame: it has no __arrow_c_stream__"):
        summarise([{"label": "a", "x": 1}], id="r")
    with pytest.raises(TypeError, match="takes no out"):
        summarise(table, id="r", out="f")
    with pytest.raises(ProgramError, match="unknown flag --colour"):
        summarise(table, id="r", colour="red")
    assert summarise(table.slice(0, 0), id="r").num_rows == 0

    def breaks() -> Any:
        yield from rows_of(2, 50_000).to_batches(max_chunksize=1_000)
        raise OSError("the disk is gone")

    broken = pa.RecordBatchReader.from_batches(table.schema, breaks())
    with pytest.raises(OSError, match="the disk is gone"):
        summarise(broken, id="r", block_rows=1_000)


def test_replay_by_either_way(broker: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("confluent_kafka")
    rows = rows_of(3, 3_000)
    blocks = summarise(rows, id="orders", block_rows=1_000)
    pa.parquet.write_table(blocks, tmp_path / "blocks.parquet")
    pa.parquet.write_table(rows, tmp_path / "rows.parquet")

    def model(topic: str, last: int) -> Any:
        """What a daemon of the topic serves, once it has read that record."""
        with Local(topic, {"kafka.brokers": broker}) as daemon:
            return daemon.wait(includes=f"{topic}/0/{last}", timeout=PATIENCE)

    assert replay(tmp_path / "blocks.parquet", "sums-of-a-file", brokers=broker) == []
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "confluent_kafka", None)
        assert replay(blocks, "sums-by-the-program", brokers=broker) == []
    assert replay(tmp_path / "rows.parquet", "rows-of-a-file", brokers=broker, block_rows=1_000) == []
    assert replay(blocks, "sums-by-the-program", brokers=broker) == ["sums-by-the-program/0/5"]
    models = [model(topic, last) for topic, last in [("sums-of-a-file", 2), ("sums-by-the-program", 5), ("rows-of-a-file", 2)]]
    assert len({m["state_digest"] for m in models[:2]}) == 1
    assert len({json.dumps(m["planes"]) for m in models}) == 1
    with pytest.raises(ValueError, match="no table of blocks.* push writes rows"):
        replay(rows, "t", brokers=broker)
    with pytest.raises(ProgramError, match="nothing.csv"):
        replay(tmp_path / "nothing.csv", "t", brokers=broker)


def test_the_error_of_workers_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamd import spark

    monkeypatch.setitem(sys.modules, "streamd.summaries", None)
    monkeypatch.delattr("streamd.summaries")
    with pytest.raises(ImportError, match="PYSPARK_PYTHON"):
        next(spark.summarise(id="r")(iter([])))
