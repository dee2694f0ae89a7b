// Package study chooses a linear classifier from exact sums and judges it on
// rows that it has not seen.
//
// A Problem has the sums of all rows and those of disjoint parts of them, the
// folds. A Study takes its steps in this order, and each may be left out but Solve:
//
//	Tune     chooses ν, and whether to standardise, by the squared loss and the
//	         correctness on each fold of planes without it (package tuning)
//	Solve    reads the planes of all rows off the sums
//	Refine   moves them by Newton's method on rows (package newton)
//	HoldOut  scores each row of a sample by such planes without the row's fold;
//	         Quality and Calibrate go by these decision values
//
// Rows are given to the steps that need them: a Sample in memory, or all rows in
// blocks that are passed over several times. Rows of a sample stand for all rows of
// their class (sample.StandFor): so they are weighted where they are scored, refined
// on and calibrated by.
//
// # Same bits
//
// Everything that comes out is a function of the Problem, the Options and the rows.
// Those of a Sample count in their order. Blocks of other rows may come in any order
// and several at a time.
//
// # Costs
//
// For n features, k planes, f folds, r rows and 41 values of ν: Tune takes O(f·n³)
// for the planes and O(41·r·n·k) to score them, once for each set of options that
// is tried; Solve O(n³); Refine as package newton says; HoldOut what Solve and
// Refine take, f times. A study holds a copy of the sums in double-double numbers,
// HoldOut 8 bytes per row and plane, and one more copy of a sample at most.
//
// # Errors and panics
//
// Each step gives up when its context ends, with its cause or its error. Solve and
// what follows it fail as incremental.Moments.Solve, newton.Refine and
// package calibration do. A step that is taken before the one that it needs panics.
package study
