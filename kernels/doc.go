// Package kernels has the kernel functions K(x, z) and the map x → K(x, Z)
// that puts rows into the coordinates of a small basis Z.
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
// writes a block's coordinates as columns, which is what blocks are made of, so
// that everything downstream is as for linear classifiers.
//
// # The canonical order
//
// The coordinates go into exact sums, so their bits are part of the contract,
// on every processor and in every implementation: K(x, z) is a function of the
// bits of x, z and the kernel's parameters, whatever block, tile or vector the
// row is in. With every operation rounded to float64 and FMA rounded once:
//
//   - of a scaled map, x_j is first (x_j − μ_j) times the rounded 1/σ_j;
//   - s begins at 0 and takes the features in their order: s ← FMA(d_j, d_j, s)
//     with d_j = x_j − z_j, or s ← FMA(x_j, z_j, s);
//   - gaussian: y = −(γ·s); 0 where y < −100, else exp(y) as expNonPositive
//     computes it;
//   - polynomial: p = FMA(a, s, b), and p^d by squaring, from the lowest bit of
//     d up;
//   - sigmoid: tanh(FMA(a, s, b)) as the function of that name computes it;
//   - a result below 2^-149 in magnitude is 0, so that exact sums can take it;
//   - where s is infinite or NaN, the result is NaN: an unusable number in a row
//     is never hidden by a kernel that is bounded.
//
// # Errors
//
// ‖x−z‖² is summed from differences rather than put together as ‖x‖² + ‖z‖² −
// 2x'z: it costs a subtraction more, which wide processors do beside the
// multiplication, and near points lose nothing to cancellation. With u = 2^-53,
// s has a relative error below (n+2)u, hence a Gaussian below γs·(n+3)u plus one
// unit in the last place of the exponential, wherever the data lie. tanh is
// within 4 units in the last place of the exact one of its rounded argument. An
// inner product has an absolute error below n·u·Σ|x_j z_j|.
//
// # Concurrency and ownership
//
// Kernel is a value, Map is immutable: both may be shared. A Mapper belongs to
// one goroutine at a time and owns the columns that it gives. Nothing keeps a
// reference to a caller's rows.
package kernels
