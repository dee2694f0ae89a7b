package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/listing"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

// schemaCmd is about schemas of features.
type schemaCmd struct {
	Infer   schemaInferCmd   `cmd:"" help:"Propose a schema of the features, by the rows of a file or of a topic, with the reason of each line."`
	Learn   schemaLearnCmd   `cmd:"" help:"Learn the lists of a schema, values: {most: K}: the K most frequent values of all rows of a file, or of the live rows of a daemon. The schema is written with its lists, and behind each of them what it covers."`
	Columns schemaColumnsCmd `cmd:"" help:"Check a schema, and list the columns that it makes."`
}

type schemaInferCmd struct {
	File string `arg:"" optional:"" help:"CSV, LIBSVM, JSON, Arrow or Parquet, also compressed by gzip or Zstandard. Without one the rows of the topic are read."`
	columnFlags
	Format  string   `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of a file whose name does not end in one: ${enum}."`
	Rows    int      `default:"20000" help:"Rows of the file, or records of the topic, to look at: the first ones."`
	Brokers []string `placeholder:"HOST:PORT" help:"Addresses of the cluster. The default is kafka.brokers of the configuration."`
	Topic   string   `placeholder:"NAME" help:"Topic to look at. The default is kafka.topic of the configuration, which also says how its messages are decoded."`
	configFile
}

// Validate is called by kong.
func (c *schemaInferCmd) Validate() error {
	if c.Rows < 1 || c.Rows > maxReplayed {
		return fmt.Errorf("--rows %d: must be 1 to %d", c.Rows, maxReplayed)
	}
	return nil
}

func (c *schemaInferCmd) Run(ctx context.Context, s *surroundings) error {
	var p schema.Proposal
	var err error
	if c.File != "" {
		p, err = s.inferred(c.File, c.options(c.Format), c.Rows)
	} else {
		p, err = c.ofTopic(ctx, s)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.stdout, p.Text())
	return err
}

// inferred is the proposal for the first rows of a file.
func (s *surroundings) inferred(path string, options wire.Options, rows int) (p schema.Proposal, err error) {
	options.AsTexts, options.IgnoreUnknown, options.KeepUnlabelled = true, true, true
	options.Limits.Features = dataset.MostFeatures
	reader, err := wire.OpenFile(path, options, rows)
	if err != nil {
		return p, err
	}
	defer reader.Close()
	b, err := reader.Next()
	if err != nil {
		return p, err
	}
	s.warnOfDoubt(path, reader.Doubt())
	p.Add(b, reader.Texts())
	return p, nil
}

// ofTopic is the proposal for the first records of each partition of a topic.
func (c *schemaInferCmd) ofTopic(ctx context.Context, s *surroundings) (p schema.Proposal, err error) {
	given := map[string]string{}
	if len(c.Brokers) > 0 {
		given["kafka.brokers"] = strings.Join(c.Brokers, ",")
	}
	if c.Topic != "" {
		given["kafka.topic"] = c.Topic
	}
	cfg, err := c.load(s, given, map[string]string{"--kafka.brokers": "--brokers", "--kafka.topic": "--topic"})
	if err != nil {
		return p, err
	}
	options, err := settings.TopicOptions(cfg, consoleLog(s.stderr))
	if err != nil {
		return p, usageError{err}
	}
	options.Features, options.Schema, options.AsTexts, options.IgnoreUnknown, options.KeepUnlabelled = nil, nil, true, true, true
	decoder, err := intake.NewDecoder(cfg, options, nil, 0)
	if err != nil {
		return p, usageError{err}
	}
	log := consoleLog(s.stderr)
	cluster, err := settings.Cluster(cfg.Kafka, log)
	if err != nil {
		return p, usageError{err}
	}
	reader, err := kafka.NewRangeReader(kafka.RangeConfig{
		Cluster: cluster, Topic: cfg.Kafka.Topic, Fetching: kafka.Fetching{MaxMessageBytes: int(cfg.Kafka.MaxMessageBytes)},
	}, log)
	if err != nil {
		return p, err
	}
	defer reader.Close()
	ranges, err := reader.Log(ctx)
	if err != nil {
		return p, fmt.Errorf("topic %s: %w", cfg.Kafka.Topic, err)
	}
	for i := range ranges {
		most := int64(math.Ceil(float64(c.Rows) / float64(len(ranges))))
		ranges[i].To = min(ranges[i].To, ranges[i].From+most)
	}
	records, refused, rows := 0, 0, 0
	var first error
	_, err = reader.Read(ctx, ranges, func(_ context.Context, b *kafka.Batch) error {
		defer b.Release()
		for i := range b.Records {
			r := &b.Records[i]
			if r.Value == nil { // a tombstone
				continue
			}
			records++
			block, err := decoder.Decode(r)
			if err != nil {
				if refused++; first == nil {
					first = fmt.Errorf("record %s/%d/%d: %w", cfg.Kafka.Topic, b.Partition, r.Offset, err)
				}
				continue
			}
			p.Add(block, decoder.Texts())
			rows += block.Rows()
		}
		return nil
	})
	switch {
	case err != nil:
		return p, err
	case rows == 0 && first != nil:
		return p, fmt.Errorf("none of %s can be decoded; %w", counted(records, "record"), first)
	case rows == 0:
		return p, fmt.Errorf("topic %s has no records with rows", cfg.Kafka.Topic)
	case refused > 0:
		fmt.Fprintf(s.stderr, "streamd: warning: %s of %s cannot be decoded; the first one: %s\n", counted(refused, "record"), counted(records, "record"), listing.OneLine(first.Error()))
	}
	return p, nil
}

type schemaLearnCmd struct {
	File string `arg:"" optional:"" help:"CSV, LIBSVM, JSON, Arrow or Parquet, also compressed by gzip or Zstandard. Without one the daemon learns the lists of its format.schema, and goes to them: its live blocks are read again, and the former model is served meanwhile."`
	columnFlags
	NoWait bool   `help:"Of a daemon: do not wait until its model is in the new features."`
	Schema string `placeholder:"FILE" help:"Schema of the features of the file, in YAML, with categories to learn."`
	Format string `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of a file whose name does not end in one: ${enum}."`
	daemonFlags
	jsonFlag
}

// Validate is called by kong.
func (c *schemaLearnCmd) Validate() error {
	if (c.File == "") != (c.Schema == "") {
		return errors.New("--schema goes with a file; without both the daemon learns the lists of its own schema")
	}
	return nil
}

// learnedReport is the report of learned lists.
type learnedReport struct {
	Schema  *schema.Schema   `json:"schema"`
	Digest  string           `json:"schema_digest"`
	Learned []schema.Learned `json:"learned"`
}

func (c *schemaLearnCmd) Run(ctx context.Context, s *surroundings) error {
	if c.File == "" {
		return c.ofDaemon(ctx, s)
	}
	var to schemaFile
	if err := to.UnmarshalText([]byte(c.Schema)); err != nil {
		return usagef("--schema: %w", err)
	}
	if len(to.of.Learns()) == 0 {
		return usagef("--schema %s: it has no list to learn, such as {kind: category, values: {most: 20}}", c.Schema)
	}
	options := c.options(c.Format)
	options.IgnoreUnknown, options.KeepUnlabelled = true, true
	of, lists, err := s.learnedBy(ctx, c.File, options, to.of)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.stdout, &learnedReport{of, of.Digest(), lists})
	}
	return printLearned(s.stdout, of, lists)
}

// ofDaemon has the daemon learn.
func (c *schemaLearnCmd) ofDaemon(ctx context.Context, s *surroundings) error {
	daemon, err := c.client(s)
	if err != nil {
		return err
	}
	var a httpapi.LearnedLists
	body, err := daemon.call(ctx, http.MethodPost, "/v1/features/learn", adminTimeout, &a)
	if err != nil {
		return err
	}
	if a.Changes && !c.NoWait {
		if err := c.wait(ctx, s, daemon, a.Schema); err != nil {
			return err
		}
	}
	if c.JSON {
		return printAnswer(s.stdout, body)
	}
	return printLearned(s.stdout, a.Schema, a.Lists)
}

// wait waits until the daemon serves a model in the features of a schema.
func (c *schemaLearnCmd) wait(ctx context.Context, s *surroundings, daemon *client, of *schema.Schema) error {
	defer s.report("learn", func() string { return "the features change: live blocks are read again" })()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollInterval):
		}
		var m httpapi.ModelAnswer
		if _, err := daemon.call(ctx, http.MethodGet, "/v1/model", answerTimeout, &m); err != nil {
			return fmt.Errorf("the lists are learned, and the features change: %w", err)
		}
		if m.Schema.String() == of.String() {
			return nil
		}
	}
}

func printLearned(w io.Writer, of *schema.Schema, lists []schema.Learned) error {
	text, err := of.Text(lists)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

// learnedBy is a schema with lists in place of those to learn, by all rows of a file.
func (s *surroundings) learnedBy(ctx context.Context, path string, options wire.Options, of *schema.Schema) (*schema.Schema, []schema.Learned, error) {
	const mostBytes = 1 << 30 // of the different values
	counts := of.NewValueCounts(of, mostBytes)
	options.Schema = counts.Schema()
	data, err := dataset.Open(path, options, s.watchRows)
	if err != nil {
		return nil, nil, err
	}
	err = dataset.Each(ctx, data, "counting values", func(_ int, b *incremental.Block, _ int64) (schema.BlockCounts, error) {
		return counts.Of(b), nil
	}, func(of schema.BlockCounts) error {
		counts.Add(of)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	learned, lists, err := counts.Learned()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return learned, lists, nil
}

// learnFirst says what makes a declared schema of one with lists to learn.
func learnFirst(learns []string) error {
	return fmt.Errorf("the values of category %q are still to learn, and other rows would give another list: streamd schema learn FILE --schema SCHEMA writes the schema with its list, and so has the model of streamd fit --json", learns[0])
}

type schemaColumnsCmd struct {
	File string `arg:"" help:"Schema in YAML, as streamd schema infer writes it; - is standard input."`
	jsonFlag
}

// schemaReport is the report of a schema.
type schemaReport struct {
	Schema  *schema.Schema `json:"schema"`
	Digest  string         `json:"schema_digest"`
	Sources []string       `json:"sources"` // columns that rows must have
	Columns []string       `json:"columns"` // features
}

func (c *schemaColumnsCmd) Run(_ context.Context, s *surroundings) error {
	var text []byte
	var err error
	if c.File == "-" {
		text, err = io.ReadAll(io.LimitReader(s.stdin, schema.MaxText+1))
	} else {
		text, err = os.ReadFile(c.File)
	}
	if err != nil {
		return err
	}
	of, err := schema.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	r := schemaReport{Schema: of, Digest: of.Digest(), Columns: of.Columns()}
	for _, source := range of.Sources() {
		r.Sources = append(r.Sources, source.Name)
	}
	if c.JSON {
		return printJSON(s.stdout, &r)
	}
	if learns := of.Learns(); len(learns) > 0 {
		fmt.Fprintf(s.stderr, "streamd: warning: %s\n", listing.OneLine(learnFirst(learns).Error()))
	}
	for _, name := range r.Columns {
		if _, err := fmt.Fprintln(s.stdout, listing.OneLine(name)); err != nil {
			return err
		}
	}
	return nil
}
