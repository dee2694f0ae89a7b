package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/cmd/streamd/daemon"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// lettersCmd reads dead letters, and writes their records to their topic again.
type lettersCmd struct {
	List   lettersListCmd   `cmd:"" help:"List dead letters with their reasons, the oldest first."`
	Show   lettersShowCmd   `cmd:"" help:"Show one dead letter with its headers and its value."`
	Replay lettersReplayCmd `cmd:"" help:"Write the records of dead letters to the topic they came from, as they were."`
}

// lettersFlags say where the dead letters are.
type lettersFlags struct {
	configFile
	Brokers []string `placeholder:"HOST:PORT" help:"Addresses to find the cluster by. By default the configuration's kafka.brokers."`
	Topic   string   `placeholder:"NAME" help:"Topic that the records came from. By default the configuration's kafka.topic."`
	Letters string   `placeholder:"NAME" help:"Dead-letter topic. By default the configuration's dead_letters.topic, else the topic's name with .dlq."`
	jsonFlag
}

// letterFilter chooses among the dead letters.
type letterFilter struct {
	Reason string `placeholder:"WORD" help:"Only those of a reason, such as format or row, as listed."`
	Since  string `placeholder:"TIME" help:"Only those written since a time as 2026-01-02T03:04:05Z, or within the last 90m, say."`
}

func (f *letterFilter) check(limit int) error {
	if limit < 0 {
		return fmt.Errorf("--limit %d: must be 0 or more", limit)
	}
	_, err := f.since()
	return err
}

// since is the time that --since names; zero: none.
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

// letterID is where a dead letter lies in its own topic.
type letterID struct {
	partition int
	offset    int64
}

func (id letterID) String() string { return fmt.Sprintf("%d/%d", id.partition, id.offset) }

// asRange is the range of this one offset.
func (id letterID) asRange() kafka.Range {
	return kafka.Range{Partition: id.partition, From: id.offset, To: id.offset + 1}
}

// UnmarshalText reads what String writes.
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

// MarshalText writes String.
func (id letterID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// letter is a dead letter as it is listed.
type letter struct {
	ID        letterID   `json:"id"`
	WrittenAt time.Time  `json:"written_at"`
	Topic     string     `json:"topic"` // of the record
	Partition int        `json:"partition"`
	Offset    int64      `json:"offset"`
	Last      int64      `json:"last_offset"` // the same, but for a stretch of records that could not be read
	Time      *time.Time `json:"time"`        // of the record; null: not known
	Reason    string     `json:"reason"`
	Stage     string     `json:"stage"`
	Message   string     `json:"message"`
	KeyBytes  int64      `json:"key_bytes"`
	Bytes     int64      `json:"value_bytes"`
	Whole     bool       `json:"whole"` // whether the record can be replayed
}

func letterOf(id letterID, writtenAt time.Time, l *kafka.DeadLetter) letter {
	listed := letter{
		ID: id, WrittenAt: retire.NearestTime(writtenAt).UTC(),
		Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Last: l.Last,
		Reason: l.Reason.Class, Stage: l.Reason.Stage, Message: l.Reason.Message,
		KeyBytes: int64(len(l.Key)), Bytes: int64(len(l.Value)), Whole: l.Whole(),
	}
	if t := l.Time; !t.IsZero() {
		t = retire.NearestTime(t) // a time that cannot be written may be what is wrong with it
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

// source is where the record lay.
func (l *letter) source() string {
	at := fmt.Sprintf("%s/%d/%d", l.Topic, l.Partition, l.Offset)
	if l.Last != l.Offset {
		at += fmt.Sprintf(" to %d", l.Last)
	}
	return at
}

// position is source without its text, to compare.
func (l *letter) position() letterID { return letterID{l.Partition, l.Offset} }

// deadLetters reads a dead-letter topic.
type deadLetters struct {
	cluster kafka.Cluster
	source  string // the topic that the records came from
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
	cluster, err := daemon.Cluster(cfg.Kafka)
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

// read calls take with the letters in some ranges, in the order of their partitions
// and offsets. The letter is valid until take returns. others counts the records
// that are no dead letters.
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

// list returns the latest letters that a filter chooses, up to a limit if that is
// not 0, the oldest first.
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
		if r := &ranges[i]; limit > 0 && f.Reason == "" { // no other can be among the latest
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
	Limit int `default:"1000" help:"At most so many, the latest ones. 0: all."`
	lettersFlags
}

// Validate implements kong's interface.
func (c *lettersListCmd) Validate() error { return c.check(c.Limit) }

// lettersReport is what list prints.
type lettersReport struct {
	Topic   string   `json:"topic"` // of the letters
	Letters []letter `json:"letters"`
	Others  int64    `json:"other_records"` // in the topic, that are no dead letters
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

type lettersShowCmd struct {
	ID  letterID `arg:"" help:"The letter, as listed."`
	Out string   `short:"o" placeholder:"FILE" help:"Write the value to a file as it is, - for standard output, and print nothing else there."`
	Hex bool     `help:"Show the value in hexadecimal."`
	lettersFlags
}

// letterReport is what show prints; key, value and headers' values are in base64.
type letterReport struct {
	letter
	Connector      string         `json:"connector"`
	Key            []byte         `json:"key"`          // null: none, or not in the letter
	Value          []byte         `json:"value"`        // likewise
	ValueSHA256    string         `json:"value_sha256"` // of a value that is not in the letter
	Headers        []letterHeader `json:"headers"`
	OmittedHeaders int64          `json:"omitted_headers"`
}

type letterHeader struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

func (c *lettersShowCmd) Run(ctx context.Context, s *surroundings) error {
	d, err := c.open(s)
	if err != nil {
		return err
	}
	defer d.close()
	found := false
	others, err := d.read(ctx, []kafka.Range{c.ID.asRange()}, func(id letterID, r *kafka.Record, l *kafka.DeadLetter) error {
		found = true
		return c.print(s, letterOf(id, r.Time, l), r, l)
	})
	switch {
	case err != nil:
		return err
	case others > 0:
		return fmt.Errorf("record %s of %s is no dead letter", c.ID, d.topic)
	case !found:
		return fmt.Errorf("there is no record %s in %s; streamd letters list shows those that there are", c.ID, d.topic)
	}
	return nil
}

func (c *lettersShowCmd) print(s *surroundings, listed letter, r *kafka.Record, l *kafka.DeadLetter) error {
	if c.Out != "" {
		if l.OmittedValue != nil || l.Last != l.Offset {
			return fmt.Errorf("the letter does not have the value; the record is %s", listed.source())
		}
		if c.Out == "-" {
			_, err := s.stdout.Write(l.Value)
			return err
		}
		if err := os.WriteFile(c.Out, l.Value, 0o600); err != nil {
			return err
		}
	}
	if c.JSON {
		report := letterReport{letter: listed, Connector: l.Connector, Key: l.Key, Value: l.Value, Headers: []letterHeader{}, OmittedHeaders: l.OmittedHeaders}
		if o := l.OmittedValue; o != nil {
			report.ValueSHA256 = hex.EncodeToString(o.SHA256[:])
		}
		for _, h := range r.Headers {
			report.Headers = append(report.Headers, letterHeader{h.Key, h.Value})
		}
		return printJSON(s.stdout, report)
	}
	t := newTable(s.stdout)
	t.row("letter", listed.ID.String())
	t.row("written", listed.WrittenAt.Local().Format(time.DateTime))
	t.row("record", listed.source())
	if listed.Time != nil {
		t.row("its time", listed.Time.Local().Format(time.DateTime))
	}
	t.row("reason", listed.Reason+" ("+listed.Stage+")")
	t.row("message", listed.Message)
	for _, h := range r.Headers {
		t.row("header", h.Key, content(h.Value, nil, shownText))
	}
	if l.OmittedHeaders > 0 {
		t.row("headers", fmt.Sprintf("%d more, not in the letter", l.OmittedHeaders))
	}
	t.row("key", content(l.Key, l.OmittedKey, shownText))
	if err := t.flush(); err != nil || c.Out != "" {
		return err
	}
	show := shownText
	if c.Hex {
		show = hex.Dump
	}
	_, err := fmt.Fprintf(s.stdout, "value (%s)\n%s\n", counted(listed.Bytes, "byte"), strings.TrimSuffix(content(l.Value, l.OmittedValue, show), "\n"))
	return err
}

// mostShown is how many bytes of a key, a header or a value are shown.
const mostShown = 4096

// content shows a key or a value that may not be in the letter.
func content(data []byte, omitted *kafka.Omitted, show func([]byte) string) string {
	switch {
	case omitted != nil:
		return fmt.Sprintf("not in the letter: %d bytes with SHA-256 %x", omitted.Size, omitted.SHA256)
	case data == nil:
		return "none"
	case len(data) > mostShown:
		return fmt.Sprintf("%s\n… and %d bytes more", show(data[:mostShown]), len(data)-mostShown)
	}
	return show(data)
}

// shownText is data as lines of text in which nothing commands the terminal: others
// have chosen it.
func shownText(data []byte) string {
	if !utf8.Valid(data) {
		return fmt.Sprintf("%q", data)
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	return strings.Join(lines, "\n")
}

// lettersReplayCmd chooses letters by their ids or by a filter.
type lettersReplayCmd struct {
	ID     []letterID `arg:"" optional:"" help:"Letters, as listed."`
	All    bool       `help:"Replay all letters that the other flags leave."`
	DryRun bool       `help:"Say what would be written, and write nothing."`
	letterFilter
	Limit int `placeholder:"N" help:"At most so many, the latest ones."`
	lettersFlags
}

// Help says what a replay does and does not; kong shows it.
func (*lettersReplayCmd) Help() string {
	return `Records go to the partition that they came from, with their key, value, headers and time, and with a header streamd.replayed that counts how often. Letters stay in their topic: one that is replayed twice is learned from twice. Where two letters are of one record, as after a crash, it is written once.`
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

// lettersReplayReport is what replay prints.
type lettersReplayReport struct {
	Topic      string   `json:"topic"`      // that was written to
	Chosen     int      `json:"chosen"`     // letters
	Replayed   int      `json:"replayed"`   // records; with a dry run those that would be
	Duplicates int      `json:"duplicates"` // letters of records of other letters
	DryRun     bool     `json:"dry_run"`
	Left       []letter `json:"left"`    // that cannot be replayed: their records are not in them, or of another topic
	Missing    int      `json:"missing"` // chosen, but not in the log, or no dead letters
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

// choose returns the ranges of the letters to replay, one for each record.
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

// replay writes the records of the letters in some ranges, and counts those that
// the brokers have acknowledged.
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
		const some = 1000 // acknowledged at once
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

// replayed returns a record's headers, with the count of its replays one higher.
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
