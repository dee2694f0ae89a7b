package kafka

import (
	"context"
	"errors"
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

// membership is this process's membership in a group. kafka-go maintains it, but waits
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
	// rebalanceTimeout is how long a rebalance waits for members at most.
	rebalanceTimeout = 30 * time.Second
	// leaveTimeout bounds how long the end of Run waits for the broker.
	leaveTimeout = 10 * time.Second
)

func newMembership(cfg *Config, cl *client, log zerolog.Logger) *membership {
	m := &membership{cl: cl, log: log}
	m.settings = kafkago.ConsumerGroupConfig{
		ID: cfg.Group,
		Dialer: &kafkago.Dialer{
			ClientID: cfg.ClientID,
			DialFunc: protocol.GroupDial(m.conns.track(cfg.dial()), cfg.Topic),
			Timeout:  dialTimeout,
		},
		Topics:            []string{cfg.Topic},
		HeartbeatInterval: min(cfg.SessionTimeout/4, 3*time.Second),
		SessionTimeout:    cfg.SessionTimeout,
		RebalanceTimeout:  min(cfg.SessionTimeout, rebalanceTimeout), // who is silent for so long is expelled in any case
		JoinGroupBackoff:  time.Second,
		Timeout:           groupTimeout,
	}
	return m
}

// share joins the group and serves the partitions that it assigns, until ctx ends or a
// partition cannot continue.
func (c *Consumer) share(ctx context.Context) error {
	m := newMembership(&c.cfg, c.cl, c.log)
	if err := m.enter(); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var serving, beside sync.WaitGroup
	// The last generation ends by itself (generation). Then the group is left.
	defer func() {
		stop(nil)
		serving.Wait()
		m.leave()
		beside.Wait()
	}()
	beside.Go(func() { m.abandonJoins(ctx, func() bool { return c.Stats().OutSince.IsZero() }) })

	var expelled string
	for {
		gen, err := m.group.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			serving.Wait() // the previous generation may still be ending
			serving.Add(1)
			gen.Start(func(gctx context.Context) {
				if err := c.serveGeneration(ctx, gctx, gen); err != nil {
					stop(err)
				}
				serving.Done()
				// A return would end the generation and join the next. At Run's end that
				// would disturb the other members for nothing.
				if ctx.Err() != nil {
					<-gctx.Done()
				}
			})
			continue
		}
		if isPermanent(err) {
			return fmt.Errorf("group %s: %w", c.cfg.Group, err)
		}
		c.mu.Lock()
		c.outBecause = err
		c.mu.Unlock()
		c.log.Warn().Err(err).Msg("joining the group failed; trying again")
		if errors.Is(err, kafkago.RebalanceInProgress) {
			continue
		}
		// kafka-go joins as another member from here on.
		serving.Wait()
		if former := c.member; former != expelled {
			expelled = former
			beside.Go(func() { m.expel(ctx, former) })
		}
		if err := m.reenter(ctx); err != nil {
			return err
		}
	}
}

// serveGeneration reads the partitions of one generation until it or ctx ends, or the number of
// partitions changes.
func (c *Consumer) serveGeneration(ctx, gctx context.Context, gen *kafkago.Generation) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(gctx, cancel)()
	c.member = gen.MemberID
	var ids []int
	for _, a := range gen.Assignments[c.cfg.Topic] {
		ids = append(ids, a.ID)
	}
	slices.Sort(ids)
	count := c.count
	if n := len(ids); n > 0 && ids[n-1] >= count { // the leader may know of more
		if n, err := c.cl.partitions(ctx, c.cfg.Topic); err == nil {
			count = max(count, n)
		}
		known, _ := slices.BinarySearch(ids, count)
		if known < len(ids) {
			c.log.Warn().Int("partitions", count).Int("assigned", ids[len(ids)-1]).Msg("the leader of the group assigns partitions that the topic does not have; leaving them out")
			ids = ids[:known]
		}
	}
	c.enter(gen)
	defer c.enter(nil)
	err := c.serve(ctx, ids, count)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// enter notes the generation under which offsets are committed.
func (c *Consumer) enter(gen *kafkago.Generation) {
	c.mu.Lock()
	c.generation = gen
	c.mu.Unlock()
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
