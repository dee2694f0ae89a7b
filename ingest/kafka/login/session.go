package login

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// session is a connection that is logged in. It follows the boundaries of requests and answers in
// the bytes that pass, and logs in again between two requests, before the broker would refuse
// the second.
//
// A broker looks at the age of a session when a request arrives, and not before. So a session is
// renewed by the first request after most of its lifetime, and an idle connection needs no timer.
// While an answer is outstanding there is no room for a login; the next request has it then, which
// a broker accepts also after the session's end.
type session struct {
	net.Conn
	login       *Login
	clientID    string
	version     int16 // of SaslAuthenticate
	correlation int32
	rounds      int // of the login under way

	writing sync.Mutex // held by Write, and while logging in
	out     frames     // requests
	renew   time.Time  // when to log in again; zero: never
	expires time.Time
	least   time.Time // the broker takes no further login before

	reading    sync.Mutex // held by Read, and while logging in
	in         frames     // answers
	unanswered atomic.Int64

	mu     sync.Mutex // of the deadlines
	during bool       // a login has deadlines of its own
	reads  time.Time  // deadlines of the connection's user
	writes time.Time
}

const (
	// leastSession is the age of a login before which Apache Kafka takes no further one.
	leastSession = 1050 * time.Millisecond
	// maxLifetime bounds what a broker may say, so that sums do not overflow.
	maxLifetime = 365 * 24 * time.Hour
	// retryPause is how long a session goes on before it asks for a token again.
	retryPause = time.Second
)

// begins notes the lifetime of a session. A random part of the lifetime keeps many connections
// from logging in at the same moment.
func (s *session) begins(now time.Time, millis int64) {
	s.renew, s.expires = time.Time{}, time.Time{}
	if millis <= 0 {
		return
	}
	lifetime := time.Duration(min(millis, maxLifetime.Milliseconds())) * time.Millisecond
	s.expires, s.least = now.Add(lifetime), time.Now().Add(leastSession)
	s.renew = now.Add(lifetime*8/10 + rand.N(lifetime/10+1))
}

// Write sends bytes of requests, after another login where that is due.
func (s *session) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.renew.IsZero() && !time.Now().Before(s.renew) && s.out.between() && s.unanswered.Load() == 0 && s.reading.TryLock() {
		time.Sleep(time.Until(s.least)) // a session so short is that of a token that was old already
		err := s.again()
		s.reading.Unlock()
		if err != nil {
			return 0, fmt.Errorf("log in again with %s: %w", s.login.Mechanism(), err)
		}
	}
	begun, _ := s.out.pass(p)
	s.unanswered.Add(int64(begun))
	return s.Conn.Write(p)
}

// Read reads bytes of answers.
func (s *session) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	n, err := s.Conn.Read(p)
	_, ended := s.in.pass(p[:n])
	s.unanswered.Add(-int64(ended))
	return n, err
}

// again logs in on the connection once more. Without a token the session goes on while it lasts.
func (s *session) again() error {
	until := time.Now().Add(timeout)
	s.mu.Lock()
	if !s.writes.IsZero() && s.writes.Before(until) {
		until = s.writes // the caller is in Write, so this one holds; a deadline of reads may be an old one
	}
	s.during = true
	s.Conn.SetDeadline(until)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.during = false
		s.Conn.SetReadDeadline(s.reads)
		s.Conn.SetWriteDeadline(s.writes)
	}()
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	steps, first, err := s.login.mechanism.Start(ctx)
	if err != nil {
		if now := time.Now(); now.Before(s.expires) {
			s.renew = now.Add(retryPause)
			return nil
		}
		return err
	}
	return s.authenticate(ctx, steps, first)
}

// SetDeadline sets both deadlines. While logging in, deadlines apply afterwards, unless they are
// over: that is how a connection is interrupted.
func (s *session) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads, s.writes = t, t
	if s.during && !past(t) {
		return nil
	}
	return s.Conn.SetDeadline(t)
}

// SetReadDeadline is like SetDeadline.
func (s *session) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = t
	if s.during && !past(t) {
		return nil
	}
	return s.Conn.SetReadDeadline(t)
}

// SetWriteDeadline is like SetDeadline.
func (s *session) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = t
	if s.during && !past(t) {
		return nil
	}
	return s.Conn.SetWriteDeadline(t)
}

func past(t time.Time) bool { return !t.IsZero() && t.Before(time.Now()) }

// frames follows the boundaries of Kafka's messages in a stream: a size of four bytes, then as
// many bytes.
type frames struct {
	size [4]byte
	got  int   // bytes of size
	left int64 // bytes of the message
}

// between reports whether the stream is between two messages.
func (f *frames) between() bool { return f.got == 0 && f.left == 0 }

// pass notes bytes of the stream, and returns how many messages begin and how many end in them.
func (f *frames) pass(p []byte) (begun, ended int) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, int64(len(p)))
			f.left -= n
			p = p[n:]
			if f.left == 0 {
				ended++
			}
			continue
		}
		if f.got == 0 {
			begun++
		}
		n := copy(f.size[f.got:], p)
		f.got += n
		p = p[n:]
		if f.got == len(f.size) {
			f.got = 0
			// A negative size is nonsense, about which the reader of the message complains.
			if f.left = max(0, int64(int32(binary.BigEndian.Uint32(f.size[:])))); f.left == 0 {
				ended++
			}
		}
	}
	return begun, ended
}
