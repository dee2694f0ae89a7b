"""Spark's WeightedLeastSquares: LinearRegression with solver="normal", on this machine's cores.

It sums x, xx', y and xy over the partitions and solves one system, as streamd does. Spark reads
Parquet, which is written from the blocks before the clock starts. The session starts and fits once
before that, too, so that the JVM is warm. Its penalty is regParam/2·|w|² beside half the mean
square: 1/nu of the proximal SVM over the rows.
"""

import os
import tempfile

import peer


def tool(_):
    import pyarrow.parquet  # noqa: F401
    import pyspark

    return pyspark.__version__


def learn(args, clock):
    import pyarrow
    import pyarrow.parquet
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import LinearRegression
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        rows = 0
        for i, path in enumerate(args.train):
            with open(path, "rb") as file, pyarrow.ipc.open_stream(file) as stream:
                table = pyarrow.Table.from_batches(stream, stream.schema)
            rows += table.num_rows
            names = ["label"] + [f"x{j}" for j in range(table.num_columns - 1)]
            table = table.rename_columns(names)
            pyarrow.parquet.write_table(table, os.path.join(folder, f"{i}.parquet"), compression="none", use_dictionary=False)
        fit = LinearRegression(
            featuresCol="x", labelCol="label", solver="normal", regParam=1 / args.nu / rows, standardization=False
        )

        def model_of(frame):
            frame = VectorAssembler(inputCols=frame.columns[1:], outputCol="x").transform(frame)
            return fit.fit(frame.selectExpr("cast(label as double) as label", "x"))

        model_of(spark.read.parquet(folder).limit(10_000))
        clock.start()
        model = model_of(spark.read.parquet(folder))
        clock.stop()
        w, b = model.coefficients.toArray(), model.intercept
        spark.stop()
    return rows, w, -b


if __name__ == "__main__":
    peer.main(tool, learn)
