// Package study chooses a linear classifier from exact sums and judges it on rows that it has
// not seen.
//
// A Problem has the sums of all rows and the sums of disjoint parts of them, the folds. A
// Study takes these steps in order. Only Solve is necessary.
//
//	Tune     chooses ν, and whether to standardise, to balance and to refine: planes
//	         without a fold are judged on that fold, by squared loss and by correctness
//	         (package tuning). Planes that will be refined are refined for it
//	Solve    reads the planes of all rows off the sums
//	Refine   moves them on rows, by Newton's method (package newton) or another Refiner
//	HoldOut  scores each row of a sample by planes without the row's fold. Off these
//	         out-of-fold decision values are read: the curves of Calibrate, the rule of
//	         Decide (package decision), and the Quality of the rule's answers
//	BySize   scores them by planes in some of the coordinates
//
// Tune and Refine take rows in memory (Sample), or all rows in passes. A row of a sample
// stands for a number of rows of its class (sample.StandFor), and has their weight. Rows without
// a label reach only a Refiner that takes them, and nothing is judged on them.
//
// # Same bits
//
// All results are functions of the Problem, the Options and the rows. The rows of a Sample
// have an order. Blocks from elsewhere may come in any order and several at a time.
//
// # Costs
//
// For n features, k planes, f folds, r rows and 41 values of ν, Tune takes O(f·n³) for the
// planes and O(41·r·n·k) for the scores, once for each set of options. Solve takes O(n³), and
// HoldOut a Solve and a Refine for each fold. For planes that are refined, Tune takes f
// refinements on up to 10,000 rows for each of 21 values of ν, each but the first of which
// begins near its end: together about twice the time of HoldOut on 50,000 rows of ten
// features. Where planes may be refined or not, it takes a HoldOut of both. A study holds a copy of
// the sums in double-double numbers, Tune a copy of the sample, HoldOut 8 bytes per row and plane
// and a copy of the rows outside a fold.
//
// # Errors and panics
//
// Each step ends with its context, with an error. Other errors are those of
// incremental.Moments.Solve, of the Refiner and of package calibration. A step before the one
// that it needs panics.
package study
