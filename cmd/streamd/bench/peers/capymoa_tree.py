"""CapyMOA's HoeffdingTree, in the loop that MOA runs in Java.

The loop tests each row before it learns from it, as it always does.
"""

import peer


def tool(_):
    import capymoa
    import pyarrow  # noqa: F401
    from capymoa.classifier import HoeffdingTree  # noqa: F401

    return capymoa.__version__


def learn(args, clock):
    import numpy
    from capymoa.classifier import HoeffdingTree
    from capymoa.evaluation import prequential_evaluation
    from capymoa.stream import NumpyStream

    tree, rows = None, 0

    def stream(x, y):
        return NumpyStream(numpy.ascontiguousarray(x.T), (y > 0).astype(int), target_type="categorical")

    for batch in peer.batches(args.train):
        x, y = peer.arrays(batch)
        source = stream(x, y)
        if tree is None:
            tree = HoeffdingTree(schema=source.get_schema())
        with clock:
            prequential_evaluation(source, tree, window_size=len(y), optimise=True, restart_stream=False)
        rows += len(y)
        if clock.is_over():
            break
    clock.stop()

    def right(x, y):
        x, y = x[:, :MOST], y[:MOST]  # a prediction takes some 20 µs of Python
        source, count = stream(x, y), 0
        while source.has_more_instances():
            instance = source.next_instance()
            count += (tree.predict(instance) or 0) == instance.y_index  # None: no class has a vote
        return count, len(y)

    return rows, right


MOST = 500  # rows of each block of the test


if __name__ == "__main__":
    peer.main(tool, learn)
