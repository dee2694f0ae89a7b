package login

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// fetchTimeout bounds a request for a token or credentials, so that a connection that waits
	// for it ends with this error, and not with its own timeout of 10 s.
	fetchTimeout = 8 * time.Second
	// refreshWait is how long a caller waits for a new value while the former one is good.
	refreshWait = 2 * time.Second
)

// cached keeps a value that something far away makes, such as a token, until shortly before it
// expires. There is one request at a time, whoever waits, and after a failure none for a while.
type cached[T any] struct {
	what  string // for the log and errors, such as "token of https://…"
	log   zerolog.Logger
	fetch func(context.Context) (value T, expires time.Time, err error)
	limit time.Duration // of a request; zero: fetchTimeout

	mu       sync.Mutex
	value    T
	have     bool
	refresh  time.Time     // when to ask for the next value
	expires  time.Time     // the value is not used from here on
	flight   chan struct{} // closed when the request under way ends; nil: there is none
	err      error         // of the latest request
	failures int           // in a row
	retry    time.Time     // no request before
}

// get returns a value that has not expired. While a value is good, a failure to get the next one is
// only logged.
func (c *cached[T]) get(ctx context.Context) (T, error) {
	var waited <-chan time.Time
	for {
		c.mu.Lock()
		now := time.Now()
		value, good := c.value, c.have && now.Before(c.expires)
		fresh := good && now.Before(c.refresh)
		if !fresh && c.flight == nil && (!now.Before(c.retry) || !good && c.err == nil) {
			c.flight = make(chan struct{})
			go c.ask()
		}
		flight, err := c.flight, c.err
		c.mu.Unlock()
		if fresh || good && flight == nil {
			return value, nil
		}
		var none T
		if flight == nil {
			return none, err
		}
		if good && waited == nil {
			waited = time.After(refreshWait)
		}
		select {
		case <-flight:
		case <-waited:
			return value, nil
		case <-ctx.Done():
			return none, fmt.Errorf("wait for the %s: %w", c.what, context.Cause(ctx))
		}
	}
}

// ask requests a value, on nobody's behalf: those who wait may leave.
func (c *cached[T]) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(c.limit, fetchTimeout))
	defer cancel()
	value, expires, err := c.fetch(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.flight)
	c.flight = nil
	now := time.Now()
	lifetime := min(expires.Sub(now), maxLifetime)
	if err == nil && lifetime <= 0 {
		err = fmt.Errorf("the %s has expired already, at %s: compare the clocks", c.what, expires.UTC().Format(time.RFC3339))
	} else if err == nil {
		c.value, c.have, c.err, c.failures = value, true, nil, 0
		c.retry = now.Add(min(lifetime/10, time.Second)) // whatever lifetimes a peer says, requests have a distance
		// Brokers end a session with its token, and sessions are renewed after 80 % to 90 % of
		// their time. So the next token is asked for before.
		c.refresh = now.Add(lifetime*7/10 + rand.N(lifetime/10+1))
		c.expires = now.Add(lifetime - min(lifetime/20, 10*time.Second))
		return
	}
	c.err = err
	c.failures = min(c.failures+1, 8)
	pause := min(100*time.Millisecond<<c.failures, 5*time.Second)
	c.retry = now.Add(pause - rand.N(pause/4))
	if c.have && now.Before(c.expires) {
		c.log.Warn().Err(err).Time("valid_until", c.expires).Msg("the " + c.what + " could not be renewed; the one in use is still valid; trying again")
	}
}

// discard forgets the value. The next get asks for another one.
func (c *cached[T]) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.have = false
}
