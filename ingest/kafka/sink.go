package kafka

import (
	"context"
	"fmt"
)

// Sink takes the records that a Consumer reads from its topic. Its methods may be called at
// the same time for different partitions, never for the same one.
type Sink interface {
	// Assigned says that these partitions are delivered from here on, until Revoked. After an
	// error nothing is, and Run fails with it, unless ctx has ended.
	Assigned(ctx context.Context, partitions []int) error

	// Position is the position that the sink has saved for the partition, or false if there
	// is none. It is asked before anything of the partition is delivered, and again in the same
	// process only where the partitions are shared with others, after each Assigned.
	Position(partition int) (Saved, bool)

	// Partitions lists the partitions for which Position has one.
	Partitions() []int

	// Deliver hands over the next batch. Batches of a partition come in offset order, one
	// call at a time, and none is left out: after an error nothing more of the partition
	// comes. Deliver may block, which pauses the partition (back-pressure). It must return
	// when ctx ends, which happens when the partition is revoked or Run is to end. For a
	// partition without a saved position, the first batch is empty and holds the position
	// where it begins.
	//
	// After nil the batch belongs to the sink, which must release it some time without
	// waiting for further batches. After an error the batch counts as not delivered and
	// stays the consumer's. An error while ctx has not ended makes Run fail with it.
	Deliver(ctx context.Context, b *Batch) error

	// Jumped says that the partition continues at to after a gap that Config.OnGap
	// allows. The next offsets may have been delivered before with other records: with
	// gap.Reset, the log is another one.
	Jumped(gap *GapError, to int64)

	// Revoked says that nothing more of these partitions is delivered until they are
	// assigned anew, and that all calls for them have returned: at the end of Run, when the
	// number of partitions has changed, and when a group rebalances. This is the moment to
	// save and to Commit, until ctx ends. A member of a group is still one.
	Revoked(ctx context.Context, partitions []int)
}

// GapError says that a saved position cannot be continued from.
type GapError struct {
	Topic     string
	Partition int
	Saved     int64 // the offset that was to come next
	LogStart  int64 // the first offset of the log
	LogEnd    int64 // the offset after its last
	// Reset says that the position was saved in another log: the topic was deleted and made
	// anew, or its end was lost.
	Reset bool
}

// Lost is the number of offsets whose records are never read if reading goes on at an offset. Of
// a log that was made anew it does not have those of the former one, which nobody knows.
func (e *GapError) Lost(to int64) int64 {
	if e.Reset {
		return max(0, to-e.LogStart)
	}
	return max(0, to-e.Saved)
}

func (e *GapError) Error() string {
	at := fmt.Sprintf("saved offset %d of %s/%d", e.Saved, e.Topic, e.Partition)
	const hint = "pass --kafka.on_gap=earliest to go on at the log's start, or --kafka.on_gap=latest at its end"
	switch {
	case e.Saved < e.LogStart:
		return fmt.Sprintf("%s is below the log start %d: %d offsets were deleted unread; %s", at, e.LogStart, e.LogStart-e.Saved, hint)
	case e.Saved > e.LogEnd:
		return fmt.Sprintf("%s is beyond the log end %d: the topic was deleted and made anew, or its end was lost; %s", at, e.LogEnd, hint)
	}
	return fmt.Sprintf("%s does not fit the log (%d to %d): the record before it is another one; the topic was deleted and made anew, or its end was lost and written anew; %s",
		at, e.LogStart, e.LogEnd, hint)
}
