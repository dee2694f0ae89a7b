package model

// Sampled says whether the row sample had all of its rows. What is made of rows is then a function
// of the live blocks: ν, the rule of labels, curves, quality and refined planes. Without some rows
// the sample is a smaller one, of the blocks that have theirs, and a daemon that has seen the same
// live blocks alone may choose otherwise. Sums and solved planes do not depend on it.
type Sampled struct {
	// Digest of the sums of the live rows at that time: that of the state or, with forgetting, of
	// the weighted sums. The choices are those of these rows. While blocks come, newer planes are
	// served with them.
	Digest   string `json:"digest"`
	Complete bool   `json:"complete"`       // whether it had all of its rows
	Lacking  int    `json:"lacking_blocks"` // live blocks that lacked rows; the log may no longer have them
}
