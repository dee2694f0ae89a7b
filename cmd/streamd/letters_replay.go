package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"streamd/ingest/kafka"
)

// lettersReplayCmd replays letters named by their ids or chosen by a filter.
type lettersReplayCmd struct {
	ID     []letterID `arg:"" optional:"" help:"Letters, as listed."`
	All    bool       `help:"Replay all letters that the other flags allow."`
	DryRun bool       `help:"Report the records without writing them."`
	letterFilter
	Limit int `placeholder:"N" help:"Most letters to replay, the latest ones."`
	lettersFlags
}

// Help is the detailed help for kong.
func (*lettersReplayCmd) Help() string {
	return `A record goes to the partition that it came from, with its key, value, headers and time. A header streamd.replayed counts its replays. Letters stay in their topic: a record that is replayed twice is learned from twice. Where two letters have the same record, as after a crash, it is written once.`
}

// Validate implements kong's interface.
func (c *lettersReplayCmd) Validate() error {
	filtered := c.All || c.Reason != "" || c.Since != "" || c.Limit > 0
	if filtered == (len(c.ID) > 0) {
		return errors.New("name letters, or choose them by --reason, --since, --limit or --all")
	}
	return c.check(c.Limit)
}

// replayHeader counts how often a record was replayed.
const replayHeader = "streamd.replayed"

// lettersReplayReport is the report of replay.
type lettersReplayReport struct {
	Topic      string   `json:"topic"`      // topic that was written to
	Chosen     int      `json:"chosen"`     // letters chosen
	Replayed   int      `json:"replayed"`   // records written, or to write with a dry run
	Duplicates int      `json:"duplicates"` // letters whose record another letter has
	DryRun     bool     `json:"dry_run"`
	Left       []letter `json:"left"`    // letters that cannot be replayed: they lack their record, or it is of another topic
	Missing    int      `json:"missing"` // chosen letters that are not in the log or no dead letters
}

func (c *lettersReplayCmd) Run(ctx context.Context, s *surroundings) error {
	d, err := c.open(s)
	if err != nil {
		return err
	}
	defer d.close()
	report := lettersReplayReport{Topic: d.source, DryRun: c.DryRun, Left: []letter{}}
	ranges, err := c.choose(ctx, d, &report)
	if err != nil {
		return err
	}
	err = c.replay(ctx, d, ranges, &report)
	if c.JSON {
		err = errors.Join(err, printJSON(s.stdout, report))
	} else {
		err = errors.Join(err, report.print(s.stdout))
	}
	if err == nil && len(report.Left)+report.Missing > 0 {
		err = fmt.Errorf("%d of %s could not be replayed", len(report.Left)+report.Missing, counted(report.Chosen, "letter"))
	}
	return err
}

// choose returns a range for each record to replay.
func (c *lettersReplayCmd) choose(ctx context.Context, d *deadLetters, report *lettersReplayReport) ([]kafka.Range, error) {
	var letters []letter
	var err error
	if len(c.ID) == 0 {
		letters, _, err = d.list(ctx, &c.letterFilter, c.Limit)
		report.Chosen = len(letters)
	} else {
		var named []kafka.Range
		distinct := map[letterID]bool{}
		for _, id := range c.ID {
			named = append(named, id.asRange())
			distinct[id] = true
		}
		_, err = d.read(ctx, named, func(id letterID, r *kafka.Record, l *kafka.DeadLetter) error {
			letters = append(letters, letterOf(id, r.Time, l))
			return nil
		})
		report.Chosen = len(distinct)
		report.Missing = len(distinct) - len(letters)
	}
	if err != nil {
		return nil, err
	}
	var ranges []kafka.Range
	seen := make(map[letterID]bool, len(letters))
	for _, l := range letters {
		switch {
		case !l.Whole || l.Topic != d.source:
			report.Left = append(report.Left, l)
		case seen[l.position()]:
			report.Duplicates++
		default:
			seen[l.position()] = true
			ranges = append(ranges, l.ID.asRange())
		}
	}
	return ranges, nil
}

// replay writes the records of the letters in some ranges and counts the acknowledged ones.
func (c *lettersReplayCmd) replay(ctx context.Context, d *deadLetters, ranges []kafka.Range, report *lettersReplayReport) error {
	if c.DryRun || len(ranges) == 0 {
		report.Replayed = len(ranges)
		return nil
	}
	producer, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: d.cluster, Topic: d.source, Compress: true}, d.log)
	if err != nil {
		return err
	}
	defer producer.Close()
	written := 0
	_, err = d.read(ctx, ranges, func(id letterID, r *kafka.Record, l *kafka.DeadLetter) error {
		if l.Partition >= producer.Partitions() {
			return fmt.Errorf("letter %s is of %s/%d, and the topic has %s", id, l.Topic, l.Partition, counted(producer.Partitions(), "partition"))
		}
		if err := producer.Write(ctx, l.Partition, l.Key, l.Value, replayed(l.Headers), l.Time); err != nil {
			return err
		}
		written++
		const some = 1000 // records between two acknowledgements
		if written%some > 0 {
			return nil
		}
		err := producer.Flush(ctx)
		if err == nil {
			report.Replayed = written
		}
		return err
	})
	if err == nil {
		if err = producer.Flush(ctx); err == nil {
			report.Replayed = written
			report.Missing += len(ranges) - written
		}
	}
	if err != nil {
		return fmt.Errorf("after %s: %w", counted(report.Replayed, "record"), err)
	}
	return nil
}

// replayed returns a record's headers with its count of replays raised by one.
func replayed(headers []kafka.Header) []kafka.Header {
	times := uint64(1)
	var others []kafka.Header
	for _, h := range headers {
		if h.Key != replayHeader {
			others = append(others, h)
		} else if before, err := strconv.ParseUint(string(h.Value), 10, 32); err == nil {
			times = before + 1
		}
	}
	return append(others, kafka.Header{Key: replayHeader, Value: strconv.AppendUint(nil, times, 10)})
}

func (r *lettersReplayReport) print(w io.Writer) error {
	t := newTable(w)
	done := "replayed"
	if r.DryRun {
		done = "would be replayed"
	}
	t.row(done, fmt.Sprintf("%s to %s", counted(r.Replayed, "record"), r.Topic))
	if r.Duplicates > 0 {
		t.row("left out", counted(r.Duplicates, "letter")+" of the same records")
	}
	if r.Missing > 0 {
		t.row("missing", counted(r.Missing, "letter"))
	}
	for _, l := range r.Left {
		why := "the letter does not have all of it; write it anew"
		if l.Topic != r.Topic {
			why = "it is of another topic"
		}
		t.row("not replayed", l.ID.String(), l.source(), why)
	}
	return t.flush()
}
