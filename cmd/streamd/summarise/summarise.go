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
	"net"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/stage"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/ingest/registry"
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
	cfg      *config.Config
	to       string
	log      zerolog.Logger
	version  string
	cluster  kafka.Cluster
	sums     *intake.Stage
	letters  *kafka.DeadLetters // nil: dead letters are not written
	listener net.Listener
	probes   *httpapi.Server
	registry *registry.Client // of the schemas of messages; nil: there is none
}

// New checks the settings and begins to listen. It does not connect. Run must be called afterwards.
func New(o Options) (*Stage, error) {
	cfg := o.Config
	limit, err := memory.Limit(cfg)
	if err != nil {
		return nil, err
	}
	budget := memory.New(cfg, limit)
	asked, err := daemon.Registry(cfg.Format.Registry, o.Log)
	if err != nil {
		return nil, err
	}
	decoding, err := daemon.Decoding(cfg, budget, asked)
	if err != nil {
		return nil, err
	}
	cluster, err := daemon.Cluster(cfg.Kafka, o.Log)
	if err != nil {
		return nil, err
	}
	z := &Stage{cfg: cfg, to: o.To, log: o.Log, version: o.Version, cluster: cluster, registry: asked}
	settings := intake.Settings{Config: cfg, Log: o.Log, Budget: budget, Decoding: decoding}
	if cfg.DeadLetters.Policy == config.DeadLettersQueue {
		z.letters, err = kafka.NewDeadLetters(kafka.DeadLetterConfig{
			Cluster: cluster, Source: cfg.Kafka.Topic, Topic: cfg.DeadLetters.Topic, Connector: "streamd.summarise",
		}, o.Log)
		if err != nil {
			return nil, err
		}
		settings.Letters = z.letters
	}
	z.sums = intake.NewStage(settings, o.Rows)
	running := stage.Config{
		Consuming:    daemon.ConsumerConfig(cfg.Kafka, cluster, budget),
		Transaction:  kafka.TransactionConfig{Cluster: cluster, Source: cfg.Kafka.Topic, Group: cfg.Kafka.Group, Topic: o.To, Compress: true},
		TopicConfigs: z.topicConfigs, Open: z.open, Await: z.sums.Await,
		Interval: CommitInterval, Commits: 0.1,
	}
	if o.adjust != nil {
		o.adjust(z, &running)
	}
	if z.Stage, err = stage.New(running, o.Log); err != nil {
		return nil, err
	}
	guard, err := access.New(cfg.HTTP, o.Log)
	if err != nil {
		return nil, err
	}
	z.probes = httpapi.NewProbes(httpapi.Config{Access: guard, MaxConnections: cfg.HTTP.MaxConnections},
		func() string { return z.NotReady(time.Now()) }, collector{z}, o.Log)
	if z.listener, err = net.Listen("tcp", cfg.HTTP.Listen); err != nil {
		return nil, fmt.Errorf("http.listen: %w", err)
	}
	return z, nil
}

// Addr is the address that HTTP is served on.
func (z *Stage) Addr() net.Addr { return z.listener.Addr() }

// Run sums until ctx ends, which is no error, or until it cannot go on. What has been read is
// committed, and the group is left, before it returns.
func (z *Stage) Run(ctx context.Context) error {
	if z.letters != nil {
		defer z.letters.Close()
	}
	return z.RunBeside(ctx, z.probes, z.listener)
}

// NotReady says why the stage does not work; empty: it does.
func (z *Stage) NotReady(now time.Time) string {
	if why := z.Stage.NotReady(now); why != "" || z.registry == nil {
		return why
	}
	if since, why := z.registry.Away(); !since.IsZero() {
		return fmt.Sprintf("messages wait for their schemas, since the schema registry does not answer: %v", why)
	}
	return ""
}

// topicConfigs are Kafka's settings of a topic of blocks that is made. It keeps records as long as
// the source does, whose times they have. With keys it is compacted, as the newest value of each is
// all that counts.
func (z *Stage) topicConfigs(ctx context.Context) (map[string]string, error) {
	configs := map[string]string{"max.message.bytes": fmt.Sprint(int64(z.cfg.Kafka.MaxMessageBytes)), "retention.ms": "-1"}
	source, err := kafka.ReadRetention(ctx, z.cluster, z.cfg.Kafka.Topic)
	if err == nil && source.After > 0 {
		configs["retention.ms"] = fmt.Sprint(source.After.Milliseconds())
	}
	if z.cfg.Blocks.Unit == config.UnitKey {
		configs["cleanup.policy"] = "compact"
	}
	return configs, err
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
