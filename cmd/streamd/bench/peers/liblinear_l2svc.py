"""LIBLINEAR -s 2 -B 1: the L2-loss SVM in the primal, of all rows at once."""

import peer


def tool(_):
    import importlib.metadata

    import liblinear.liblinearutil  # noqa: F401
    import pyarrow  # noqa: F401
    import scipy  # noqa: F401

    for name in ("liblinear-official", "liblinear-multicore"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            pass
    return "unknown"


# It keeps all rows, 16 bytes for each number.
MAX_NUMBERS = 50_000_000


def learn(args, clock):
    import numpy
    import scipy.sparse
    from liblinear import liblinearutil

    xs, ys, rows = [], [], 0
    for batch in peer.batches(args.train):
        x, y = peer.arrays(batch)
        xs.append(x.T)
        ys.append(y)
        rows += len(y)
        if rows * len(x) >= MAX_NUMBERS:
            break
    x, y = scipy.sparse.csr_matrix(numpy.concatenate(xs)), numpy.concatenate(ys).astype(float)
    problem = liblinearutil.problem(y, x, bias=1)
    with clock:
        model = liblinearutil.train(problem, "-s 2 -B 1 -q")
    w, bias = model.get_decfun()
    return rows, numpy.array(w), -bias


if __name__ == "__main__":
    peer.main(tool, learn)
