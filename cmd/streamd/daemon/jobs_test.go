package daemon

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental/parallel"
)

// saboteur has tasks panic.
type saboteur struct {
	mu   sync.Mutex
	left map[loop.Task]int // how often each panics
	met  map[loop.Task]int // how often each has
}

// failing makes every task but the given ones panic that often.
func failing(times int, but ...loop.Task) *saboteur {
	s := &saboteur{left: map[loop.Task]int{}, met: map[loop.Task]int{}}
	for _, t := range []loop.Task{loop.TaskSolve, loop.TaskCompare, loop.TaskStudy, loop.TaskReduce, loop.TaskRebuild, loop.TaskFill, loop.TaskFeatures, loop.TaskWithdraw, loop.TaskWindow, loop.TaskLabels, loop.TaskHistory, loop.TaskRetention} {
		if !slices.Contains(but, t) {
			s.left[t] = times
		}
	}
	return s
}

func (s *saboteur) in(d *Daemon) { d.Before = s.before }

func (s *saboteur) before(t loop.Task) {
	s.mu.Lock()
	panics := s.left[t] > 0
	if panics {
		s.left[t]--
		s.met[t]++
	}
	s.mu.Unlock()
	if panics {
		parallel.For(2, 2, func(i int) error { // a task may panic on a goroutine of its own
			if i == 1 {
				panic("sabotage of " + string(t))
			}
			return nil
		})
	}
}

// panicked reports how often tasks have panicked.
func (s *saboteur) panicked(t loop.Task) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.met[t]
}

// failed lists the jobs that are problems now.
func (i *instance) failed() (all []string) {
	for _, p := range i.Status().Problems {
		if p.Kind == httpapi.ProblemJob {
			all = append(all, p.Subject)
		}
	}
	return all
}

// eventually waits until ok.
func (i *instance) eventually(what string, ok func() bool) {
	i.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		select {
		case err := <-i.done:
			i.t.Fatalf("waiting for %s: the daemon has ended: %v", what, err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			i.t.Fatalf("%s: problems %v", what, i.Status().Problems)
		}
	}
}

// A panic in a job is the job's failure: it is counted and shown, the daemon goes on with what it
// has, and tries again until the job succeeds.
func TestJobsThatPanic(t *testing.T) {
	const times = 2
	name := topic(t, 1)
	produce(t, name, boardBlocks(t, 5, 30, 40)...)
	s := failing(times, loop.TaskHistory)
	d := startWith(t, name, filepath.Join(t.TempDir(), "s"), map[string]string{
		"kernel.function": "gaussian(gamma=0.0005)", "kernel.basis": "8", "kernel.rows": "500",
		"model.nu": "auto", "model.refine": "line", "model.refine_interval": "20ms", "sample.rows": "400", "model.folds": "3",
		"drift.detect": "true",
	}, s.in)
	tasks := []loop.Task{loop.TaskSolve, loop.TaskStudy, loop.TaskReduce, loop.TaskRebuild, loop.TaskCompare, loop.TaskRetention}
	shown := map[string]bool{}
	d.eventually("planes of studies in a basis", func() bool {
		for _, job := range d.failed() {
			shown[job] = true
		}
		served, _ := d.Served()
		return served.Basis != nil && served.Refinement != nil && served.Tuning != nil && served.Quality != nil
	})
	d.eventually("jobs that succeed", func() bool {
		for _, job := range d.failed() {
			shown[job] = true
		}
		return !slices.ContainsFunc(tasks, func(t loop.Task) bool { return s.panicked(t) < times })
	})
	_, metrics := d.ask(http.MethodGet, "/metrics")
	for _, of := range tasks {
		if line := fmt.Sprintf("streamd_job_failures_total{job=%q} %d\n", of, times); !strings.Contains(metrics, line) || !shown[string(of)] {
			t.Errorf("%s: shown %t, no %s", of, shown[string(of)], line)
		}
	}
	for n := range times + 1 {
		code, answer := d.ask(http.MethodGet, "/v1/model?from=2000-01-01T00:00:00Z")
		if want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK}[n < times]; code != want {
			t.Errorf("window, call %d: %d %s", n, code, answer)
		}
	}

	// What was served last stays while a study fails, and is right.
	before, _ := d.Served()
	s.mu.Lock()
	s.left[loop.TaskStudy] = 1
	s.mu.Unlock()
	produce(t, name, boardBlocks(t, 6, 1, 40)...)
	d.eventually("another failure", func() bool {
		return s.panicked(loop.TaskStudy) == times+1 && slices.Contains(d.failed(), string(loop.TaskStudy))
	})
	if served, _ := d.Served(); served.Model == nil {
		t.Errorf("while a study fails there is no model: %s", served.Problem)
	}
	if _, page := d.ask(http.MethodGet, "/"); !strings.Contains(page, "the job study has failed") {
		t.Error("the page does not say that a job has failed")
	}
	d.eventually("refined planes of all blocks", func() bool {
		after, _ := d.Served()
		return after.Digest != before.Digest && after.Refinement != nil && after.Refinement.Digest == after.Digest
	})
	d.eventually("no problem is left", func() bool {
		return !slices.ContainsFunc(d.failed(), func(job string) bool { return job != string(loop.TaskRetention) })
	})
	d.stop()
}

// Likewise for the jobs that read the log again.
func TestPassesThatPanic(t *testing.T) {
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "s")
	for i := range 8 {
		produce(t, name, message{value: fmt.Appendf(nil, `[{"label":0,"a":%d,"b":1,"c":2},{"label":1,"a":3,"b":%d,"c":5}]`, i, i)})
	}
	flags := map[string]string{"format.features": "a,b", "format.ignore": "c", "sample.rows": "0", "model.folds": "0"}
	first := start(t, name, file, flags)
	first.waitForOffsets(8)
	first.stop()
	for _, step := range []struct {
		task  loop.Task
		flags map[string]string
		path  string
		says  string // the answer of the path, in the end
	}{
		{loop.TaskFeatures, map[string]string{"format.features": "a,c", "format.ignore": "b", "sample.rows": "0", "model.folds": "0"}, "/v1/model", `"features":["a","c"]`},
		{loop.TaskFill, map[string]string{"format.features": "a,c", "format.ignore": "b", "sample.rows": "50", "model.folds": "2"}, "/v1/quality", `"rows":16`},
	} {
		s := failing(2, loop.TaskHistory, loop.TaskRetention)
		d := startWith(t, name, file, step.flags, s.in)
		d.eventually(string(step.task), func() bool {
			code, answer := d.ask(http.MethodGet, step.path)
			return code == http.StatusOK && strings.Contains(answer, step.says) && s.panicked(step.task) == 2
		})
		d.stop()
	}
}
