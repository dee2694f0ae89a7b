package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"streamd/ingest/kafka/protocol"
)

// A PositionalProducer stands in for a TransactionalProducer where brokers have no transactions.
// Each record that it writes has the header TransactionConfig.SourceHeader, with the position of
// the record of the source that it was made of: topic/partition/offset.
//
// What has been written and not committed is read back from the topic when the partition is opened
// the next time: beside the offset is noted where the topic ended then. Whoever continues begins at
// the committed offset, and Write drops the records that are there already.
//
// It belongs to one goroutine at a time. After an error it must not be used again.
type PositionalProducer struct {
	*Transactions
	member    Member
	partition int    // of the source
	prefix    []byte // of the header's values, before the offset
	sender    sender
	squeezer  squeezer
	batch     batchWriter

	last    Committed // what has been committed last
	noted   mark      // beside it
	checked time.Time // when the group has taken a commit last
	found   int64     // source offset of the last record that was read back, until it is committed; -1: none
}

// Member is a member of a group in one of its generations.
type Member struct {
	ID         string
	Generation int
	Session    time.Duration // a silent member is expelled after it
}

// ErrOpenAnew says that a partition must be opened anew before anything more is written for it:
// the group has given it to another member, or it is not known whether a batch has been written.
var ErrOpenAnew = errors.New("the partition must be opened anew")

// mark is the end of a partition that is written to.
type mark struct {
	partition int
	offset    int64
}

// beside is the text to commit: that of the caller, and the mark behind it.
func (m mark) beside(text string) string {
	return fmt.Sprintf("%s @%d/%d", text, m.partition, m.offset)
}

// readMark takes the mark off a text. It is false where there is none.
func readMark(text string) (rest string, m mark, ok bool) {
	i := strings.LastIndex(text, " @")
	if i < 0 {
		return text, m, false
	}
	partition, offset, _ := strings.Cut(text[i+2:], "/")
	p, perr := strconv.ParseUint(partition, 10, 31)
	o, oerr := strconv.ParseUint(offset, 10, 63)
	if perr != nil || oerr != nil {
		return text, m, false
	}
	return text[:i], mark{int(p), int64(o)}, true
}

// OpenPositions opens the producer for a partition of the source, which the member must have been
// assigned. It writes to the given partition of the topic, and has read back what was written and
// not committed. at is what has been committed. Where that is nothing, the first Commit must come
// before the first Write: it notes where the topic ends.
func (t *Transactions) OpenPositions(ctx context.Context, member Member, source, to int) (p *PositionalProducer, at Committed, err error) {
	p = &PositionalProducer{
		Transactions: t, member: member, partition: source, found: -1,
		prefix: fmt.Appendf(nil, "%s/%d/", t.cfg.Source, source),
		sender: sender{cl: t.cl, topic: t.cfg.Topic, partition: to, log: t.log, once: true},
	}
	p.batch.reset()
	err = p.again(ctx, "read what is committed", func() error {
		all, err := t.cl.committed(ctx, t.cfg.Group, t.cfg.Source, []int{source})
		at = all[source]
		return err
	})
	if err != nil {
		return nil, at, err
	}
	text, noted, ok := readMark(at.Metadata)
	at.Metadata = text
	p.last, p.noted = at, noted
	err = p.again(ctx, "read back what is written", func() error {
		var err error
		if _, p.sender.end, err = t.cl.bounds(ctx, t.cfg.Topic, to); err == nil && ok {
			err = p.readBack(ctx)
		}
		return err
	})
	if err != nil {
		return nil, at, err
	}
	// What is noted is old where other partitions' records have been written since. It is missing
	// where transactions were used before.
	if here := (mark{to, p.sender.end}); at.Offset >= 0 && p.found < 0 && p.noted != here {
		p.noted = here
		err = p.commit(ctx)
	}
	return p, at, err
}

// readBack looks for the last record behind the mark that was made of the partition.
func (p *PositionalProducer) readBack(ctx context.Context) error {
	n, err := p.cl.partitions(ctx, p.cfg.Topic)
	if err != nil || p.noted.partition >= n { // it was made anew with fewer
		return err
	}
	start, end, err := p.cl.bounds(ctx, p.cfg.Topic, p.noted.partition)
	if err != nil {
		return err
	}
	if p.noted.offset < start || p.noted.offset > end { // records were deleted, or it was made anew
		p.noted.offset = start
	}
	if p.noted.offset == end {
		return nil
	}
	_, limit, err := p.cl.bounds(ctx, p.cfg.Source, p.partition)
	if err != nil {
		return err
	}
	r, err := NewRangeReader(RangeConfig{Cluster: p.cfg.Cluster, Topic: p.cfg.Topic, Fetching: p.cfg.Fetching}, p.log)
	if err != nil {
		return err
	}
	defer r.Close()
	p.readingBack.Lock() // one partition at a time takes memory for it
	defer p.readingBack.Unlock()
	count := 0
	_, err = r.Read(ctx, []Range{{p.noted.partition, p.noted.offset, end}}, func(_ context.Context, b *Batch) error {
		for i := range b.Records {
			// An offset that the source does not have is of a former topic of its name.
			if at, ok := p.position(b.Records[i].Headers); ok && at >= p.last.Offset && at < limit {
				p.found = max(p.found, at)
				count++
			}
		}
		b.Release()
		return nil
	})
	p.log.Info().Int("partition", p.partition).Int64("records", end-p.noted.offset).Int("found", count).
		Msg("read back what has been written since the last commit: what is found is not written again")
	return err
}

// position is the offset in the header of a record that was made of the partition.
func (p *PositionalProducer) position(headers []Header) (offset int64, ok bool) {
	for _, h := range slices.Backward(headers) {
		if h.Key != p.cfg.SourceHeader {
			continue
		}
		text, ours := bytes.CutPrefix(h.Value, p.prefix)
		if !ours {
			return 0, false
		}
		n, err := strconv.ParseUint(string(text), 10, 63)
		return int64(n), err == nil
	}
	return 0, false
}

// Write copies a record that is to be written, unless it was read back. A zero t stands for a
// record without a time.
func (p *PositionalProducer) Write(ctx context.Context, key, value []byte, headers []Header, t time.Time) error {
	if p.found >= 0 {
		if at, ok := p.position(headers); ok && at <= p.found {
			return nil
		}
	}
	if p.batch.count > 0 && p.batch.size()+recordSize(key, value, headers) > p.cfg.BatchBytes {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	p.batch.add(key, value, headers, t)
	return nil
}

// flush sends what waits. A member that may have been expelled meanwhile asks the group first.
func (p *PositionalProducer) flush(ctx context.Context) error {
	if p.batch.count == 0 {
		return nil
	}
	if time.Since(p.checked) > p.member.Session/2 {
		if err := p.commit(ctx); err != nil {
			return err
		}
	}
	if err := p.squeezer.pack(&p.batch, p.cfg.BatchBytes); err != nil {
		return err
	}
	if err := p.sender.send(ctx, &p.batch); err != nil {
		return p.failed("write", err)
	}
	p.batch.reset()
	return nil
}

// Commit sends what has been written, and then commits the offset of the source's partition with a
// text of at most 4,000 bytes.
func (p *PositionalProducer) Commit(ctx context.Context, at Committed) error {
	if err := p.flush(ctx); err != nil {
		return err
	}
	if p.last = at; at.Offset > p.found { // else some of what was read back lies behind the mark
		p.found, p.noted = -1, mark{p.sender.partition, p.sender.end}
	}
	return p.commit(ctx)
}

// commit commits what is to be committed last.
func (p *PositionalProducer) commit(ctx context.Context) error {
	if p.last.Offset < 0 {
		return nil
	}
	began := time.Now()
	err := p.again(ctx, "commit offsets", func() error {
		return p.cl.callCoordinator(ctx, coordinated{group: true, key: p.cfg.Group}, func(coordinator int) *protocol.Call {
			return protocol.NewMemberCommit(coordinator, p.cfg.Group, p.member.ID, p.member.Generation, p.cfg.Source, p.partition,
				p.last.Offset, p.noted.beside(p.last.Metadata))
		})
	})
	p.checked = began
	return err
}

// Forget forgets what was read back: the source is another topic of the same name.
func (p *PositionalProducer) Forget() { p.found = -1 }

// Abort drops what has not been sent. The producer must not be used afterwards.
func (p *PositionalProducer) Abort(context.Context) error { return nil }

// again repeats a request until it is answered, ctx ends, or repeating does not help.
func (p *PositionalProducer) again(ctx context.Context, what string, request func() error) error {
	var pause backoff
	for {
		err := request()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isExpelled(err), isPermanent(err):
			return p.failed(what, err)
		}
		p.log.WithLevel(pause.level()).Err(err).Int("partition", p.partition).Msgf("%s: trying again", what)
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

func (p *PositionalProducer) failed(what string, err error) error {
	if isExpelled(err) || isLost(err) || errors.Is(err, errMaybeWritten) {
		err = fmt.Errorf("%w (%w)", ErrOpenAnew, err)
	}
	return fmt.Errorf("%s of %s/%d: %w", what, p.cfg.Source, p.partition, err)
}

// isExpelled reports whether a group does not have the member any more, or not in its generation.
func isExpelled(err error) bool {
	expelled := []kafkago.Error{kafkago.UnknownMemberId, kafkago.IllegalGeneration, kafkago.RebalanceInProgress, kafkago.FencedInstanceID}
	return slices.ContainsFunc(expelled, func(code kafkago.Error) bool { return errors.Is(err, code) })
}
