package loop

import (
	"fmt"
	"time"

	"streamd/cmd/streamd/httpapi"
)

// Many blocks may depart at once: a request chooses them, or the control topic, or the policy lets
// them go, or their log was deleted. The loop takes them out in slices, and applies deliveries
// between two slices. It does nothing else before the last one: it does not save or solve, and
// takes no calls. So all who ask, and the file, see the live set before or after. If the process
// ends in between, the file is as it was.
//
// What is left is that of the live set without the blocks, since the ledger lacks them from the
// beginning (see the package live).

const (
	sliceTime  = 10 * time.Millisecond  // of a slice, about
	LeastSlice = 64                     // blocks of a slice, and of the first one: how long these take is not known yet
	MostSlice  = 4096                   // likewise
	stopTime   = 500 * time.Millisecond // for the slices that are left when a stop begins

	// DepartAtOnce is the number of blocks that one change takes out without slices.
	DepartAtOnce = LeastSlice
)

// ErrAbandoned says that the daemon stops before all blocks have departed.
var ErrAbandoned = fmt.Errorf("the daemon stops while blocks are being taken out: none is, and what was read since the last save is read again: %w", httpapi.ErrUnavailable)

// slicing is what the loop does in slices.
//
//	rests     work is nil, and no block departs
//	works     slices of work, then slices of departing blocks
//	abandons  the daemon has failed, or stops; the works are told, and nothing is saved any more
type slicing struct {
	Work    *SlicedWork
	settled []func(error) // called when no block departs any more, or the daemon has failed
	n       int           // blocks of the next slice; 0: that is the first one of its kind
	Least   int           // see LeastSlice
	Most    int           // see MostSlice
	Until   time.Time     // when a stop gives up; zero: none has begun

	Longest time.Duration // turn of the loop
}

// SlicedWork is work on many blocks.
type SlicedWork struct {
	Slice   func(n int) (more bool, err error) // works on about n blocks
	Arrives func() (may bool)                  // called before deliveries are applied between two slices
	End     func(error)                        // called after the last slice; with an error the daemon has failed
}

// MeasureAgain has the next slice be a first one: its blocks take another time each, how long is
// not known yet.
func (l *Loop) MeasureAgain() { l.Slicing.n = 0 }

// MayArrive reports whether deliveries may be applied before the next slice.
func (l *Loop) MayArrive() bool {
	w := l.Slicing.Work
	return w == nil || w.Arrives == nil || w.Arrives()
}

// Slices reports whether slices are left.
func (l *Loop) Slices() bool {
	return l.Failure == nil && (l.Slicing.Work != nil || l.Live.Departing() > 0)
}

// InSlices does the first slices of work, for about as long as a slice takes. The loop does the
// rest. No other work is under way.
func (l *Loop) InSlices(w *SlicedWork) {
	s := &l.Slicing
	s.Work = w
	for began := time.Now(); s.Work != nil && s.Most > s.Least && time.Since(began) < sliceTime/2; {
		l.NextSlice()
	}
}

// NextSlice does a slice.
func (l *Loop) NextSlice() {
	s, began := &l.Slicing, time.Now()
	s.n = max(s.n, s.Least)
	var err error
	if w := s.Work; w != nil {
		var more bool
		if more, err = w.Slice(s.n); err == nil && !more {
			s.Work, s.settled = nil, append(s.settled, w.End)
		}
	} else {
		_, err = l.Live.Depart(s.n)
	}
	if err != nil {
		l.Fail(err) // nothing is saved any more, so a restart has all blocks
	}
	faster := float64(sliceTime) / float64(max(time.Since(began), 1))
	s.n = min(int(float64(s.n)*min(faster, 4)), s.Most)
	l.AfterSlices()
}

// WhenSettled calls f when no block departs any more, which may be now.
func (l *Loop) WhenSettled(f func(error)) {
	l.Slicing.settled = append(l.Slicing.settled, f)
	l.AfterSlices()
}

// AfterSlices calls those who wait for the last slice.
func (l *Loop) AfterSlices() {
	s := &l.Slicing
	if l.Slices() {
		return
	}
	if w := s.Work; w != nil {
		s.Work = nil
		w.End(l.Failure)
	}
	all := s.settled
	s.settled, s.n, s.Until = nil, 0, time.Time{}
	for _, f := range all {
		f(l.Failure)
	}
}

// Turn notes that a turn of the loop, which began then, has ended.
func (l *Loop) Turn(began time.Time) {
	took := time.Since(began)
	l.Slicing.Longest = max(l.Slicing.Longest, took)
	l.Metrics.TurnSeconds.Observe(took.Seconds())
}

// Abandons reports whether a stop has begun too long ago for the slices that are left.
func (l *Loop) Abandons(now time.Time) bool {
	s := &l.Slicing
	select {
	case <-l.Stopping:
	default:
		return false
	}
	if s.Until.IsZero() {
		s.Until = now.Add(stopTime)
	}
	return now.After(s.Until)
}
