package daemon

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// watchdog ends a stop that hangs: whatever waits for a disk, a broker or a lock, Run returns at
// shutdown_timeout.
type watchdog struct {
	limit time.Duration
	once  sync.Once
	late  chan struct{} // closed when the stop has taken limit

	reason atomic.Pointer[error] // why the daemon stops; nil: it was asked to
}

func newWatchdog(limit time.Duration) *watchdog {
	return &watchdog{limit: limit, late: make(chan struct{})}
}

// begin is called when a stop begins. Only the first call counts.
func (w *watchdog) begin() {
	w.once.Do(func() { time.AfterFunc(w.limit, func() { close(w.late) }) })
}

// cause is the error that has begun the stop, or nil.
func (w *watchdog) cause() error {
	if err := w.reason.Load(); err != nil {
		return *err
	}
	return nil
}

// shareOfStop is how much of shutdown_timeout pending records have. The rest is for ending after
// they are given up.
const shareOfStop = 0.9

// mostNamedWaits bounds the goroutines that the log names.
const mostNamedWaits = 50

// names logs the goroutines that have not ended, and returns the error of the stop.
func (w *watchdog) names(log zerolog.Logger) error {
	stacks := make([]byte, 8<<20)
	waits := waiting(string(stacks[:runtime.Stack(stacks, true)]))
	for _, g := range waits[:min(len(waits), mostNamedWaits)] {
		log.Error().Str("goroutine", g.state).Str("in", g.calls).Msg("the stop has waited for this goroutine")
	}
	first := "nothing of this program"
	if len(waits) > 0 {
		first = waits[0].calls
	}
	return fmt.Errorf("stopping has not ended within shutdown_timeout, %s: %d goroutines are left, the first in %s; what is not saved is read again", w.limit, len(waits), first)
}

// wait is a goroutine that has not ended.
type wait struct {
	state string // as "syscall, 2 minutes"
	calls string // the functions of this program, the innermost first, behind what they wait in
}

var goroutine = regexp.MustCompile(`^goroutine \d+ \[(.*)\]:$`)

// waiting finds the goroutines in a dump of stacks that are in this program's own functions, those
// that have waited longest first, as in the dump. The one that dumps is not among them.
func waiting(stacks string) (all []wait) {
	for text := range strings.SplitSeq(stacks, "\n\n") {
		lines := strings.Split(text, "\n")
		head := goroutine.FindStringSubmatch(lines[0])
		if head == nil || strings.Contains(text, ").names(") {
			continue
		}
		var calls []string
		own := false
		for _, line := range lines[1:] {
			at := strings.LastIndexByte(line, '(')
			if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "created by ") || at < 0 {
				continue
			}
			name, mine := strings.CutPrefix(line[:at], "streamd/")
			if mine || len(calls) == 0 {
				calls = append(calls, name)
			}
			own = own || mine
		}
		if own {
			all = append(all, wait{head[1], strings.Join(calls, " < ")})
		}
	}
	return all
}
