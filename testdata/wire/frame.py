"""Writes one pandas data frame in every format, for ingest/wire's tests:

    pip install pandas pyarrow zstandard; python frame.py

Columns: an id, a category of text, a category of numbers, a number with nulls, a boolean,
a time stamp without and one with a zone, a date, a decimal, and a boolean label.
"""
import datetime
import decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

rows = 24
frame = pd.DataFrame({
    "id": [1000 + 7 * i for i in range(rows)],
    "city": pd.Categorical([["Köln", "Bonn", "Trier"][i % 3] for i in range(rows)]),
    "grade": pd.Categorical([[1, 2, 5][i * i % 3] for i in range(rows)]),
    "age": [None if i % 8 == 3 else 20 + i for i in range(rows)],
    "member": [i % 3 == 0 for i in range(rows)],
    "seen": [pd.Timestamp("2024-02-28 23:59:59.25") + pd.Timedelta(hours=5 * i, microseconds=i) for i in range(rows)],
    "paid": [pd.Timestamp("1969-12-30 12:00", tz="Europe/Berlin") + pd.Timedelta(minutes=90 * i) for i in range(rows)],
    "born": [datetime.date(1950 + i, 1 + i % 12, 28) for i in range(rows)],
    "amount": [decimal.Decimal(i * i * 1001 - 5000) / 100 for i in range(rows)],
    "label": [i % 4 == 1 for i in range(rows)],
})

table = pa.Table.from_pandas(frame, preserve_index=False)
with pa.ipc.new_stream("frame.arrows", table.schema) as w:
    w.write_table(table)
frame.to_feather("frame.feather")
frame.to_parquet("frame.parquet", index=False)
pq.write_table(table, "frame_v1.parquet", compression="gzip", version="1.0", data_page_version="2.0", row_group_size=7,
               use_dictionary=False, use_deprecated_int96_timestamps=True)
text = frame.assign(born=frame["born"].astype(str), amount=frame["amount"].astype(str))
text.to_json("frame.ndjson", orient="records", lines=True, date_format="iso", date_unit="us")
text.to_json("frame.json", orient="records", date_format="iso", date_unit="ns")
frame.to_csv("frame.csv", index=False)
frame.to_csv("frame.csv.gz", index=False)
frame.to_csv("frame.csv.zst", index=False)
frame.to_csv("frame.tsv", index=False, sep="\t")
frame.to_csv("frame_semicolons.csv", index=False, sep=";")

vectors = pa.table({
    "emb": pa.array([[0.5 * i, -i, 0.125 * i] for i in range(rows)], pa.list_(pa.float32())),
    "big": pa.array([[i, 2 * i] for i in range(rows)], pa.large_list(pa.int16())),
    "two": pa.array([[i, i * i] for i in range(rows)], pa.list_(pa.float64(), 2)),
    "u": pa.array(range(rows), pa.uint32()),
    "label": frame["label"],
})
with pa.ipc.new_stream("vectors.arrows", vectors.schema) as w:
    w.write_table(vectors)
pq.write_table(vectors, "vectors.parquet", row_group_size=10)
with open("vectors.ndjson", "w") as f:
    f.write(vectors.to_pandas().to_json(orient="records", lines=True, double_precision=15))
