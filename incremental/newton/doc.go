// Package newton refines the hyperplanes of an incremental.Model on rows.
//
// The proximal plane is where the mean squared distance wants it, which counts
// rows that are right by far as errors. Refinement counts only what is wrong or
// within the margin. For the plane of class r, with d = 1 for the rows of class
// r and −1 for all others, it minimises
//
//	f(w, γ) = ½ Σ_i C_i (1 − d_i(x_i'w − γ))₊² + ½(‖w‖² + γ²)
//
// which is Fung 2003, (2.37), one class from the rest as in (2.46–2.49), with a
// cost C_i = ν·a_c·u_c·v_i for each row i of class c: ν and a_c (class weights,
// balance but with Line) are those of Moments.Solve, v_i is the row's weight, and
// u_c is the number of rows for which a row of a sample stands. With Standardise,
// x and w are those of the coordinates (x − μ)/σ. Without balance, weights and
// scaling it is LIBLINEAR's L2-loss problem (-s 2 -B 1) with C = ν/2.
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
// halves, quarters and so on; after such a step, μI is added to the Hessian,
// with a μ that would have made the step that short, until whole steps have
// brought it down to nothing. (Where fewer rows are active than there are
// features, undamped steps swing far out along what no active row holds: USPS,
// standardised, ν = 100, takes some 50 steps instead of more than a hundred.)
// When a full step without damping leaves the active rows as they are, it has
// found the minimum, but for rounding. The cost of an iteration is O(m·n) for m
// rows and n features, O(n²) for every row that has become active or inactive,
// and O(n³).
//
// Rows that are not in memory are read once to count them, once at the
// beginning, and once for each step and each that was too long; every row that
// is active costs O(n²) in each pass.
//
// Line is Algorithm 2.4.1 (2.38–2.45): f over (λ, γ) with w = λ·w̄, w̄ that of the
// given model, and without balance, which (2.38) does not have: balance is in the
// direction w̄ (2.35), and the errors that place the plane along it count alike.
// That is BR-MPSVM of table 2.5, which has 97.3 % for Iris (here 96.9, ten-fold)
// and 57.6 % for Vowel (56.2); with balanced errors Iris stays near 90 % and
// Vowel near 54. Weights of classes and rows, and u_c, count with Line too.
//
// Line is Full with the one feature x'w̄/‖w̄‖, since its coefficient is λ‖w̄‖, and
// is solved as such, not stopped at a step of 10⁻³. A kernel's planes are refined in
// its coordinates, by either.
//
// Dual is Algorithm 6.3.1 (NSVM), for fewer rows than features: Newton's method
// on the implicit Lagrangian of the dual (6.5, 6.9), with Armijo's rule (6.25).
// It costs O(m²·n) once, O(m³) for an iteration and holds m×m numbers.
//
// # When it ends
//
// With g = ∇f and H = ∂²f, a plane is done when the Newton decrement ½g'H⁻¹g,
// which is what one more step would gain, is at most 2⁻⁵³ of f after an undamped
// full step, and either the step left the active rows as they were, or the
// decrement was that small before it too. It is also done where ½‖g‖², which
// bounds f − min f, is at most 2⁻⁵³ of f. The dual is done when h(u) = 0 and the
// gap between f and the dual objective is at most 2⁻³³ of f, or when the gap is
// at most 2⁻⁴⁶ of it. What cannot get there is an error: a *LimitError after 500
// iterations, an *incremental.ConditionError when the linear system is
// not positive definite in float64, a *StallError when rounding keeps the steps
// from settling (that of the dual does, with more rows than features and a very
// large ν).
//
// # Same bits
//
// Results depend on the set of blocks: not on their order, nor on which of
// them were visited at the same time. A block's rows are summed in
// stretches of their own order; the sums of stretches are added exactly: the
// gradient and the objective by package exact, the Hessian as 64-bit integers
// in units fixed beforehand (its rounding, 2⁻⁶¹ of the largest sum that is
// possible, bends a step a little, and the next gradient sees that). Rows of
// weight 0 are as if absent. Dual orders the rows by their contents. Blocks in
// memory and the same blocks from elsewhere give the same planes but for
// rounding, as do processors of different kinds.
//
// All calls may run at the same time. Nothing keeps a reference to rows.
package newton
