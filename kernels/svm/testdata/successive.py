"""Local minima of the concave machines by HiGHS: pip install highspy numpy scipy; python3 successive.py

It prints testdata/successive.golden. successive_test.go draws the same rows from the same
generator. Each line: machine, rows, ν, μ, then the objective, coordinates used, rows with an
error, and programs solved.
"""
import math
import numpy as np
import highspy
from scipy.sparse import csc_matrix

ALPHA = 5


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        z = (z ^ z >> 27) * 0x94D049BB133111EB & (2**64 - 1)
        return ((z ^ z >> 31) >> 11) / 2**53


def solve(A, d, costs, penalties):
    """min costs'E + penalties'|w|, D(Aw - e gamma) + E >= e, E >= 0: w, gamma, E, optimum"""
    m, n = A.shape
    M = np.hstack([d[:, None] * A, -d[:, None] * A, -d[:, None], np.eye(m)])  # w+, w-, gamma, E
    M = csc_matrix(M)
    inf = highspy.kHighsInf
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = 2 * n + 1 + m, m
    lp.col_cost_ = np.concatenate([penalties, penalties, [0], costs])
    lp.col_lower_ = np.array([0.0] * (2 * n) + [-inf] + [0.0] * m)
    lp.col_upper_ = np.full(2 * n + 1 + m, inf)
    lp.row_lower_, lp.row_upper_ = np.ones(m), np.full(m, inf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = M.indptr, M.indices, M.data
    h = highspy.Highs()
    for option, value in (("output_flag", False), ("primal_feasibility_tolerance", 1e-10), ("dual_feasibility_tolerance", 1e-10)):
        h.setOptionValue(option, value)
    h.passModel(lp)
    h.run()
    assert h.getModelStatus() == highspy.HighsModelStatus.kOptimal
    x = np.array(h.getSolution().col_value)
    return x[:n] - x[n : 2 * n], x[2 * n], x[2 * n + 1 :], h.getInfo().objective_function_value


def slope(x, mu):
    return 1 + mu * ALPHA * np.exp(-ALPHA * x)


def step(x, mu):
    return x - mu * np.expm1(-ALPHA * x)


def successive(A, d, nu, errors, coefficients):
    w, gamma, E, _ = solve(A, d, np.full(len(d), nu), np.ones(A.shape[1]))
    if not coefficients:  # Minimal without a basis leaves them out; the others could use them again
        A, w = A[:, abs(w) > 1e-8], w[abs(w) > 1e-8]
    programs = 1
    while True:
        costs, penalties = nu * slope(E, errors), slope(abs(w), coefficients)
        last = costs @ E + penalties @ abs(w)
        next = solve(A, d, costs, penalties)
        programs += 1
        if last - next[3] <= 1e-8 * last:
            break
        w, gamma, E, _ = next
    objective = nu * step(E, errors).sum() + step(abs(w), coefficients).sum()
    return objective, (abs(w) > 1e-9).sum(), (E > 1e-9).sum(), programs


def plane(m=150, n=12):
    """Three features tell the classes apart, up to noise."""
    r = SplitMix(1)
    A = np.array([[2 * r.uniform() - 1 for _ in range(n)] for _ in range(m)])
    d = np.array([1.0 if a[0] + a[1] - a[2] + 1.5 * (r.uniform() - 0.5) > 0 else -1.0 for a in A])
    return A, d


def board(m=300, t=60):
    """16 squares in the coordinates exp(-20|x - z|^2) of the first t points, a tenth mislabelled."""
    r = SplitMix(2)
    x = [(r.uniform(), r.uniform()) for _ in range(m)]
    d = np.array([1.0 - 2 * (int(4 * p) + int(4 * q) & 1) for p, q in x])
    d[::10] *= -1
    return np.array([[math.exp(-20 * ((p - v) ** 2 + (q - w) ** 2)) for v, w in x[:t]] for p, q in x]), d


print(f"# HiGHS {highspy.Highs().version()}: python3 successive.py")
for name, rows, nu, mu, errors, coefficients in (
    ("minimal", "plane", 0.25, 2, 1, 0),
    ("minimal", "plane", 1, 128, 1, 0),
    ("features", "plane", 0.1, 0.5, 0, 1),
    ("features", "plane", 1, 2, 0, 1),
    ("features", "board", 1, 1, 0, 1),
    ("minimal", "board", 1, 2, 1, 1),
    ("minimal", "board", 16, 32, 1, 1),
):
    A, d = {"plane": plane, "board": board}[rows]()
    print(name, rows, nu, mu, *(f"{v:.12g}" for v in successive(A, d, nu, mu * errors, mu * coefficients)))
