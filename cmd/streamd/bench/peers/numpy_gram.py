"""The proximal SVM as a numpy loop: E'E and E'De per block, then one solve."""

import peer


def tool(_):
    import numpy
    import pyarrow  # noqa: F401

    return numpy.__version__


class Gram:
    def __init__(self):
        self.sums = None
        self.rows = 0

    def add(self, batch):
        import numpy

        n, m = batch.num_columns - 1, batch.num_rows
        e = numpy.empty((n + 1, m))  # E' = [A -e]'
        for j in range(n):
            e[j] = batch.column(j + 1).to_numpy()
        e[n] = -1
        d = batch.column(0).to_numpy().astype(float)
        if self.sums is None:
            self.sums = numpy.zeros((n + 1, n + 1)), numpy.zeros(n + 1)
        ee, ed = self.sums
        ee += e @ e.T
        ed += e @ d
        self.rows += m

    def solve(self, nu):
        import numpy

        ee, ed = self.sums
        z = numpy.linalg.solve(ee + numpy.eye(len(ed)) / nu, ed)
        return z[:-1], z[-1]


def learn(args, clock):
    gram = Gram()
    for batch in peer.batches(args.train):
        gram.add(batch)
        if clock.is_over():
            break
    return gram.rows, *gram.solve(args.nu)


if __name__ == "__main__":
    peer.main(tool, learn)
