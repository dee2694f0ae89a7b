package model

// RecordCounts accounts for every record that was read.
type RecordCounts struct {
	Read       int64 `json:"read"`       // records read
	Applied    int64 `json:"applied"`    // records whose rows were summarised, or of weight 0
	Tombstones int64 `json:"tombstones"` // records without a value, which retire the block of their key
	Rejected   int64 `json:"rejected"`   // records refused
	Pending    int64 `json:"pending"`    // records read, and not yet in one of the other counts
	Undecoded  int64 `json:"undecoded"`  // of the refused records, those that could not be decoded: nobody knows their rows
	Lost       int64 `json:"lost"`       // records that were gone from the log before they were read, in gaps that kafka.on_gap has passed over; offsets of compacted records count
	Gaps       int64 `json:"gaps"`       // number of these gaps
}

// Missing is the number of records read that no other count has. It is 0 unless records were
// lost or counted twice.
func (c RecordCounts) Missing() int64 {
	return c.Read - c.Applied - c.Tombstones - c.Rejected - c.Pending
}

// RowCounts accounts for every row of the records that were decoded.
type RowCounts struct {
	Read       int64 `json:"read"`        // rows read
	Summarised int64 `json:"summarised"`  // rows that were summed into blocks
	ZeroWeight int64 `json:"zero_weight"` // rows of weight 0
	Rejected   int64 `json:"rejected"`    // rows of refused records that were decoded
	Pending    int64 `json:"pending"`     // rows read, and not yet in one of the other counts
}

// Missing is the number of rows read that no other count has. It is 0 unless rows were
// lost or counted twice.
func (c RowCounts) Missing() int64 {
	return c.Read - c.Summarised - c.ZeroWeight - c.Rejected - c.Pending
}

// BlockCounts counts the outcomes of blocks. A block that takes the place of an older
// one of its key counts as added, and the older one as replaced.
type BlockCounts struct {
	Added, Retired, Replaced int64
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
