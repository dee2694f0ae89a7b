// Package ndc makes Normally Distributed Clusters: any number of labelled points of any
// number of features, which a plane separates to a given degree. It follows
// D. R. Musicant, "NDC: Normally Distributed Clustered Datasets", Computer Sciences
// Department, University of Wisconsin, 1998, whose sets Fung uses for the proximal SVM
// (2003, table 2.4).
//
// # The distribution
//
// With n features and expansion factor x:
//
//   - 20 centres c, each coordinate uniform on [-50, 50], rounded to an integer;
//   - for each centre a root R (n×n), entries uniform on [0, 2x), and the
//     covariance R'R;
//   - a share for each centre: uniform numbers, normalised;
//   - a plane x'w = γ: w uniform on [-2, 2]^n, γ uniform on [-5, 5);
//   - a centre's class is 1 where c'w − γ ≥ 0, else -1, and all its points
//     have it, whatever side of the plane they fall on;
//   - a point: pick a centre by its share, add zR with z of n standard
//     normals (which is N(0, R'R)), round every coordinate to an integer.
//
// The values are whole numbers below 2^24 in magnitude (New refuses settings
// that could exceed it), so float32 holds them exactly.
//
// # Easy and hard
//
// The papers name sets by the share of points that a linear classifier gets right.
// They give neither seed nor expansion factor, and the same factor separates the
// clusters of another seed differently. Easy and Hard are therefore targets, and the
// factor follows from n and the seed. The mean and the covariance of both classes are
// known, not estimated. The limit of PSVM's plane for many points, and the share of
// points on its right side, are therefore closed formulas. New bisects the factor over
// multiples of 1/1000 until the share meets the target. Some draws of centres cannot
// meet it, mostly because one class has nearly that share of the points already. They
// are skipped for the next draw of the same seed. With an expansion factor given as a
// number the first draw is always taken.
//
// The search costs 10n³ multiplications, once.
//
// # Randomness
//
// A point is a function of (configuration, stream, index): any worker can make
// any range, and how a stream is cut into ranges changes no bit of it.
// That rules out methods that reject and draw again, such as the ziggurat, and needs
// random words that can be computed from their number.
//
// Words come from SplitMix64 (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014), whose k-th word is
// mix(key + kγ). It takes two multiplications a word and passes BigCrush. Philox has a
// stronger argument behind it and costs five times as much. The key is a hash of the
// seed. The 2^64 numbers k are cut into quarters: the first for centres, roots, shares and
// plane (every draw of them 2^52 apart), the second for the training points, the third for
// the test points, the fourth for the choices of a Drift. They therefore share no word.
// Point i of n features owns words i·W to i·W + W − 1, where W = 1 + ⌈n/2⌉. The first picks
// the centre by its upper 32 bits, each of the others gives two normals, the lower half first.
//
// A normal is the inverse of its distribution function at an odd multiple of
// 2^-32, linear between knots: 128 in each octave of the smaller tail. It
// is within 1e-5 of the true inverse, and |z| is at most 6.3.
//
// # Cost
//
// A point takes n normals and n² products. AVX-512 makes 16 points of one centre at a
// time, one in each lane. NEON makes as many, two in each register.
//
// # Same bits everywhere
//
// Every product is exact (one factor is a power of two) or rounded before it is
// added to, so that a compiler that fuses the two changes nothing. IEEE 754 fixes
// + − × ÷ and the square root. Beside them there are two functions: the inverse error
// function under the knots and the error function in the bisection. Both results are
// rounded to a grid far coarser than their errors.
package ndc
