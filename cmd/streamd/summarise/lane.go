package summarise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// lane is one partition of the source, as long as it is assigned.
type lane struct {
	partition int
	from      kafka.Saved // where it began
	known     bool        // from is a position that was committed
	committed atomic.Int64

	mu       sync.Mutex
	producer producer
	summing  *intake.Summing
	dirty    bool      // something has been read since the last commit
	took     time.Time // when something was read last
	due      time.Time // the next commit
	written  int64     // bytes of payloads since the last commit
	done     bool      // nothing more is written: it has ended, or an error has left the transaction in the middle
}

// producer writes what becomes of a partition, as kafka.TransactionalProducer does.
type producer interface {
	intake.Writer
	Commit(ctx context.Context, at kafka.Committed) error
	Abort(ctx context.Context) error
}

// commitBytes is how much is read at most before a commit. A transaction must end in time, also
// behind slow brokers.
const commitBytes = 64 << 20

// open makes the lane of a partition. It writes to partition to.
func (z *Stage) open(ctx context.Context, partition, to int) (*lane, error) {
	p, at, err := z.openProducer(ctx, partition, to)
	if err != nil {
		return nil, err
	}
	y := &lane{partition: partition, producer: p, known: at.Offset >= 0}
	var clock retire.Clock
	if y.known {
		var ok bool
		if y.from, clock, ok = readPlace(at); !ok {
			z.log.Warn().Int("partition", partition).Int64("offset", at.Offset).
				Msg("the offset was committed by something else than streamd: event times are bounded as at the beginning of a log")
		}
	}
	y.committed.Store(y.from.Next)
	y.summing = z.stage.Summing(partition, y.from, clock, p)
	return y, nil
}

func (y *lane) take(ctx context.Context, b *kafka.Batch) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.done { // the consumer is about to end
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := y.work(y.summing.Take(ctx, b)); err != nil {
		return err
	}
	for i := range b.Records {
		y.written += int64(len(b.Records[i].Value))
	}
	y.dirty, y.took = true, time.Now()
	if y.written >= commitBytes {
		if err := y.work(y.commit(ctx)); err != nil {
			return err
		}
	}
	b.Release()
	return nil
}

// tick commits what has been read. A block that is not complete goes with it if nothing more comes.
func (y *lane) tick(ctx context.Context) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.done || !y.dirty || time.Now().Before(y.due) {
		return nil
	}
	if quiet := time.Since(y.took) >= CommitInterval; quiet {
		if err := y.work(y.summing.Flush(ctx)); err != nil {
			return err
		}
	}
	return y.work(y.commit(ctx))
}

// jump goes on elsewhere in the log.
func (y *lane) jump(ctx context.Context, gap *kafka.GapError, to int64) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.dirty = true
	return y.work(y.summing.Jump(ctx, to, gap.Reset))
}

// end commits what has been read, and ends the lane.
func (y *lane) end(ctx context.Context) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	failed := y.done
	y.done = true // a tick may be waiting
	defer y.summing.Close()
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
	at, clock := y.summing.Resume()
	began := time.Now()
	if err := y.producer.Commit(ctx, placeOf(at, clock)); err != nil {
		return err
	}
	// Nothing is summed meanwhile: at most a tenth of the time goes to commits.
	took := time.Since(began)
	y.due = began.Add(max(CommitInterval, 10*took))
	y.dirty, y.written = y.summing.Unwritten(), 0
	y.committed.Store(at.Next)
	return nil
}

// work notes an error of the lane.
func (y *lane) work(err error) error {
	y.done = y.done || err != nil
	return err
}

// place is the text beside a committed offset.
type place struct {
	Last  *lastRecord `json:"last,omitempty"`
	Times []int64     `json:"times,omitempty"` // of the clock, in ms since 1970
}

type lastRecord struct {
	Offset int64  `json:"offset"`
	CRC    uint32 `json:"crc"`
	Millis int64  `json:"ms"`
}

func placeOf(at kafka.Saved, clock retire.Clock) kafka.Committed {
	p := place{Times: clock.Times()}
	if at.Last != (kafka.Fingerprint{}) {
		p.Last = &lastRecord{at.Last.Offset, at.Last.CRC, at.Last.Millis}
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("summarise: %v", err)) // numbers alone
	}
	return kafka.Committed{Offset: at.Next, Metadata: string(text)}
}

// readPlace is the opposite of placeOf. Without such a text there is no last record, the clock has
// seen nothing, and ok is false.
func readPlace(c kafka.Committed) (at kafka.Saved, clock retire.Clock, ok bool) {
	at.Next = c.Offset
	var p place
	if len(c.Metadata) > 4096 || json.Unmarshal([]byte(c.Metadata), &p) != nil || len(p.Times) > 16 {
		return at, clock, false
	}
	if l := p.Last; l != nil {
		at.Last = kafka.Fingerprint{Offset: l.Offset, CRC: l.CRC, Millis: l.Millis}
	}
	return at, retire.ClockAt(p.Times), true
}
