package intake

import "streamd/incremental"

// ends are the labels of the first and the last row of a record that have one. Both are "" where
// none has.
type ends struct{ first, last string }

// counts reports whether a row of a block has a label and a weight.
func counts(b *incremental.Block, row int) bool {
	return b.Weight(row) != 0 && b.Classes[b.Codes[row]] != incremental.Unlabelled
}

// endsOf finds the ends of the rows of a record. They belong to the log, whether or not a row is
// judged.
func endsOf(b *incremental.Block) (e ends) {
	for row := range b.Rows() {
		if counts(b, row) {
			e.first = b.Classes[b.Codes[row]]
			break
		}
	}
	for row := b.Rows() - 1; row >= 0; row-- {
		if counts(b, row) {
			e.last = b.Classes[b.Codes[row]]
			break
		}
	}
	return e
}

// repeats reports whether a row has the label of the row before it that counts. opens is true if
// there is none in the block: the row before is in an earlier record of the partition.
func repeats(b *incremental.Block, row int) (is, opens bool) {
	for before := row - 1; before >= 0; before-- {
		if counts(b, before) {
			return b.Codes[before] == b.Codes[row], false
		}
	}
	return false, true
}

// follow puts the rows of a record behind those that the partition's log has before them. former is
// the last label of the record's key, "" where the key is new: then the row before is the last one
// of the partition.
func (p *partition) follow(z *result, former string) {
	if z.ends == (ends{}) {
		return
	}
	if former == "" {
		former = p.label
	}
	if y := &z.judged; y.opens >= 0 && y.opens < len(y.rulings) {
		y.rulings[y.opens].repeats = former == z.ends.first
	}
	p.label = z.ends.last
}

// LastLabels are the last labels of the partitions at the positions from which they are read after
// a restart. One that no live row has is forgotten.
func (in *Intake) LastLabels() map[int]string {
	labels, live := map[int]string{}, in.Live.Features().Total()
	for number, p := range in.partitions {
		at := &p.label
		if p.open != nil {
			at = &p.open.label
		}
		if *at != "" && !live.Has(*at) {
			*at = ""
		}
		if *at != "" {
			labels[number] = *at
		}
	}
	return labels
}

// RestoreLastLabels continues behind saved labels. It comes after Restore.
func (in *Intake) RestoreLastLabels(labels map[int]string) {
	for number, p := range in.partitions {
		p.label = labels[number]
	}
}
