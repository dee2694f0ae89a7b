"""Summary blocks of the rows of a Spark DataFrame, in the columns of a table of blocks.

    spark-submit summarise.py rows.parquet table [FLAGS of streamd summarise]

The column row numbers the rows from 0, without gaps. A block has the rows of a cut, in their order,
however many partitions there are, so its sums are those that the program makes of one file. Its
id is that of the partition: a task that is repeated gives the same ones. The program is $STREAMD, or
streamd of the workers' PATH.
"""

import base64, itertools, json, os, subprocess, sys, threading

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions

COLUMNS = "id string, source string, first_row long, rows long, digest string, bytes binary"


def summarise(rows: DataFrame, source: str, cut: int, partitions: int, flags: list[str]) -> DataFrame:
    command = [os.environ.get("STREAMD", "streamd"), "summarise", "-", "--out", "-", "--block-rows", str(cut), *flags]

    def task(batches):
        first = next(batches, None)
        if first is None:  # an empty partition
            return
        name = ["--source", f"{source}-{partitions}-{TaskContext.get().partitionId()}"]
        child, faults = subprocess.Popen(command + name, stdin=subprocess.PIPE, stdout=subprocess.PIPE), []

        def feed():  # while the output is read: both ends would wait for each other
            try:
                with child.stdin, pa.ipc.new_stream(child.stdin, first.schema) as stream:
                    for batch in itertools.chain([first], batches):
                        stream.write_batch(batch)
            except BaseException as fault:
                faults.append(fault)

        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        try:
            for line in child.stdout:
                block = json.loads(line)
                yield pa.RecordBatch.from_pylist([block | {"bytes": base64.b64decode(block["bytes"])}])
            feeder.join()
            if child.wait() != 0 or faults:
                raise RuntimeError(f"{command + name}: status {child.returncode}, {faults}")
        finally:
            child.kill()

    number = functions.floor(rows.row / cut)
    return rows.repartition(partitions, number).sortWithinPartitions("row").drop("row").mapInArrow(task, COLUMNS)


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    partitions = spark.sparkContext.defaultParallelism
    summarise(spark.read.parquet(sys.argv[1]), "spark", 20_000, partitions, sys.argv[3:]).write.json(sys.argv[2])
