package model

// RowCounts says where the rows that were read have gone.
type RowCounts struct {
	Read       int64
	Summarised int64
	ZeroWeight int64
	Rejected   int64
	InHand     int64 // read, and none of the others yet
}

// Missing is the rows that were read and are nowhere: 0, or rows were lost or
// counted twice.
func (c RowCounts) Missing() int64 {
	return c.Read - c.Summarised - c.ZeroWeight - c.Rejected - c.InHand
}

// Prequential says how right the served model was about rows that came, before it
// learned from them: the later ones tell whether it is right still. Not all rows are
// judged, and those that are read again are judged again.
type Prequential struct {
	Rows, Right int64 // judged since the start

	// Of the latest ones: 10,000 or more, of a minute or more, or all so far.
	Recent              int64
	Correctness         float64 // share of those classified right
	BalancedCorrectness float64 // mean of the classes' shares
}

// BlockCounts counts what has happened to blocks. A block that took the place
// of an older one of its key counts as added, and the older one as replaced.
type BlockCounts struct {
	Added, Retired, Replaced, Rejected int64
}

// Partition is an assigned partition as the daemon last saw it. An offset that
// is not known yet is −1.
type Partition struct {
	Topic         string
	Partition     int
	Next          int64 // to be applied
	LogStart      int64
	HighWatermark int64
}

// Lag is the number of records still to be applied, −1 when it is not known. It is
// an upper bound: offsets of compacted or aborted records count.
func (p Partition) Lag() int64 {
	if p.Next < 0 || p.HighWatermark < 0 {
		return -1
	}
	return max(0, p.HighWatermark-p.Next)
}
