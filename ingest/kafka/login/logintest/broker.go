// Package logintest has doubles of the other side of a login, for tests: a broker's SASL layer that
// checks signed tokens and ends sessions as Apache Kafka does (Broker), and a token endpoint that
// signs them (Issuer).
package logintest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Broker stands before a broker without logins, and lets those through who have logged in by
// OAUTHBEARER. It hangs up on who has not, and on who goes on after the end of a session.
type Broker struct {
	// Upstream is the broker's address. Empty: every request is answered with its own bytes.
	Upstream string
	// Check checks a token, and returns its subject and its end.
	Check func(token string) (subject string, expires time.Time, err error)
	// MaxSession bounds a session, as connections.max.reauth.ms. Zero: sessions have no end.
	MaxSession time.Duration
	// OldVersions leaves version 1 of SaslAuthenticate out, which has the session's lifetime.
	OldVersions bool

	listener net.Listener
	work     sync.WaitGroup

	mu         sync.Mutex
	conns      map[net.Conn]bool
	logins     int // first ones of a connection
	renewals   int
	refusals   int
	hangups    int // over a session's end, or for want of a login
	extensions map[string]string
}

// Stats are what a Broker has seen.
type Stats struct {
	Logins, Renewals, Refusals, Hangups int
	Extensions                          map[string]string // of the latest login
}

// Start listens on a free port of this machine.
func (b *Broker) Start() error {
	var err error
	b.conns = make(map[net.Conn]bool)
	if b.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	b.work.Go(func() {
		for {
			conn, err := b.listener.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns[conn] = true
			b.mu.Unlock()
			b.work.Go(func() { b.serve(conn) })
		}
	})
	return nil
}

// Close ends all connections.
func (b *Broker) Close() {
	b.listener.Close()
	b.mu.Lock()
	for conn := range b.conns {
		conn.Close()
	}
	b.mu.Unlock()
	b.work.Wait()
}

// Addr is the address that it listens on.
func (b *Broker) Addr() string { return b.listener.Addr().String() }

// Dial connects to the double, whichever address is asked for: brokers advertise their own.
func (b *Broker) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, b.Addr())
}

// Stats returns what has been seen so far.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{b.logins, b.renewals, b.refusals, b.hangups, b.extensions}
}

func (b *Broker) count(what *int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*what++
}

// guest is a connection's state.
type guest struct {
	subject   string // "": not logged in
	expires   time.Time
	began     time.Time // of the latest login
	expecting string    // mechanism of the login under way
	refused   string    // why its token is refused
}

func (b *Broker) serve(conn net.Conn) {
	defer conn.Close()
	var upstream net.Conn
	if b.Upstream != "" {
		var err error
		if upstream, err = net.Dial("tcp", b.Upstream); err != nil {
			return
		}
		defer upstream.Close()
	}
	var g guest
	for {
		request, err := readFrame(conn)
		if err != nil || len(request) < 8 {
			return
		}
		key, version := int16(binary.BigEndian.Uint16(request)), int16(binary.BigEndian.Uint16(request[2:]))
		var answer []byte
		switch key {
		case kmsg.ApiVersions.Int16():
			if g.subject == "" {
				answer = b.versions()
				break
			}
			answer = b.forward(upstream, request)
		case kmsg.SASLHandshake.Int16():
			answer, err = b.handshake(&g, body(request), version)
		case kmsg.SASLAuthenticate.Int16():
			answer, err = b.authenticate(&g, body(request), version)
		default:
			if g.subject == "" || g.expecting != "" || !g.expires.IsZero() && time.Now().After(g.expires) {
				b.count(&b.hangups)
				return
			}
			answer = b.forward(upstream, request)
		}
		if err != nil || answer == nil {
			return
		}
		head := binary.BigEndian.AppendUint32(nil, uint32(len(answer)+4))
		if _, err := conn.Write(append(append(head, request[4:8]...), answer...)); err != nil {
			return
		}
	}
}

// forward asks the broker behind, and returns its answer without the correlation id.
func (b *Broker) forward(upstream net.Conn, request []byte) []byte {
	if upstream == nil {
		return append([]byte{}, request...)
	}
	if _, err := upstream.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)); err != nil {
		return nil
	}
	answer, err := readFrame(upstream)
	if err != nil || len(answer) < 4 {
		return nil
	}
	return answer[4:]
}

func (b *Broker) versions() []byte {
	var r kmsg.ApiVersionsResponse
	most := int16(1)
	if b.OldVersions {
		most = 0
	}
	for key, most := range map[int16]int16{kmsg.SASLHandshake.Int16(): 1, kmsg.SASLAuthenticate.Int16(): most} {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = key, most
		r.ApiKeys = append(r.ApiKeys, k)
	}
	return r.AppendTo(nil)
}

func (b *Broker) handshake(g *guest, request []byte, version int16) ([]byte, error) {
	req, resp := kmsg.SASLHandshakeRequest{Version: version}, kmsg.SASLHandshakeResponse{Version: version}
	if err := req.ReadFrom(request); err != nil {
		return nil, err
	}
	resp.SupportedMechanisms = []string{"OAUTHBEARER"}
	switch {
	case req.Mechanism != "OAUTHBEARER":
		resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
	case !g.began.IsZero() && time.Since(g.began) < time.Second: // as Apache Kafka has it
		resp.ErrorCode = kerr.IllegalSaslState.Code
	default:
		g.expecting, g.began = req.Mechanism, time.Now()
	}
	return resp.AppendTo(nil), nil
}

func (b *Broker) authenticate(g *guest, request []byte, version int16) ([]byte, error) {
	req, resp := kmsg.SASLAuthenticateRequest{Version: version}, kmsg.SASLAuthenticateResponse{Version: version}
	if err := req.ReadFrom(request); err != nil {
		return nil, err
	}
	message := "no handshake"
	if g.expecting != "" && g.refused != "" && bytes.Equal(req.SASLAuthBytes, []byte{1}) {
		message = g.refused
	} else if g.expecting != "" {
		token, extensions, err := parse(req.SASLAuthBytes)
		if err != nil {
			return nil, err // nonsense, which this client is not to send
		}
		subject, expires, err := b.Check(token)
		if err == nil && g.subject != "" && g.subject != subject {
			err = errors.New("another subject")
		}
		if err != nil {
			b.count(&b.refusals)
			g.refused = err.Error()
			resp.SASLAuthBytes = []byte(`{"status":"invalid_token"}`)
			return resp.AppendTo(nil), nil
		}
		b.accept(g, subject, expires, extensions, &resp)
		return resp.AppendTo(nil), nil
	}
	resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, &message
	return resp.AppendTo(nil), nil
}

// accept begins a session.
func (b *Broker) accept(g *guest, subject string, expires time.Time, extensions map[string]string, resp *kmsg.SASLAuthenticateResponse) {
	if g.subject == "" {
		b.count(&b.logins)
	} else {
		b.count(&b.renewals)
	}
	b.mu.Lock()
	b.extensions = extensions
	b.mu.Unlock()
	g.subject, g.expecting, g.expires = subject, "", time.Time{}
	if b.MaxSession > 0 {
		session := max(min(b.MaxSession, time.Until(expires)), 0)
		resp.SessionLifetimeMillis = session.Milliseconds()
		g.expires = time.Now().Add(session)
	}
}

// parse reads a client's first message (RFC 7628, section 3.1).
func parse(message []byte) (token string, extensions map[string]string, err error) {
	rest, ok := bytes.CutPrefix(message, []byte("n,,\x01"))
	rest, ended := bytes.CutSuffix(rest, []byte("\x01\x01"))
	if !ok || !ended {
		return "", nil, fmt.Errorf("%q is no first message", message)
	}
	extensions = map[string]string{}
	for pair := range bytes.SplitSeq(rest, []byte{1}) {
		name, value, ok := bytes.Cut(pair, []byte("="))
		if !ok {
			return "", nil, fmt.Errorf("%q is no pair", pair)
		}
		if string(name) == "auth" {
			if value, ok = bytes.CutPrefix(value, []byte("Bearer ")); !ok {
				return "", nil, errors.New("no bearer token")
			}
			token = string(value)
			continue
		}
		extensions[string(name)] = string(value)
	}
	return token, extensions, nil
}

// body is a request behind its header of version 1.
func body(request []byte) []byte {
	d := kbin.Reader{Src: request[8:]}
	d.NullableString()
	return d.Src
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 64<<20 {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(r, frame)
	return frame, err
}
