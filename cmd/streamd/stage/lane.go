package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"streamd/ingest/kafka"
)

// lane is one partition of the source, as long as it is assigned.
type lane struct {
	partition int
	interval  time.Duration
	commits   float64     // the share of the time that commits may take
	from      kafka.Saved // where it began
	known     bool        // from is a position that was committed
	committed atomic.Int64
	ended     chan struct{} // closed by end

	mu       sync.Mutex
	producer Producer
	work     Work
	dirty    bool      // something has been read since the last commit
	took     time.Time // when something was read last
	due      time.Time // the next commit
	read     int64     // bytes of values since the last commit
	done     bool      // nothing more is written: it has ended, or an error has left the transaction in the middle
}

// commitBytes is how much is read at most before a commit. A transaction must end in time, also
// behind slow brokers.
const commitBytes = 64 << 20

// open makes the lane of a partition. It writes to partition to.
func (z *Stage) open(ctx context.Context, partition, to int) (*lane, error) {
	p, at, err := z.cfg.OpenProducer(ctx, partition, to)
	if err != nil {
		return nil, err
	}
	y := &lane{partition: partition, interval: z.cfg.Interval, commits: z.cfg.Commits, producer: p, ended: make(chan struct{})}
	y.work, y.from, y.known = z.cfg.Open(partition, at, p)
	y.committed.Store(y.from.Next)
	return y, nil
}

func (y *lane) take(ctx context.Context, b *kafka.Batch) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.done { // the consumer is about to end
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := y.note(y.work.Take(ctx, b)); err != nil {
		return err
	}
	for i := range b.Records {
		y.read += int64(len(b.Records[i].Value))
	}
	y.dirty, y.took = true, time.Now()
	// A first commit goes before the first record: it says where the partition was begun, and what
	// a PositionalProducer reads back from.
	first := !y.known
	y.known = true
	if first || y.read >= commitBytes {
		if err := y.note(y.commit(ctx)); err != nil {
			return err
		}
	}
	b.Release()
	return nil
}

// commitNowAndThen commits what has been read until the lane or ctx ends. Each lane does so by its
// own times, so that records of others are read while brokers take their time over one.
func (y *lane) commitNowAndThen(ctx context.Context) error {
	wake := time.NewTimer(y.interval)
	defer wake.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-y.ended:
			return nil
		case <-wake.C:
		}
		due, err := y.tick(ctx)
		if err != nil {
			return err
		}
		wake.Reset(max(time.Until(due), y.interval/8))
	}
}

// tick commits what has been read, when that is due, and says when that is next. What waits for
// more records goes with it if nothing more comes.
func (y *lane) tick(ctx context.Context) (due time.Time, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.done || !y.dirty || time.Now().Before(y.due) {
		return y.due, nil
	}
	if quiet := time.Since(y.took) >= y.interval; quiet {
		if err := y.note(y.work.Flush(ctx)); err != nil {
			return y.due, err
		}
	}
	err = y.note(y.commit(ctx))
	return y.due, err
}

// jump goes on elsewhere in the log.
func (y *lane) jump(ctx context.Context, gap *kafka.GapError, to int64) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.dirty = true
	err := y.work.Jump(ctx, to, gap.Reset)
	if gap.Reset && err == nil {
		y.producer.Forget()
		err = y.commit(ctx) // before the first record, as a first commit
	}
	return y.note(err)
}

// end commits what has been read, and ends the lane.
func (y *lane) end(ctx context.Context) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	failed := y.done
	y.done = true // a tick may be waiting
	close(y.ended)
	defer y.work.Close()
	var err error
	if !failed && y.dirty {
		err = y.commit(ctx)
	}
	if !failed && err == nil {
		return nil
	}
	// Readers need not wait for the transaction then.
	if aborted := y.producer.Abort(ctx); !errors.Is(aborted, kafka.ErrTransactionLost) {
		err = errors.Join(err, aborted)
	}
	return err
}

func (y *lane) commit(ctx context.Context) error {
	at := y.work.Resume()
	began := time.Now()
	if err := y.producer.Commit(ctx, at); err != nil {
		return err
	}
	// Nothing is done with the partition meanwhile.
	took := time.Since(began)
	y.due = began.Add(max(y.interval, time.Duration(float64(took)/y.commits)))
	y.dirty, y.read = y.work.Unwritten(), 0
	y.committed.Store(at.Offset)
	return nil
}

// note notes an error of the lane.
func (y *lane) note(err error) error {
	y.done = y.done || err != nil
	return err
}

// Place is the text beside a committed offset, as far as all stages need it.
type Place struct {
	Last *LastRecord `json:"last,omitempty"`
}

// LastRecord is the record before the offset, by which a topic that was made again is recognised.
type LastRecord struct {
	Offset int64  `json:"offset"`
	CRC    uint32 `json:"crc"`
	Millis int64  `json:"ms"`
}

// PlaceOf is the place of a position.
func PlaceOf(at kafka.Saved) (p Place) {
	if at.Last != (kafka.Fingerprint{}) {
		p.Last = &LastRecord{at.Last.Offset, at.Last.CRC, at.Last.Millis}
	}
	return p
}

// At is the position of a place at an offset.
func (p Place) At(offset int64) kafka.Saved {
	at := kafka.Saved{Next: offset}
	if l := p.Last; l != nil {
		at.Last = kafka.Fingerprint{Offset: l.Offset, CRC: l.CRC, Millis: l.Millis}
	}
	return at
}

// Commit is what to commit at a position. place has the Place of the position, and may have more.
func Commit(at kafka.Saved, place any) kafka.Committed {
	text, err := json.Marshal(place)
	if err != nil {
		panic(fmt.Sprintf("stage: %v", err)) // numbers alone
	}
	return kafka.Committed{Offset: at.Next, Metadata: string(text)}
}

// Committed reads the text beside a committed offset. It is false for one that was committed by
// something else.
func Committed(c kafka.Committed, place any) bool {
	return len(c.Metadata) <= 4096 && json.Unmarshal([]byte(c.Metadata), place) == nil
}
