package output

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// retried is work beside the loop that begins anew when it fails: the rest of the daemon does not
// need it.
type retried struct {
	mu    sync.Mutex
	since time.Time // it fails since then; zero: it does not
	why   error
}

// retriedFailing is how long work that nobody waits for fails before that is a problem: a broker
// may start again. All such work begins anew after retriedPause.
const (
	retriedFailing = 10 * time.Second
	retriedPause   = 2 * time.Second
)

// run does the work until ctx ends. The work notes that it works. failing says what its failure
// means, for the log.
func (r *retried) run(ctx context.Context, log zerolog.Logger, failing string, work func(context.Context) error) {
	for ctx.Err() == nil {
		err := work(ctx)
		if ctx.Err() != nil {
			return
		}
		r.note(err)
		log.Warn().Err(err).Stringer("again_in", retriedPause).Msg(failing + "; trying again")
		select {
		case <-ctx.Done():
		case <-time.After(retriedPause):
		}
	}
}

// note notes why the work has failed; nil: it works.
func (r *retried) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why = err; err == nil {
		r.since = time.Time{}
	} else if r.since.IsZero() {
		r.since = time.Now()
	}
}

// failing is since when the work fails and why, if it has for that long; nil: it has not.
func (r *retried) failing(now time.Time, least time.Duration) (since time.Time, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil || now.Sub(r.since) < least {
		return time.Time{}, nil
	}
	return r.since, r.why
}
