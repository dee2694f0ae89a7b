"""Makes the golden file of the ADWIN tests with River's detector.

    python golden.py > adwin.json        (river 0.26.1, numpy 2)

Each stream is a sequence of errors: 1 for a row that was classified wrong, else 0. It is
packed eight to a byte, the first in the lowest bit, in base64. The errors on SEA (Street
and Kim 2001) and on the rotating hyperplane (Hulten, Spencer and Domingos 2001) are those of
a proximal SVM (Fung 2003, 2.28) that is tested on a block of 100 rows and then learns from it.
It learns from the last `window` blocks, or from all.
"""
import base64
import itertools
import json

import numpy as np
import river
from river import drift
from river.datasets import synth


def bernoulli(seed, *parts):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.random(n) < p for n, p in parts])


def ramp(seed, before, over, low, high):
    rng = np.random.default_rng(seed)
    p = np.concatenate([np.full(before, low), np.linspace(low, high, over), np.full(before, high)])
    return rng.random(len(p)) < p


def rows(stream, n):
    x, y = zip(*itertools.islice(stream, n))
    return np.array([list(r.values()) for r in x], float), np.array([1.0 if t else -1.0 for t in y])


def errors(x, d, window=None, nu=1.0, block=100):
    """Errors of the plane [w; γ] of (I/ν + E'E) z = E'd with E = [A −e], block by block."""
    e = np.hstack([x, -np.ones((len(x), 1))])
    wrong = np.ones(len(x), bool)
    z = None
    for at in range(0, len(x), block):
        new = slice(at, at + block)
        if z is not None:
            wrong[new] = (e[new] @ z > 0) != (d[new] > 0)
        old = slice(max(0, at + block - window * block) if window else 0, at + block)
        z = np.linalg.solve(np.eye(e.shape[1]) / nu + e[old].T @ e[old], e[old].T @ d[old])
    return wrong[block:]


def sea(seed, each):
    parts = [rows(synth.SEA(variant=v, noise=0.1, seed=seed + v), each) for v in (2, 0, 3, 1)]
    return np.vstack([x for x, _ in parts]), np.concatenate([d for _, d in parts])


def hyperplane(seed, n, change):
    return rows(synth.Hyperplane(seed=seed, n_features=10, n_drift_features=5, mag_change=change, noise_percentage=0.05), n)


def alarms(stream):
    detector, found = drift.ADWIN(), []
    for i, x in enumerate(stream):
        detector.update(float(x))
        if detector.drift_detected:
            found.append(i)
    return found


streams = {
    "step 0.2 to 0.4": bernoulli(1, (5000, 0.2), (5000, 0.4)),
    "step 0.1 to 0.15": bernoulli(2, (8000, 0.1), (8000, 0.15)),
    "fall 0.4 to 0.3": bernoulli(3, (5000, 0.4), (5000, 0.3)),
    "steps": bernoulli(4, (3000, 0.1), (3000, 0.3), (3000, 0.1), (3000, 0.5)),
    "ramp 0.1 to 0.3": ramp(5, 4000, 4000, 0.1, 0.3),
    "steady 0.3": bernoulli(6, (40000, 0.3)),
    "steady 0.02": bernoulli(7, (40000, 0.02)),
    "SEA, last 20 blocks": errors(*sea(11, 10000), window=20),
    "SEA, all blocks": errors(*sea(12, 10000)),
    "hyperplane, all blocks": errors(*hyperplane(13, 40000, 0.001)),
    "hyperplane, last 50 blocks": errors(*hyperplane(14, 40000, 0.001), window=50),
}
out = []
for name, stream in streams.items():
    out.append({
        "name": name, "rows": len(stream), "alarms": alarms(stream),
        "errors": base64.b64encode(np.packbits(stream, bitorder="little").tobytes()).decode(),
    })
print(json.dumps({"made_by": f"river {river.__version__} drift.ADWIN(delta=0.002, clock=32)", "streams": out}, indent=1))
