package loop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/httpapi"
)

// idle is a loop that does not run.
func idle() *Loop {
	return New(&Environment{Log: zerolog.Nop(), Metrics: httpapi.NewMetrics(), Problems: problems.New(zerolog.Nop(), func(httpapi.Event) {})})
}

// The rest after a failure doubles and is bounded, and a success ends it.
func TestRestAfterFailures(t *testing.T) {
	d := idle()
	for n := range 40 {
		before := time.Now()
		if err := d.try(TaskStudy, func() { panic("sabotage") }); err == nil {
			t.Fatal("no error")
		}
		want := longestRest
		if n < 10 {
			want = firstRest << n
		}
		if !d.Rests(TaskStudy, before.Add(want-time.Second/2)) || d.Rests(TaskStudy, time.Now().Add(want)) {
			t.Errorf("failure %d: %+v", n+1, d.failed[TaskStudy])
		}
		if d.Rests(TaskSolve, before) {
			t.Error("another task rests, too")
		}
	}
	d.succeeds(TaskStudy)
	if d.Rests(TaskStudy, time.Now()) {
		t.Error("it rests after a success")
	}

	// A task that is kept is begun again.
	runs := 0
	ctx, cancel := context.WithCancel(t.Context())
	d.Keep(ctx, TaskHistory, func() {
		if runs++; runs == 1 {
			panic("sabotage")
		}
		cancel()
	})
	if runs != 2 {
		t.Errorf("%d runs", runs)
	}
}

// The loop itself, and jobs that write the snapshot, are not caught.
func TestPanicsThatAreNotCaught(t *testing.T) {
	d := idle()
	d.Background = t.Context()
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	if x := d.Begin(TaskSolve, false, func(context.Context) func() { return func() { panic("in the loop") } }, func(error) {}); !panics(x.Await) {
		t.Error("the end of a job is in the loop, and was caught")
	}
	failed := false
	if x := d.Begin(TaskSolve, false, func(context.Context) func() { panic("beside the loop") }, func(error) { failed = true }); panics(x.Await) || !failed {
		t.Error("a job was not caught")
	}
}

// Whoever asks while the features change is not told that the daemon stops.
func TestCallsDuringAChangeOfFeatures(t *testing.T) {
	j := idle()
	close(j.LoopDone)
	says := func() string {
		err := j.Call(t.Context(), func() error { return nil })
		if !errors.Is(err, httpapi.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		return err.Error()
	}
	if got := says(); !strings.Contains(got, "the daemon is stopping") {
		t.Errorf("at a stop it says %q", got)
	}
	j.Changing.Store(true)
	if got := says(); strings.Contains(got, "stopping") || !strings.Contains(got, "the features are being changed") {
		t.Errorf("during a change it says %q", got)
	}
}
