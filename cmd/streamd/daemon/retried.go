package daemon

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

// Such work fails for retriedFailing before that is a problem: a broker may start again. It begins
// anew after retriedPause.
const (
	retriedFailing = 10 * time.Second
	retriedPause   = 2 * time.Second
)

// run does the work until ctx ends. failing says what its failure means, for the log.
func (r *retried) run(ctx context.Context, log zerolog.Logger, failing string, work func(context.Context) error) {
	for ctx.Err() == nil {
		works := time.AfterFunc(retriedFailing, func() { r.note(nil) })
		err := work(ctx)
		works.Stop()
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

// failing is since when the work fails and why, where that is a problem by now; nil: it is none.
func (r *retried) failing(now time.Time) (since time.Time, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil || now.Sub(r.since) < retriedFailing {
		return time.Time{}, nil
	}
	return r.since, r.why
}
