// Package newton refines the hyperplanes of an incremental.Model on rows.
//
// A proximal plane minimises the mean squared distance, which counts rows far on the
// right side as errors. Refinement counts only rows that are on the wrong side or within
// the margin. For the plane of class r, with d = 1 for the rows of class r and −1 for
// all others, it minimises
//
//	f(w, γ) = ½ Σ_i C_i (1 − d_i(x_i'w − γ))₊² + ½(‖w‖² + γ²)
//
// which is Fung 2003, (2.37), one-vs-rest as in (2.46–2.49), with a cost
// C_i = ν·a_c·u_c·v_i for each row i of class c. ν and a_c (class weights, and balance
// except with Line) are those of Moments.Solve, v_i is the row's weight, and u_c is the
// number of rows that a sampled row stands for. With Standardise, x and w are in the
// coordinates (x − μ)/σ. Without balance, weights and scaling this is LIBLINEAR's
// L2-loss problem (-s 2 -B 1) with C = ν/2.
//
// With Options.Regulariser, R, w'Rw stands for ‖w‖² and in R for I below. Only Full takes it.
//
// # Methods
//
// Full is Newton's method in w and γ. f is piecewise quadratic and strongly
// convex; on the active rows, those with d(x'w − γ) < 1, it is the proximal
// problem, and its generalised Hessian is
//
//	∂²f = I + Σ_active C z z',   z = [x; −1]
//
// so that a full step is the proximal solution of the active rows. A step that
// does not decrease f enough (Armijo, δ = 0.1) is replaced by the best of its
// halves, quarters and so on. After such a step μI is added to the Hessian, with a μ
// that would have made the step that short; whole steps then reduce μ to zero. (With
// fewer active rows than features, undamped steps swing far out along directions that
// no active row restrains.) An undamped full step that leaves the set of active rows
// unchanged has found the minimum, up to rounding. The cost of an iteration is O(m·n)
// for m rows and n features, O(n²) for every row that becomes active or inactive, and
// O(n³).
//
// Rows that are not in memory are read once to count them, once at the
// beginning, and once for each step and each step that was too long. Every active row
// costs O(n²) in each pass.
//
// Line is Algorithm 2.4.1 (2.38–2.45): f over (λ, γ) with w = λ·w̄ and w̄ from the
// given model. It ignores balance, like (2.38): balance determines the direction w̄
// (2.35), and the errors that place the plane along it count alike. This is BR-MPSVM of
// table 2.5. Balanced errors would cost several points on Iris and Vowel. Weights of
// classes and rows, and u_c, count with Line too.
//
// Line is Full with the single feature x'w̄/‖w̄‖, whose coefficient is λ‖w̄‖. It is solved
// as such, and not stopped at a step of 10⁻³. A kernel's planes are refined in its
// coordinates, by Full or Line.
//
// Dual is Algorithm 6.3.1 (NSVM), for fewer rows than features: Newton's method
// on the implicit Lagrangian of the dual (6.5, 6.9), with Armijo's rule (6.25).
// It costs O(m²·n) once and O(m³) per iteration, and holds m×m numbers.
//
// Logistic moves all planes together, to the minimum of the multinomial logistic loss
//
//	f(Z) = Σ_i C_i (−log p_i) + ½ Σ_r (‖w_r‖² + γ_r²),   p_i = exp s_own / Σ_r exp s_r,   s_r = x_i'w_r − γ_r
//
// of the probability p_i of the row's own class (Böhning 1992). Planes that are best against
// the rest need not be best beside each other; these are. The costs C_i are those above, except
// that balance gives every class the same weight. Two classes have one plane, and the first
// class the score 0. With standardised features this is multinomial logistic regression with
// C = ν and a constant feature −1.
//
// The gradient of plane r is z_r + Σ C (p_r − y_r) z, and the Hessian has for planes r and s the
// block Σ C p_r ([r = s] − p_s) z z', and I. A Hessian stays as long as steps contract: the
// steps since correct it, by limited-memory BFGS (Nocedal 1980). It is summed again where a step
// had to be shortened. A pass that sums it, too, costs O(m·k²·n²), less where most rows are clear,
// and its Cholesky factor O((k·n)³). Rows that are nearly clear for two planes are left out of
// their block, beside much larger ones. That makes the Hessian a little larger, and leaves it
// positive definite. Other passes cost O(m·k·n), and steps O((k·n)²). Where rows are not in memory
// each pass sums it. There are at most 2,048 numbers k(n+1).
//
// A Path refines for one ν after the other: the sums of a Hessian are scaled, and not made again.
//
// # Stopping rule
//
// With g = ∇f and H = ∂²f, the Newton decrement ½g'H⁻¹g is the expected gain of one
// more step. A plane is done when the decrement is at most 2⁻⁵³ of f after an undamped
// full step, and either the step left the set of active rows unchanged or the
// decrement was that small before it too. It is also done when ½‖g‖², which bounds
// f − min f unless there is another regulariser, is at most 2⁻⁵³ of f. Logistic is done when the
// decrement is at most 2⁻⁶⁰ of f; ½‖g‖² is its duality gap, too, with the dual variables C (y − p).
// The dual is done when h(u) = 0 and the gap between f and the dual objective is at most 2⁻³³ of f,
// or when the gap is at most 2⁻⁴⁶ of f.
//
// Otherwise refinement ends with an error: a *LimitError after 500 iterations, an
// *incremental.ConditionError when the linear system is not positive definite in
// float64, a *StallError when rounding keeps the steps from settling (as it does for
// the dual with more rows than features and a very large ν).
//
// # Same bits
//
// Results depend only on the set of blocks, not on their order or on which of them
// are visited at the same time. A block's rows are summed in stretches of their own
// order, and the sums of stretches are added exactly: the gradient and the objective by
// package exact, the Hessian as 64-bit integers in fixed units. (The Hessian rounds to
// 2⁻⁶¹ of the largest possible sum. That bends a step slightly, and the next gradient
// corrects it.) Rows of weight 0 are ignored. Dual orders the rows by their contents.
// Blocks in memory and blocks from elsewhere give the same planes up to rounding, as do
// processors of different kinds.
//
// All calls may run at the same time. No reference to rows is kept.
package newton
