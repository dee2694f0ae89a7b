package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/cmd/streamd/daemon/settings"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// lettersCmd lists, shows and replays dead letters.
type lettersCmd struct {
	List   lettersListCmd   `cmd:"" help:"List dead letters with their reasons, oldest first."`
	Show   lettersShowCmd   `cmd:"" help:"Show one dead letter with its headers and its value."`
	Replay lettersReplayCmd `cmd:"" help:"Write the records of dead letters to their topic again, unchanged."`
}

// lettersFlags name the dead-letter topic.
type lettersFlags struct {
	configFile
	Brokers []string `placeholder:"HOST:PORT" help:"Addresses of the cluster. The default is kafka.brokers of the configuration."`
	Topic   string   `placeholder:"NAME" help:"Topic of the records. The default is kafka.topic of the configuration."`
	Letters string   `placeholder:"NAME" help:"Dead-letter topic. The default is dead_letters.topic of the configuration, else the topic's name with .dlq."`
	jsonFlag
}

// letterFilter chooses dead letters.
type letterFilter struct {
	Reason string `placeholder:"WORD" help:"Only letters with this reason, such as format or row."`
	Since  string `placeholder:"TIME" help:"Only letters written since a time such as 2026-01-02T03:04:05Z, or within an age such as 90m."`
}

func (f *letterFilter) check(limit int) error {
	if limit < 0 {
		return fmt.Errorf("--limit %d: must be 0 or more", limit)
	}
	_, err := f.since()
	return err
}

// since is the time of --since, or zero.
func (f *letterFilter) since() (time.Time, error) {
	if f.Since == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, f.Since); err == nil {
		return t, nil
	}
	age, err := time.ParseDuration(f.Since)
	if err != nil || age < 0 {
		return time.Time{}, fmt.Errorf("--since %s: want a time such as 2026-01-02T03:04:05Z, or an age such as 90m", f.Since)
	}
	return time.Now().Add(-age), nil
}

// letterID is the place of a dead letter in its own topic.
type letterID struct {
	partition int
	offset    int64
}

func (id letterID) String() string { return fmt.Sprintf("%d/%d", id.partition, id.offset) }

// asRange is the range of this single offset.
func (id letterID) asRange() kafka.Range {
	return kafka.Range{Partition: id.partition, From: id.offset, To: id.offset + 1}
}

// UnmarshalText reads the format of String.
func (id *letterID) UnmarshalText(text []byte) error {
	first, second, _ := strings.Cut(string(text), "/")
	partition, err := strconv.ParseUint(first, 10, 31)
	offset, err2 := strconv.ParseUint(second, 10, 62)
	if err != nil || err2 != nil {
		return fmt.Errorf("want partition and offset as listed, such as 0/17, not %q", text)
	}
	*id = letterID{int(partition), int64(offset)}
	return nil
}

// MarshalText writes the format of String.
func (id letterID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// letter is a listed dead letter.
type letter struct {
	ID        letterID   `json:"id"`
	WrittenAt time.Time  `json:"written_at"`
	Topic     string     `json:"topic"` // topic of the record
	Partition int        `json:"partition"`
	Offset    int64      `json:"offset"`
	Last      int64      `json:"last_offset"` // offset, or the end of a stretch of records that could not be read
	Time      *time.Time `json:"time"`        // time of the record; null: unknown
	Reason    string     `json:"reason"`
	Stage     string     `json:"stage"`
	Message   string     `json:"message"`
	KeyBytes  int64      `json:"key_bytes"`
	Bytes     int64      `json:"value_bytes"`
	Whole     bool       `json:"whole"` // whether the letter has all of the record
}

func letterOf(id letterID, writtenAt time.Time, l *kafka.DeadLetter) letter {
	listed := letter{
		ID: id, WrittenAt: retire.NearestTime(writtenAt).UTC(),
		Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Last: l.Last,
		Reason: l.Reason.Class, Stage: l.Reason.Stage, Message: l.Reason.Message,
		KeyBytes: int64(len(l.Key)), Bytes: int64(len(l.Value)), Whole: l.Whole(),
	}
	if t := l.Time; !t.IsZero() {
		t = retire.NearestTime(t) // the record may be refused for a time that cannot be written
		listed.Time = &t
	}
	if o := l.OmittedKey; o != nil {
		listed.KeyBytes = o.Size
	}
	if o := l.OmittedValue; o != nil {
		listed.Bytes = o.Size
	}
	return listed
}

// source is the place of the record.
func (l *letter) source() string {
	at := fmt.Sprintf("%s/%d/%d", l.Topic, l.Partition, l.Offset)
	if l.Last != l.Offset {
		at += fmt.Sprintf(" to %d", l.Last)
	}
	return at
}

// position is source as a value to compare.
func (l *letter) position() letterID { return letterID{l.Partition, l.Offset} }

// deadLetters reads a dead-letter topic.
type deadLetters struct {
	cluster kafka.Cluster
	source  string // the topic of the records
	topic   string // the dead-letter topic
	reader  *kafka.RangeReader
	log     zerolog.Logger
}

func (f *lettersFlags) open(s *surroundings) (*deadLetters, error) {
	given := map[string]string{}
	if len(f.Brokers) > 0 {
		given["kafka.brokers"] = strings.Join(f.Brokers, ",")
	}
	if f.Topic != "" {
		given["kafka.topic"] = f.Topic
	}
	if f.Letters != "" {
		given["dead_letters.topic"] = f.Letters
	}
	cfg, err := f.load(s, given, map[string]string{"--kafka.brokers": "--brokers", "--kafka.topic": "--topic", "--dead_letters.topic": "--letters"})
	if err != nil {
		return nil, err
	}
	cluster, err := settings.Cluster(cfg.Kafka, consoleLog(s.stderr))
	if err != nil {
		return nil, usageError{err}
	}
	d := &deadLetters{cluster: cluster, source: cfg.Kafka.Topic, topic: cfg.DeadLetters.Topic, log: consoleLog(s.stderr)}
	d.reader, err = kafka.NewRangeReader(kafka.RangeConfig{
		Cluster: cluster, Topic: d.topic, Partitions: 1,
		Fetching: kafka.Fetching{MaxMessageBytes: int(cfg.Kafka.MaxMessageBytes)},
	}, d.log)
	return d, err
}

func (d *deadLetters) close() { d.reader.Close() }

// read calls take with the letters in some ranges, by partition and offset. A letter is
// valid until take returns. others counts the records that are no dead letters.
func (d *deadLetters) read(ctx context.Context, ranges []kafka.Range, take func(letterID, *kafka.Record, *kafka.DeadLetter) error) (others int64, err error) {
	_, err = d.reader.Read(ctx, ranges, func(_ context.Context, b *kafka.Batch) error {
		for i := range b.Records {
			r := &b.Records[i]
			l, err := kafka.ReadDeadLetter(r)
			if err != nil {
				others++
				continue
			}
			if err := take(letterID{b.Partition, r.Offset}, r, l); err != nil {
				return err
			}
		}
		for _, refused := range b.Refused {
			others += refused.Records
		}
		b.Release()
		return nil
	})
	return others, err
}

// list returns the letters that a filter chooses, oldest first. With a limit above 0 it
// returns the latest ones.
func (d *deadLetters) list(ctx context.Context, f *letterFilter, limit int) (letters []letter, others int64, err error) {
	since, err := f.since()
	if err != nil {
		return nil, 0, err
	}
	ranges, err := d.reader.Log(ctx)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return nil, 0, fmt.Errorf("there is no topic %s; streamd makes it with the first dead letter", d.topic)
	}
	if err != nil {
		return nil, 0, err
	}
	for i := range ranges {
		if r := &ranges[i]; limit > 0 && f.Reason == "" { // earlier letters are not among the latest
			r.From = max(r.From, r.To-int64(limit))
		}
	}
	byTime := func(a, b letter) int {
		return cmp.Or(a.WrittenAt.Compare(b.WrittenAt), cmp.Compare(a.ID.partition, b.ID.partition), cmp.Compare(a.ID.offset, b.ID.offset))
	}
	latest := func() {
		slices.SortFunc(letters, byTime)
		if limit > 0 && len(letters) > limit {
			letters = slices.Delete(letters, 0, len(letters)-limit)
		}
	}
	others, err = d.read(ctx, ranges, func(id letterID, r *kafka.Record, l *kafka.DeadLetter) error {
		if r.Time.Before(since) || f.Reason != "" && l.Reason.Class != f.Reason {
			return nil
		}
		letters = append(letters, letterOf(id, r.Time, l))
		if limit > 0 && len(letters) >= 2*limit+1024 {
			latest()
		}
		return nil
	})
	latest()
	return letters, others, err
}

type lettersListCmd struct {
	letterFilter
	Limit int `default:"1000" help:"Most letters to list, the latest ones. 0: all."`
	lettersFlags
}

// Validate implements kong's interface.
func (c *lettersListCmd) Validate() error { return c.check(c.Limit) }

// lettersReport is the report of list.
type lettersReport struct {
	Topic   string   `json:"topic"` // topic of the letters
	Letters []letter `json:"letters"`
	Others  int64    `json:"other_records"` // records of the topic that are no dead letters
}

func (c *lettersListCmd) Run(ctx context.Context, s *surroundings) error {
	d, err := c.open(s)
	if err != nil {
		return err
	}
	defer d.close()
	letters, others, err := d.list(ctx, &c.letterFilter, c.Limit)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.stdout, lettersReport{d.topic, slices.Concat([]letter{}, letters), others})
	}
	t := newTable(s.stdout)
	t.row("ID", "WRITTEN", "RECORD", "REASON", "STAGE", "BYTES", "MESSAGE")
	for _, l := range letters {
		size := strconv.FormatInt(l.Bytes, 10)
		if !l.Whole {
			size += " (not in the letter)"
		}
		t.row(l.ID.String(), l.WrittenAt.Local().Format(time.DateTime), l.source(), l.Reason, l.Stage, size, l.Message)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if c.Limit > 0 && len(letters) == c.Limit {
		fmt.Fprintf(s.stderr, "the latest %s; --limit 0 lists all\n", counted(c.Limit, "letter"))
	}
	if others > 0 {
		fmt.Fprintf(s.stderr, "%s of %s: no dead letters\n", counted(others, "record"), d.topic)
	}
	return nil
}
