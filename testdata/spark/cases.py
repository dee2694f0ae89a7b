"""Tables of blocks of the rows of a Parquet file, one for each case, by one Spark on this machine.

    cases.py rows.parquet FOLDER CUT [FLAGS of streamd summarise]

FOLDER gets three, seven and killed, folders of JSON: of so many partitions, of which the last case
loses a worker in the middle of its rows, and sparse, which has more partitions than blocks.
"""

import os, sys

from pyspark.sql import SparkSession

from summarise import summarise

path, folder, cut, flags = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local[2,3]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
    .getOrCreate()
)
rows = spark.read.parquet(path)
streamd = os.environ["STREAMD"]

# The first child of this program kills the worker that feeds it.
killer, killed = os.path.join(folder, "killer"), os.path.join(folder, "was-killed")
with open(killer, "w") as script:
    script.write(f"""#!/bin/sh
if mkdir '{killed}' 2>/dev/null; then head -c 20000 >/dev/null; kill -9 $PPID; exit 1; fi
exec '{streamd}' "$@"
""")
os.chmod(killer, 0o755)

for case, partitions, program in [("three", 3, streamd), ("seven", 7, streamd), ("sparse", 60, streamd), ("killed", 3, killer)]:
    os.environ["STREAMD"] = program
    summarise(rows, "rows", cut, partitions, flags).write.json(os.path.join(folder, case))
if not os.path.exists(killed):
    sys.exit("no worker was killed")
spark.stop()
