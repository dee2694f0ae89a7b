package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/ndc"
)

// Points are the normally distributed clusters that a benchmark is about.
type Points struct {
	Rows         int64            `json:"rows"`
	Features     int              `json:"features"`
	Separability ndc.Separability `json:"separability"`
	Seed         uint64           `json:"seed"`
	BlockRows    int              `json:"block_rows"`
}

func (p Points) generator() (*ndc.Generator, error) {
	return ndc.New(ndc.Config{Features: p.Features, Separability: p.Separability, Seed: p.Seed})
}

// names is the value of format.features for a daemon that learns the points.
func (p Points) names() string { return strings.Join(incremental.DefaultFeatures(p.Features), ",") }

func (p Points) parameters() []Parameter {
	return []Parameter{
		{"rows", p.Rows}, {"features", p.Features}, {"type", "float32"}, {"block_rows", p.BlockRows},
		{"separability", p.Separability.String()}, {"seed", p.Seed},
	}
}

// Program is streamd, for the benchmarks of all of it at once.
type Program struct {
	// Run is the program in this process: args are without its name, and what
	// it reports goes to stdout.
	Run func(ctx context.Context, args []string, stdout io.Writer) error
	// Path is the executable, for a process of its own.
	Path string
}

// noConfig makes a configuration file in which nothing is set, lest a command
// takes the one of the folder that it happens to run in.
func noConfig(dir string) (path string, err error) {
	path = filepath.Join(dir, "empty.yaml")
	return path, os.WriteFile(path, nil, 0o600)
}

// replayed is what streamd replay reports.
type replayed struct {
	Rows    int64 `json:"rows"`
	Blocks  int64 `json:"blocks"`
	Bytes   int64 `json:"bytes"`
	NextRow int64 `json:"next_row"`
}

// replay writes the points from number first to a topic. After an interruption
// it says how far it came, and returns the error too.
func (p Program) replay(ctx context.Context, dir string, points Points, first int64, t *topic, more ...string) (r replayed, err error) {
	empty, err := noConfig(dir)
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

// Setting is what the benchmarks that read a topic have in common.
type Setting struct {
	Points
	Partitions int      // of the topic, which is made for the benchmark and deleted again
	Brokers    []string // none: an embedded broker
	Program    Program
	Log        zerolog.Logger
}

// place is the topic of a benchmark, and a folder.
type place struct {
	dir   string
	topic *topic
}

func (c Setting) open(ctx context.Context) (*place, error) {
	dir, err := os.MkdirTemp("", "streamd-bench-")
	if err != nil {
		return nil, err
	}
	t, err := openTopic(ctx, c.Brokers, dir, newTopicName(), c.Partitions, keepAll)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &place{dir, t}, nil
}

func (p *place) close(ctx context.Context) error {
	return errors.Join(p.topic.drop(ctx), os.RemoveAll(p.dir))
}

// topic is a topic that is there for a benchmark only.
type topic struct {
	name       string
	partitions int
	cluster    kafka.Cluster
	embedded   *embedded.Broker // nil: a real one
}

func newTopicName() string { return "streamd-bench-" + strings.ToLower(rand.Text()[:10]) }

const (
	keepAll = -1 // of retentionBytes

	// maxBlockBytes is what a topic takes in one record batch.
	maxBlockBytes = 32 << 20

	// Retention deletes by segments: they must be small against a partition.
	segmentBytes = 32 << 20

	cleanUpTime = 30 * time.Second
)

// openTopic makes a topic that keeps about retentionBytes of each partition, at
// the brokers or, if there are none, at an embedded one whose log is in dir. One
// that is there is gone on with.
func openTopic(ctx context.Context, brokers []string, dir, name string, partitions int, retentionBytes int64) (*topic, error) {
	t := &topic{name: name, partitions: partitions, cluster: kafka.Cluster{Brokers: brokers, ClientID: "streamd-bench"}}
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
func (t *topic) group(of string) string { return t.name + "-" + of }

// kind is what to call the broker in a result.
func (t *topic) kind() string {
	if t.embedded != nil {
		return "embedded"
	}
	return "real"
}

// drop deletes the topic and closes it, also when ctx has ended.
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
