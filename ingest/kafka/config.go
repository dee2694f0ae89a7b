package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"streamd/ingest/kafka/login"
	"streamd/ingest/kafka/protocol"
)

// Cluster says how to reach the brokers.
type Cluster struct {
	Brokers  []string // host:port, at least one; others are discovered
	ClientID string   // appears in the broker's logs and quotas

	// Login logs each connection in. Nil stands for none.
	Login *login.Login

	// TLS is called for the settings of each new connection, so that they can follow files that
	// change. Nil stands for connections without encryption.
	TLS func() *tls.Config

	// Dial opens connections. Nil stands for an ordinary net.Dialer. Tests use it to cut,
	// slow or damage connections.
	Dial protocol.DialFunc
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
	return problems
}

// dial opens connections, with TLS and a login where they are configured. All connections to
// brokers are opened by it. kafka-go would take the settings of TLS once, and would not log in
// again.
func (c *Cluster) dial() protocol.DialFunc {
	if c.Login == nil {
		return c.dialTLS()
	}
	return c.Login.Dial(c.dialTLS(), c.ClientID)
}

func (c *Cluster) dialTLS() protocol.DialFunc {
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	if c.TLS == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := c.TLS().Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secure, nil
	}
}

// Start says where to begin in a partition without a saved position.
type Start int

// The zero Start is Earliest, which loses nothing.
const (
	Earliest Start = iota
	Latest
)

// OnGap says how to treat a position outside the log, or in another topic of the same
// name.
type OnGap int

// The zero OnGap is StopOnGap. Continuing is a decision for a person who knows the loss.
const (
	StopOnGap OnGap = iota
	GapToEarliest
	GapToLatest
)

// Config configures a Consumer. Zero values stand for the defaults given.
type Config struct {
	Cluster
	Topic string
	Group string // that offsets are committed to
	// Shared makes the consumer a member of Group, whose members share the partitions. Without it
	// a consumer reads all partitions, whoever else reads them.
	Shared bool
	Start  Start
	OnGap  OnGap
	Fetching

	SessionTimeout time.Duration // a group expels a silent member after it; 30 s
}

// Fetching is the sizes of fetches and buffers. Zero values stand for the defaults given.
type Fetching struct {
	MaxWait time.Duration // how long a broker may hold back an empty answer; 500 ms

	// FetchBytes is the size of one request's answer; 4 MiB. Smaller answers cost more
	// requests.
	FetchBytes int

	// MaxMessageBytes bounds one record batch, both as sent and decompressed: the broker's
	// max.message.bytes, times the gain of compression. 64 MiB.
	MaxMessageBytes int

	// BufferBytes is the budget of outstanding bytes per partition; 8 MiB.
	BufferBytes int64

	// TotalBytes is the budget of all partitions together; 256 MiB. One partition at a time
	// may hold a record batch beside it.
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
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 30*time.Second)
	if c.SessionTimeout < 100*time.Millisecond || c.SessionTimeout > time.Hour {
		report("session timeout %v is not between 100ms and 1h", c.SessionTimeout)
	}
	return errors.Join(problems...)
}

func (f *Fetching) check() []error {
	var problems []error
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	f.MaxWait = cmp.Or(f.MaxWait, 500*time.Millisecond)
	f.FetchBytes = cmp.Or(f.FetchBytes, 4<<20)
	f.MaxMessageBytes = cmp.Or(f.MaxMessageBytes, 64<<20)
	f.BufferBytes = cmp.Or(f.BufferBytes, 8<<20)
	f.TotalBytes = cmp.Or(f.TotalBytes, 256<<20)
	if f.MaxWait < time.Millisecond || f.MaxWait > time.Minute {
		report("max wait %v is not between 1ms and 1m", f.MaxWait)
	}
	// The protocol's sizes are int32, and a response holds both.
	if f.FetchBytes < 1 || f.FetchBytes > 1<<29 {
		report("fetch bytes %d is not between 1 and %d", f.FetchBytes, 1<<29)
	}
	if f.MaxMessageBytes < 1024 || f.MaxMessageBytes > 1<<30 {
		report("max message bytes %d is not between 1024 and %d", f.MaxMessageBytes, 1<<30)
	}
	if f.TotalBytes < 1 {
		report("total bytes %d is not positive", f.TotalBytes)
	}
	if f.BufferBytes < 1 {
		report("buffer bytes %d is not positive", f.BufferBytes)
	}
	return problems
}

// checkTopic applies Kafka's own rule, so that a mistyped name is reported with the
// configuration and not by a broker.
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
