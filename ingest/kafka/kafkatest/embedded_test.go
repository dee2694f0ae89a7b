package kafkatest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/kafka/login"
)

func TestEmbedded(t *testing.T) {
	b := start(t, t.TempDir())
	Run(t, Broker{Addr: b.Addr(), Compact: b.Cluster().Compact})
}

// TestApacheKafka runs the suite on the broker in STREAMD_TEST_BROKERS, which
// testdata/kafka/kafka.sh starts. With STREAMD_REQUIRE_BROKER=1 it fails without one.
func TestApacheKafka(t *testing.T) {
	addr := os.Getenv("STREAMD_TEST_BROKERS")
	if addr == "" {
		if os.Getenv("STREAMD_REQUIRE_BROKER") == "1" {
			t.Fatal("STREAMD_TEST_BROKERS names no broker, and STREAMD_REQUIRE_BROKER demands one")
		}
		t.Skip("STREAMD_TEST_BROKERS names no broker")
	}
	Run(t, Broker{Addr: addr})
}

// restart starts a broker on the port of a closed one. The port may be taken for a moment.
func restart(t *testing.T, dir, addr string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	eventually(t, "the broker's port", func() bool {
		b, err := embedded.Start(dir, kfake.Ports(n))
		if err != nil {
			t.Log(err)
			return false
		}
		t.Cleanup(b.Close)
		return true
	})
}

func start(t testing.TB, dir string, opts ...kfake.Opt) *embedded.Broker {
	t.Helper()
	b, err := embedded.Start(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// on makes a suite for tests that need a broker of their own kind.
func on(t *testing.T, b *embedded.Broker) *suite {
	t.Helper()
	admin, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return &suite{Broker: Broker{Addr: b.Addr()}, admin: admin}
}

func TestBrokerRestart(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir)
	s := on(t, b)
	topic := s.topic(t, "topic", 1, nil)
	first, second := values(topic, 0, 0, 100), values(topic, 0, 100, 100)
	produce(t, s.producer(t), first...)
	sink := newRecorder()
	c := s.consume(t, s.config(t, topic), sink)
	c.until("the first half", func() bool { return sink.total() == 100 })
	b.Close()
	c.until("a failed fetch", func() bool { return c.Stats().Partitions[0].FetchErrors > 0 })
	restart(t, dir, b.Addr())
	produce(t, s.producer(t), second...)
	c.until("the second half", func() bool { return sink.total() == 200 })
	c.stop()
	if sink.chainOf(0) != chainOf(chain{}, 0, append(first, second...)) {
		t.Error("the chain differs")
	}
}

func TestLeaderMoves(t *testing.T) {
	b := start(t, t.TempDir(), kfake.NumBrokers(3))
	s := on(t, b)
	topic := s.topic(t, "topic", 1, nil)
	sink := newRecorder()
	c := s.consume(t, s.config(t, topic), sink)
	var all []*kgo.Record
	for i := range 6 {
		if err := b.Cluster().MoveTopicPartition(topic, 0, int32(i%3)); err != nil {
			t.Fatal(err)
		}
		rs := values(topic, 0, 10*i, 10)
		produce(t, s.producer(t), rs...)
		all = append(all, rs...)
		c.until("what the new leader has", func() bool { return sink.total() == len(all) })
	}
	if c.Stats().Partitions[0].FetchErrors == 0 {
		t.Error("no fetch met a broker that is not the leader")
	}
	c.stop()
	if sink.chainOf(0) != chainOf(chain{}, 0, all) {
		t.Error("the chain differs")
	}
}

// TestCoordinatorLost replaces the group's coordinator by another one that knows the group
// as it was.
func TestCoordinatorLost(t *testing.T) {
	b := start(t, t.TempDir())
	s := on(t, b)
	topic := s.topic(t, "topic", 2, nil)
	produce(t, s.producer(t), values(topic, 0, 0, 100)...)
	sink := newRecorder()
	cfg := s.config(t, topic)
	cfg.Shared = true
	cfg.SessionTimeout = 40 * time.Second
	c := s.consume(t, cfg, sink)
	c.until("the first half", func() bool { return sink.total() == 100 })

	var away atomic.Bool
	away.Store(true)
	for key, response := range map[kmsg.Key]func(kmsg.Request) kmsg.Response{
		kmsg.Heartbeat: func(r kmsg.Request) kmsg.Response {
			response := r.ResponseKind().(*kmsg.HeartbeatResponse)
			response.ErrorCode = kerr.NotCoordinator.Code
			return response
		},
		kmsg.FindCoordinator: func(r kmsg.Request) kmsg.Response {
			response := r.ResponseKind().(*kmsg.FindCoordinatorResponse)
			response.ErrorCode = kerr.CoordinatorNotAvailable.Code
			return response
		},
	} {
		b.Cluster().ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			b.Cluster().KeepControl()
			if !away.Load() {
				return nil, nil, false
			}
			return response(r), nil, true
		})
	}
	c.until("a failure to join", func() bool { return c.Stats().OutBecause != nil })
	away.Store(false)
	began := time.Now()
	produce(t, s.producer(t), values(topic, 1, 0, 100)...)
	c.until("the second half", func() bool { return sink.total() == 200 })
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("reading went on after %v: the former member was waited for", took)
	}
	c.stop()
	if n := c.Stats().Assignments; n != 2 {
		t.Errorf("partitions were assigned %d times, want twice", n)
	}
}

// TestTopicJustMade hides a new topic for a second, as the brokers of a busy cluster do.
func TestTopicJustMade(t *testing.T) {
	b := start(t, t.TempDir())
	s := on(t, b)
	topic := s.topic(t, "topic", 1, nil)
	produce(t, s.producer(t), values(topic, 0, 0, 10)...)
	known := time.Now().Add(time.Second)
	b.Cluster().ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		if time.Now().After(known) {
			return nil, nil, false
		}
		response := r.ResponseKind().(*kmsg.MetadataResponse)
		response.Brokers = append(response.Brokers, kmsg.NewMetadataResponseBroker())
		of := kmsg.NewMetadataResponseTopic()
		of.Topic, of.ErrorCode = &topic, kerr.UnknownTopicOrPartition.Code
		response.Topics = append(response.Topics, of)
		return response, nil, true
	})
	sink := newRecorder()
	c := s.consume(t, s.config(t, topic), sink)
	c.until("10 records", func() bool { return sink.total() == 10 })
	c.stop()
}

// nodes starts brokers 0 to 2, and makes a topic with its leader on one of them and its
// group's coordinator on another.
func nodes(t *testing.T, leader, coordinator int32) (*suite, *kfake.Cluster, kafka.Config) {
	t.Helper()
	b := start(t, t.TempDir(), kfake.NumBrokers(3))
	s := on(t, b)
	cfg := s.config(t, s.topic(t, "topic", 1, nil))
	for i := 0; b.Cluster().CoordinatorFor(cfg.Group) != coordinator; i++ {
		cfg.Group = s.name(t, fmt.Sprint("group-", i))
	}
	cfg.Brokers = b.Cluster().ListenAddrs()
	move(t, b.Cluster(), cfg.Topic, leader)
	return s, b.Cluster(), cfg
}

func move(t *testing.T, c *kfake.Cluster, topic string, leader int32) {
	t.Helper()
	if err := c.MoveTopicPartition(topic, 0, leader); err != nil {
		t.Fatal(err)
	}
}

// within is until with a time limit, which is below the time after which a silent broker is
// abandoned.
func (r *running) within(limit time.Duration, what string, ok func() bool) {
	r.t.Helper()
	began := time.Now()
	r.until(what, ok)
	if took := time.Since(began); took > limit {
		r.t.Errorf("%s took %v", what, took)
	}
}

// TestLeaderStuck makes the leader take a fetch and never answer, as with a stuck disk,
// while another broker becomes the leader.
func TestLeaderStuck(t *testing.T) {
	s, cluster, cfg := nodes(t, 1, 0)
	produce(t, s.producer(t), values(cfg.Topic, 0, 0, 10)...)
	sink := newRecorder()
	c := s.consume(t, cfg, sink)
	c.until("the first records", func() bool { return sink.total() == 10 })
	stuck, unstick := context.WithCancel(t.Context())
	defer unstick()
	met := make(chan struct{}, 1000)
	cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() == 1 {
			met <- struct{}{}
			cluster.SleepControl(func() { <-stuck.Done() })
		}
		return nil, nil, false
	})
	<-met
	move(t, cluster, cfg.Topic, 2)
	produce(t, s.producer(t), values(cfg.Topic, 0, 10, 10)...)
	c.within(10*time.Second, "what the new leader has", func() bool { return sink.total() == 20 })
	unstick()
	c.stop()
}

// TestLeaderCutOff makes a former leader, cut off from the others, answer for the
// cluster. It claims to be the leader still, and that its own log is the whole log.
func TestLeaderCutOff(t *testing.T) {
	s, cluster, cfg := nodes(t, 1, 0)
	produce(t, s.producer(t), values(cfg.Topic, 0, 0, 10)...)
	sink := newRecorder()
	c := s.consume(t, cfg, sink)
	c.until("the first records", func() bool { return sink.total() == 10 })
	before := s.metadata(t, cfg.Topic)
	move(t, cluster, cfg.Topic, 2)
	produce(t, s.producer(t), values(cfg.Topic, 0, 10, 10)...)
	c.until("what the new leader has", func() bool { return sink.total() == 20 })

	var cutOff atomic.Bool
	cutOff.Store(true)
	answer := func(key kmsg.Key, by func() bool, answer func(kmsg.Request) kmsg.Response) {
		cluster.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if !cutOff.Load() || !by() {
				return nil, nil, false
			}
			return answer(r), nil, true
		})
	}
	anybody, former := func() bool { return true }, func() bool { return cluster.CurrentNode() == 1 }
	answer(kmsg.Metadata, anybody, func(r kmsg.Request) kmsg.Response {
		response := r.ResponseKind().(*kmsg.MetadataResponse)
		response.Brokers, response.Topics = before.Brokers, before.Topics
		return response
	})
	answer(kmsg.Fetch, former, func(r kmsg.Request) kmsg.Response {
		response := r.ResponseKind().(*kmsg.FetchResponse)
		topic, partition := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		partition.ErrorCode, partition.HighWatermark = kerr.OffsetOutOfRange.Code, -1
		topic.Topic, topic.Partitions = cfg.Topic, append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response
	})
	answer(kmsg.ListOffsets, former, func(r kmsg.Request) kmsg.Response {
		response := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic, partition := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		if partition.Offset = 10; r.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp == -2 {
			partition.Offset = 0
		}
		topic.Topic, topic.Partitions = cfg.Topic, append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response
	})
	errors := func() int64 { return c.Stats().Partitions[0].FetchErrors }
	failed := errors()
	c.until("doubts", func() bool { return errors() >= failed+5 }) // a gap is believed after fewer
	cutOff.Store(false)
	produce(t, s.producer(t), values(cfg.Topic, 0, 20, 10)...)
	c.until("what came last", func() bool { return sink.total() == 30 })
	c.stop()
}

// TestCoordinatorStuck makes a broker take a member's request to join and never answer,
// while another one becomes the group's coordinator.
func TestCoordinatorStuck(t *testing.T) {
	s, cluster, cfg := nodes(t, 0, 1)
	produce(t, s.producer(t), values(cfg.Topic, 0, 0, 10)...)
	stuck, unstick := context.WithCancel(t.Context())
	defer unstick()
	var met atomic.Bool
	cluster.ControlKey(int16(kmsg.FindCoordinator), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if met.Load() {
			return nil, nil, false
		}
		host, port, _ := net.SplitHostPort(cfg.Brokers[2])
		n, _ := strconv.Atoi(port)
		response := r.ResponseKind().(*kmsg.FindCoordinatorResponse)
		response.NodeID, response.Host, response.Port = 2, host, int32(n)
		return response, nil, true
	})
	cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() == 2 {
			met.Store(true)
			cluster.SleepControl(func() { <-stuck.Done() })
		}
		return nil, nil, false
	})
	sink := newRecorder()
	cfg.Shared = true
	c := s.consume(t, cfg, sink)
	c.within(20*time.Second, "joining", func() bool { return sink.total() == 10 })
	if !met.Load() {
		t.Error("no request to join met the broker that is stuck")
	}
	unstick()
	c.stop()
}

// TestHostileLeader makes the group's leader send an assignment that claims gigabytes, and
// then one of partitions that do not exist.
func TestHostileLeader(t *testing.T) {
	b := start(t, t.TempDir())
	s := on(t, b)
	topic := s.topic(t, "topic", 1, nil)
	produce(t, s.producer(t), values(topic, 0, 0, 10)...)
	bomb := []byte{0, 1, 0x7f, 0xff, 0xff, 0xff}
	var answered atomic.Int64
	b.Cluster().ControlKey(int16(kmsg.SyncGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		response := r.ResponseKind().(*kmsg.SyncGroupResponse)
		assignment := kmsg.NewConsumerMemberAssignment()
		assignment.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: []int32{0, 7, 1 << 30}}}
		switch answered.Add(1) {
		case 1:
			response.MemberAssignment = bomb
		case 2:
			response.MemberAssignment = assignment.AppendTo(nil)
		}
		if answered.Load() < 2 {
			b.Cluster().KeepControl()
		}
		return response, nil, true
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sink := newRecorder()
	cfg := s.config(t, topic)
	cfg.Shared = true
	c := s.consume(t, cfg, sink)
	c.until("10 records", func() bool { return sink.total() == 10 })
	if n := len(c.Stats().Partitions); n != 1 {
		t.Errorf("%d partitions are read", n)
	}
	c.stop()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
}

// TestSeedStuck makes the first configured broker never answer a request for the
// coordinator.
func TestSeedStuck(t *testing.T) {
	s, cluster, cfg := nodes(t, 1, 2)
	produce(t, s.producer(t), values(cfg.Topic, 0, 0, 10)...)
	stuck, unstick := context.WithCancel(t.Context())
	defer unstick()
	cluster.ControlKey(int16(kmsg.FindCoordinator), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() == 0 {
			cluster.SleepControl(func() { <-stuck.Done() })
		}
		return nil, nil, false
	})
	sink := newRecorder()
	cfg.Shared = true
	c := s.consume(t, cfg, sink)
	c.until("10 records", func() bool { return sink.total() == 10 })
	unstick()
	c.stop()
}

// TestSeedDies lets the only configured broker die. Then the partition and the group
// change.
func TestSeedDies(t *testing.T) {
	s, cluster, cfg := nodes(t, 0, 2)
	var seed link
	cfg.Brokers, cfg.Dial = cfg.Brokers[:1], seed.dial
	produce(t, s.producer(t), values(cfg.Topic, 0, 0, 10)...)
	sink := newRecorder()
	cfg.Shared = true
	c := s.consume(t, cfg, sink)
	c.until("the first records", func() bool { return sink.total() == 10 })
	seed.die(cfg.Brokers[0])
	move(t, cluster, cfg.Topic, 1)
	produce(t, s.producer(t), values(cfg.Topic, 0, 10, 10)...)
	c.until("what the new leader has", func() bool { return sink.total() == 20 })
	s.addPartitions(t, cfg.Topic, 2)
	c.until("another generation", func() bool { return len(c.Stats().Partitions) == 2 })
	c.stop()
}

// certificate makes a self-signed one for 127.0.0.1.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafkatest"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// password is a login with a password.
func password(t *testing.T, mechanism, username, password string) *login.Login {
	t.Helper()
	l, err := login.Password(mechanism, username, password)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTLSAndSASL(t *testing.T) {
	cert, pool := certificate(t)
	b := start(t, t.TempDir(),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}),
		kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "ann", "plain secret"),
		kfake.Superuser("SCRAM-SHA-256", "bob", "scram secret"),
		kfake.Superuser("SCRAM-SHA-512", "cai", "other secret"),
	)
	trusting := &tls.Config{RootCAs: pool}
	all := values("topic", 0, 0, 50)
	if err := b.CreateTopic("topic", 1, -1); err != nil {
		t.Fatal(err)
	}
	other, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.DialTLSConfig(trusting), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.SASL(plain.Auth{User: "ann", Pass: "plain secret"}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	produce(t, other, all...)
	s := &suite{Broker: Broker{Addr: b.Addr()}}
	for _, test := range []struct {
		name  string
		tls   *tls.Config
		login *login.Login
		want  string // of the error; empty: none
	}{
		{"plain", trusting, password(t, "PLAIN", "ann", "plain secret"), ""},
		{"scram-256", trusting, password(t, "SCRAM-SHA-256", "bob", "scram secret"), ""},
		{"scram-512", trusting, password(t, "SCRAM-SHA-512", "cai", "other secret"), ""},
		{"unknown-certificate", &tls.Config{}, password(t, "PLAIN", "ann", "plain secret"), "certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sink := newRecorder()
			cfg := s.config(t, "topic")
			if cfg.Login = test.login; test.tls != nil {
				cfg.TLS = func() *tls.Config { return test.tls }
			}
			c := s.consume(t, cfg, sink)
			if test.want != "" {
				if err := c.wait(); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v", err)
				}
				return
			}
			c.until("all records", func() bool { return sink.total() == len(all) })
			if err := c.Commit(deadline(t), map[int]int64{0: 50}); err != nil {
				t.Error(err)
			}
			c.stop()
			if sink.chainOf(0) != chainOf(chain{}, 0, all) {
				t.Error("the chain differs")
			}
			p, err := kafka.OpenProducer(deadline(t), kafka.ProducerConfig{Cluster: cfg.Cluster, Topic: "topic"}, zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			p.Close()
		})
	}
}

// watched is a log that calls said when a text appears in it.
type watched struct {
	mu    sync.Mutex
	lines strings.Builder
	what  string
	said  func()
}

func (w *watched) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines.Write(line)
	if strings.Contains(w.lines.String(), w.what) {
		w.said()
	}
	return len(line), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.String()
}

// runUntil runs a consumer until a text appears in its log, and returns the log and Run's
// error.
func runUntil(t *testing.T, cfg kafka.Config, what string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	log := &watched{what: what, said: cancel}
	c, err := kafka.NewConsumer(cfg, newRecorder(), zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(ctx)
	return log.String(), err
}

// TestWrongPassword checks both ways in which brokers refuse a password.
func TestWrongPassword(t *testing.T) {
	b := start(t, t.TempDir(), kfake.EnableSASL(), kfake.Superuser("PLAIN", "ann", "plain secret"))
	cfg := (&suite{Broker: Broker{Addr: b.Addr()}}).config(t, "topic")
	cfg.Login = password(t, "PLAIN", "ann", "guessed")
	// The embedded broker hangs up, as a broker does that restarts.
	log, err := runUntil(t, cfg, "password")
	if err != nil || !strings.Contains(log, "password") {
		t.Errorf("%v; the log says %q", err, log)
	}
	// Apache Kafka reports the error, and repeating does not help.
	b.Cluster().ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		resp := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	more, err := runUntil(t, cfg, "nothing of the kind")
	if err == nil || !strings.Contains(err.Error(), "SASL Authentication Failed") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(log+more, "guessed") {
		t.Error("the password is in the log")
	}
}

// TestTLSOnOneSide checks that the log names TLS where only the broker has it. (Where only
// the client has it, Apache Kafka hangs up, too. The embedded broker waits for more.)
func TestTLSOnOneSide(t *testing.T) {
	cert, _ := certificate(t)
	b := start(t, t.TempDir(), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	log, err := runUntil(t, (&suite{Broker: Broker{Addr: b.Addr()}}).config(t, "topic"), "trying again")
	if err != nil || !strings.Contains(log, "one side wants TLS") {
		t.Errorf("%v; the log says %q", err, log)
	}
}

// TestLoginOnOneSide checks that the log names the login where only the broker wants one,
// and where only the client has one.
func TestLoginOnOneSide(t *testing.T) {
	b := start(t, t.TempDir(), kfake.EnableSASL(), kfake.Superuser("PLAIN", "ann", "plain secret"))
	cfg := (&suite{Broker: Broker{Addr: b.Addr()}}).config(t, "topic")
	log, err := runUntil(t, cfg, "trying again")
	if err != nil || !strings.Contains(log, "a login") {
		t.Errorf("%v; the log says %q", err, log)
	}
	if err := kafka.EnsureTopic(deadline(t), cfg.Cluster, "topic", 1, nil); err == nil || !strings.Contains(err.Error(), "a login") {
		t.Errorf("got %v", err)
	}
	// Apache Kafka answers so where it has no logins.
	b.Cluster().ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		resp := r.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.ErrorCode = kerr.IllegalSaslState.Code
		return resp, nil, true
	})
	cfg.Login = password(t, "PLAIN", "ann", "plain secret")
	if _, err := runUntil(t, cfg, "nothing of the kind"); err == nil || !strings.Contains(err.Error(), "takes no login") {
		t.Errorf("got %v", err)
	}
}

// TestUnreachable checks that Run waits for an unreachable cluster, and ends with ctx.
func TestUnreachable(t *testing.T) {
	s := &suite{Broker: Broker{Addr: "127.0.0.1:1"}}
	log, err := runUntil(t, s.config(t, "topic"), "does not answer")
	if err != nil {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log, "does not answer") {
		t.Errorf("the log says %q", log)
	}
}

const blockBytes = 800 << 10

// drain is a Sink that only counts records.
type drain struct {
	*recorder
	records chan int
}

func (d drain) Deliver(_ context.Context, b *kafka.Batch) error {
	n := len(b.Records)
	b.Release()
	d.records <- n
	return nil
}

// BenchmarkFetch reads records of 800 KiB. The broker is in the same process and takes its
// share of the processors.
func BenchmarkFetch(b *testing.B) {
	const records = 200
	broker := start(b, b.TempDir())
	fill(b, broker, "topic", records)
	b.SetBytes(records * blockBytes)
	b.ResetTimer()
	for i := range b.N {
		d := drain{newRecorder(), make(chan int, records)}
		c, err := kafka.NewConsumer(kafka.Config{
			Cluster: kafka.Cluster{Brokers: []string{broker.Addr()}}, Topic: "topic", Group: fmt.Sprint("bench-", b.N, "-", i),
		}, d, zerolog.Nop())
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		for left := records; left > 0; left -= <-d.records {
		}
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProduce writes records of 800 KiB to two partitions.
func BenchmarkProduce(b *testing.B) {
	broker := start(b, b.TempDir())
	if err := broker.CreateTopic("topic", 2, 64<<20); err != nil {
		b.Fatal(err)
	}
	p := openProducer(b, broker, "topic")
	value := make([]byte, blockBytes)
	b.SetBytes(blockBytes)
	b.ResetTimer()
	for i := range b.N {
		if err := p.Write(context.Background(), i%p.Partitions(), nil, value, nil, time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func openProducer(b *testing.B, broker *embedded.Broker, topic string) *kafka.Producer {
	b.Helper()
	p, err := kafka.OpenProducer(context.Background(), kafka.ProducerConfig{
		Cluster: kafka.Cluster{Brokers: []string{broker.Addr()}}, Topic: topic,
	}, zerolog.Nop())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	return p
}

func fill(b *testing.B, broker *embedded.Broker, topic string, records int) {
	b.Helper()
	if err := broker.CreateTopic(topic, 1, -1); err != nil {
		b.Fatal(err)
	}
	p := openProducer(b, broker, topic)
	value := make([]byte, blockBytes)
	for range records {
		if err := p.Write(context.Background(), 0, nil, value, nil, time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}
