// Package svm has support vector machines that are found by mathematical programs on rows,
// where the proximal plane of package incremental is read off sums.
//
// # Formulation
//
// A machine finds the plane x'w = γ of m rows with labels d of ±1. A is the m×n matrix of the
// rows, or K(A, Z) for a basis Z of n points; then the plane is the nonlinear surface
// K(x', Z)w = γ. E = (e − D(Aw − eγ))₊ are the errors of the rows, c their costs, and ν weighs
// them against the size of w.
//
//	name      machine     minimises                         source
//	hinge     Hinge       ν c'E + ½w'Rw                     Wu, Schölkopf and Bakır 2006, (28–30)
//	sparse    Sparse      ν c'E + ‖w‖₁                      Fung 2003, (3.1), with a basis (3.32)
//	minimal   Minimal     ν c's(E) + ‖w‖₁                   Fung 2003, (4.7)
//	          with a basis: ν c's(E) + e's(|w|)             Fung 2003, (4.26)
//	features  Features    ν c'E + e's(|w|)                  Fung 2003, (4.11)
//	nlp       NewtonLP    ν c'E + ‖w‖₁, of least 2-norm     Fung 2003, (4.37), algorithm 4.1
//	unlabelled
//	          Unlabelled  ν c'E + ‖w‖₁ + μ c'min{r, s}      Fung 2003, (5.1), algorithm 5.1.1
//	          Knowledge   ν c'E + ‖w‖₁ + μ Σ slack of sets  Fung 2003, (3.15), with a basis (3.36)
//	          Lasso       ‖w‖₁ + (ν/2) c'(e − D(Aw − eγ))²  Tibshirani 1996
//	          SMO         ν c'E + ½w'K(A, A)w               Fan, Chen and Lin 2005
//
// s(x) = x + μ(1 − ε^(−αx)), which costs nearly μ for not being zero.
//
// Each machine's own comment says more. Named returns the machine of a name. Knowledge has none:
// it is nothing without its sets. Nor has SMO, whose w has a number for each row, nor Lasso, which
// is an incremental.Solver and reads sums.
//
// # Adding a machine
//
// A machine is a small struct of parameters, whose zero value has the usual ones. Its Fit
// begins with Rows.Check. It gets a row in the table of names and one above. The tests then
// run it through testMachine, which states what all machines promise.
//
// # Determinism and concurrency
//
// The same rows in the same order give the same bits for any number of workers, on one kind
// of processor: processors may differ in the last bits. Rows are only read. Machines have no
// state, and may fit several planes at once.
package svm
