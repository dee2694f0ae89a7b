// Package summarise is the stage before the daemon: it reads the rows of a topic, and writes what a
// block leaves behind to another one, which daemons learn from.
//
//	rows topic ──> intake.Summing ──> transaction ──> blocks topic ──> streamd run
//	                 │                    └─ offsets of the group
//	                 └──> dead letters
//
//	summarise.go  the stage is made; one partition of the source
//	metrics.go    readiness and metrics
//	files.go      rows of files, in place of a topic
//	table.go      blocks in a file, in place of a topic
//
// What a record becomes depends on its partition alone (package intake, summing.go).
//
// How it runs, and that it does so exactly once, is package stage. The text beside the committed
// offset has what a sum depends on and lies before the offset: the event times of the partition's
// clock.
package summarise

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/stage"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// Options are the settings of a stage.
type Options struct {
	Config  *config.Config
	To      string // topic of the blocks; it is made if it is missing
	Rows    int    // of a block for the sample; 0: none
	Log     zerolog.Logger
	Version string

	adjust func(*Stage, *stage.Config) // for tests; nil: nothing
}

// CommitInterval is how long what has been written waits for its commit, and so how much later a
// daemon has it. Brokers that take long have it wait longer.
const CommitInterval = 200 * time.Millisecond

// Stage is a running stage. Make it with New and call Run once.
type Stage struct {
	*stage.Stage
	cfg     *config.Config
	to      string
	log     zerolog.Logger
	version string
	cluster kafka.Cluster
	sums    *intake.Stage
	letters *kafka.DeadLetters // nil: dead letters are not written
}

// New checks the settings and begins to listen. It does not connect. Run must be called afterwards.
func New(o Options) (*Stage, error) {
	cfg := o.Config
	r, err := settings.NewReading(cfg, o.Log)
	if err != nil {
		return nil, err
	}
	cluster := r.Cluster
	z := &Stage{cfg: cfg, to: o.To, log: o.Log, version: o.Version, cluster: cluster}
	summing := intake.Settings{Config: cfg, Log: o.Log, Budget: r.Budget, Decoding: r.Decoding}
	if cfg.DeadLetters.Policy == config.DeadLettersQueue {
		z.letters, err = kafka.NewDeadLetters(kafka.DeadLetterConfig{
			Cluster: cluster, Source: cfg.Kafka.Topic, Topic: cfg.DeadLetters.Topic, Connector: "streamd.summarise",
		}, o.Log)
		if err != nil {
			return nil, err
		}
		summing.Letters = z.letters
	}
	z.sums = intake.NewStage(summing, o.Rows)
	running := stage.Config{
		Consuming:    settings.ConsumerConfig(cfg.Kafka, cluster, r.Budget),
		Transaction:  kafka.TransactionConfig{Cluster: cluster, Source: cfg.Kafka.Topic, Group: cfg.Kafka.Group, Topic: o.To},
		TopicConfigs: map[string]string{"max.message.bytes": fmt.Sprint(int64(cfg.Kafka.MaxMessageBytes))},
		Open:         z.open, Await: z.sums.Await, Registry: r.Registry,
		Interval: CommitInterval, Commits: 0.1,
	}
	if cfg.Blocks.Unit == config.UnitKey { // the newest value of each key is all that counts
		running.TopicConfigs["cleanup.policy"] = "compact"
	}
	if o.adjust != nil {
		o.adjust(z, &running)
	}
	if z.Stage, err = stage.New(running, o.Log); err != nil {
		return nil, err
	}
	return z, z.Listen("http.listen", cfg.HTTP, collector{z})
}

// Run sums until ctx ends, which is no error, or until it cannot go on. What has been read is
// committed, and the group is left, before it returns.
func (z *Stage) Run(ctx context.Context) error {
	if z.letters != nil {
		defer z.letters.Close()
	}
	return z.Stage.Run(ctx)
}

// open makes the work of a partition.
func (z *Stage) open(partition int, at kafka.Committed, to stage.Writer) (stage.Work, kafka.Saved, bool) {
	from, clock, known := kafka.Saved{}, retire.Clock{}, at.Offset >= 0
	if known {
		var ok bool
		if from, clock, ok = readPlace(at); !ok {
			z.log.Warn().Int("partition", partition).Int64("offset", at.Offset).
				Msg("the offset was committed by something else than streamd: event times are bounded as at the beginning of a log")
		}
	}
	return summing{z.sums.Summing(partition, from, clock, to)}, from, known
}

// summing is the work of one partition.
type summing struct{ *intake.Summing }

// Resume implements stage.Work.
func (s summing) Resume() kafka.Committed { return placeOf(s.Summing.Resume()) }

// place is the text beside a committed offset.
type place struct {
	stage.Place
	Times []int64 `json:"times,omitempty"` // of the clock, in ms since 1970
}

func placeOf(at kafka.Saved, clock retire.Clock) kafka.Committed {
	return stage.Commit(at, place{stage.PlaceOf(at), clock.Times()})
}

// readPlace is the opposite of placeOf. Without such a text there is no last record, the clock has
// seen nothing, and ok is false.
func readPlace(c kafka.Committed) (at kafka.Saved, clock retire.Clock, ok bool) {
	var p place
	if !stage.Committed(c, &p) || len(p.Times) > 16 {
		return kafka.Saved{Next: c.Offset}, clock, false
	}
	return p.At(c.Offset), retire.ClockAt(p.Times), true
}
