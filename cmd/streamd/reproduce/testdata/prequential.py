"""Makes the golden file of the table prequential, in float64 and without streamd.

    python prequential.py DATA > prequential.json        (numpy 2.5, river 0.26)

Block by block, the proximal plane (I/ν + E'E) z = E'd of the blocks before (Fung 2003, 2.28) is
tested on the rows of the block, and then learns from them: from all blocks, or the last ones.
"""
import gzip
import json
import sys

import numpy as np
from river import drift
from river import __version__ as river

NU, ALPHA, WINDOW = 1.0, 0.999, 1000


def matrix(d, answer, weight):
    """Weights by class and answer, −1 before 1."""
    return [[float(weight[(d == c) & (answer == a)].sum()) for a in (-1, 1)] for c in (-1, 1)]


def figures(d, value, weight):
    answer = np.where(value > 0, 1, -1)
    return {"matrix": matrix(d, answer, weight), "squared_loss": float(weight @ (value - d) ** 2 / weight.sum())}


def run(name, block, keep):
    with gzip.open(f"{sys.argv[1]}/{name}.csv.gz") as f:
        rows = np.loadtxt(f, delimiter=",")
    d, e = rows[:, 0], np.hstack([rows[:, 1:], -np.ones((len(rows), 1))])
    value = np.full(len(d), np.nan)
    for at in range(block, len(d), block):
        seen = slice(max(0, at - keep * block) if keep else 0, at)
        z = np.linalg.solve(np.eye(e.shape[1]) / NU + e[seen].T @ e[seen], e[seen].T @ d[seen])
        value[at:at + block] = e[at:at + block] @ z
    d, value = d[block:], value[block:]
    # Two halves of a window: before a block, a half that has WINDOW rows becomes the older one.
    before = latest = 0
    for at in range(0, len(d), block):
        if at - latest >= WINDOW:
            before, latest = latest, at
    wrong = np.where(value > 0, 1, -1) != d
    detector, alarms = drift.ADWIN(), []
    for i, x in enumerate(wrong):
        detector.update(float(x))
        if detector.drift_detected:
            alarms.append(i)
    fading = ALPHA ** np.arange(len(d) - 1, -1, -1.0)
    return {
        "data_set": name, "block": block, "keep": keep, "rows": len(d), "right": int((~wrong).sum()),
        "all": figures(d, value, np.ones(len(d))),
        "window": figures(d[before:], value[before:], np.ones(len(d) - before)),
        "fading": figures(d, value, fading),
        "alarms": alarms,
    }


print(json.dumps({
    "made_by": f"numpy {np.__version__}, river {river}",
    "runs": [run(*of) for of in (("elec2", 48, 0), ("elec2", 48, 60), ("weather-noaa", 30, 0), ("weather-noaa", 30, 60))],
}, indent=1))
