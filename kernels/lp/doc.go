// Package lp solves the linear and quadratic programs of support vector machines.
//
// # Formulation
//
// For a kernel matrix K of m rows and t columns, D = diag(d) of labels ±1, and
// weights ν of errors, c of rows and g of columns,
//
//	min  ν Σ_i c_i E_i + Σ_j g_j |u_j|
//	s.t. D(K u − e γ) + E ≥ e,  E ≥ 0
//
// This is LP(S, C) of González-Castaño and Meyer (their equation 1, with
// K = K(C, S)') and, with K = A, the 1-norm SVM of Fung 2003 (3.1, 3.32, 4.46).
// Extra variables s and extra rows add
//
//	Σ_j (f_j s_j + g_j |s_j|) + Σ_k cost_k · (the amount by which row k is missed)
//	a_k'[u; γ; s] ≥ b_k, or = b_k; it must hold if the cost is Hard
//
// and express Fung's other programs:
//
//   - a knowledge set {x : Bx ≤ b} of the positive class (3.15): variables v,
//     rows v_j ≥ 0 (Hard), B'v + u = 0 and −b'v − γ ≥ 1 of cost μ;
//
//   - unlabelled rows (5.2): each twice, with both labels, and with the
//     supergradient as Costs (a row of cost 0 takes no time);
//
//   - concave minimisation by successive linear programs (4.9, 4.27): Costs and
//     Penalties that change from one program to the next;
//
//   - bounds of u: rows of one term.
//
// # Quadratic programs
//
// Quadratic and Linear add ½x'Qx + f'x, where x = [u; γ; s] and Q is positive semidefinite.
// Then u has no penalty unless Penalties say so. The programs are
//
//   - the hinge loss of support vector machines, with Q = I or K(Z, Z) on u (Wu, Schölkopf
//     and Bakır 2006, 28–30);
//
//   - knowledge sets (3.13) or a 1-norm with the squared loss of rows that are gone, with
//     Q = I/ν + E'E and f = −E'De from sums, and no rows of data.
//
// Package reduce uses columns, labels, ν and costs of rows, and package svm the rest. Tests
// check all of it against optima of HiGHS, libsvm and gonum.
//
// # The dual program
//
// All parts are terms of one kind. With x = [u; γ; s] and an interval [lo_k, hi_k] for
// each row, column penalty and extra row k, the programs are
//
//	min_x     ½x'Qx + f'x + Σ_k max {β(b_k − a_k'x) : lo_k ≤ β ≤ hi_k}
//	max_{β,x} b'β − ½x'Qx  s.t. A'β = f + Qx,  lo ≤ β ≤ hi
//
// The interval is [0, νc_i] for a row of data, [−g_j, g_j] for a penalty,
// [0, cost] for ≥ and [−cost, cost] for =. β is Alpha and Beta of the Solution;
// a support vector is a row with α > 0.
//
// # Method and stopping rule
//
// Mehrotra's predictor-corrector method follows the central path of both
// programs. Its normal equations (Q + A'ΘA) Δx = r, of order t+1+len(s), have a weighted
// Gram matrix, which package gram sums in one pass over the columns. It stops
// when the duality gap is at most 1e-9 of the objective and the residuals are
// at most 1e-9, or when it makes no progress.
//
// For a linear program the simplex method then continues from the vertex that the interior point
// suggests, often without a step, until no dual variable violates its bounds by
// more than rounding. So the solution is a vertex: zeros of u, E and α are
// exact, at most t+1+len(s) rows have 0 < α < νc, and its optimality does not depend on
// the interior point.
//
// With a Start the simplex method begins at the vertex that this suggests. Only if it needs
// more than 100 + 2(t+1+len(s)) pivots, about the time of the interior point method, or ends
// without a certificate, the program is solved as if there were no Start.
//
// For a quadratic program an active-set method continues from the face of terms with
// residual zero that the interior point suggests, usually for a step or none. It minimises
// on the face, past kinks as long as the objective falls, and lets a term leave whose dual
// variable violates its bounds. So penalised zeros of u, and α at 0 or νc, are exact, and so is
// the zero of a variable that no row, no linear cost and no other variable acts on.
//
// Finally the gap is computed from the solution. A gap above 1e-8 of the objective (or 1e-12
// of the terms that cancel in it) is ErrNotConverged, and so is a dual solution with
// |A'β − f − Qx| > 1e-9 max {1, |Qx|} of the largest cost.
//
// Before that, the simplex method on the Hard rows alone checks whether they contradict
// each other. It is left out if x = 0 is feasible. A program without linear costs is never
// unbounded, because no term of its objective is negative. Zero columns, equal columns, ties,
// separable classes and single classes need no special care. Among several solutions the
// choice is unspecified, but deterministic.
//
// # Cost
//
// A pass is m·t²/2 fused multiply-adds for the Gram matrix, four products of K
// with a vector, and t³/6 for the factor. 15 to 40 passes are usual; smooth
// kernels on 10^5 rows may take twice as many. A pivot is one product of K with a vector,
// which skips the columns of zero u. A step of the active-set method is such a product, and
// an orthogonal and a Cholesky factor of the variables that are not zero: about 5t³. Columns are
// scaled by powers of two, and are not
// copied. The memory is about 14 numbers per row and up to 16 Gram matrices of the chunks
// into which the rows are divided.
//
// # Determinism and concurrency
//
// Chunks depend on m alone, and sums over them have an order. So the solution has the
// same bits for any number of workers, on one kind of processor. A Program is only read,
// and may be solved by several goroutines at once.
package lp
