package bench

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// The tags of this package are the command line's: names, defaults and help.

// Repeats are the flags of benchmarks that run in rounds.
type Repeats struct {
	Rounds int  `default:"5" help:"Rounds. Each round runs every case and its baselines in turn. Figures are medians of rounds."`
	Each   bool `help:"Print a line for each round instead of the medians, for benchstat."`
}

func (f Repeats) check() error { return Within("rounds", 1, maxRounds, f.Rounds) }

// maxRounds bounds the samples that are kept.
const maxRounds = 10_000

// Timed are the flags of benchmarks of short operations.
type Timed struct {
	Repeats
	Time time.Duration `default:"50ms" help:"Time of each case, and of each baseline, in a round."`
}

func (f Timed) check() error {
	if f.Time <= 0 {
		return fmt.Errorf("--time %v: must be positive", f.Time)
	}
	return f.Repeats.check()
}

// Threads is the flag of benchmarks on several cores.
type Threads struct {
	Threads []int `default:"1,0" help:"Goroutines that work at the same time. 0: one for each core."`
}

func (f Threads) check() error { return Within("threads", 0, 1024, f.Threads...) }

// list returns the numbers of goroutines, each once.
func (f Threads) list() (list []int) {
	for _, n := range f.Threads {
		if n == 0 {
			n = runtime.GOMAXPROCS(0)
		}
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// The limits of values bound the memory to some gigabytes.
const (
	maxFeatures = 4096
	maxClasses  = 1000
	maxRows     = 10_000_000
	maxLive     = 1_000_000
	maxMB       = 1 << 20
)

// Within checks the values of a flag.
func Within[N int | int64](flag string, least, most N, values ...N) error {
	for _, value := range values {
		if value < least || value > most {
			return fmt.Errorf("--%s %d: must be %d to %d", flag, value, least, most)
		}
	}
	return nil
}
