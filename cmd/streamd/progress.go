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

// advance is how far some work has come.
type advance struct {
	rows  int64
	bytes int64   // 0: of no interest
	done  float64 // share of the work, 0 to 1; 0: not known
	// awaits is what the work stands still for at the moment; empty: it does not.
	awaits string
}

// How often progress is shown: a line of a terminal is drawn over and over, a
// log should hold no more than what somebody reads the next day.
const (
	drawInterval = 200 * time.Millisecond
	logInterval  = 5 * time.Second
)

// watch shows how far work has come until stop is called, which may be more
// than once: in one line if standard error is a terminal, else as a plain line
// every few seconds. at is called on another goroutine.
func (s *surroundings) watch(what string, at func() advance) (stop func()) {
	return s.show(func(took time.Duration) string { return at().describe(what, took) })
}

// report is watch for work that goes by other steps than rows.
func (s *surroundings) report(what string, at func() string) (stop func()) {
	return s.show(func(time.Duration) string { return what + ": " + at() })
}

func (s *surroundings) show(text func(took time.Duration) string) (stop func()) {
	interval, terminal := logInterval, isTerminal(s.stderr)
	if terminal {
		interval = drawInterval
	}
	began := time.Now()
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
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
		<-gone
	})
}

const eraseLine = "\r\x1b[K"

// isTerminal says whether somebody watches what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// describe is one line of progress.
func (a advance) describe(what string, took time.Duration) string {
	var b strings.Builder
	b.WriteString(what + ":")
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

// short is a count with three digits or so.
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
