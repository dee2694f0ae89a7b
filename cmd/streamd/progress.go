package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// advance is the progress of work.
type advance struct {
	rows  int64
	bytes int64   // 0: not shown
	done  float64 // share of the work, 0 to 1; 0: unknown
	// awaits names the thing that the work waits for at the moment. Empty: it does not wait.
	awaits string
}

// The intervals of progress. A terminal shows one line over and over. A log should stay short
// enough to read.
const (
	drawInterval = 200 * time.Millisecond
	logInterval  = 5 * time.Second
)

// watch shows the progress of work until stop is called, which may be more than once: in one line
// if standard error is a terminal, else as a plain line every few seconds. It calls at on another
// goroutine.
func (s *surroundings) watch(task string, at func() advance) (stop func()) {
	return s.show(func(took time.Duration) string { return at().describe(task, took) })
}

// watchRows is watch for a dataset.
func (s *surroundings) watchRows(task string, at func() (rows int64, share float64)) (stop func()) {
	return s.watch(task, func() advance {
		rows, share := at()
		return advance{rows: rows, done: share}
	})
}

// report is watch for work that has other steps than rows.
func (s *surroundings) report(task string, at func() string) (stop func()) {
	return s.show(func(time.Duration) string { return task + ": " + at() })
}

func (s *surroundings) show(text func(took time.Duration) string) (stop func()) {
	interval, terminal := logInterval, isTerminal(s.stderr)
	if terminal {
		interval = drawInterval
	}
	began := time.Now()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				if terminal {
					fmt.Fprint(s.stderr, eraseLine)
				}
				return
			case <-ticker.C:
				line := text(time.Since(began))
				if terminal {
					fmt.Fprint(s.stderr, eraseLine+line)
				} else {
					fmt.Fprintln(s.stderr, line)
				}
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
}

const eraseLine = "\r\x1b[K"

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// describe writes one line of progress.
func (a advance) describe(task string, took time.Duration) string {
	var b strings.Builder
	b.WriteString(task + ":")
	if a.done > 0 {
		fmt.Fprintf(&b, " %.0f %%,", 100*min(a.done, 1))
	}
	seconds := took.Seconds()
	fmt.Fprintf(&b, " %s rows, %s rows/s", short(float64(a.rows)), short(float64(a.rows)/seconds))
	if a.bytes > 0 {
		fmt.Fprintf(&b, ", %.1f MB/s", float64(a.bytes)/seconds/1e6)
	}
	if a.done > 0 && a.done < 1 {
		left := time.Duration(float64(took) * (1 - a.done) / a.done)
		fmt.Fprintf(&b, ", %s left", left.Round(time.Second))
	}
	if a.awaits != "" {
		b.WriteString(", waiting for " + a.awaits)
	}
	return b.String()
}

// short writes a count with about three digits.
func short(x float64) string {
	for _, unit := range []struct {
		value float64
		name  string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= unit.value {
			return fmt.Sprintf("%.3g %s", x/unit.value, unit.name)
		}
	}
	return fmt.Sprintf("%.0f", x)
}
