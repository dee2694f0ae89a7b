"""Optima of (3.15) and (3.36) of Fung 2003, written out as printed, by HiGHS.

pip install highspy numpy scipy; python3 knowledge.py > knowledge.json
TestKnowledgeHiGHS solves the same programs.
"""
import importlib.metadata
import json
import random

import highspy
import numpy as np
from scipy.sparse import csc_matrix


def solve(A, d, nu, mu, sets, K=None, Z=None):
    """sets: (class, weight, B, b). K, Z: a kernel and its basis."""
    m, t = len(d), len(Z) if K else A.shape[1]
    rows, low, cost = [], [], []

    def variable(c, lower=0.0):
        cost.append(c)
        lows.append(lower)
        return len(cost) - 1

    lows, inf = [], highspy.kHighsInf
    w, gamma = [variable(0, -inf) for _ in range(t)], variable(0, -inf)
    for j in w:  # |w| <= s
        s = variable(1)
        rows += [({s: 1, j: 1}, 0), ({s: 1, j: -1}, 0)]
    X = K(A, Z) if K else A
    for i in range(m):
        y = variable(nu)
        rows.append(({**{j: d[i] * X[i, j] for j in w}, gamma: -d[i], y: 1}, 1))
    for sign, weight, B, b in sets:
        u = [variable(0) for _ in b]
        F, G = (K(Z, B), K(Z, Z)) if K else (B.T, np.eye(t))
        for j in range(t):
            r = variable(mu * weight)
            left = {**{u[k]: F[j, k] for k in range(len(b))}, **{l: sign * G[j, l] for l in w}}
            rows.append(({**left, r: 1}, 0))
            rows.append(({**{k: -v for k, v in left.items()}, r: 1}, 0))
        rho = variable(mu * weight)
        rows.append(({**{u[k]: -b[k] for k in range(len(b))}, gamma: -sign, rho: 1}, 1))
    M = np.zeros((len(rows), len(cost)))
    for i, (terms, _) in enumerate(rows):
        for j, v in terms.items():
            M[i, j] = v
    M = csc_matrix(M)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(rows)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.array(cost, float), np.array(lows), np.full(len(cost), inf)
    lp.row_lower_, lp.row_upper_ = np.array([float(b) for _, b in rows]), np.full(len(rows), inf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = M.indptr, M.indices, M.data
    h = highspy.Highs()
    for option, value in (("output_flag", False), ("primal_feasibility_tolerance", 1e-10), ("dual_feasibility_tolerance", 1e-10)):
        h.setOptionValue(option, value)
    h.passModel(lp)
    h.run()
    assert h.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return h.getInfo().objective_function_value


def gaussian(gamma):
    return lambda X, Y: np.exp(-gamma * ((X[:, None, :] - Y[None, :, :]) ** 2).sum(2))


def draw(seed):
    r = random.Random(seed)
    n, m = r.randint(2, 5), r.choice([0, 20, 40])
    A = np.round([[r.gauss(0, 2) for _ in range(n)] for _ in range(m)], 3).reshape(m, n)
    d = [1.0 if sum(row) + r.gauss(0, 1) > 0 else -1.0 for row in A]
    sets = []
    for sign in [1.0, -1.0, 1.0][: r.randint(1, 3)]:
        centre, B, b = np.round([r.gauss(0, 1) for _ in range(n)], 3), [], []
        for j in range(n):
            if r.random() < 0.7:
                half = r.choice([0.25, 2.0])
                for side in (1.0, -1.0):
                    B.append([side if l == j else 0.0 for l in range(n)])
                    b.append(round(side * centre[j] + half, 3))
        if r.random() < 0.6:
            a = np.round([r.gauss(0, 1) for _ in range(n)], 3)
            a /= abs(a).max()  # as inBasis scales it
            B.append(list(a))
            b.append(float(a @ centre + 0.5))
        if B:
            sets.append((sign, round(r.uniform(0.5, 2), 2), np.array(B), b))
    nu, mu, gamma = r.choice([0.0, 0.2, 5.0]), r.choice([0.1, 1.0, 20.0]), 0
    Z = A[:8]
    if m and seed % 3 == 0:
        gamma, nu, mu = 0.1, 5.0, 0.5
    value = solve(A, d, nu, mu, sets, gaussian(gamma) if gamma else None, Z)
    return {"n": n, "a": A.tolist(), "d": d, "nu": nu, "mu": mu, "gamma": gamma, "optimum": value,
            "sets": [{"sign": s, "weight": w, "b_matrix": B.tolist(), "b": b} for s, w, B, b in sets]}


print(json.dumps({"made_by": "HiGHS " + importlib.metadata.version("highspy"), "programs": [draw(seed) for seed in range(12)]}))
