package bench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/ndc"
)

// Points are the normally distributed clusters of a benchmark.
type Points struct {
	Rows         int64            `json:"rows" kong:"-"` // a flag of each benchmark
	Features     int              `json:"features" default:"10" help:"Features of a point."`
	Separability ndc.Separability `json:"separability" default:"easy" placeholder:"easy|hard|X" help:"How well a plane separates the points: easy (about 90.5 %), hard (70 %), or an expansion factor of the clusters."`
	Seed         uint64           `json:"seed" default:"1" help:"Seed of clusters and points."`
	BlockRows    int              `json:"block_rows" default:"20000" help:"Rows per block."`
}

// Check returns an error for a value that is out of range, with so many rows.
func (p Points) Check(rows int64) error {
	return cmp.Or(
		Within("rows", 1, ndc.MaxPoints, rows), Within("features", 1, ndc.MaxFeatures, p.Features),
		Within("block-rows", 1, 1<<20, p.BlockRows))
}

// of returns so many of the points.
func (p Points) of(rows int64) Points {
	p.Rows = rows
	return p
}

func (p Points) generator() (*ndc.Generator, error) {
	return ndc.New(ndc.Config{Features: p.Features, Separability: p.Separability, Seed: p.Seed})
}

// settings are the settings of a daemon that learns the points.
func (p Points) settings() map[string]string {
	return map[string]string{"format.features": strings.Join(incremental.DefaultFeatures(p.Features), ",")}
}

func (p Points) parameters() []Parameter {
	return []Parameter{
		{"rows", p.Rows}, {"features", p.Features}, {"type", "float32"}, {"block_rows", p.BlockRows},
		{"separability", p.Separability.String()}, {"seed", p.Seed},
	}
}

// Through are the flags of benchmarks that read a topic, which is made for the benchmark and
// deleted again.
type Through struct {
	Brokers    []string `placeholder:"HOST:PORT" help:"Addresses of the brokers, where a topic is made for the benchmark and deleted again. Without them an embedded broker is started."`
	Partitions int      `default:"4" help:"Partitions of the topic."`
}

// Check returns an error for a value that is out of range.
func (f Through) Check() error { return Within("partitions", 1, 1024, f.Partitions) }

// Program is streamd, for the benchmarks of all of it.
type Program struct {
	// Run is the program in this process. The arguments are without its name. Reports go to
	// stdout.
	Run func(ctx context.Context, args []string, stdout io.Writer) error
	// Path is the executable, for a process of its own.
	Path string
}

// noConfig makes a configuration file without settings. Without it a command would take the
// one of the folder that it runs in.
func noConfig(dir string) (path string, err error) {
	path = filepath.Join(dir, "empty.yaml")
	return path, os.WriteFile(path, nil, 0o600)
}

// replayed is the report of streamd replay.
type replayed struct {
	Rows    int64 `json:"rows"`
	Blocks  int64 `json:"blocks"`
	Bytes   int64 `json:"bytes"`
	NextRow int64 `json:"next_row"`
}

// replay writes the points from number first to a topic. After an interruption it returns its
// progress with the error.
func (p Program) replay(ctx context.Context, t *topic, points Points, first int64, more ...string) (r replayed, err error) {
	empty, err := noConfig(t.dir)
	if err != nil {
		return r, err
	}
	args := append([]string{
		"replay", "ndc", "--json", "-c", empty,
		"--brokers", strings.Join(t.cluster.Brokers, ","), "--topic", t.name,
		"--partitions", strconv.Itoa(t.partitions),
		"--first-row", strconv.FormatInt(first, 10), "--rows", strconv.FormatInt(points.Rows-first, 10),
		"--features", strconv.Itoa(points.Features), "--separability", points.Separability.String(),
		"--seed", strconv.FormatUint(points.Seed, 10), "--block-rows", strconv.Itoa(points.BlockRows),
	}, more...)
	var out bytes.Buffer
	err = p.Run(ctx, args, &out)
	if out.Len() == 0 && err != nil {
		return replayed{NextRow: first}, err
	}
	if unreadable := json.Unmarshal(out.Bytes(), &r); unreadable != nil {
		return r, errors.Join(err, fmt.Errorf("the report of streamd replay: %w", unreadable))
	}
	return r, err
}

// topic is a topic that exists for a benchmark only.
type topic struct {
	dir        string // of the log of an embedded broker, and of other files
	name       string
	partitions int
	cluster    kafka.Cluster
	embedded   *embedded.Broker // nil: a real one
}

// with calls do with a topic and a folder, and removes them.
func (f Through) with(ctx context.Context, do func(*topic) error) (err error) {
	dir, err := os.MkdirTemp("", "streamd-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t, err := openTopic(ctx, f.Brokers, dir, newTopicName(), f.Partitions, keepAll)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.drop(ctx)) }()
	return do(t)
}

// With calls do with the brokers and the name of a topic that exists meanwhile, and with a folder
// for the state of a daemon.
func (f Through) With(ctx context.Context, do func(brokers []string, topic, dir string) error) error {
	return f.with(ctx, func(t *topic) error { return do(t.cluster.Brokers, t.name, t.dir) })
}

func newTopicName() string { return "streamd-bench-" + strings.ToLower(rand.Text()[:10]) }

const (
	keepAll = -1 // of retentionBytes

	// maxBlockBytes is the size of a record batch that a topic takes.
	maxBlockBytes = 32 << 20

	// Retention deletes by segments, so they must be small against a partition.
	segmentBytes = 32 << 20

	cleanUpTime = 30 * time.Second
)

// openTopic makes a topic that keeps about retentionBytes of each partition, or uses one that
// exists. Without brokers it is at an embedded one, whose log is in dir.
func openTopic(ctx context.Context, brokers []string, dir, name string, partitions int, retentionBytes int64) (*topic, error) {
	t := &topic{dir: dir, name: name, partitions: partitions, cluster: kafka.Cluster{Brokers: brokers, ClientID: "streamd-bench"}}
	if len(brokers) == 0 {
		b, err := embedded.Start(dir)
		if err != nil {
			return nil, err
		}
		t.embedded, t.cluster.Brokers = b, []string{b.Addr()}
	}
	err := kafka.EnsureTopic(ctx, t.cluster, name, partitions, map[string]string{
		"retention.bytes":   strconv.FormatInt(retentionBytes, 10),
		"retention.ms":      "-1",
		"segment.bytes":     strconv.Itoa(segmentBytes),
		"max.message.bytes": strconv.Itoa(maxBlockBytes),
	})
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// group names a consumer group of the topic's own.
func (t *topic) group(name string) string { return t.name + "-" + name }

// settings returns the settings of a daemon that learns the rows of the topic, and adds others.
func (t *topic) settings(group string, others ...map[string]string) map[string]string {
	settings := map[string]string{
		"kafka.brokers": strings.Join(t.cluster.Brokers, ","),
		"kafka.topic":   t.name,
		"kafka.group":   t.group(group),
	}
	for _, more := range others {
		maps.Copy(settings, more)
	}
	return settings
}

// kind names the broker in a result.
func (t *topic) kind() string {
	if t.embedded != nil {
		return "embedded"
	}
	return "real"
}

// drop deletes the topic and closes it, also after ctx has ended.
func (t *topic) drop(ctx context.Context) error {
	defer t.close()
	if t.embedded != nil {
		return nil // its log goes with the folder
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	transport := &kafkago.Transport{ClientID: t.cluster.ClientID}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(t.cluster.Brokers...), Transport: transport}
	answer, err := client.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{t.name}})
	if err == nil {
		err = answer.Errors[t.name]
	}
	if err != nil {
		return fmt.Errorf("delete topic %s, which is there for this benchmark only: %w", t.name, err)
	}
	return nil
}

func (t *topic) close() {
	if t.embedded != nil {
		t.embedded.Close()
	}
}
