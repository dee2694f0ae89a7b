// Package reduce chooses a small basis Z of t points for the reduced-kernel map
// x → K(x, Z), from a sample of labelled rows, and gives a classifier on it to
// begin with.
//
// # The reducers
//
//   - Subset: rows of the sample, at random or in proportion to the classes
//     (RSVM; Fung 2003, algorithm 2.4.4).
//   - Clusters: means or medians of clusters of each class (Fung 2003,
//     algorithm 5.3.1), each of five rows or more.
//   - ChunkingSynthetic: points that need not be rows (González-Castaño and
//     Meyer, "Chunking-Synthetic Approaches to Large-Scale Kernel Machines").
//
// A basis is part of a model and is read with it. Every point of Subset is a row. So
// is a point of ChunkingSynthetic wherever (b) below needs no (c): always in a sample
// that is smaller than the first chunk and needs few points. A mean of Clusters is a
// row only where rows are equal; each number of a median is one that a row has.
//
// For points that are given, the coefficients u and γ of a plane are those of
// the 1-norm program (1) on all rows,
//
//	LP(Y, Z):  min ν Σ c_i E_i + ‖u‖₁   subject to   D(K(Y, Z)u − γ) + E ≥ 1, E ≥ 0
//
// with D the ±1 sides and c the weights of the rows Y.
//
// # Classes
//
// With two classes there is one plane, which has the second on its positive
// side. With k > 2 there are k, each with one class on the positive side and the
// rest on the other (one from the rest; Fung 2003, 2.46–2.49), on one basis
// for all. Subset and Clusters choose it for all planes together.
// ChunkingSynthetic chooses ⌊t/k⌋ or ⌈t/k⌉ points for each plane, and a plane's
// coefficients are 0 for the others' points: whoever fits the planes anew on the
// whole basis does better. Classes without rows of positive weight are as if
// absent.
//
// # Chunking-synthetic
//
// Stage i draws, p times, a random chunk Y of the rows, each side of the plane
// in proportion, and as many other rows to test on, and in each run
//
//	(a)  takes candidates C: in stage 0, s rows of Y;
//	(b)  solves LP(Y, C), which gives u* and γ;
//	(c)  solves NLP(u*, C, t): min ‖u* f(C) − w f(Z)‖² over w and Z      (2)
//	     with w in a box, by L-BFGS: a term of t points that is near that of (b);
//	(d)  solves LP(Y, Z*) for the coefficients of those points             (3).
//
// The union of the Z* of the runs is the next stage's C; Fresh adds rows to it.
// (c) starts, in stage 0, from t random points of C with u* ≠ 0, and then from
// the Z* and w that did best on test rows in the stage before. Further starts of
// a run, if wanted, begin with means of the points with u* ≠ 0. (b) with t points
// or fewer needs no (c).
//
// The last stage has all rows, so nothing to test on, and its runs share (b).
// If (b) has no more points than the basis may have, they are the result;
// otherwise (c) and (d) are done from p starting points, and the least objective
// of (d) wins. Chunks that are as large as the sample are left out.
//
// (c) is not convex: its L-BFGS stops at a local solution, when no component of
// the projected gradient of the squared relative error is above 1e-5, in units
// of the largest |u*_i| and of the spread of C, or after 1000 iterations, which
// the report counts. An evaluation costs 2tn times the points with u* ≠ 0.
//
// The programs (1) want a kernel matrix, (2) an inner product: with a sigmoid,
// which is none, the "error" of (c) can be negative and means little.
//
// Tables 1 and 2 of the paper are cs-1 and cs-2 of package reproduce of
// cmd/streamd.
//
// # Determinism
//
// A Result is a function of the reducer's fields and the problem: the rows in
// their order, kernel, t and seed. Every run has a random sequence of its own
// (PCG, of the seed and the run's place), and results are put together in the
// order of runs, so that neither the number of workers nor their timing shows.
//
// # Memory
//
// A run holds its chunk, as float64, and K of it: 8m(n+|C|) bytes, for as many
// runs as there are workers. The last stage, Subset and Clusters hold K of all
// rows. Nothing keeps a reference to the problem after Reduce has returned.
package reduce
