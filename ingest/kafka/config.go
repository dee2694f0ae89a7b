package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Cluster says how to reach the brokers.
type Cluster struct {
	Brokers  []string // host:port, at least one; the others are discovered
	ClientID string   // appears in the broker's logs and quotas
	TLS      *tls.Config
	SASL     SASL

	// Dial opens connections; nil means an ordinary net.Dialer. Tests wrap the
	// connection to cut, slow or damage it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// SASL authenticates against the brokers. The zero value does not.
type SASL struct {
	Mechanism string // "", "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512"
	Username  string
	Password  string
}

func (s SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, s.Username, s.Password)
	case "SCRAM-SHA-512":
		return scram.Mechanism(scram.SHA512, s.Username, s.Password)
	}
	return nil, fmt.Errorf("SASL mechanism %q is unknown: want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", s.Mechanism)
}

func (c *Cluster) check() []error {
	var problems []error
	if len(c.Brokers) == 0 {
		problems = append(problems, errors.New("no brokers given"))
	}
	for _, b := range c.Brokers {
		host, port, err := net.SplitHostPort(b)
		if n, perr := strconv.Atoi(port); err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
			problems = append(problems, fmt.Errorf("broker %q is not host:port", b))
		}
	}
	if _, err := c.SASL.mechanism(); err != nil {
		problems = append(problems, err)
	}
	if c.SASL.Mechanism != "" && c.SASL.Username == "" {
		problems = append(problems, errors.New("SASL needs a user name"))
	}
	return problems
}

func (c *Cluster) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial
	}
	return (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
}

// Start says where to begin where nothing was saved.
type Start int

// The zero Start is Earliest, which loses nothing.
const (
	Earliest Start = iota
	Latest
)

// OnGap says what to do about a position outside the log, or one of another
// topic of the same name.
type OnGap int

// The zero OnGap is StopOnGap: going on is a decision for somebody who knows
// what was lost.
const (
	StopOnGap OnGap = iota
	GapToEarliest
	GapToLatest
)

// Config configures a Consumer. Zero values stand for the defaults given.
type Config struct {
	Cluster
	Topic string
	Group string
	Start Start
	OnGap OnGap
	Fetching

	SessionTimeout time.Duration // a silent member is expelled after it; 30 s
}

// Fetching says how much is fetched and held. Zero values stand for the defaults
// given.
type Fetching struct {
	MaxWait time.Duration // how long a broker may hold back an empty answer; 500 ms

	// FetchBytes are asked for in one request, which takes a broker some 130 µs
	// beside its bytes; 4 MiB.
	FetchBytes int

	// MaxMessageBytes bounds one record batch, both as sent and decompressed:
	// the broker's max.message.bytes, times what compression may gain. 64 MiB.
	MaxMessageBytes int

	// BufferBytes is the budget of outstanding bytes per partition; 8 MiB.
	BufferBytes int64

	// TotalBytes is the budget of all partitions together; 256 MiB. One partition at a
	// time may hold a record batch beside it.
	TotalBytes int64
}

func (c *Config) check() error {
	problems := append(c.Cluster.check(), checkTopic(c.Topic))
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Group == "" {
		report("no group given")
	}
	if c.Start < Earliest || c.Start > Latest {
		report("start %d is unknown", c.Start)
	}
	if c.OnGap < StopOnGap || c.OnGap > GapToLatest {
		report("on gap %d is unknown", c.OnGap)
	}
	problems = append(problems, c.Fetching.check()...)
	defaultTo(&c.SessionTimeout, 30*time.Second)
	if c.SessionTimeout < 100*time.Millisecond || c.SessionTimeout > time.Hour {
		report("session timeout %v is not between 100ms and 1h", c.SessionTimeout)
	}
	return errors.Join(problems...)
}

func (c *Fetching) check() []error {
	var problems []error
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	defaultTo(&c.MaxWait, 500*time.Millisecond)
	defaultTo(&c.FetchBytes, 4<<20)
	defaultTo(&c.MaxMessageBytes, 64<<20)
	defaultTo(&c.BufferBytes, 8<<20)
	defaultTo(&c.TotalBytes, 256<<20)
	if c.MaxWait < time.Millisecond || c.MaxWait > time.Minute {
		report("max wait %v is not between 1ms and 1m", c.MaxWait)
	}
	// The protocol's sizes are int32, and a response holds both of them.
	if c.FetchBytes < 1 || c.FetchBytes > 1<<29 {
		report("fetch bytes %d is not between 1 and %d", c.FetchBytes, 1<<29)
	}
	if c.MaxMessageBytes < 1024 || c.MaxMessageBytes > 1<<30 {
		report("max message bytes %d is not between 1024 and %d", c.MaxMessageBytes, 1<<30)
	}
	if c.TotalBytes < 1 {
		report("total bytes %d is not positive", c.TotalBytes)
	}
	if c.BufferBytes < 1 {
		report("buffer bytes %d is not positive", c.BufferBytes)
	}
	return problems
}

func defaultTo[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// checkTopic applies Kafka's own rule, so that a typing mistake is reported with
// the configuration and not by a broker.
func checkTopic(name string) error {
	if name == "" {
		return errors.New("no topic given")
	}
	legal := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	if len(name) > 249 || name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool { return !legal(r) }) {
		return fmt.Errorf("topic %q is not a legal name: up to 249 of a-z, A-Z, 0-9, '.', '_' and '-'", name)
	}
	return nil
}

const (
	dialTimeout  = 10 * time.Second
	adminTimeout = 15 * time.Second
	// rebalanceTimeout is how long a rebalance waits for members.
	rebalanceTimeout = 30 * time.Second
	// stallTimeout is how long a connection may make no progress at all in the
	// middle of an exchange. Progress, not the whole, is timed: 8 MiB over a
	// slow link may take minutes.
	stallTimeout = 20 * time.Second
	metadataTTL  = time.Second
)

// client is one connection pool to the cluster, with the metadata of the given
// topics only.
type client struct {
	transport *kafkago.Transport
	seeds     []string // the brokers configured

	mu      sync.Mutex
	brokers []string // that are asked for metadata: the seeds, and those discovered
	led     map[topicPartition]led
}

type topicPartition struct {
	topic     string
	partition int
}

func newClient(c *Cluster, topics ...string) *client {
	mechanism, err := c.SASL.mechanism()
	if err != nil {
		panic(err) // checked by the constructors
	}
	t := &kafkago.Transport{
		Dial:           c.dial(),
		DialTimeout:    dialTimeout,
		MetadataTTL:    metadataTTL,
		MetadataTopics: topics,
		ClientID:       c.ClientID,
		TLS:            c.TLS,
		SASL:           mechanism,
	}
	return &client{transport: t, seeds: c.Brokers, brokers: c.Brokers, led: make(map[topicPartition]led)}
}

// known returns the brokers that are asked for metadata.
func (cl *client) known() []string {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.brokers
}

func (cl *client) addr() net.Addr { return kafkago.TCP(cl.known()...) }

func (cl *client) api() *kafkago.Client {
	return &kafkago.Client{Addr: cl.addr(), Timeout: adminTimeout, Transport: cl.transport}
}

// discovered adds brokers to those that are asked for metadata, which kafka-go
// leaves at the seeds: these may die while the others go on.
func (cl *client) discovered(brokers []metadata.ResponseBroker) {
	all := slices.Clone(cl.seeds)
	for _, b := range brokers {
		all = append(all, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if slices.ContainsFunc(all, func(b string) bool { return !slices.Contains(cl.brokers, b) }) {
		slices.Sort(all)
		cl.brokers = slices.Compact(all)
		cl.transport.CloseIdleConnections() // it keeps connections for each list of brokers
	}
}

func (cl *client) close() { cl.transport.CloseIdleConnections() }
