package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/pipeline"
	"streamd/cmd/streamd/summarise"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/ndc"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
)

// replayCmd writes labelled blocks to a topic.
type replayCmd struct {
	NDC  replayNDCCmd  `cmd:"" name:"ndc" help:"Write points of the NDC generator, Normally Distributed Clusters: any number, and as separable as asked."`
	File replayFileCmd `cmd:"" help:"Write the rows of a file. With --schema the columns that it makes features of are written as they are, texts, too."`
}

// replayFlags say where blocks go and how.
type replayFlags struct {
	configFile
	Brokers    []string  `placeholder:"HOST:PORT" help:"Addresses to find the cluster by. By default the configuration's kafka.brokers."`
	Topic      string    `placeholder:"NAME" help:"Topic to write to. By default the configuration's kafka.topic."`
	Partitions int       `default:"1" help:"Partitions to create the topic with if it does not exist. Blocks go to all partitions in turn."`
	Format     string    `default:"arrow" enum:"arrow,json,csv,libsvm" help:"Format of the messages: ${enum}."`
	BlockRows  int       `default:"20000" help:"Rows per message; 1 makes single-row messages."`
	Rate       float64   `default:"0" placeholder:"ROWS" help:"Most rows to write per second. 0: as many as the cluster takes."`
	WaitGroup  string    `placeholder:"GROUP" help:"kafka.group of a daemon to wait for, so that it loses no block to the topic's retention."`
	MaxLag     int64     `default:"256" help:"Most messages per partition that --wait-group may be behind."`
	Time       time.Time `placeholder:"RFC3339" help:"Event time of all blocks. By default the time of writing."`
	jsonFlag
}

// maxReplayed is the most rows of a message.
const maxReplayed = 1 << 24

func (f *replayFlags) check() error {
	switch {
	case f.Partitions < 1:
		return fmt.Errorf("--partitions %d: must be 1 or more", f.Partitions)
	case f.BlockRows < 1 || f.BlockRows > maxReplayed:
		return fmt.Errorf("--block-rows %d: must be 1 to %d", f.BlockRows, maxReplayed)
	case !(f.Rate >= 0) || math.IsInf(f.Rate, 0):
		return fmt.Errorf("--rate %v: must be 0 or more", f.Rate)
	case f.MaxLag < 1:
		return fmt.Errorf("--max-lag %d: must be 1 or more", f.MaxLag)
	}
	return nil
}

// shipmentRows is the number of rows that a worker encodes at a time where messages are
// smaller: so many that handing them over costs little.
const shipmentRows = 4096

// messagesPerShipment is the number of messages in a shipment.
func (f *replayFlags) messagesPerShipment() int { return max(1, shipmentRows/f.BlockRows) }

type replayNDCCmd struct {
	Rows         int64            `required:"" placeholder:"N" help:"Points to write."`
	Features     int              `default:"10" help:"Features of a point."`
	Separability ndc.Separability `default:"easy" placeholder:"easy|hard|X" help:"How well a plane separates the points: easy (about 90.5 %), hard (70 %), or an expansion factor of the clusters."`
	Seed         uint64           `default:"1" help:"Seed of clusters and points."`
	Drift        ndc.Drift        `placeholder:"FIRST:LAST" help:"Let the points drift to other clusters, those of the next seed. Their share grows from 0 at point number FIRST to 1 at LAST. The 60 days of Fung's figure 2.7 are --rows 60000000 --drift 30000000:32000000."`
	FirstRow     int64            `default:"0" help:"Number of the first point to write; an interrupted replay says where to go on."`
	replayFlags
}

// Validate implements kong's interface.
func (c *replayNDCCmd) Validate() error {
	if c.Rows < 1 {
		return fmt.Errorf("--rows %d: must be 1 or more", c.Rows)
	}
	if c.FirstRow < 0 || c.Rows > ndc.MaxPoints-c.FirstRow {
		return fmt.Errorf("--rows %d from --first-row %d: there are points 0 to %d", c.Rows, c.FirstRow, ndc.MaxPoints-1)
	}
	return c.check()
}

func (c *replayNDCCmd) Run(ctx context.Context, s *surroundings) error {
	generator, err := ndc.New(ndc.Config{Features: c.Features, Separability: c.Separability, Seed: c.Seed, Drift: c.Drift})
	if err != nil {
		return usageError{err}
	}
	r, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	defer r.close()
	r.report.Expansion = generator.Expansion()
	r.block = c.FirstRow / int64(c.BlockRows) // so that blocks go to the same partitions as without an interruption

	type job struct {
		first int64
		rows  int
		to    *shipment
	}
	first, end := c.FirstRow, c.FirstRow+c.Rows
	samplers := make([]*ndc.Sampler, pipeline.Workers())
	encoders := make([]*wire.Encoder, pipeline.Workers())
	for i := range samplers {
		samplers[i], encoders[i] = generator.NewSampler(), wire.NewEncoder(r.format)
	}
	stop := s.watch("writing to "+r.report.Topic, func() advance {
		a := r.advance()
		a.done = float64(a.rows) / float64(c.Rows)
		return a
	})
	defer stop()
	err = pipeline.Run(ctx, pipeline.Workers(),
		func() (job, error) {
			if first == end {
				return job{}, io.EOF
			}
			rows := int(min(int64(c.BlockRows)*int64(c.messagesPerShipment()), end-first))
			j := job{first, rows, r.empty()}
			first += int64(rows)
			return j, nil
		},
		func(worker int, j job) (*shipment, error) {
			for done := 0; done < j.rows; {
				rows := min(c.BlockRows, j.rows-done)
				b := samplers[worker].Block(ndc.Train, j.first+int64(done), rows)
				if err := j.to.add(encoders[worker], b); err != nil {
					return nil, err
				}
				done += rows
			}
			return j.to, nil
		},
		func(sent *shipment) error { return r.send(ctx, sent) })
	stop()
	return r.finish(ctx, s, err, c.FirstRow, c.JSON)
}

type replayFileCmd struct {
	File string `arg:"" help:"CSV, LIBSVM, JSON, Arrow, Parquet, or the images of an idx pair, also compressed by gzip or Zstandard (.gz, .zst); or a table of summed blocks, written by streamd summarise --out or by another engine: lines of JSON, Parquet, or a folder of these."`
	featureFlags
	schemaFlags
	FileFormat string `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of a file whose name does not end in one: ${enum}. With auto the first line decides."`
	replayFlags
}

// Validate implements kong's interface.
func (c *replayFileCmd) Validate() error { return c.check() }

func (c *replayFileCmd) Run(ctx context.Context, s *surroundings) error {
	if is, err := summarise.IsTable(c.File); err != nil || is {
		if err != nil {
			return err
		}
		return c.replayTable(ctx, s)
	}
	options := c.featureFlags.options(c.FileFormat)
	// The reader of the topic treats missing values and labels.
	options.Missing.Default, options.KeepUnlabelled = wire.MissingNaN, true
	if err := c.schemaFlags.choose(s, c.File, &options); err != nil {
		return err
	}
	if options.Schema != nil { // the reader of the topic makes the features
		options.Schema = wire.SourcesOf(options.Schema)
	}
	reader, err := wire.OpenFile(c.File, options, c.BlockRows*c.messagesPerShipment())
	if err != nil {
		return err
	}
	defer reader.Close()
	r, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	defer r.close()

	type job struct {
		piece *wire.Piece
		to    *shipment
	}
	encoders := make([]*wire.Encoder, pipeline.Workers())
	for i := range encoders {
		encoders[i] = wire.NewEncoder(r.format)
		encoders[i].Missing = true
	}
	slicers := make([]slicer, pipeline.Workers())
	free := dataset.Pieces()
	stop := s.watch("writing to "+r.report.Topic, func() advance {
		a := r.advance()
		read, size := reader.Progress()
		a.done = float64(read) / float64(size)
		return a
	})
	defer stop()
	var doubt sync.Once
	err = pipeline.Run(ctx, pipeline.Workers(),
		func() (job, error) {
			piece := <-free
			if _, err := reader.Cut(piece); err != nil {
				return job{}, err
			}
			doubt.Do(func() { s.warnOfDoubt(c.File, reader.Doubt()) })
			return job{piece, r.empty()}, nil
		},
		func(worker int, j job) (*shipment, error) {
			defer func() { free <- j.piece }()
			b, err := j.piece.Block()
			if err != nil {
				return nil, err
			}
			for first := 0; first < b.Rows(); first += c.BlockRows {
				rows := slicers[worker].slice(b, first, min(first+c.BlockRows, b.Rows()))
				encoders[worker].Texts = j.piece.Texts()
				if err := j.to.add(encoders[worker], rows); err != nil {
					return nil, fmt.Errorf("encode %s: %w", c.File, err)
				}
			}
			return j.to, nil
		},
		func(sent *shipment) error { return r.send(ctx, sent) })
	stop()
	return r.finish(ctx, s, c.advised(err, c.File, c.Label), 0, c.JSON)
}

// replayTable writes a table of blocks that are summed (summarise --out), each under its id, so
// that a compacted topic has it once.
func (c *replayFileCmd) replayTable(ctx context.Context, s *surroundings) error {
	r, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	defer r.close()
	stop := s.watch("writing to "+r.report.Topic, r.advance)
	defer stop()
	r.headers = sumsHeaders
	err = summarise.ReadTable(c.File, r.maxBytes, func(b *summary.Block, value []byte) error {
		return r.write(ctx, []byte(b.ID), value, int(b.Rows.Read))
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", c.File, err)
	}
	stop()
	return r.finish(ctx, s, err, 0, c.JSON)
}

// slicer has the working memory of one worker.
type slicer struct {
	block   incremental.Block
	columns []gram.Column
}

// slice is the block of rows i to j, j not included. It is valid until the next
// call.
func (s *slicer) slice(b *incremental.Block, i, j int) *incremental.Block {
	s.columns = s.columns[:0]
	for _, column := range b.Columns {
		s.columns = append(s.columns, column.Slice(i, j))
	}
	s.block = *b
	s.block.Columns, s.block.Codes = s.columns, b.Codes[i:j]
	if b.Weights != nil {
		s.block.Weights = b.Weights[i:j]
	}
	return &s.block
}

// shipment is the payloads of blocks that follow each other.
type shipment struct {
	data []byte
	ends []int // payload i ends at data[ends[i]]
	rows []int // in payload i
}

func (p *shipment) add(e *wire.Encoder, b *incremental.Block) (err error) {
	p.data, err = e.Append(p.data, b)
	p.ends = append(p.ends, len(p.data))
	p.rows = append(p.rows, b.Rows())
	return err
}

// replayReport is the report of a replay.
type replayReport struct {
	Topic         string  `json:"topic"`
	Partitions    int     `json:"partitions"`
	Rows          int64   `json:"rows"`
	Blocks        int64   `json:"blocks"`
	Bytes         int64   `json:"bytes"` // of the payloads
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	Interrupted   bool    `json:"interrupted"`
	NextRow       int64   `json:"next_row"`            // where another replay would go on
	Expansion     float64 `json:"expansion,omitempty"` // factor, of NDC
}

// replay writes shipments. Its methods are for one goroutine, advance aside.
type replay struct {
	flags    *replayFlags
	producer *kafka.Producer
	monitor  *kafka.LagMonitor // nil: nobody to wait for
	format   wire.Format
	headers  []kafka.Header
	maxBytes int
	used     chan *shipment // free memory

	report   replayReport
	block    int64 // number of the next
	unwaited int64 // blocks since the last look at the lag
	began    time.Time

	rows, bytes atomic.Int64 // written
	waiting     atomic.Bool  // for the group
}

func (f *replayFlags) open(ctx context.Context, s *surroundings) (r *replay, err error) {
	given := map[string]string{}
	if len(f.Brokers) > 0 {
		given["kafka.brokers"] = strings.Join(f.Brokers, ",")
	}
	if f.Topic != "" {
		given["kafka.topic"] = f.Topic
	}
	cfg, err := f.load(s, given, map[string]string{"--kafka.brokers": "--brokers", "--kafka.topic": "--topic"})
	if err != nil {
		return nil, err
	}
	cluster, err := settings.Cluster(cfg.Kafka, consoleLog(s.stderr))
	if err != nil {
		return nil, usageError{err}
	}
	format := formatOf(f.Format)
	log := consoleLog(s.stderr)
	topic := cfg.Kafka.Topic
	producer, err := openTopic(ctx, cluster, cfg.Kafka, kafka.ProducerConfig{Topic: topic}, f.Partitions, log)
	if err != nil {
		return nil, err
	}
	r = &replay{
		producer: producer,
		flags:    f,
		format:   format,
		headers:  []kafka.Header{{Key: "content-type", Value: []byte(format.ContentType())}},
		maxBytes: int(cfg.Kafka.MaxMessageBytes),
		used:     make(chan *shipment, pipeline.InFlight(pipeline.Workers())),
		began:    time.Now(),
	}
	for range cap(r.used) {
		r.used <- new(shipment)
	}
	if f.WaitGroup != "" {
		if r.monitor, err = kafka.NewLagMonitor(cluster, topic, f.WaitGroup); err != nil {
			r.close()
			return nil, err
		}
	}
	r.report.Topic, r.report.Partitions = topic, r.producer.Partitions()
	if f.Partitions != 1 && f.Partitions != r.report.Partitions {
		log.Warn().Str("topic", topic).Int("partitions", r.report.Partitions).Msgf("the topic exists already and does not have %d partitions", f.Partitions)
	}
	return r, nil
}

// openTopic opens a topic to write to. It is made with so many partitions if it is missing.
func openTopic(ctx context.Context, cluster kafka.Cluster, k config.Kafka, p kafka.ProducerConfig, partitions int, log zerolog.Logger) (*kafka.Producer, error) {
	// A new topic takes messages as large as the daemon reads, not just Kafka's default of
	// a megabyte.
	configs := map[string]string{"max.message.bytes": strconv.FormatInt(int64(k.MaxMessageBytes), 10)}
	if err := kafka.EnsureTopic(ctx, cluster, p.Topic, partitions, configs); err != nil {
		return nil, err
	}
	p.Cluster = cluster
	return kafka.OpenProducer(ctx, p, log)
}

func (r *replay) close() {
	r.producer.Close()
	if r.monitor != nil {
		r.monitor.Close()
	}
}

// empty is a shipment to fill; send gives it back.
func (r *replay) empty() *shipment {
	p := <-r.used
	p.data, p.ends, p.rows = p.data[:0], p.ends[:0], p.rows[:0]
	return p
}

func (r *replay) send(ctx context.Context, p *shipment) error {
	from := 0
	for i, end := range p.ends {
		if err := r.write(ctx, nil, p.data[from:end], p.rows[i]); err != nil {
			return err
		}
		from = end
	}
	r.used <- p
	return nil
}

// write writes a block to the next partition, when it may be written.
func (r *replay) write(ctx context.Context, key, payload []byte, rows int) error {
	if len(payload) > r.maxBytes {
		return fmt.Errorf("a block of %d rows takes %d bytes, more than kafka.max_message_bytes, %d; lower --block-rows", rows, len(payload), r.maxBytes)
	}
	if err := r.pace(ctx); err != nil {
		return err
	}
	partition := int(r.block % int64(r.report.Partitions))
	if err := r.producer.Write(ctx, partition, key, payload, r.headers, r.flags.Time); err != nil {
		return err
	}
	r.block++
	r.report.Blocks++
	r.rows.Add(int64(rows))
	r.bytes.Add(int64(len(payload)))
	return nil
}

// pace waits until the next block may be written.
func (r *replay) pace(ctx context.Context) error {
	if rate := r.flags.Rate; rate > 0 {
		due := r.began.Add(time.Duration(float64(r.rows.Load()) / rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if r.monitor == nil {
		return nil
	}
	// Half of the allowed lag is written, then the lag must fall to the other half. Messages
	// under way must count, hence the flush.
	round := max(1, r.flags.MaxLag/2)
	if r.unwaited++; r.unwaited <= round*int64(r.report.Partitions) && r.unwaited > 1 {
		return nil
	}
	if err := r.producer.Flush(ctx); err != nil {
		return err
	}
	r.waiting.Store(true)
	defer r.waiting.Store(false)
	if err := r.monitor.WaitBelow(ctx, r.flags.MaxLag-round); err != nil {
		return fmt.Errorf("wait for group %s: %w", r.flags.WaitGroup, err)
	}
	r.unwaited = 1
	return nil
}

func (r *replay) advance() advance {
	a := advance{rows: r.rows.Load(), bytes: r.bytes.Load()}
	if r.waiting.Load() {
		a.awaits = "group " + r.flags.WaitGroup
	}
	return a
}

// finish flushes, also after an interruption, and reports.
func (r *replay) finish(ctx context.Context, s *surroundings, err error, firstRow int64, asJSON bool) error {
	stopped := errors.Is(err, context.Canceled) && ctx.Err() != nil
	if err != nil && !stopped {
		return err
	}
	flushCtx, cancel := ctx, context.CancelFunc(func() {})
	if stopped { // the rest of the time is for the report
		flushCtx, cancel = context.WithTimeout(context.WithoutCancel(ctx), interrupted*3/4)
	}
	defer cancel()
	if err := r.producer.Flush(flushCtx); err != nil {
		if stopped && flushCtx.Err() != nil {
			return fmt.Errorf("stopped before row %d, and the brokers have not acknowledged all rows before it: some may be missing: %w", firstRow+r.rows.Load(), context.Canceled)
		}
		return fmt.Errorf("flush: %w", err)
	}
	rep := &r.report
	rep.Rows, rep.Bytes = r.rows.Load(), r.bytes.Load()
	rep.Seconds = time.Since(r.began).Seconds()
	rep.RowsPerSecond = float64(rep.Rows) / rep.Seconds
	rep.Interrupted, rep.NextRow = stopped, firstRow+rep.Rows
	err = rep.print(s, asJSON)
	if stopped {
		return fmt.Errorf("stopped before row %d: %w", rep.NextRow, context.Canceled)
	}
	return err
}

func (r *replayReport) print(s *surroundings, asJSON bool) (err error) {
	if asJSON {
		return printJSON(s.stdout, r)
	}
	_, err = fmt.Fprintf(s.stdout, "%s in %s, %.1f MB, to %s of %s in %.3g s: %s rows/s\n",
		counted(r.Rows, "row"), counted(r.Blocks, "block"), float64(r.Bytes)/1e6, counted(r.Partitions, "partition"), r.Topic, r.Seconds, short(r.RowsPerSecond))
	return err
}
