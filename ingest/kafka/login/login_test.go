package login

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"streamd/ingest/kafka/login/logintest"
)

// guarded is a broker that wants signed tokens, and a login with those of an issuer.
func guarded(t *testing.T, lifetime, session time.Duration) (*logintest.Broker, *logintest.Issuer, *Login) {
	t.Helper()
	b := &logintest.Broker{Check: logintest.Check, MaxSession: session}
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	issuer := &logintest.Issuer{Lifetime: lifetime}
	l, err := Bearer(endpointOf(t, issuer, ClientCredentials{}), map[string]string{"logicalCluster": "lkc-1", "identityPoolId": "pool"})
	if err != nil {
		t.Fatal(err)
	}
	return b, issuer, l
}

func connect(t *testing.T, b *logintest.Broker, l *Login) (net.Conn, error) {
	t.Helper()
	conn, err := l.Dial(new(net.Dialer).DialContext, "test")(t.Context(), "tcp", b.Addr())
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// request is a request of a key that logins do not have, with a body.
func request(id int32, body string) []byte {
	r := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	r = append(r, 0, 3, 0, 1)
	return append(binary.BigEndian.AppendUint32(r, uint32(id)), body...)
}

// reply reads the answer to it: the double sends the request back.
func reply(conn net.Conn, id int32, body string) error {
	want := request(id, body)
	got := make([]byte, 4+4+len(want)-4)
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !bytes.Equal(got[8:], want[4:]) {
		return fmt.Errorf("got %q", got)
	}
	return nil
}

func ask1(conn net.Conn, id int32) error {
	if _, err := conn.Write(request(id, "body")); err != nil {
		return err
	}
	return reply(conn, id, "body")
}

// A connection goes on over many lifetimes, and logs in on itself.
func TestRenewal(t *testing.T) {
	t.Parallel()
	b, issuer, l := guarded(t, time.Hour, 1500*time.Millisecond)
	conn, err := connect(t, b, l)
	if err != nil {
		t.Fatal(err)
	}
	began, id := time.Now(), int32(0)
	for ; time.Since(began) < 5*time.Second; id++ {
		if err := ask1(conn, id); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	s := b.Stats()
	if s.Logins != 1 || s.Renewals < 3 || s.Renewals > 4 || s.Hangups+s.Refusals > 0 {
		t.Errorf("%+v", s)
	}
	if s.Extensions["logicalCluster"] != "lkc-1" || s.Extensions["identityPoolId"] != "pool" || len(s.Extensions) != 2 {
		t.Errorf("extensions %v", s.Extensions)
	}
	if n, _ := issuer.Requests(); n != 1 {
		t.Errorf("%d tokens", n)
	}
	// An idle connection logs in when it is used again.
	time.Sleep(2 * time.Second)
	if err := ask1(conn, id); err != nil {
		t.Error(err)
	}
}

// Requests may follow each other without waiting for answers. Then a login waits for a gap.
func TestRenewalOfPipeline(t *testing.T) {
	t.Parallel()
	b, _, l := guarded(t, time.Hour, 1500*time.Millisecond)
	conn, err := connect(t, b, l)
	if err != nil {
		t.Fatal(err)
	}
	began, id := time.Now(), int32(0)
	for ; time.Since(began) < 3500*time.Millisecond; id += 3 {
		all := append(append(request(id, "a"), request(id+1, "bc")...), request(id+2, "")...)
		for len(all) > 0 { // in pieces, as a buffered writer has them
			n := min(len(all), 1+rand.N(20))
			if _, err := conn.Write(all[:n]); err != nil {
				t.Fatal(err)
			}
			all = all[n:]
		}
		for i, body := range []string{"a", "bc", ""} {
			if err := reply(conn, id+int32(i), body); err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	if s := b.Stats(); s.Logins != 1 || s.Renewals < 2 || s.Hangups+s.Refusals > 0 {
		t.Errorf("%+v", s)
	}
}

// Without a token for the renewal, a session goes on while it lasts.
func TestRenewalWithoutToken(t *testing.T) {
	t.Parallel()
	b, issuer, l := guarded(t, 1200*time.Millisecond, 10*time.Second)
	conn, err := connect(t, b, l)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	issuer.Close()
	for id := int32(0); ; id++ {
		err := ask1(conn, id)
		if since := time.Since(began); err == nil && since > 5*time.Second {
			t.Fatal("the session has no end")
		} else if err != nil {
			if since < 900*time.Millisecond || !strings.Contains(err.Error(), "log in again with OAUTHBEARER") {
				t.Errorf("after %v: %v", since, err)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// An old broker says nothing of a session's lifetime.
func TestOldBroker(t *testing.T) {
	t.Parallel()
	b, _, l := guarded(t, time.Hour, 0)
	b.OldVersions = true
	conn, err := connect(t, b, l)
	if err != nil {
		t.Fatal(err)
	}
	if s := conn.(*session); s.version != 0 || !s.renew.IsZero() {
		t.Errorf("version %d, renewed at %v", s.version, s.renew)
	}
	if err := ask1(conn, 1); err != nil {
		t.Error(err)
	}
}

// A refused token is replaced. The code that says that a login is wrong for good comes with the
// third refusal, or never once a login was accepted.
func TestRefusedToken(t *testing.T) {
	b, issuer, l := guarded(t, time.Hour, time.Hour)
	refuse := errors.New("unknown\x1b[31m issuer")
	var refusing atomic.Bool
	b.Check = func(token string) (string, time.Time, error) {
		if refusing.Load() {
			return "", time.Time{}, refuse
		}
		return logintest.Check(token)
	}
	refusing.Store(true)
	for i := range maxRefusals {
		_, err := connect(t, b, l)
		if err == nil || !strings.Contains(err.Error(), "unknown [31m issuer") || !strings.Contains(err.Error(), `{"status":"invalid_token"}`) {
			t.Fatalf("got %v", err)
		}
		if last := i == maxRefusals-1; errors.Is(err, kafkago.SASLAuthenticationFailed) != last {
			t.Errorf("refusal %d: %v", i+1, err)
		}
	}
	if n, _ := issuer.Requests(); n != maxRefusals {
		t.Errorf("%d tokens", n)
	}
	refusing.Store(false)
	if _, err := connect(t, b, l); err != nil {
		t.Fatal(err)
	}
	refusing.Store(true)
	for range 2 * maxRefusals {
		if _, err := connect(t, b, l); err == nil || errors.Is(err, kafkago.SASLAuthenticationFailed) {
			t.Errorf("got %v", err)
		}
	}
}

// A broker says which mechanisms it has.
func TestOtherMechanism(t *testing.T) {
	b, _, _ := guarded(t, time.Hour, time.Hour)
	l, err := Password("SCRAM-SHA-256", "ann", "hidden")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, b, l); !errors.Is(err, kafkago.UnsupportedSASLMechanism) || !strings.Contains(err.Error(), "it offers OAUTHBEARER") {
		t.Errorf("got %v", err)
	}
}

// A broker that says nothing holds a connection no longer than its caller wants.
func TestSilentBroker(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l, err := Password("PLAIN", "ann", "hidden")
	if err != nil {
		t.Fatal(err)
	}
	dial := l.Dial(new(net.Dialer).DialContext, "test")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := dial(ctx, "tcp", listener.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	ctx, abort := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { abort(errors.New("stopped")) })
	if _, err := dial(ctx, "tcp", listener.Addr().String()); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("got %v", err)
	}
}

// steps is a mechanism whose token comes when it is released.
type blocking struct{ release chan bool }

func (blocking) Name() string { return "OAUTHBEARER" }

func (b blocking) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	select {
	case <-b.release:
		return new(bearer), []byte("n,,\x01auth=Bearer a\x01\x01"), nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// Deadlines of a connection's user are in force again after a renewal, which an old one of reads
// does not end, and one of the past does.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	b := &logintest.Broker{MaxSession: 1100 * time.Millisecond, Check: func(string) (string, time.Time, error) { return "me", time.Now().Add(time.Hour), nil }}
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	release := make(chan bool, 10)
	release <- true
	l := &Login{mechanism: blocking{release}}
	conn, err := connect(t, b, l)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(-time.Hour))
	conn.SetWriteDeadline(time.Now().Add(time.Minute))
	time.Sleep(1100 * time.Millisecond)
	release <- true
	if _, err := conn.Write(request(1, "")); err != nil {
		t.Fatal(err)
	}
	if n := b.Stats().Renewals; n != 1 {
		t.Errorf("%d renewals", n)
	}
	if err := reply(conn, 1, ""); err == nil {
		t.Error("the deadline of reads is gone")
	}
	conn.SetDeadline(time.Time{})
	if err := reply(conn, 1, ""); err != nil {
		t.Error(err)
	}
	// The broker does not answer the next login, as the connection to it is stuck.
	s := conn.(*session)
	time.Sleep(1100 * time.Millisecond)
	release <- true
	mine, other := net.Pipe()
	defer other.Close()
	s.Conn.Close()
	s.Conn = mine
	time.AfterFunc(50*time.Millisecond, func() { conn.SetDeadline(time.Unix(1, 0)) })
	began := time.Now()
	if _, err := conn.Write(request(2, "")); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// Readers and writers of one connection, as kafka-go's groups have them.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	b, _, l := guarded(t, time.Hour, 1200*time.Millisecond)
	conn, err := connect(t, b, l)
	if err != nil {
		t.Fatal(err)
	}
	var turn sync.Mutex // of writes; answers come in their order
	var id int32
	sent := make(chan int32, 8)
	var work sync.WaitGroup
	began := time.Now()
	for range 3 {
		work.Go(func() {
			for time.Since(began) < 3*time.Second {
				turn.Lock()
				id++
				mine := id
				_, err := conn.Write(request(mine, "body"))
				sent <- mine
				turn.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		})
	}
	go func() { work.Wait(); close(sent) }()
	for mine := range sent {
		if err := reply(conn, mine, "body"); err != nil {
			t.Fatalf("answer %d: %v", mine, err)
		}
	}
	if s := b.Stats(); s.Renewals < 2 || s.Hangups > 0 {
		t.Errorf("%+v", s)
	}
}

func TestFrames(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 200 {
		var stream []byte
		n := rng.IntN(20)
		for range n {
			size := rng.IntN(30)
			stream = append(binary.BigEndian.AppendUint32(stream, uint32(size)), make([]byte, size)...)
		}
		var f frames
		begun, ended := 0, 0
		for rest := stream; len(rest) > 0; {
			piece := min(len(rest), 1+rng.IntN(10))
			b, e := f.pass(rest[:piece])
			begun, ended, rest = begun+b, ended+e, rest[piece:]
			if f.between() != (begun == ended) || begun < ended {
				t.Fatalf("%d begun, %d ended, between messages: %v", begun, ended, f.between())
			}
		}
		if begun != n || ended != n {
			t.Fatalf("%d of %d messages begun, %d ended", begun, n, ended)
		}
	}
	var f frames // a negative size is no message of gigabytes
	if begun, ended := f.pass([]byte{0xff, 0xff, 0xff, 0xff}); begun != 1 || ended != 1 || !f.between() {
		t.Error(begun, ended)
	}
}

func TestLifetimes(t *testing.T) {
	for millis, want := range map[int64]time.Duration{
		0: 0, -1: 0, 3000: 3 * time.Second, 1 << 62: maxLifetime, -1 << 63: 0,
	} {
		var s session
		now := time.Now()
		s.begins(now, millis)
		if want == 0 {
			if !s.renew.IsZero() {
				t.Errorf("%d ms: renewed after %v", millis, s.renew.Sub(now))
			}
			continue
		}
		if renew := s.renew.Sub(now); s.expires.Sub(now) != want || renew < want*8/10 || renew > want*9/10 {
			t.Errorf("%d ms: ends after %v, renewed after %v", millis, s.expires.Sub(now), renew)
		}
	}
}

func TestPassword(t *testing.T) {
	for _, bad := range [][2]string{{"GSSAPI", "ann"}, {"PLAIN", ""}, {"", "ann"}} {
		if _, err := Password(bad[0], bad[1], "x"); err == nil {
			t.Errorf("%q is a login", bad)
		}
	}
	for challenge, want := range map[string]string{
		"r=abc,s=ab,i=4096": "", "v=abc": "", "r=abc,s=ab,i=1000001": "1000001 iterations", "r=a,i=99999999999999999999": "no number",
		"r=a,i=-1": "no number", "r=a,i=": "no number",
	} {
		if err := checkIterations([]byte(challenge)); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", challenge, err)
		}
	}
}

func TestExtensions(t *testing.T) {
	for name, value := range map[string]string{"auth": "x", "": "x", "a-b": "x", "a": "", "b": "x\x01y", "c": "ü"} {
		if _, err := Bearer(TokenFile("x"), map[string]string{name: value}); err == nil {
			t.Errorf("%q=%q is an extension", name, value)
		}
	}
}
