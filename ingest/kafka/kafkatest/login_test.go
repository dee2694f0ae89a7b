package kafkatest

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/login"
	"streamd/ingest/kafka/login/logintest"
)

// session is the lifetime of logins on the brokers of these tests. testdata/kafka/kafka.sh has the
// same.
const session = 3 * time.Second

// bearer logs in with tokens of an issuer, which end with a session.
func bearer(t *testing.T, issuer *logintest.Issuer) *login.Login {
	t.Helper()
	issuer.ClientID, issuer.Secret = "cai", "client secret"
	issuer.Start()
	t.Cleanup(issuer.Close)
	tokens, err := login.ClientCredentials{URL: issuer.URL, ClientID: "cai", ClientSecret: "client secret", Log: zerolog.Nop()}.NewTokens()
	if err != nil {
		t.Fatal(err)
	}
	l, err := login.Bearer(tokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// addUsers makes users for SCRAM, through a listener without logins.
func (s *suite) addUsers(t *testing.T, username, password string) {
	t.Helper()
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for i, mechanism := range []int8{1, 2} {
		u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		u.Name, u.Mechanism, u.Iterations, u.Salt = username, mechanism, 4096, []byte{1, 2, 3, byte(i)}
		u.SaltedPassword = saltedPassword(mechanism, password, u.Salt, int(u.Iterations))
		req.Upsertions = append(req.Upsertions, u)
	}
	// One request may not have a user twice.
	all := req.Upsertions
	for _, u := range all {
		req.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{u}
		resp, err := req.RequestWith(deadline(t), s.admin)
		if err == nil {
			err = kerr.ErrorForCode(resp.Results[0].ErrorCode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// saltedPassword is what a broker keeps of a password (RFC 5802).
func saltedPassword(mechanism int8, password string, salt []byte, iterations int) []byte {
	digest, size := sha256.New, sha256.Size
	if mechanism == 2 {
		digest, size = sha512.New, sha512.Size
	}
	salted, err := pbkdf2.Key(digest, password, salt, iterations, size)
	if err != nil {
		panic(err)
	}
	return salted
}

// TestSessions has all logins on the embedded broker, and OAUTHBEARER on a double before it, which
// checks signed tokens.
func TestSessions(t *testing.T) {
	t.Parallel()
	reauth := kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": fmt.Sprint(session.Milliseconds())})
	b := start(t, t.TempDir(), kfake.EnableSASL(), reauth, kfake.Superuser("PLAIN", "ann", "plain secret"),
		kfake.Superuser("SCRAM-SHA-256", "bob", "scram secret"), kfake.Superuser("SCRAM-SHA-512", "bob", "scram secret"))
	s := &suite{Broker: Broker{Addr: b.Addr()}, run: time.Now().UnixNano()}
	var logins atomic.Int64
	b.Cluster().ControlKey(kmsg.SASLHandshake.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		logins.Add(1)
		return nil, nil, false
	})
	t.Cleanup(func() {
		// Each of the three has some ten connections, and renews most of them three times.
		if n := logins.Load(); n < 60 {
			t.Errorf("%d logins in all", n)
		}
	})
	for _, l := range []*login.Login{
		password(t, "PLAIN", "ann", "plain secret"),
		password(t, "SCRAM-SHA-256", "bob", "scram secret"),
		password(t, "SCRAM-SHA-512", "bob", "scram secret"),
	} {
		t.Run(l.Mechanism(), func(t *testing.T) {
			t.Parallel()
			s.testSessions(t, kafka.Cluster{Brokers: []string{s.Addr}, ClientID: "kafkatest", Login: l})
		})
	}
	t.Run("OAUTHBEARER", func(t *testing.T) {
		t.Parallel()
		open := start(t, t.TempDir())
		double := &logintest.Broker{Upstream: open.Addr(), Check: logintest.Check, MaxSession: time.Hour}
		if err := double.Start(); err != nil {
			t.Fatal(err)
		}
		defer double.Close()
		s := &suite{Broker: Broker{Addr: open.Addr()}, run: time.Now().UnixNano()}
		s.testSessions(t, kafka.Cluster{
			Brokers: []string{double.Addr()}, ClientID: "kafkatest", Dial: double.Dial, Login: bearer(t, &logintest.Issuer{Lifetime: session}),
		})
		if n := double.Stats(); n.Renewals == 0 || n.Refusals > 0 || n.Hangups > 0 {
			t.Errorf("%+v", n)
		}
	})
}

// TestSessionsOfApacheKafka has all logins on the listener for them that testdata/kafka/kafka.sh
// makes, OAUTHBEARER in Kafka's unsecured test mode.
func TestSessionsOfApacheKafka(t *testing.T) {
	s := realBroker(t)
	addr := os.Getenv("STREAMD_TEST_SASL_BROKERS")
	s.addUsers(t, "bob", "scram secret")
	for _, l := range []*login.Login{
		password(t, "PLAIN", "ann", "plain secret"),
		password(t, "SCRAM-SHA-256", "bob", "scram secret"),
		password(t, "SCRAM-SHA-512", "bob", "scram secret"),
		bearer(t, &logintest.Issuer{Lifetime: time.Hour, Unsigned: true}),
	} {
		t.Run(l.Mechanism(), func(t *testing.T) {
			t.Parallel()
			s.testSessions(t, kafka.Cluster{Brokers: []string{addr}, ClientID: "kafkatest", Login: l})
		})
	}
	t.Run("expiring tokens", func(t *testing.T) {
		t.Parallel()
		s.testSessions(t, kafka.Cluster{
			Brokers: []string{addr}, ClientID: "kafkatest", Login: bearer(t, &logintest.Issuer{Lifetime: session * 3 / 4, Unsigned: true}),
		})
	})
	// Without a renewal the broker ends connections, or else these tests show nothing.
	t.Run("no renewal", func(t *testing.T) {
		t.Parallel()
		conn, err := (&kafkago.Dialer{SASLMechanism: plain.Mechanism{Username: "ann", Password: "plain secret"}}).DialContext(deadline(t), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ApiVersions(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(session + time.Second/2)
		if _, err := conn.Brokers(); err == nil {
			t.Error("the broker has not ended the connection")
		}
	})
	t.Run("wrong logins", func(t *testing.T) {
		t.Parallel()
		file := t.TempDir() + "/token"
		// The broker reads the claims, and this one has no subject.
		if err := os.WriteFile(file, []byte("eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9."), 0o600); err != nil {
			t.Fatal(err)
		}
		bad, err := login.Bearer(login.TokenFile(file), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			login *login.Login
			want  string
		}{
			{password(t, "PLAIN", "ann", "guessed"), "Invalid username or password"},
			{password(t, "SCRAM-SHA-512", "bob", "guessed"), "invalid credentials"},
			{bad, "invalid_token"},
		} {
			cfg := s.config(t, "topic")
			cfg.Brokers, cfg.Login = []string{addr}, test.login
			log, err := runUntil(t, cfg, "nothing of the kind")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v", test.login.Mechanism(), err)
			}
			if strings.Contains(log+fmt.Sprint(err), "guessed") {
				t.Error("the password is in the log")
			}
		}
	})
}

// TestApacheKafkaWithLogin runs the suite with logins of a few seconds.
func TestApacheKafkaWithLogin(t *testing.T) {
	s := realBroker(t)
	Run(t, Broker{
		Addr: s.Addr, LoginAddr: os.Getenv("STREAMD_TEST_SASL_BROKERS"),
		Login: bearer(t, &logintest.Issuer{Lifetime: time.Minute, Unsigned: true}),
	})
}

// realBroker is a suite on the broker that testdata/kafka/kafka.sh starts.
func realBroker(t *testing.T) *suite {
	t.Helper()
	addr := os.Getenv("STREAMD_TEST_BROKERS")
	if addr == "" || os.Getenv("STREAMD_TEST_SASL_BROKERS") == "" {
		if os.Getenv("STREAMD_REQUIRE_BROKER") == "1" {
			t.Fatal("STREAMD_TEST_SASL_BROKERS names no broker, and STREAMD_REQUIRE_BROKER demands one")
		}
		t.Skip("STREAMD_TEST_SASL_BROKERS names no broker")
	}
	admin, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return &suite{Broker: Broker{Addr: addr}, admin: admin, run: time.Now().UnixNano()}
}

// lines is a log whose lines count as failures.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write passes over what is said while a fresh broker makes its topics of groups and transactions.
func (l *lines) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Coordinator")) {
		return len(line), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// observed counts connections that the other side ends.
type observed struct {
	net.Conn
	ended *atomic.Int64
}

func (c observed) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		c.ended.Add(1)
	}
	return n, err
}

// testSessions produces and consumes over several lifetimes of a login: alone, as a member of a
// group, and in transactions. Nothing is lost, nothing is logged, and the broker ends no
// connection.
func (s *suite) testSessions(t *testing.T, cluster kafka.Cluster) {
	ctx := deadline(t)
	var dials, ended atomic.Int64
	dial := cluster.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	cluster.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		dials.Add(1)
		return observed{conn, &ended}, nil
	}
	var logged lines
	log := zerolog.New(&logged).Level(zerolog.WarnLevel)
	name := func(suffix string) string { return s.name(t, strings.ReplaceAll(suffix, " ", "")) }
	topic, made := strings.ReplaceAll(name("topic"), " ", "-"), strings.ReplaceAll(name("made"), " ", "-")
	for _, topic := range []string{topic, made} {
		if err := kafka.EnsureTopic(ctx, cluster, topic, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: cluster, Topic: topic}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cfg := kafka.TransactionConfig{Cluster: cluster, Source: topic, Group: "made-" + topic, Topic: made}
	all, err := kafka.NewTransactions(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	tx, _, err := all.Open(ctx, 1, 1)
	if err != nil {
		t.Fatal(err)
	}

	consume := func(topic, group string, shared bool) (*kafka.Consumer, *recorder, func() error) {
		cfg := kafka.Config{
			Cluster: cluster, Topic: topic, Group: group + "-" + topic, Shared: shared,
			Fetching: kafka.Fetching{MaxWait: 100 * time.Millisecond}, SessionTimeout: patience,
		}
		sink := newRecorder()
		c, err := kafka.NewConsumer(cfg, sink, log)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		stop := sync.OnceValue(func() error { cancel(); return <-done })
		t.Cleanup(func() { stop() })
		return c, sink, stop
	}
	alone, sink, stop := consume(topic, "alone", false)
	_, shared, stopShared := consume(topic, "shared", true)
	_, sums, stopSums := consume(made, "made", true)

	want, sent, began := make([]chain, 2), 0, time.Now()
	for ; time.Since(began) < 4*session; sent++ {
		r := &kgo.Record{Key: []byte("key"), Value: fmt.Append(nil, sent)}
		if err := p.Write(ctx, sent%2, r.Key, r.Value, nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
		want[sent%2] = chainOf(want[sent%2], int64(sent/2), []*kgo.Record{r})
		if sent%10 == 9 {
			err := tx.Write(ctx, r.Key, r.Value, nil, time.Now())
			if err == nil {
				err = tx.Commit(ctx, kafka.Committed{Offset: int64(sent / 2), Metadata: "all"})
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := alone.Commit(ctx, map[int]int64{0: int64(sent / 2)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all records", func() bool { return sink.total() >= sent && shared.total() >= sent && sums.total() >= sent/10 })
	for _, stop := range []func() error{stop, stopShared, stopSums} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	for i, want := range want {
		for _, sink := range []*recorder{sink, shared} {
			if err := sink.broken(); err != nil || sink.chainOf(i) != want {
				t.Errorf("partition %d: the chain differs, %v", i, err)
			}
		}
	}
	if text := logged.String(); text != "" {
		t.Errorf("logged:\n%s", text)
	}
	t.Logf("%d records, %d connections", sent, dials.Load())
	if n := ended.Load(); n > 0 {
		t.Errorf("the broker has ended %d connections: their sessions were not renewed", n)
	}
}
