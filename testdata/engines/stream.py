"""Rows of a table as a stream of Arrow on standard output, as other engines write it.

    stream.py parquet rows.csv rows.parquet    make the table, with the types that columns have there
    stream.py pyarrow|polars|duckdb rows.parquet

Columns are label (text), x and y (double), f (float), price (double), is_a and is_b (bool, int8).
"""

import sys


def parquet(csv, to):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    types = {"label": pa.string(), "f": pa.float32(), "is_a": pa.bool_(), "is_b": pa.int8()}
    convert = pyarrow.csv.ConvertOptions(column_types=types)
    table = pyarrow.csv.read_csv(csv, convert_options=convert)
    pyarrow.parquet.write_table(table, to, row_group_size=700)


def write(batches, schema):
    import pyarrow as pa

    with pa.ipc.new_stream(sys.stdout.buffer, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


def pyarrow(path):
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    write(file.iter_batches(333), file.schema_arrow)


def polars(path):  # labels are a dictionary, and batches are compressed
    import polars as pl

    rows = pl.scan_parquet(path).with_columns(pl.col("label").cast(pl.Categorical)).collect()
    rows.write_ipc_stream(sys.stdout.buffer, compression="zstd")


def duckdb(path):  # prices are decimals, and labels an ENUM
    import duckdb
    import pyarrow as pa

    query = "SELECT * REPLACE (label::ENUM('ham', 'spam') AS label, price::DECIMAL(10, 2) AS price) FROM read_parquet(?)"
    reader = pa.RecordBatchReader.from_stream(duckdb.sql(query, params=[path]))
    write(reader, reader.schema)


{"parquet": parquet, "pyarrow": pyarrow, "polars": polars, "duckdb": duckdb}[sys.argv[1]](*sys.argv[2:])
