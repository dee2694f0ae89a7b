package control

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
)

// astray finds records that take nothing back, although a selection of the same key is in
// force in another partition. It keeps hashes of keys, 100 bytes for each, and a record that
// is reported by mistake needs two keys of one hash.
type astray struct {
	seed  maphash.Seed
	in    map[uint64][]int // partitions in which a selection of a key is in force
	empty map[keyIn]int64  // offsets of records that take nothing back; one for each key
}

// keyIn is a key of a partition.
type keyIn struct {
	partition int
	key       uint64
}

// keyIn hashes a key.
func (a *astray) keyIn(partition int, key []byte) keyIn {
	return keyIn{partition, maphash.Bytes(a.seed, key)}
}

func newAstray() *astray {
	return &astray{seed: maphash.MakeSeed(), in: map[uint64][]int{}, empty: map[keyIn]int64{}}
}

// put notes a record that puts a selection in force.
func (a *astray) put(partition int, key []byte) {
	k := maphash.Bytes(a.seed, key)
	delete(a.empty, keyIn{partition, k})
	if !slices.Contains(a.in[k], partition) {
		a.in[k] = append(a.in[k], partition)
	}
}

// takeBack notes a record that takes a selection back.
func (a *astray) takeBack(partition int, key []byte, offset int64) {
	k := maphash.Bytes(a.seed, key)
	i := slices.Index(a.in[k], partition)
	if i < 0 {
		a.empty[keyIn{partition, k}] = offset
		return
	}
	if rest := slices.Delete(a.in[k], i, i+1); len(rest) > 0 {
		a.in[k] = rest
	} else {
		delete(a.in, k)
	}
}

// miss is a record that takes nothing back.
type miss struct {
	partition int
	offset    int64
	in        int // a partition in which a selection of its key is in force
}

// misses lists the records since the last call that miss a selection in another partition.
// It is called between sweeps, since a sweep reads the partitions one after the other.
func (a *astray) misses() (all []miss) {
	for each := range maps.Keys(a.empty) {
		if in := a.in[each.key]; len(in) > 0 {
			all = append(all, miss{each.partition, a.empty[each], in[0]})
		}
	}
	clear(a.empty)
	slices.SortFunc(all, func(a, b miss) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	return all
}
