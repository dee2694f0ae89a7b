// Package incremental reduces labelled blocks to sums and solves hyperplanes
// from these sums.
//
// # The path of a block
//
// A Block A is m rows of n features in columns, with a label per row and an
// optional weight v per row. A Summariser turns it into a Summary: for each of
// its classes c the rows m_c, the weight Σv, and the first and second moments
//
//	s_c = Σ v x  (n)        S_c = Σ v x x'  (n×n, packed lower triangle)
//
// A State is the exact sum of the summaries of all live blocks; Add and Remove
// are inverses of each other, bit for bit. Moments are a small copy of its
// sums. Moments.Solve computes a Model from them: with E = [A −e] (Fung 2003,
// 2.29), weight ν and d = ±1 for the two sides of a plane,
//
//	E'E = Σ_c [ S_c  −s_c ; −s_c'  m_c ]        E'De = Σ_c d_c [ s_c ; −m_c ]
//	(I/ν + E'E) [w; γ] = E'De                                         (2.28)
//
// and x is on the positive side of the plane x'w = γ where x'w − γ ≥ 0.
//
// Other answers need no rows either. Moments.Path solves many ν at the price of
// one, State.Without leaves a fold out, Moments.WithRegulariser replaces ‖w‖² by
// w'Rw, Options.Mean counts missing values as the mean of the others, and
// Moments.Losses is the squared loss of any planes. Moments.Correctness estimates
// and bounds how many rows are on their own side of a plane. Moments.SolveWithHat
// also returns a Hat. It gives the leverage of a row and its leave-one-out
// decision values.
//
// # The promise
//
// A State, its Digest and every Model solved from it are a function of the
// *set* of summaries in it. Neither their order nor summaries that were removed
// matter. Two things make this so. A block's own sums have a canonical
// order (package gram), so a block has one summary. And summaries are summed
// in fixed-point integers (package exact), so sums have no order at all.
//
// A summary holds its sums about an origin c that lies among the block's data,
// and the state shifts them to zero without rounding. Sums about zero would keep
// the promise too, but lose the digits of features that vary little about a
// large mean. See Summariser.Summarise.
//
// FORMAT.md has the rules of a summary, of the state's digest and of planes for other programs,
// byte for byte. testdata/second has such a program, which a test compares with this one.
//
// # Costs
//
// For a block of m rows, n features and k classes: Summarise O(m·n²), Add and
// Remove O(k·n²), Solve and Path O(n³) (k times that when balanced). A Summary
// takes 4kn² bytes, a State some 12 to 16 kn².
//
// # Concurrency and ownership
//
// Summary, Moments, Model and Hat are immutable and may be shared. State and
// Summariser belong to one goroutine at a time. Nothing keeps a reference to a
// Block or to its memory.
//
// # Errors and panics
//
// Bad data is an error: a *RowError for the first unusable row, ErrEncoding, a
// *ConditionError or ErrClasses. Slices of lengths that do not match, and the
// removal of a summary that was never added, are bugs of the caller and panic.
package incremental
