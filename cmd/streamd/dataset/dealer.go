package dataset

import "slices"

// Dealer deals the rows of a file into k folds for cross-validation. The fold of a row is a
// function of the seed and the row's number, so that neither a table of rows nor their
// count is needed. Every k rows that follow each other go to the k folds in a random order
// of their own. Folds therefore differ by at most one row, and the rows of a file that is
// sorted by class are dealt evenly, too.
type Dealer struct {
	k     int
	seed  uint64
	group int64 // the group of k rows that order is for; -1: none yet
	order []int
}

// NewDealer deals rows into k folds.
func NewDealer(k int, seed uint64) *Dealer {
	return &Dealer{k: k, seed: seed, group: -1, order: make([]int, k)}
}

// Of is the fold of a row, from 0. Rows that follow each other take O(1) each. A
// Dealer is for one goroutine.
func (d *Dealer) Of(row int64) int {
	if group := row / int64(d.k); group != d.group {
		d.group = group
		d.shuffle()
	}
	return d.order[row%int64(d.k)]
}

// shuffle is the shuffle of Fisher and Yates, by words of SplitMix64; each group of rows
// has k words of its own. A word modulo i+1 favours some orders by less than one part in
// 2^50.
func (d *Dealer) shuffle() {
	for i := range d.order {
		d.order[i] = i
	}
	const step = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio
	state := mix(d.seed) + uint64(d.group)*uint64(d.k)*step
	for i := range slices.Backward(d.order) {
		state += step
		j := int(mix(state) % uint64(i+1))
		d.order[i], d.order[j] = d.order[j], d.order[i]
	}
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
