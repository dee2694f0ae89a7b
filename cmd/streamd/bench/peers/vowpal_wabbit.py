"""Vowpal Wabbit, one pass of logistic loss over its own text format.

The blocks are written as text first, which counts for seconds and not for
learn_seconds.
"""

import os
import tempfile

import peer


CONSTANT = 11650396  # VW's hash of the intercept


def tool(_):
    import pyarrow  # noqa: F401
    import vowpalwabbit

    return vowpalwabbit.__version__


def learn(args, clock):
    import numpy
    import vowpalwabbit

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.txt")
        rows = 0
        names = []
        with open(path, "w") as text:
            for batch in peer.batches(args.train):
                names = batch.schema.names[1:]
                line = "%d |" + "".join(f" {name}:%.9g" for name in names) + "\n"
                columns = [batch.column(j).to_pylist() for j in range(batch.num_columns)]
                text.writelines(line % row for row in zip(*columns))
                rows += batch.num_rows
                if clock.is_over():
                    break
        with clock:
            vw = vowpalwabbit.Workspace(f"--data {path} --loss_function logistic --quiet")
            vw.run_parser()
        w = numpy.array([vw.get_weight_from_name(name) for name in names])
        gamma = -vw.get_weight(CONSTANT & (vw.num_weights() - 1))
        vw.finish()
    return rows, w, gamma


if __name__ == "__main__":
    peer.main(tool, learn)
