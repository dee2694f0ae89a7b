"""Blocks of the rows of a DataFrame of Spark, as sums.

    from streamd import spark

    rows.mapInArrow(spark.summarise(label="class", id="orders-2026-11"), spark.SCHEMA).write.parquet("blocks")

`streamd replay file blocks` writes the folder to a topic. So does Spark's own sink, with the column
id as key, bytes as value, and the header content-type: application/vnd.streamd.summary.
"""

from collections.abc import Callable, Iterator
from typing import Any

from .summaries import COLUMNS

SCHEMA = ", ".join(f"{name} {kind.replace('int64', 'long')}" for name, kind in COLUMNS.items())


def summarise(*, id: str, label: str = "label", block_rows: int = 20_000, **flags: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that DataFrame.mapInArrow takes. Its blocks have the type SCHEMA.

    Each task has a process of the program, which sums its rows in blocks of block_rows. id is the
    name of the rows, and the blocks of a task are known by it and by the number of the partition. So
    a task that is repeated makes the same blocks, if its rows have the same order. A job that runs
    again with other partitions is given another id. An empty partition has no blocks. label and
    flags are those of streamd.summarise.

    The workers' Python needs this package, pyarrow and pandas: PYSPARK_PYTHON names it.
    """
    settings = dict(label=label, block_rows=block_rows, **flags)

    # It goes to the workers by value, so that it can say there what they lack.
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import itertools
        import sys

        try:
            from streamd import summaries
        except ImportError as e:
            raise ImportError(
                f"the Python of Spark's workers, {sys.executable}, has no package streamd ({e}): install it there, or set "
                "PYSPARK_PYTHON to a Python of the workers that has it"
            ) from None
        from pyspark import TaskContext

        first = next(batches, None)
        if first is None:
            return
        name = f"{id}-{TaskContext.get().partitionId():05d}"
        yield from summaries.blocks(first.schema, itertools.chain([first], batches), settings | {"id": name})

    return task
