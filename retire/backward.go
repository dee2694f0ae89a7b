package retire

// Backward yields the live blocks in descending rank. The ledger must not change meanwhile.
func (l *Ledger) Backward(yield func(Entry) bool) {
	l.live.entries.Reverse(func(e ranked) bool { return yield(*e.Entry) })
}
