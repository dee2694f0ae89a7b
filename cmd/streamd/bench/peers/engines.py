"""The proximal SVM from sums of products in a query: DuckDB or polars, --way.

E'E has (n+1)(n+2)/2 different sums, and E'De n+1: each is an expression of one
query over a million rows of Arrow at a time.
"""

import peer

MOST = 6000  # expressions: queries of more take minutes to plan
ROWS = 1_000_000


def tool(args):
    import numpy  # noqa: F401
    import pyarrow

    if args.way == "duckdb":
        import duckdb

        version = duckdb.__version__
    else:
        import polars

        version = polars.__version__
    if pairs(args.features) > MOST:
        raise ImportError(f"an engine for queries of {pairs(args.features)} sums")
    return version


def pairs(n):
    return (n + 1) * (n + 2) // 2 + n + 1


def tables(paths):
    """Tables of about ROWS rows of Arrow."""
    import pyarrow

    waiting, rows = [], 0
    for batch in peer.batches(paths):
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS:
            yield pyarrow.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pyarrow.Table.from_batches(waiting)


def duckdb_sums(names):
    import duckdb

    wide = ", ".join(f'"{name}"::DOUBLE AS x{j}' for j, name in enumerate(names))
    sums = [f"sum(x{i} * x{j})" for i, j in products(len(names))] + [f"sum(x{j})" for j in range(len(names))]
    query = f"SELECT {', '.join(sums)}, count(*) FROM (SELECT {wide} FROM rows)"
    connection = duckdb.connect()

    def run(table):
        connection.register("rows", table)
        return connection.execute(query).fetchall()[0]

    return run


def polars_sums(names):
    import polars

    wide = [polars.col(name).cast(polars.Float64).alias(f"x{j}") for j, name in enumerate(names)]
    columns = [polars.col(f"x{j}") for j in range(len(names))]
    sums = [(columns[i] * columns[j]).sum().alias(f"{i} {j}") for i, j in products(len(names))]
    sums += [x.sum().alias(str(j)) for j, x in enumerate(columns)] + [polars.len().alias("rows")]

    def run(table):
        return polars.from_arrow(table).lazy().select(wide).select(sums).collect().row(0)

    return run


def products(n):
    """The pairs whose products are summed: column 0 is the label, whose square is 1."""
    return [(i, j) for i in range(n) for j in range(i, n) if j > 0]


def learn(args, clock):
    import numpy

    run, total, names = None, 0, []
    for table in tables(args.train):
        if run is None:
            names = table.schema.names
            run = {"duckdb": duckdb_sums, "polars": polars_sums}[args.way](names)
        with clock:
            total = total + numpy.array(run(table), dtype=float)
        if clock.is_over():
            break
    n = len(names)
    ee = numpy.zeros((n, n))
    for (i, j), value in zip(products(n), total):
        ee[i, j] = ee[j, i] = value
    sums, m = total[-1 - n : -1], total[-1]
    # Column 0 becomes that of -1, and its former products E'De.
    ed = numpy.append(ee[0, 1:], -sums[0])
    ee = numpy.block([[ee[1:, 1:], -sums[1:, None]], [-sums[None, 1:], numpy.array([[m]])]])
    z = numpy.linalg.solve(ee + numpy.eye(n) / args.nu, ed)
    return int(m), z[:-1], z[-1]


if __name__ == "__main__":
    peer.main(tool, learn)
