package main

// dealer deals the rows of a file into k parts for cross-validation. The part
// of a row is a function of the seed and the row's number only, so that no
// table of rows and no count of them is needed: every k rows that follow each
// other go to the k parts in a random order of their own. Parts therefore
// differ by at most one row, and a file that is sorted by class is dealt evenly
// all the same.
type dealer struct {
	k     int
	seed  uint64
	group int64 // the group of k rows that order is for; -1: none yet
	order []int
}

func newDealer(k int, seed uint64) *dealer {
	return &dealer{k: k, seed: seed, group: -1, order: make([]int, k)}
}

// of is the fold of a row, from 0. Rows that follow each other take O(1) each.
func (f *dealer) of(row int64) int {
	if group := row / int64(f.k); group != f.group {
		f.group = group
		f.shuffle()
	}
	return f.order[row%int64(f.k)]
}

// shuffle is Fisher and Yates's, on words of SplitMix64 of which each group of
// rows has its own k. Taking a word modulo i+1 favours some orders by less than
// one part in 2^50.
func (f *dealer) shuffle() {
	for i := range f.order {
		f.order[i] = i
	}
	const step = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio
	state := mix(f.seed) + uint64(f.group)*uint64(f.k)*step
	for i := f.k - 1; i > 0; i-- {
		state += step
		j := int(mix(state) % uint64(i+1))
		f.order[i], f.order[j] = f.order[j], f.order[i]
	}
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
