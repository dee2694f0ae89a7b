package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/summarise"
	"streamd/config"
	"streamd/incremental/sample"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
)

// summariseCmd is the stage before the daemon (package summarise).
type summariseCmd struct {
	configFile
	Files  []string `arg:"" optional:"" help:"Files to sum in place of a topic; - is standard input: CSV, LIBSVM, JSON or a stream of Arrow, and of files also Parquet and idx."`
	To     string   `placeholder:"TOPIC" help:"Topic that blocks are written to, for streamd run --kafka.topic TOPIC. It is made if it is missing: with the partitions of kafka.topic, and compacted with blocks.unit: key."`
	Sample int      `placeholder:"ROWS" default:"0" help:"Rows of each block that go with its sums, for the daemons' sample: their choices of nu, refinement and calibration use them. About so many, at most three times as many."`
	fileSumFlags
	config.Flags
	jsonFlag
}

// fileSumFlags are those of files.
type fileSumFlags struct {
	Out        string    `placeholder:"FILE" help:"Of files: write the blocks to a table in place of a topic: a line of JSON for each, with id, source, first_row, rows, digest and bytes (base64). - is standard output. streamd replay file writes it to a topic."`
	BlockRows  *int      `placeholder:"ROWS" help:"Of files: rows of a block. The last one of a file may have fewer. (default: 20000)"`
	Source     string    `placeholder:"NAME" help:"Of standard input: the name of what it has, by which its blocks are known. (default: stdin)"`
	Time       time.Time `placeholder:"RFC3339" help:"Of files: event time of the blocks. (default: when the file was changed last; of standard input 1970)"`
	FileFormat string    `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Of files: format of one whose name does not end in one: ${enum}. With auto the first line decides."`
	featureFlags
	schemaFlags
	missingFlags
	unlabelledFlags
}

// maxSampled bounds the rows that go with the sums of a block.
const maxSampled = 1 << 20

// Validate implements kong's interface.
func (c *summariseCmd) Validate() error {
	switch {
	case c.Sample < 0 || c.Sample > maxSampled:
		return fmt.Errorf("--sample %d: must be 0 to %d", c.Sample, maxSampled)
	case c.BlockRows != nil && (*c.BlockRows < 1 || *c.BlockRows > maxReplayed):
		return fmt.Errorf("--block-rows %d: must be 1 to %d", *c.BlockRows, maxReplayed)
	case c.To == "" && c.Out == "":
		return errors.New("--to says where the blocks go to; those of files may also go to a table (--out)")
	case c.To != "" && c.Out != "":
		return errors.New("--to and --out: blocks go to a topic or to a table, not to both")
	case len(c.Files) == 0 && (c.Out != "" || c.BlockRows != nil || c.Source != "" || !c.Time.IsZero() || c.FileFormat != "auto" || c.JSON):
		return errors.New("--out, --block-rows, --source, --time, --file-format and --json are for files, and none is given")
	}
	if learns := c.Schema.of.Learns(); len(learns) > 0 {
		return fmt.Errorf("--schema: %w", learnFirst(learns))
	}
	_, err := c.treatment()
	return err
}

func (c *summariseCmd) Run(ctx context.Context, s *surroundings) error {
	if len(c.Files) > 0 {
		return c.sumFiles(ctx, s)
	}
	var cfg *config.Config
	err := within(ctx, interrupted, func() error {
		loaded, err := c.load(s, c.Given(), nil)
		if cfg = loaded; err == nil {
			err = c.check(cfg)
		}
		return err
	})
	if errors.Is(err, context.Canceled) {
		return err
	}
	log := s.log(logSettings(cfg, err))
	if err != nil {
		return fatal(log, err)
	}
	for _, warning := range cfg.Warnings() {
		log.Warn().Msg(warning)
	}
	z, err := summarise.New(summarise.Options{Config: cfg, To: c.To, Rows: c.Sample, Log: log, Version: thisBuild().String()})
	if err == nil {
		log.Info().Str("topic", cfg.Kafka.Topic).Str("to", c.To).Str("group", cfg.Kafka.Group).Stringer("http", z.Addr()).Msg("summing")
		err = within(ctx, cfg.ShutdownTimeout, func() error { return z.Run(ctx) })
	}
	return fatal(log, err)
}

// stopsWithin has no limit for a topic, as Run has its own: shutdown_timeout.
func (c *summariseCmd) stopsWithin() time.Duration {
	if len(c.Files) > 0 {
		return interrupted
	}
	return forever
}

// check says what a stage needs beside what a daemon needs, and names its group.
func (c *summariseCmd) check(cfg *config.Config) error {
	switch {
	case len(cfg.Format.Features) == 0 && cfg.Format.Schema == nil:
		return usagef("format.features is empty: a stage keeps nothing, so it cannot have the features of the first block; name them in the order of the model")
	case len(cfg.Format.Schema.Learns()) > 0:
		return usagef("format.schema: %w", learnFirst(cfg.Format.Schema.Learns()))
	case cfg.Kernel.Function != config.KernelNone:
		return usagef("kernel.function is %s: a model with a kernel needs the rows of each block, so it cannot learn from sums", cfg.Kernel.Function)
	case cfg.Labels.Topic != "":
		return usagef("labels.topic is set: rows whose labels come later cannot be summed before they have them, so the daemon reads the rows themselves")
	case c.To == cfg.Kafka.Topic:
		return usagef("--to %s: the blocks would go to the topic of the rows itself", c.To)
	}
	if !cfg.IsGiven("kafka.group") { // members share it, whatever their client_id
		cfg.Kafka.Group = fmt.Sprintf("streamd.%s.%s", cfg.Kafka.Topic, c.To)
	}
	return nil
}

// sumReport is the report of files that were summed.
type sumReport struct {
	Rows          int64   `json:"rows"`
	Blocks        int64   `json:"blocks"`
	Bytes         int64   `json:"bytes"` // of the blocks, before compression
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
}

func (c *summariseCmd) sumFiles(ctx context.Context, s *surroundings) (err error) {
	cfg, err := c.loadFrom(s, config.Sources{Flags: c.Given(), NoTopic: true}, nil)
	if err != nil {
		return err
	}
	f := &summarise.Files{
		Paths: c.Files, Stdin: s.stdin, Source: c.Source, Options: c.featureFlags.options(c.FileFormat),
		BlockRows: given(c.BlockRows, 20_000), Time: c.Time,
		Sample: sample.Settings{Rows: c.Sample, Seed: uint64(cfg.Sample.Seed), Balanced: cfg.Sample.Balanced},
		Doubt:  s.warnOfDoubt,
	}
	if f.Source == "" {
		f.Source = "stdin"
	}
	f.Options.Missing, _ = c.treatment() // Validate has checked it
	if err := c.schemaFlags.choose(s, c.Files[0], &f.Options); err != nil {
		return err
	}
	if err := c.unlabelledFlags.choose(&f.Options); err != nil {
		return err
	}
	if err := f.Check(); err != nil {
		return err
	}
	to := c.table
	if c.To != "" {
		to = c.topic
	}
	write, end, err := to(ctx, s, cfg)
	if err != nil {
		return err
	}
	began := time.Now()
	stop := s.watchRows("summing", f.Progress)
	defer stop()
	var r sumReport
	err = f.Sum(ctx, func(b *summarise.Made) error {
		r.Rows, r.Blocks, r.Bytes = r.Rows+b.Rows, r.Blocks+1, r.Bytes+int64(len(b.Value))
		return write(b)
	})
	err = end(c.advised(err, c.Files[0], c.Label))
	stop()
	if err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	r.RowsPerSecond = float64(r.Rows) / r.Seconds
	report := s.stdout
	if c.Out == "-" {
		report = s.stderr
	}
	if c.JSON {
		return printJSON(report, r)
	}
	_, err = fmt.Fprintf(report, "%s in %s, %.1f MB, in %.3g s: %s rows/s\n",
		counted(r.Rows, "row"), counted(r.Blocks, "block"), float64(r.Bytes)/1e6, r.Seconds, short(r.RowsPerSecond))
	return err
}

// table writes blocks to a table. end must be called with the error of the rest, if any: then no
// part of a table is left.
func (c *summariseCmd) table(_ context.Context, s *surroundings, _ *config.Config) (write func(*summarise.Made) error, end func(error) error, err error) {
	var to io.Writer = s.stdout
	closed := func(failed error) error { return failed }
	if c.Out != "-" {
		part := c.Out + ".part"
		file, err := os.Create(part)
		if err != nil {
			return nil, nil, err
		}
		to, closed = file, func(failed error) error {
			if failed = errors.Join(failed, file.Close()); failed != nil {
				os.Remove(part)
				return failed
			}
			return os.Rename(part, c.Out)
		}
	}
	buffered := bufio.NewWriterSize(to, 1<<20)
	return func(b *summarise.Made) error { return summarise.WriteRow(buffered, b) },
		func(failed error) error { return closed(errors.Join(failed, buffered.Flush())) }, nil
}

// sumsHeaders are those of a record of sums.
var sumsHeaders = []kafka.Header{{Key: "content-type", Value: []byte(summary.ContentType)}}

// topic writes blocks to a topic, likewise: in turn to all its partitions, each under its id, so
// that a compacted topic has it once. A record has the time of writing, as retention goes by it;
// the block has its own. What has been written stays: the same blocks count once.
func (c *summariseCmd) topic(ctx context.Context, s *surroundings, cfg *config.Config) (write func(*summarise.Made) error, end func(error) error, err error) {
	log := consoleLog(s.stderr)
	cluster, err := settings.Cluster(cfg.Kafka, log)
	if err != nil {
		return nil, nil, usageError{err}
	}
	p, err := openTopic(ctx, cluster, cfg.Kafka, kafka.ProducerConfig{Topic: c.To, Compress: true}, 1, log)
	if err != nil {
		return nil, nil, err
	}
	n := 0
	write = func(b *summarise.Made) error {
		if most := int(cfg.Kafka.MaxMessageBytes); len(b.Value) > most {
			return fmt.Errorf("block %s takes %d bytes, more than kafka.max_message_bytes, %d", b.ID, len(b.Value), most)
		}
		n++
		return p.Write(ctx, n%p.Partitions(), []byte(b.ID), b.Value, sumsHeaders, time.Time{})
	}
	return write, func(failed error) error {
		defer p.Close()
		return errors.Join(failed, p.Flush(ctx))
	}, nil
}
