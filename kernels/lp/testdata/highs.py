"""Optimal values of the programs of TestHiGHS by HiGHS: pip install highspy numpy scipy; python3 highs.py

The same programs are drawn in oracle_test.go, from the same generator.
"""
import math
import numpy as np
import highspy
from scipy.sparse import csc_matrix


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        z = (z ^ z >> 27) * 0x94D049BB133111EB & (2**64 - 1)
        return ((z ^ z >> 31) >> 11) / 2**53


def solve(K, d, costs, penalties, extra=0, rows=()):
    """rows: (coefficients of [u, gamma, s], equal, bound, cost)."""
    m, t = K.shape
    n = t + 1 + extra
    A = [np.append(d[i] * K[i], [-d[i]] + [0] * extra) for i in range(m)] + [np.array(r[0]) for r in rows]
    b = [1.0] * m + [r[2] for r in rows]
    up = list(costs) + [r[3] for r in rows]
    down = [0.0] * m + [r[3] if r[1] else 0.0 for r in rows]
    A, inf, N = np.array(A), highspy.kHighsInf, len(b)
    # x+, x-, what is missing, what is left
    M = csc_matrix(np.hstack([A, -A, np.eye(N), -np.eye(N)]))
    g = np.concatenate([penalties, np.zeros(1 + extra)])
    cost = np.concatenate([g, g, [0 if c == inf else c for c in up], [0 if c == inf else c for c in down]]).astype(float)
    upper = np.concatenate([np.full(2 * n, inf), [0 if c == inf else inf for c in up], [0 if c == inf else inf for c in down]]).astype(float)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = M.shape[1], N
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(M.shape[1]), upper
    lp.row_lower_ = lp.row_upper_ = np.array(b)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = M.indptr, M.indices, M.data
    h = highspy.Highs()
    for option, value in (("output_flag", False), ("primal_feasibility_tolerance", 1e-10), ("dual_feasibility_tolerance", 1e-10)):
        h.setOptionValue(option, value)
    h.passModel(lp)
    h.run()
    assert h.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return h.getInfo().objective_function_value


def checkerboard():
    r = SplitMix(1)
    x = [(r.uniform(), r.uniform()) for _ in range(2000)]
    d = np.array([1.0 - 2 * (int(4 * p) + int(4 * q) & 1) for p, q in x])
    d[::10] *= -1
    K = np.array([[math.exp(-20 * ((p - v) ** 2 + (q - w) ** 2)) for v, w in x[:40]] for p, q in x])
    return solve(K, d, [5.0 * (1 + i % 3) for i in range(2000)], np.ones(40))


def plane(r, m):
    A = np.array([[2 * r.uniform() - 1 for _ in range(10)] for _ in range(m)])
    return A, np.array([1.0 if a[0] + a[1] - a[2] + r.uniform() - 0.5 > 0 else -1.0 for a in A])


def knowledge():
    A, d = plane(SplitMix(2), 400)
    rows = []
    for j in range(10):  # B'v + u = 0 for the box {x: Bx <= b} = [-1, 0.2] x ...
        a = [0.0] * 31
        a[j], a[11 + j], a[21 + j] = 1.0, 1.0, -1.0
        rows.append((a, True, 0.0, 3.0))
    rows.append(([0.0] * 10 + [-1.0] + [-0.2] * 10 + [-1.0] * 10, False, 1.0, 3.0))
    for j in range(20):
        rows.append(([0.0] * (11 + j) + [1.0] + [0.0] * (19 - j), False, 0.0, highspy.kHighsInf))
    return solve(A, d, [2.0] * 400, np.ones(10), 20, rows)


def unlabelled():
    A, d = plane(SplitMix(3), 500)
    A = np.vstack([A, A[300:]])
    d = np.concatenate([d[:300], np.ones(200), -np.ones(200)])
    return solve(A, d, [2.0] * 300 + [0.5] * 400, np.ones(10))


def quadratic(Q, f, penalties, rows):
    """min x'Qx/2 + f'x + penalties'|x| + the costs of missed rows; rows: (coefficients, equal, bound, cost)."""
    n, N, inf = len(f), len(rows), highspy.kHighsInf
    A = np.array([r[0] for r in rows]).reshape(N, n)
    # x, the part of |x| that is penalised, what is missing, what is left
    M = np.vstack([
        np.hstack([A, np.zeros((N, n)), np.eye(N), -np.eye(N)]),
        np.hstack([np.eye(n), np.eye(n), np.zeros((n, 2 * N))]),
        np.hstack([-np.eye(n), np.eye(n), np.zeros((n, 2 * N))])])
    up = [r[3] for r in rows]
    down = [(r[3] if r[1] else 0.0) for r in rows]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = M.shape[1], M.shape[0]
    lp.col_cost_ = np.concatenate([f, penalties, [0 if c == inf else c for c in up], [0 if c == inf else c for c in down]]).astype(float)
    lp.col_lower_ = np.concatenate([np.full(n, -inf), np.zeros(n + 2 * N)])
    lp.col_upper_ = np.concatenate([np.full(2 * n, inf), [0 if c == inf else inf for c in up], [0 if c == inf else inf for c in down]]).astype(float)
    lp.row_lower_ = np.concatenate([[r[2] for r in rows], np.zeros(2 * n)])
    lp.row_upper_ = np.concatenate([[r[2] for r in rows], np.full(2 * n, inf)])
    M, H = csc_matrix(M), csc_matrix(np.tril(Q))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = M.indptr, M.indices, M.data
    hessian = highspy.HighsHessian()
    hessian.dim_, hessian.format_ = lp.num_col_, highspy.HessianFormat.kTriangular
    hessian.start_ = np.concatenate([H.indptr, np.full(lp.num_col_ - n, H.nnz)])
    hessian.index_, hessian.value_ = H.indices, H.data
    model = highspy.HighsModel()
    model.lp_, model.hessian_ = lp, hessian
    h = highspy.Highs()
    for option, value in (("output_flag", False), ("primal_feasibility_tolerance", 1e-10), ("dual_feasibility_tolerance", 1e-10), ("qp_regularization_value", 1e-9)):
        h.setOptionValue(option, value)
    h.passModel(model)
    h.run()
    assert h.getModelStatus() == highspy.HighsModelStatus.kOptimal, h.getModelStatus()
    return h.getInfo().objective_function_value


def sums():
    """I/nu + E'E and -E'De of a proximal plane with nu = 2, variables [w; gamma]."""
    A, d = plane(SplitMix(2), 400)
    E = np.hstack([A, -np.ones((400, 1))])
    return np.eye(11) / 2 + E.T @ E, -E.T @ d


def box_on_sums():
    Q, f = sums()
    rows = []
    for j in range(10):
        a = [0.0] * 31
        a[j], a[11 + j], a[21 + j] = 1.0, 1.0, -1.0
        rows.append((a, True, 0.0, 300.0))
    rows.append(([0.0] * 10 + [-1.0] + [-0.2] * 10 + [-1.0] * 10, False, 1.0, 300.0))
    for j in range(20):
        rows.append(([0.0] * (11 + j) + [1.0] + [0.0] * (19 - j), False, 0.0, highspy.kHighsInf))
    P = np.zeros((31, 31))
    P[:11, :11] = Q
    return quadratic(P, np.concatenate([f, np.zeros(20)]), np.zeros(31), rows)


def sparse_on_sums():
    Q, f = sums()
    return quadratic(Q, f, np.append(np.full(10, 30.0), 0.0), [([0.0] * 10 + [1.0], False, 0.5, highspy.kHighsInf)])


for program in checkerboard, knowledge, unlabelled, box_on_sums, sparse_on_sums:
    print(program.__name__, repr(program()))
