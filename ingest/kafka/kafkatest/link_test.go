package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// link is a bad network. Its dial wraps connections.
type link struct {
	mu  sync.Mutex
	rng *rand.Rand

	// cut ends a connection after a random number of bytes read, from cut to twice cut; 0:
	// never.
	cut int
	// loseReply ends a connection instead of the first read after a write of more than that
	// many bytes: the request arrives, the answer does not. It happens losses times; 0:
	// never.
	loseReply, losses int
	// chunk and delay slow reads down to chunk bytes per delay.
	chunk int
	delay time.Duration
	// flip is how often a bit behind marker is inverted.
	marker []byte
	flip   int
	// dead is an address whose connections are refused and ended.
	dead string

	cuts, flipped int // done so far
}

var errCut = errors.New("cut by the test")

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if address == l.dead {
		c.Close()
		return nil, errCut
	}
	lc := &linkConn{Conn: c, link: l, address: address}
	if l.cut > 0 {
		lc.left = l.cut + l.rng.IntN(l.cut)
	}
	return lc, nil
}

// die makes the broker at an address die.
func (l *link) die(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = address
}

func (l *link) did() (cuts, flipped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cuts, l.flipped
}

type linkConn struct {
	net.Conn
	link    *link
	address string
	left    int  // bytes until the cut; 0: none
	sent    bool // more than loseReply bytes were written, and none read since
}

func (c *linkConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.address == c.link.dead {
		c.Conn.Close()
		return 0, errCut
	}
	if c.link.loseReply > 0 && n > c.link.loseReply {
		c.sent = true
	}
	return n, err
}

func (c *linkConn) Read(p []byte) (int, error) {
	l := c.link
	l.mu.Lock()
	chunk, delay := l.chunk, l.delay
	lose := c.sent && l.losses > 0
	if lose {
		l.losses--
		l.cuts++
	}
	c.sent = false
	l.mu.Unlock()
	if lose {
		// Wait for the answer, so that the broker has certainly served the request.
		c.Conn.Read(p[:1])
		c.Conn.Close()
		return 0, errCut
	}
	if chunk > 0 {
		time.Sleep(delay)
		p = p[:min(len(p), chunk)]
	}
	n, err := c.Conn.Read(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flip > 0 && len(l.marker) > 0 {
		if i := bytes.Index(p[:n], l.marker); i >= 0 && i+len(l.marker) < n {
			p[i+len(l.marker)] ^= 1
			l.flip--
			l.flipped++
		}
	}
	if c.left > 0 && err == nil {
		if c.left -= n; c.left <= 0 {
			l.cuts++
			c.Conn.Close()
			return 0, errCut
		}
	}
	return n, err
}
