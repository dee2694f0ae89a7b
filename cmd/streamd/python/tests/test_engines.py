"""Tasks of Spark, whatever their number, and blocks of Ray have the sums that the program makes of
the same cuts of the file, also when a worker is killed among its rows.

A session takes a minute, so only `make engines` asks for it.
"""

import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import need
from test_summaries import CUT, by_program, rows_of
from streamd import spark, summarise

if not os.environ.get("STREAMD_ENGINES"):
    pytest.skip("NOT TESTED: STREAMD_ENGINES=1 runs Spark and Ray, as make engines does", allow_module_level=True)

pa = need("pyarrow")
need("pyarrow.parquet")
os.environ["STREAMD_REQUIRE_PROGRAMS"] = "1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("rows")
    rows = rows_of(6)
    pa.parquet.write_table(rows, path / "rows.parquet")
    pa.parquet.write_table(rows.append_column("row", pa.array(range(rows.num_rows))), path / "numbered.parquet")
    return path


@pytest.fixture(scope="module")
def digests(folder: pathlib.Path) -> list[str]:
    return sorted(block["digest"] for block in by_program(folder / "rows.parquet"))


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    sql = need("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
        .getOrCreate()
    )
    yield session
    session.stop()


def partitioned(session: Any, folder: pathlib.Path, partitions: int) -> Any:
    """The rows in so many partitions, of which each has whole cuts."""
    from pyspark.sql import functions

    rows = session.read.parquet(str(folder / "numbered.parquet"))
    return rows.repartition(partitions, functions.floor(rows.row / CUT)).sortWithinPartitions("row").drop("row")


def killing(task: Any, armed: str) -> Any:
    """The task, of which the first worker that finds the folder is killed among its rows."""

    def killed(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal

        for i, batch in enumerate(batches):
            yield batch
            if i == 2 and os.path.exists(armed):
                os.rmdir(armed)
                os.kill(os.getpid(), signal.SIGKILL)

    return lambda batches: task(killed(batches))


@pytest.mark.parametrize("partitions, kills", [(3, False), (7, False), (60, False), (3, True)])
def test_spark(session: Any, folder: pathlib.Path, digests: list[str], partitions: int, kills: bool) -> None:
    task = spark.summarise(id="rows", block_rows=CUT)
    if kills:
        (folder / "armed").mkdir()
        task = killing(task, str(folder / "armed"))
    to = str(folder / f"blocks-{partitions}-{kills}")
    partitioned(session, folder, partitions).mapInArrow(task, spark.SCHEMA).write.parquet(to)
    assert not (folder / "armed").exists(), "no worker was killed"
    table = pa.parquet.read_table(to)
    assert sorted(table["digest"].to_pylist()) == digests
    assert len(set(table["id"].to_pylist())) == len(digests)


def test_ray(folder: pathlib.Path, digests: list[str]) -> None:
    ray = need("ray")
    need("ray.data")
    ray.init(num_cpus=1, include_dashboard=False)
    try:
        data = ray.data.from_arrow(pa.parquet.read_table(folder / "rows.parquet")).repartition(3)
        batches = data.iter_batches(batch_size=CUT, batch_format="pyarrow")
        got = [summarise(batch, id=f"rows-{i}", block_rows=CUT)["digest"][0].as_py() for i, batch in enumerate(batches)]
        assert sorted(got) == digests
    finally:
        ray.shutdown()
