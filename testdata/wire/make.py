"""Writes the Arrow streams that ingest/wire's tests read: pip install pyarrow polars; python make.py

All hold the same four rows, unless the name says how they differ:

    label   u     v
    a       1     0.5
    b       -2    1.5
    a       3     -2.5
    c       4     100
"""
import json
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

LABEL = pa.array(["a", "b", "a", "c"])
U = [1, -2, 3, 4]
V = [0.5, 1.5, -2.5, 100]


def write(name, columns, names=None, batches=None, **options):
    schema = None
    if batches is None:
        batches = [pa.record_batch(columns, names=names or ["label", "u", "v"])]
    schema = batches[0].schema
    with pa.ipc.new_stream(name + ".arrow", schema, options=pa.ipc.IpcWriteOptions(**options)) as w:
        for b in batches:
            w.write_batch(b)


def uv(u=pa.float64(), v=pa.float64()):
    return [pa.array(U, u), pa.array(V, v)]


def batch(label=LABEL, columns=None):
    return pa.record_batch([label] + (columns or uv()), names=["label", "u", "v"])


write("string", [LABEL] + uv())
write("large_string", [LABEL.cast(pa.large_string())] + uv(pa.float32(), pa.float32()))
write("string_view", [LABEL.cast(pa.string_view())] + uv())
write("dictionary", [LABEL.dictionary_encode()] + uv())
write("dictionary_int8", [pa.DictionaryArray.from_arrays(pa.array([2, 0, 2, 1], pa.int8()), pa.array(["b", "c", "a", "unused"]))] + uv())
write("int8", [LABEL, pa.array(U, pa.int8()), pa.array(V, pa.float32())])
write("float16", [LABEL, pa.array(U, pa.int16()), pa.array(V, pa.float16())])
write("label_last", uv() + [LABEL], ["u", "v", "label"])
write("weights", [LABEL] + uv() + [pa.array([1, 0, 2, 0.5], pa.float32())], ["label", "u", "v", "weight"])
write("lz4", [LABEL] + uv(), compression="lz4")
write("zstd", [LABEL] + uv(), compression="zstd")
long = pa.record_batch([pa.array(["z", "a", "b", "a", "c", "z"]), pa.array([9] + U + [9], pa.int32()), pa.array([9] + V + [9])],
                       names=["label", "u", "v"])
write("sliced", None, batches=[long.slice(1, 4)])
write("batches", None, batches=[batch().slice(0, 1), batch().slice(0, 0), batch().slice(1, 3)])
enc = LABEL.dictionary_encode()
write("dictionary_replaced", None, batches=[
    batch(LABEL.slice(0, 2).dictionary_encode(), [pa.array(U[:2], pa.float64()), pa.array(V[:2])]),
    batch(LABEL.slice(2, 2).dictionary_encode(), [pa.array(U[2:], pa.float64()), pa.array(V[2:])])])
flat = pa.array([x for row in zip(U, V) for x in row], pa.float32())
lists = pa.FixedSizeListArray.from_arrays(flat, 2)
write("list", [LABEL, lists], ["label", "features"])
field = pa.field("x", lists.type, metadata={"features": json.dumps(["u", "v"])})
write("list_named", None, batches=[pa.record_batch([LABEL, lists], schema=pa.schema([pa.field("label", LABEL.type), field]))])

write("null_feature", [LABEL] + [pa.array([1, -2, 3, 4], pa.int32()), pa.array([0.5, 1.5, None, 100])])
write("null_label", [pa.array(["a", None, "a", "c"])] + uv())
write("null_list", [LABEL, pa.array([[1, 0.5], [-2, None], [3, -2.5], None], pa.list_(pa.float32(), 2))], ["label", "x"])
write("delta", None, emit_dictionary_deltas=True, batches=[
    batch(pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "b"])), [pa.array(U[:2], pa.float64()), pa.array(V[:2])]),
    batch(pa.DictionaryArray.from_arrays(pa.array([0, 2]), pa.array(["a", "b", "c"])), [pa.array(U[2:], pa.float64()), pa.array(V[2:])])])
write("timestamp", [LABEL, pa.array(U, pa.timestamp("s")), pa.array(V)])
frame = pa.record_batch([LABEL] + uv() + [pa.array([0, 1, 2, 3])], names=["label", "u", "v", "__index_level_0__"])
write("pandas_index", None, batches=[frame])
write("unnamed", [LABEL] + uv() + [pa.array([0, 1, 2, 3])], ["label", "u", "v", ""])
with pa.OSFile("file.arrow", "wb") as f, pa.ipc.new_file(f, batch().schema) as w:
    w.write_batch(batch())

# Durations, which Parquet has as numbers, beside the Arrow schema of their writer.
durations = pa.table({"label": LABEL} | {unit: pa.array([-1500, 0, 1, 2**40], pa.duration(unit)) for unit in ["s", "ms", "us", "ns"]})
with pa.ipc.new_stream("durations.arrow", durations.schema) as w:
    w.write_table(durations)
pq.write_table(durations, "durations.parquet")

# polars puts the schema into a file without the length of its message.
pl.DataFrame({"label": ["a", "b", "a", "c"], "u": U, "v": V}).write_ipc("polars.arrow")

# Pages of the second version, all of them compressed.
pages = pa.table({"label": ["a", "b"] * 100, "x": [i // 50 / 4 for i in range(200)]})
pq.write_table(pages, "pages_v2.parquet", compression="snappy", data_page_version="2.0", use_dictionary=False, row_group_size=100)

# Structs, with hidden values where a struct is null, as an Arrow stream, in Parquet, and flat.
rows = range(200)
geo = pa.StructArray.from_arrays(
    [pa.array([i / 8 for i in rows], pa.float32()), pa.array([None if i % 7 == 3 else -i / 3 for i in rows])],
    ["lat", "lon"], mask=pa.array([i % 5 == 1 for i in rows]))
address = pa.StructArray.from_arrays(
    [pa.array([["at", "ch", "de"][i % 3] for i in rows]).dictionary_encode(), geo,
     pa.array([i * 1_000_003 for i in rows], pa.timestamp("ms")), pa.array([i - 50 for i in rows], pa.duration("ms")),
     pa.array([i % 2 == 0 for i in rows]), pa.array([{"k": i} for i in rows], pa.map_(pa.string(), pa.int16()))],
    ["country", "geo", "since", "open", "own", "tags"], mask=pa.array([i % 6 == 2 for i in rows]))
vectors = pa.StructArray.from_arrays([pa.array([[i / 4, 1 - i] for i in rows], pa.list_(pa.float32()))], ["emb"])
nested = pa.table({"meta": pa.StructArray.from_arrays([pa.array(["ab"[i * i % 3 % 2] for i in rows])], ["label"]),
                   "address": address, "x": pa.array([float(i) for i in rows]), "v": vectors})
with pa.ipc.new_stream("nested.arrow", nested.schema) as w:
    w.write_table(nested, max_chunksize=77)
pq.write_table(nested, "nested.parquet", row_group_size=150, data_page_size=300)
with open("nested.ndjson", "w") as f:
    for row in nested.to_pylist():
        home = row["address"] or {}
        where = home.get("geo") or {}
        f.write(json.dumps({
            "meta.label": row["meta"]["label"], "x": row["x"], "v.emb": row["v"]["emb"],
            "address.country": home.get("country"), "address.geo.lat": where.get("lat"), "address.geo.lon": where.get("lon"),
            "address.since": home["since"].isoformat() + "Z" if home else None,
            "address.open": home["open"].total_seconds() if home else None, "address.own": home.get("own")}) + "\n")
