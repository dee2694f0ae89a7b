package pipeline

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counter gives the jobs 0 to n−1.
func counter(n int) func() (int, error) {
	i := 0
	return func() (int, error) {
		if i == n {
			return 0, io.EOF
		}
		i++
		return i - 1, nil
	}
}

func TestKeepsOrder(t *testing.T) {
	for _, workers := range []int{1, 2, 7} {
		var got []int
		var given, taken atomic.Int64
		next := counter(1000)
		err := Run(t.Context(), workers,
			func() (int, error) {
				if hand := given.Add(1) - taken.Load(); hand > int64(InFlight(workers)) {
					t.Errorf("%d workers: %d jobs in hand", workers, hand)
				}
				return next()
			},
			func(worker, job int) (int, error) {
				if worker < 0 || worker >= workers {
					t.Errorf("worker %d of %d", worker, workers)
				}
				for range job % 3 {
					runtime.Gosched()
				}
				return job * job, nil
			},
			func(result int) error {
				got = append(got, result)
				taken.Add(1)
				return nil
			})
		if err != nil || len(got) != 1000 {
			t.Fatalf("%d workers: %d results, %v", workers, len(got), err)
		}
		for i, result := range got {
			if result != i*i {
				t.Fatalf("%d workers: result %d is %d", workers, i, result)
			}
		}
	}
}

// Of several errors the first in the order of the jobs counts, though others may be met
// earlier. The results before it are taken.
func TestFirstError(t *testing.T) {
	first, later, last := errors.New("first"), errors.New("later"), errors.New("last")
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		next := counter(20)
		err := Run(t.Context(), 4,
			func() (int, error) {
				job, err := next()
				if job == 12 {
					err = last
				}
				return job, err
			},
			func(_, job int) (int, error) {
				switch job {
				case 9:
					time.Sleep(time.Hour)
					return 0, first
				case 10, 11:
					return 0, later
				}
				return job, nil
			},
			func(int) error { taken++; return nil })
		if err != first || taken != 9 {
			t.Errorf("%v after %d results", err, taken)
		}
	})
}

func TestEnds(t *testing.T) {
	identity := func(_, job int) (int, error) { return job, nil }
	if err := Run(t.Context(), 3, counter(0), identity, func(int) error { return nil }); err != nil {
		t.Error(err)
	}
	full := errors.New("full")
	if err := Run(t.Context(), 3, counter(1000), identity, func(int) error { return full }); err != full {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Run(ctx, 3, func() (int, error) { return 0, nil }, identity, func(int) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
