"""What the scripts here have in common.

Each runs one tool on the blocks that streamd bench peers has written (Arrow
streams: a label, -1 or 1, and float32 features), and prints one JSON object:

    {"version": "1.9", "rows": 1000000, "seconds": 1.5, "learn_seconds": 1.2, "accuracy": 0.9}

rows were read from the files and learned from within seconds, of which
learn_seconds are the tool's own: the rest is reading and converting. With
--check it is {"version": "1.9"}. If the tool is not installed, the object is
{"missing": "river"} in either case.
"""

import argparse
import json
import sys
import time


def main(tool, learn):
    """Runs learn(args, clock), which returns rows, and w and gamma of x'w = gamma.

    Where the model is no plane it returns rows, and a function that tells of
    features (n, m) and labels (m) how many are right, and of how many. tool(args)
    imports what is needed and returns its version.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="only say whether the tool is there")
    parser.add_argument("--train", nargs="*", default=[], help="Arrow streams to learn from")
    parser.add_argument("--test", nargs="*", default=[], help="Arrow streams to test on")
    parser.add_argument("--seconds", type=float, default=10, help="stop learning after so long")
    parser.add_argument("--nu", type=float, default=0.1, help="weight of the errors in PSVM")
    parser.add_argument("--way", help="which of the tool's ways, where it has several")
    parser.add_argument("--features", type=int, default=0)
    parser.add_argument("--brokers", help="host:port,...")
    parser.add_argument("--topic")
    parser.add_argument("--rows", type=int, help="rows in the topic")
    args = parser.parse_args()
    try:
        version = tool(args)
    except ImportError as missing:
        print(json.dumps({"missing": missing.name or str(missing)}))
        return
    if args.check:
        print(json.dumps({"version": version}))
        return
    clock = Clock(args.seconds)
    rows, *model = learn(args, clock)
    seconds = clock.stop()
    print(json.dumps({
        "version": version,
        "rows": rows,
        "seconds": seconds,
        "learn_seconds": clock.learning or seconds,
        "accuracy": accuracy(args.test, *model),
    }))


class Clock:
    """Measures all the time, and that in which the tool itself is at work."""

    def __init__(self, budget):
        self.budget = budget
        self.learning = 0.0
        self.began = time.perf_counter()
        self.ended = None

    def start(self):
        """Begins anew, for what came before does not count."""
        self.began = time.perf_counter()

    def __enter__(self):
        self.entered = time.perf_counter()

    def __exit__(self, *_):
        self.learning += time.perf_counter() - self.entered

    def is_over(self):
        return time.perf_counter() - self.began > self.budget

    def stop(self):
        if self.ended is None:
            self.ended = time.perf_counter()
        return self.ended - self.began


def batches(paths):
    import pyarrow.ipc

    for path in paths:
        with open(path, "rb") as file, pyarrow.ipc.open_stream(file) as stream:
            yield from stream


def arrays(batch):
    """The features as the rows of a matrix (n, m) of float64, and the labels (m)."""
    import numpy

    x = numpy.empty((batch.num_columns - 1, batch.num_rows))
    for j in range(len(x)):
        x[j] = batch.column(j + 1).to_numpy()
    return x, batch.column(0).to_numpy()


def accuracy(paths, *model):
    right = rows = 0
    for batch in batches(paths):
        count, of = model[0](*arrays(batch)) if callable(model[0]) else sides(*arrays(batch), *model)
        right += int(count)
        rows += of
    return right / rows if rows else None


def sides(x, y, w, gamma):
    import numpy

    return numpy.sum(numpy.where(w @ x - gamma >= 0, 1, -1) == y), len(y)


def fail(why):
    sys.exit(f"{sys.argv[0]}: {why}")
