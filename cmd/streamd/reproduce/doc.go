// Package reproduce puts tables of the papers beside what comes out here: a
// Result for each data set and method.
//
// # Cross-validation
//
// As Fung 2003, section 2.4.4 has it: ten folds; for each, ν = 2^i is tuned on a
// random tenth of the training data, on the basis of classifiers that are
// learned from the other nine tenths; the classifier of all training data with
// that ν is tested on the fold. The classes are spread evenly over folds and
// tuning sets. Of several ν that are equally good on the tuning set, that
// nearest to 1 is taken; the thesis does not say. Its figures are those of one
// division into folds; here they are means of several, with their deviation from
// one division to the next.
//
// For linear classifiers no row is summed twice. A division cuts the rows into
// 10×10 cells, of which folds and tuning sets are unions; the summaries of the
// cells are added, and what a fold leaves is read off the sum while the fold's
// cells are taken out. That costs O(m·n²) for a division of m rows and n
// features, O(n³) for a solution; refinement reads the rows.
//
// With a Gaussian kernel a classifier is a linear one in the coordinates K(x, Z).
// The basis Z is rows of the training data, all or a share, so that each fold
// and each μ have coordinates of their own, and sums of their own: O(m·t²) for a
// basis of t points, and O(t³) for each ν. Where μ and ν are tuned in each fold,
// that is done on as many tuning sets as make 130 rows, out of the ten that
// its training data are divided into, each with a classifier of the other nine
// tenths.
//
// P-values are of the paired t-test on the ten folds' test correctness, as in
// the thesis, between two methods that were both run here, on the same folds.
//
// # Determinism
//
// Everything but the seconds is a function of the data, the seed and the number
// of divisions; the number of workers does not show.
package reproduce
