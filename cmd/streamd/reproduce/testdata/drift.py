"""Makes the golden file of the table drift, with River and numpy and without streamd.

    python drift.py > drift.json        (numpy 2.4, river 0.26.1)

Each run is a stream of River's generators, and the rows at which ADWIN of River raises an alarm
because the share of errors has grown, or falls:

- on the errors of a proximal plane (I/ν + E'E) z = E'd (Fung 2003, 2.28) that is tested on a block
  and then learns from it, from the last blocks. The streams' rows in a block keep their order.
- on the errors of River's own classifier, a logistic regression of scaled features, and of its
  Hoeffding tree, which are tested on each row and then learn from it.

`rows` is the SHA-256 of the features (float64, little endian, column by column) and the labels
(int8, −1 or 1).
"""
import hashlib
import itertools
import json

import numpy as np
from river import __version__ as river
from river import drift, linear_model, preprocessing, tree
from river.datasets import synth

NU, BLOCK = 1.0, 100


def sea(seed, each):
    for v in range(4):
        yield from itertools.islice(synth.SEA(variant=v, noise=0.1, seed=seed + v), each)


def hyperplane(seed, n, begins, change):
    generator = synth.Hyperplane(seed=seed, n_features=10, n_drift_features=5, noise_percentage=0.05)
    for i, row in enumerate(itertools.islice(generator, n)):
        if i == begins - 1:
            generator.mag_change = change  # weights move after the next row
        yield row


def plane(x, d, keep):
    e = np.hstack([x, -np.ones((len(x), 1))])
    wrong = []
    for at in range(BLOCK, len(x), BLOCK):
        old, new = slice(max(0, at - keep * BLOCK), at), slice(at, at + BLOCK)
        z = np.linalg.solve(np.eye(e.shape[1]) / NU + e[old].T @ e[old], e[old].T @ d[old])
        wrong.extend((e[new] @ z > 0) != (d[new] > 0))
    return wrong


def own(rows, model):
    wrong = []
    for x, y in rows:
        wrong.append(bool(model.predict_one(x)) != bool(y))
        model.learn_one(x, y)
    return wrong[BLOCK:]


def alarms(wrong):
    """Rows of the stream after which ADWIN finds a change, and whether the share has grown."""
    detector, rises, falls = drift.ADWIN(delta=0.002), [], []
    for i, x in enumerate(wrong):
        before = detector.estimation
        detector.update(float(x))
        if detector.drift_detected:
            (rises if detector.estimation > before else falls).append(i + BLOCK)
    return {"rises": rises, "falls": falls, "wrong": int(sum(wrong))}


def run(name, rows, keep, **made):
    rows = list(rows)
    x = np.array([list(r.values()) for r, _ in rows], float)
    d = np.array([1 if y else -1 for _, y in rows], np.int8)
    digest = hashlib.sha256(np.ascontiguousarray(x.T).astype("<f8").tobytes() + d.tobytes())
    return {
        "stream": name, **made, "block": BLOCK, "keep": keep, "rows": digest.hexdigest(),
        "plane": alarms(plane(x, d.astype(float), keep)),
        "logistic": alarms(own(rows, preprocessing.StandardScaler() | linear_model.LogisticRegression())),
        "tree": alarms(own(rows, tree.HoeffdingTreeClassifier())),
    }


runs = []
for seed in (10, 20, 30, 40, 50):
    runs.append(run("sea", sea(seed, 10_000), 50, seed=seed, each=10_000))
for seed in (1, 2, 3, 4, 5):
    runs.append(run("hyperplane", hyperplane(seed, 20_000, 10_000, 0.002), 50, seed=seed, each=10_000, change=0.002))
print(json.dumps({"made_by": f"river {river}, numpy {np.__version__}", "runs": runs}, indent=1))
