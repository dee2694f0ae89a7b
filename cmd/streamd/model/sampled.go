package model

// Sampled says whether the row sample had all of its rows. What is made of rows is then a function
// of the live blocks: ν, the rule of labels, curves, quality and refined planes. Without some rows
// the sample is a smaller one, of the blocks that have theirs, and a daemon that has seen the same
// live blocks alone may choose otherwise. Sums and solved planes do not depend on it.
type Sampled struct {
	Complete bool `json:"complete"`       // whether it had all of its rows
	Lacking  int  `json:"lacking_blocks"` // live blocks that lacked rows; the log may no longer have them
}
