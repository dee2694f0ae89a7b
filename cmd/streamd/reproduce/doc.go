// Package reproduce puts tables of the papers beside our own results: a Result for each data
// set and method.
//
// Planes are solved and refined by package study, and coordinates are those of package basis.
// ν and a kernel's μ are chosen as in the papers, not as streamd chooses them.
//
// # Cross-validation
//
// It follows Fung 2003, section 2.4.4: ten folds. For each fold ν = 2^i is tuned on a random
// tenth of the training data, by classifiers of the other nine tenths. The classifier of all
// training data with that ν is tested on the fold. The classes are spread evenly over folds and
// tuning sets. Of several ν that are equally good on the tuning set, the one nearest to 1 is
// taken; the thesis does not say. Its figures are those of one division into folds. Ours are
// means over seeds, a division each, with the standard error of the mean.
//
// Linear classifiers sum every row once. A division cuts the rows into 10×10 cells, and folds
// and tuning sets are unions of cells. The summaries of the cells are added up; a fold's rest
// is the sum without the fold's cells. That costs O(m·n²) for a division of m rows and n
// features, and O(n³) for a solution. Refinement reads the rows.
//
// A classifier with a Gaussian kernel is a linear one in the coordinates K(x, Z). The basis Z is
// rows of the training data, all or a share, so each fold and each μ have coordinates and sums
// of their own: O(m·t²) for a basis of t points, and O(t³) for each ν. Where μ and ν are tuned
// in each fold, the training data are divided into ten tuning sets. As many are used as make
// 130 rows, each with a classifier of the other nine tenths.
//
// P-values are of the paired t-test on the ten folds' test correctness, as in the thesis,
// between two methods that both ran here, on the same folds.
//
// # Determinism
//
// All figures but the seconds are a function of the data, the first seed and the number of seeds.
// They do not depend on the number of workers.
package reproduce
