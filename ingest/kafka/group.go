package kafka

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/ingest/kafka/protocol"
)

// membership is this process's membership in its group. kafka-go maintains it, but waits
// for brokers that do not answer. To make it ask others, membership closes its connections,
// or begins anew.
type membership struct {
	settings kafkago.ConsumerGroupConfig
	cl       *client
	log      zerolog.Logger
	conns    connTracker
	group    *kafkago.ConsumerGroup // entered last
	attempt  int                    // to enter
}

const (
	// groupTimeout bounds kafka-go's requests to a group's coordinator, except for the wait
	// to be admitted.
	groupTimeout = 5 * time.Second
	// rebalanceTimeout is how long a rebalance waits for members.
	rebalanceTimeout = 30 * time.Second
	// leaveTimeout bounds how long the end of Run waits for the broker.
	leaveTimeout = 10 * time.Second
)

func newMembership(cfg *Config, cl *client, log zerolog.Logger) *membership {
	m := &membership{cl: cl, log: log}
	m.settings = kafkago.ConsumerGroupConfig{
		ID: cfg.Group,
		Dialer: &kafkago.Dialer{
			ClientID:      cfg.ClientID,
			DialFunc:      protocol.GroupDial(m.conns.track(cfg.dial()), cfg.Topic),
			Timeout:       dialTimeout,
			SASLMechanism: cl.transport.SASL,
		},
		Topics:            []string{cfg.Topic},
		HeartbeatInterval: min(cfg.SessionTimeout/4, 3*time.Second),
		SessionTimeout:    cfg.SessionTimeout,
		RebalanceTimeout:  rebalanceTimeout,
		JoinGroupBackoff:  time.Second,
		Timeout:           groupTimeout,
	}
	return m
}

// enter begins to join the group. kafka-go asks the first broker that it can connect to for
// the coordinator, again and again, even if that one never answers. So each attempt begins
// with another broker.
func (m *membership) enter() error {
	brokers := m.cl.known()
	first := m.attempt % len(brokers)
	m.settings.Brokers = slices.Concat(brokers[first:], brokers[:first])
	m.attempt++
	group, err := kafkago.NewConsumerGroup(m.settings)
	if err != nil {
		return fmt.Errorf("group %s: %w", m.settings.ID, err)
	}
	m.group = group
	return nil
}

// leave leaves the group, if it is still entered. kafka-go cannot abandon a join that a
// broker holds back, so after a while its connections are closed.
func (m *membership) leave() {
	left := make(chan struct{})
	go func() { m.group.Close(); close(left) }()
	select {
	case <-left:
	case <-time.After(leaveTimeout):
		m.log.Warn().Dur("after", leaveTimeout).Msg("the group could not be left in time; the broker will notice by the session timeout")
		m.conns.closeAll()
		<-left
	}
}

// reenter joins the group as another member, after a pause.
func (m *membership) reenter(ctx context.Context) error {
	m.leave()
	select {
	case <-time.After(m.settings.JoinGroupBackoff):
		return m.enter()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// expel takes a member out of a group that has lost its coordinator. The next coordinator
// would wait for all members that it knows.
func (m *membership) expel(ctx context.Context, member string) {
	for {
		if err := m.cl.leave(ctx, m.settings.ID, member); err == nil || isPermanent(err) {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}

// abandonJoins closes connections on which kafka-go waits to be admitted by a broker that
// does not coordinate the group any more, and may be stuck. kafka-go itself would wait as
// long as for the slowest member.
func (m *membership) abandonJoins(ctx context.Context, admitted func() bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if admitted() {
			continue
		}
		r, err := m.cl.api().FindCoordinator(ctx, &kafkago.FindCoordinatorRequest{Key: m.settings.ID, KeyType: kafkago.CoordinatorKeyTypeConsumer})
		if err == nil && r.Error == nil {
			coordinator := net.JoinHostPort(r.Coordinator.Host, strconv.Itoa(r.Coordinator.Port))
			if m.conns.closeOthers(coordinator) > 0 {
				m.log.Warn().Str("coordinator", coordinator).Msg("the group has another coordinator than the one that does not answer; asking that")
			}
		}
	}
}

// connTracker remembers the connections that it opens.
type connTracker struct {
	mu    sync.Mutex
	conns map[*trackedConn]bool
}

type trackedConn struct {
	net.Conn
	tracker *connTracker
	address string
	opened  time.Time
}

func (t *connTracker) track(dial protocol.DialFunc) protocol.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tc := &trackedConn{c, t, address, time.Now()}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.conns == nil {
			t.conns = make(map[*trackedConn]bool)
		}
		t.conns[tc] = true
		return tc, nil
	}
}

func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.conns, c)
	c.tracker.mu.Unlock()
	return c.Conn.Close()
}

func (t *connTracker) closeAll() { t.closeIf(func(*trackedConn) bool { return true }) }

// closeOthers closes the connections to other addresses that are older than an ordinary
// answer takes, and returns their number.
func (t *connTracker) closeOthers(address string) int {
	return t.closeIf(func(c *trackedConn) bool { return c.address != address && time.Since(c.opened) > groupTimeout })
}

func (t *connTracker) closeIf(is func(*trackedConn) bool) (closed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		if is(c) {
			c.Conn.Close()
			closed++
		}
	}
	return closed
}
