// Package login logs connections in to Kafka brokers by SASL, and logs them in again before
// their sessions expire (KIP-368).
//
// A Login wraps a dial function, so that all connections log in at one place, whoever opens them
// and whatever they are for. Those who use a connection do not notice: Dial returns when the
// broker has accepted the login, and a later login happens between two requests.
//
// The mechanisms are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 with a password, and OAUTHBEARER
// with a token (RFC 7628). Tokens come from a token endpoint (ClientCredentials), from a file
// that something else renews (TokenFile), or are signed here for Amazon MSK (MSK).
//
// A broker, a token endpoint and a metadata service are peers: their answers are bounded in
// bytes and time, and no error shows a secret or a token.
package login

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DialFunc opens a connection.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

const (
	// timeout bounds the exchange of one login.
	timeout = 10 * time.Second
	// maxAnswer bounds a broker's answer during a login, in bytes.
	maxAnswer = 64 << 10
	// maxRounds bounds the challenges of one login. SCRAM has two.
	maxRounds = 8
	// maxRefusals is how often a token may be refused before the first success. A refusal may be
	// the broker's own trouble, such as a key of the issuer that it has yet to fetch.
	maxRefusals = 3
)

// Login is a way to log in. It is safe for concurrent use, and meant to be shared by all
// connections, as it keeps tokens.
type Login struct {
	mechanism sasl.Mechanism
	tokens    Tokens // of OAUTHBEARER; nil: a password

	mu       sync.Mutex
	accepted bool // a broker has accepted a login
	refusals int  // in a row
}

// Mechanism is the name of the SASL mechanism.
func (l *Login) Mechanism() string { return l.mechanism.Name() }

// Dial returns a function that opens connections with dial and logs them in. clientID appears in
// the broker's logs.
func (l *Login) Dial(dial DialFunc, clientID string) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		// A login without a token would only hold a connection.
		steps, first, err := l.mechanism.Start(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s := &session{Conn: conn, login: l, clientID: clientID}
		if err := s.open(ctx, steps, first); err != nil {
			conn.Close()
			return nil, err
		}
		return s, nil
	}
}

// refusal is a broker's refusal of a login.
type refusal struct {
	error
	temporary bool
}

// Unwrap hides the code of the broker, which stands for a wrong login, while trying again may help.
func (r refusal) Unwrap() error {
	if r.temporary {
		return nil
	}
	return r.error
}

// refused notes that a broker has refused a login. What it says about a password is final. A token
// is replaced, and a broker that has accepted tokens before is taken to be in trouble.
func (l *Login) refused(err error) error {
	if l.tokens == nil {
		return err
	}
	l.tokens.Discard()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusals++
	return refusal{err, l.accepted || l.refusals < maxRefusals}
}

func (l *Login) succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted, l.refusals = true, 0
}

// open logs in on a new connection.
func (s *session) open(ctx context.Context, steps sasl.StateMachine, first []byte) error {
	deadline := time.Now().Add(timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	s.Conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { s.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := s.askVersion()
	if err == nil {
		err = s.authenticate(ctx, steps, first)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("log in with %s: %w", s.login.Mechanism(), context.Cause(ctx))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("log in with %s: the broker does not answer in time: %w", s.login.Mechanism(), context.DeadlineExceeded)
	case err != nil:
		return fmt.Errorf("log in with %s: %w", s.login.Mechanism(), err)
	case !stop(): // it sets the deadline now, or has
		return context.Cause(ctx)
	}
	return s.Conn.SetDeadline(time.Time{})
}

// askVersion asks which version of SaslAuthenticate the broker speaks. From version 1 on its
// answer has the lifetime of the session.
func (s *session) askVersion() error {
	req := kmsg.NewApiVersionsRequest()
	var resp kmsg.ApiVersionsResponse
	if err := s.exchange(&req, &resp); err != nil {
		return err
	}
	if resp.ErrorCode != 0 {
		return kafkago.Error(resp.ErrorCode)
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == authenticateKey {
			s.version = max(0, min(k.MaxVersion, 1))
		}
	}
	return nil
}

var authenticateKey = (*kmsg.SASLAuthenticateRequest)(nil).Key()

// authenticate exchanges the messages of a login.
func (s *session) authenticate(ctx context.Context, steps sasl.StateMachine, first []byte) error {
	hello := kmsg.NewSASLHandshakeRequest()
	hello.Version, hello.Mechanism = 1, s.login.Mechanism()
	welcome := kmsg.SASLHandshakeResponse{Version: 1}
	if err := s.exchange(&hello, &welcome); err != nil {
		return err
	}
	switch code := kafkago.Error(welcome.ErrorCode); code {
	case 0:
	case kafkago.UnsupportedSASLMechanism:
		return fmt.Errorf("%w: it offers %s", code, printable(strings.Join(welcome.SupportedMechanisms, ", ")))
	default:
		return code
	}
	began := time.Now() // a session counts from later on, so it is renewed rather too early
	for message := first; ; {
		req := kmsg.NewSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = s.version, message
		resp := kmsg.SASLAuthenticateResponse{Version: s.version}
		if err := s.exchange(&req, &resp); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				// Apache Kafka reports a wrong password. Other brokers hang up.
				return fmt.Errorf("the broker hangs up, as some do when user name, password, token or mechanism are wrong (%v)", err)
			}
			return err
		}
		if resp.ErrorCode != 0 {
			err := error(kafkago.Error(resp.ErrorCode))
			if resp.ErrorMessage != nil && *resp.ErrorMessage != "" {
				err = fmt.Errorf("%w: the broker says: %s", err, printable(*resp.ErrorMessage))
			}
			if b, ok := steps.(*bearer); ok && b.challenge != "" {
				err = fmt.Errorf("%w: %s", err, b.challenge)
			}
			if errors.Is(err, kafkago.SASLAuthenticationFailed) {
				err = s.login.refused(err)
			}
			return err
		}
		s.rounds++
		done, next, err := steps.Next(ctx, resp.SASLAuthBytes)
		if errors.Is(err, errRefused) {
			return s.login.refused(fmt.Errorf("%w: %w", kafkago.SASLAuthenticationFailed, err))
		} else if err != nil {
			return fmt.Errorf("the broker's answer cannot be used: %s", printable(err.Error())) // it may be quoted
		}
		if done {
			s.rounds = 0
			s.begins(began, resp.SessionLifetimeMillis)
			s.login.succeeded()
			return nil
		}
		if s.rounds == maxRounds {
			return fmt.Errorf("the broker asks more than %d times", maxRounds)
		}
		message = next
	}
}

// exchange sends a request and reads the answer to it.
func (s *session) exchange(req kmsg.Request, resp kmsg.Response) error {
	s.correlation++
	head := kmsg.NewRequestFormatter(kmsg.FormatterClientID(s.clientID))
	if _, err := s.Conn.Write(head.AppendRequest(nil, req, s.correlation)); err != nil {
		return err
	}
	var start [8]byte
	if _, err := io.ReadFull(s.Conn, start[:]); err != nil {
		return noEOF(err)
	}
	size := int64(int32(binary.BigEndian.Uint32(start[:]))) - 4
	if size < 0 || size > maxAnswer {
		return fmt.Errorf("an answer of %d bytes to a login, want at most %d", size, maxAnswer)
	}
	if id := int32(binary.BigEndian.Uint32(start[4:])); id != s.correlation {
		return errors.New("the broker's answer is not to the request sent")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(s.Conn, body); err != nil {
		return noEOF(err)
	}
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("the broker's answer to a login is cut off: %w", err)
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// printable cuts a peer's text, and leaves out what a terminal would act on.
func printable(text string) string {
	const most = 300
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.TrimSpace(text)
}
