// Package kernels has the kernel functions K(x, z) and the map x → K(x, Z) of rows to
// the coordinates of a small basis Z.
//
// # The kernels
//
// With n features, each is a function of one number s:
//
//	linear       s                s = x'z
//	gaussian     exp(−γs)         s = ‖x−z‖²
//	polynomial   (a·s + b)^d      s = x'z
//	sigmoid      tanh(a·s + b)    s = x'z
//
// The papers write the Gaussian's parameter in several ways:
//
//	γ = μ             Fung 2003 (1.1); Wu, Schölkopf and Bakır 2006 (48)
//	γ = 1/(2σ²)       the width as a standard deviation
//	γ = 1/128         González-Castaño and Meyer, for 256 inputs in [−1, 1]
//	γ = 1/σ²          Yajima, Ohi and Mori 2003 (2.3)
//	γ = 1/(n·γ')      Yajima, Ohi and Mori 2003 (4.2), n = 784
//	γ = γ'/n          Iwamura and Abe 2009
//
// and the polynomial of Yajima, Ohi and Mori (4.1) has a = 1/n, b = 0; their
// sigmoid has a = κ, b = −Θ.
//
// # The reduced-kernel map
//
// With a basis Z of t points (t×n), x → K(x, Z) ∈ R^t makes a linear
// classifier of t coordinates a nonlinear one of n: K(x, Z)u − γ is the
// reduced-kernel classifier of Fung 2003, section 2.2 and (2.55). A Mapper
// writes a block's coordinates as columns, so that everything downstream is as for
// linear classifiers. A projected map has S ≤ t coordinates P·K(Z, x) instead, which are
// those of a subspace of the kernel's space (Yajima, Ohi and Mori 2003, 3.6).
//
// # The canonical order
//
// The coordinates go into exact sums, so their bits are part of the contract:
// K(x, z) depends only on the bits of x, z and the kernel's parameters, and not on the
// processor, the implementation, or the row's block, tile or vector. With every operation
// rounded to float64 and FMA rounded once:
//
//   - a scaled map first replaces x_j by (x_j − μ_j) times the rounded 1/σ_j;
//   - s begins at 0 and adds the features in order: s ← FMA(d_j, d_j, s) with
//     d_j = x_j − z_j, or s ← FMA(x_j, z_j, s);
//   - gaussian: y = −(γ·s); 0 if y < −100, else exp(y) as computed by expNonPositive;
//   - polynomial: p = FMA(a, s, b), and p^d by squaring, from the lowest bit of
//     d up;
//   - sigmoid: tanh(FMA(a, s, b)) as computed by the function tanh;
//   - a result below 2^-149 in magnitude becomes 0, so that exact sums can add it;
//   - the result is NaN if s is infinite or NaN, so that a bounded kernel never hides
//     an unusable number of a row;
//   - a projected coordinate begins at 0 and adds the points in order by FMA, and becomes 0
//     below 2^-149, too.
//
// # Errors
//
// ‖x−z‖² is summed from differences, not as ‖x‖² + ‖z‖² − 2x'z, so that near points lose
// nothing to cancellation. The additional subtraction runs beside the multiplication.
// With u = 2^-53, s has a relative error below (n+2)u. So a Gaussian has one below
// γs·(n+3)u plus one unit in the last place of the exponential, wherever the data lie.
// tanh is within 4 units in the last place of the exact tanh of its rounded argument. An
// inner product has an absolute error below n·u·Σ|x_j z_j|.
//
// # Concurrency and ownership
//
// Kernel is a value and Map is immutable; both may be shared. A Mapper belongs to
// one goroutine at a time and owns the columns that it returns. No reference to a
// caller's rows is kept.
package kernels
