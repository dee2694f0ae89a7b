// Package reduce chooses a small basis Z of t points for the reduced-kernel map
// x → K(x, Z) from a sample of labelled rows, and a first classifier on it.
//
// # The reducers
//
//   - Subset: rows of the sample, at random or in proportion to the classes
//     (RSVM; Fung 2003, algorithm 2.4.4).
//   - Clusters: means or medians of clusters of each class (Fung 2003,
//     algorithm 5.3.1), each of five rows or more.
//   - ChunkingSynthetic: points that need not be rows (González-Castaño and
//     Meyer, "Chunking-Synthetic Approaches to Large-Scale Kernel Machines").
//   - Direct: points that are moved until the margin of a classifier on them is large, until they
//     approximate a support vector machine, or for Fisher's discriminant (Wu, Schölkopf and
//     Bakır 2006).
//   - Discriminant and Cholesky: rows that tell the classes apart, and rows that are linearly
//     independent in the kernel's space (Iwamura and Abe 2009).
//   - Eigen: the leading eigen-subspace of K(Z, Z) for more random rows than there are
//     coordinates (Yajima, Ohi and Mori 2003).
//
// A Pruning takes fewer coordinates of a basis that there is, by K(Z, Z) and sums, without a row.
//
// Representatives takes rows of the k-median clusters of all rows, as rows to be labelled.
//
// A basis is part of a model, so readers of the model see its points. Every point of
// Subset, Discriminant, Cholesky and Eigen is a row. A point of Direct is a row if no descent moves
// it. A point of ChunkingSynthetic is a row if (b) below needs no (c), as it
// does in a sample that is smaller than the first chunk and needs few points. A mean of
// Clusters is a row only if rows are equal. Each number of a median is that of some row.
//
// For given points, the coefficients u and γ of a plane solve the 1-norm program (1) on
// all rows,
//
//	LP(Y, Z):  min ν Σ c_i E_i + ‖u‖₁   subject to   D(K(Y, Z)u − γ) + E ≥ 1, E ≥ 0
//
// with D the ±1 sides and c the weights of the rows Y.
//
// # Classes
//
// With two classes there is one plane, with the second class on its positive
// side. With k > 2 there are k one-vs-rest planes (Fung 2003, 2.46–2.49) on one basis.
// Subset, Clusters, Cholesky and Eigen choose the basis for all planes together. The others choose
// ⌊t/k⌋ or ⌈t/k⌉ points for each plane. A plane's coefficients of ChunkingSynthetic and Direct
// are 0 for the other planes' points; planes that are fitted anew on the whole basis are better.
// Classes without rows of positive weight are ignored.
//
// # Chunking-synthetic
//
// Each of p runs of stage i draws a random chunk Y of the rows, each side of the plane
// in proportion, and as many other rows for tests. It
//
//	(a)  takes candidates C: in stage 0, s rows of Y;
//	(b)  solves LP(Y, C), which gives u* and γ;
//	(c)  solves NLP(u*, C, t): min ‖u* f(C) − w f(Z)‖² over w and Z      (2)
//	     with w in a box, by L-BFGS: a term of t points near the term of (b);
//	(d)  solves LP(Y, Z*) for the coefficients of those points             (3).
//
// The union of the Z* of the runs is the next stage's C; Fresh adds rows to it.
// In stage 0, (c) starts from t random points of C with u* ≠ 0. In later stages it starts
// from the Z* and w with the best test result of the previous stage. Further starts of a
// run begin with means of the points with u* ≠ 0. If (b) has t points or fewer, (c) is
// not needed.
//
// The last stage uses all rows, has no test rows, and its runs share (b). If the points
// of (b) fit the basis, they are the result. Otherwise (c) and (d) run from p starting
// points, and the least objective of (d) wins. Chunks as large as the sample are left
// out.
//
// (c) is not convex. Its L-BFGS stops at a local solution when no component of
// the projected gradient of the squared relative error is above 1e-5, in units
// of the largest |u*_i| and of the spread of C, or after 1000 iterations, which
// the report counts. An evaluation costs 2tn times the number of points with u* ≠ 0.
//
// The program (1) needs a kernel matrix, and (2) an inner product. A sigmoid is none:
// its "error" of (c) can be negative and means little.
//
// Tables 1 and 2 of the paper are cs-1 and cs-2 of package reproduce of
// cmd/streamd.
//
// # Determinism
//
// A Result is a function of the reducer's fields and the problem: the rows in
// their order, kernel, t and seed. Every run has a random sequence of its own (PCG,
// seeded by the seed and the run's place), and results are combined in the order of runs.
// So the number of workers and their timing do not matter. The last bits of programs and of the
// projection of Eigen depend on the kind of processor.
//
// # Memory
//
// Each worker's run holds its chunk as float64 and its kernel matrix: 8m(n+|C|) bytes.
// The last stage and the other reducers hold the coordinates of all rows. Before the points are
// chosen, Discriminant holds the kernel matrix of its candidates, and Eigen K(Z, Z). No reference
// to the problem is kept after Reduce has returned.
package reduce
