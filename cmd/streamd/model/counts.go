package model

// RowCounts accounts for every row that was read.
type RowCounts struct {
	Read       int64
	Summarised int64
	ZeroWeight int64
	Rejected   int64
	Pending    int64 // read, and not yet in one of the other counts
}

// Missing is the number of rows read that no other count has. It is 0 unless rows were
// lost or counted twice.
func (c RowCounts) Missing() int64 {
	return c.Read - c.Summarised - c.ZeroWeight - c.Rejected - c.Pending
}

// BlockCounts counts the outcomes of blocks. A block that takes the place of an older
// one of its key counts as added, and the older one as replaced.
type BlockCounts struct {
	Added, Retired, Replaced, Rejected int64
}

// Partition is an assigned partition as the daemon last saw it. Unknown offsets are −1.
type Partition struct {
	Topic         string
	Partition     int
	Next          int64 // of the first record not yet processed
	LogStart      int64
	HighWatermark int64
}

// Lag is an upper bound on the records not yet processed, since offsets of compacted or
// aborted records count. It is −1 when it is not known.
func (p Partition) Lag() int64 {
	if p.Next < 0 || p.HighWatermark < 0 {
		return -1
	}
	return max(0, p.HighWatermark-p.Next)
}

// Refusal counts the records that were refused for one reason.
type Refusal struct {
	Reason  string // word to count by
	Meaning string // the reason in a sentence, for people to read
	Records int64
}
