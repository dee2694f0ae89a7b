// Package lp solves the linear programs of 1-norm support vector machines.
//
// # Formulation
//
// For a kernel matrix K of m rows and t columns, D = diag(d) of labels ±1, and
// weights ν of errors, c of rows and g of columns,
//
//	min  ν Σ_i c_i E_i + Σ_j g_j |u_j|
//	s.t. D(K u − e γ) + E ≥ e,  E ≥ 0
//
// which is LP(S, C) of González-Castaño and Meyer (their equation 1, with
// K = K(C, S)') and, with K = A, the 1-norm SVM of Fung 2003 (3.1, 3.32, 4.46).
// Extra variables s and extra rows make of it the programs that Fung builds:
//
//   - Σ_j (f_j s_j + g_j |s_j|) + Σ_k cost_k · (what row k misses)
//     a_k'[u; γ; s] ≥ b_k, or = b_k; exactly when the cost is Hard
//
//   - a knowledge set {x : Bx ≤ b} of the positive class (3.15): variables v,
//     rows v_j ≥ 0 (Hard), B'v + u = 0 and −b'v − γ ≥ 1 of cost μ;
//
//   - unlabelled rows (5.2): each twice, with both labels, and with Costs that
//     are the supergradient's (0 where it is 0: such a row takes no time);
//
//   - concave minimisation by successive linear programs (4.9, 4.27): Costs and
//     Penalties that change from one to the next;
//
//   - bounds of u: rows of one term.
//
// Package reduce has columns, labels, ν and costs of rows alone; for the rest there
// are tests, with optima of HiGHS, and nothing else yet.
//
// # The dual program
//
// Everything is a term of one kind: with x = [u; γ; s] and, for each row, column
// penalty and extra row k, an interval [lo_k, hi_k],
//
//	min_x f'x + Σ_k max {β(b_k − a_k'x) : lo_k ≤ β ≤ hi_k}
//	max_β b'β  s.t. A'β = f,  lo ≤ β ≤ hi
//
// The interval is [0, νc_i] for a row of data, [−g_j, g_j] for a penalty,
// [0, cost] for ≥ and [−cost, cost] for =. β is Alpha and Beta of the Solution;
// a support vector is a row with α > 0.
//
// # Method and stopping rule
//
// Mehrotra's predictor-corrector method goes along the central path of both
// programs. Its normal equations are A'ΘA Δx = r of order t+1+len(s), a weighted
// Gram matrix, which package gram sums in one pass over the columns. It stops
// when the duality gap is at most 1e-9 of the objective and the residuals are
// at most 1e-9, or when it gains nothing any longer.
//
// The simplex method then goes on from the vertex that the interior point
// suggests, often without a step, until no dual variable is out of its bounds by
// more than rounding. So the solution is a vertex: zeros of u, E and α are
// exact, at most t+1+len(s) rows have 0 < α < νc, and the interior point need
// not be trusted. At last the gap is computed from the solution: above 1e-8 of
// the objective (or 1e-12 of what cancels in it) it is ErrNotConverged.
//
// Whether Hard rows contradict each other is found out beforehand, by the
// simplex method on these rows alone. A program of 1-norm SVMs without costs of
// extra variables is never unbounded: no term of its objective is negative.
// Columns that are zero or equal, ties, separable classes and single ones are
// nothing special. When there are several solutions, which vertex is found is
// not specified, but it is always the same one.
//
// # Cost
//
// A pass is m·t²/2 fused multiply-adds for the Gram matrix, four products of K
// with a vector, and t³/6 for the factor; 15 to 40 passes are usual, and smooth
// kernels on 10^5 rows and more have taken 75. A pivot is one product of K with
// a vector in which only the columns of nonzero u count. Columns are scaled by
// powers of two, and are not copied. The memory is some 14 numbers per row and
// up to 16 Gram matrices of the chunks into which the rows are divided.
//
// # Determinism and concurrency
//
// Chunks depend on m alone, and sums over them have an order: the solution is
// the same for any number of workers, bit for bit, on one kind of processor. A
// Program is only read, and may be solved by several goroutines at once.
package lp
