package daemon

import (
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/snapshot"
)

// roomy is a budget that is large enough for every test.
func roomy(cfg *config.Config) *memory.Budget { return memory.New(cfg, 8<<30) }

// environmentWith has a configuration, and nothing that needs another.
func environmentWith(cfg *config.Config) *loop.Environment {
	return &loop.Environment{Config: cfg, Log: zerolog.Nop(), Metrics: httpapi.NewMetrics(), Problems: problems.New(zerolog.Nop(), func(httpapi.Event) {})}
}

// coreWith is the core of a loop with a configuration, and nothing else.
func coreWith(cfg *config.Config) *loop.Loop { return loop.New(environmentWith(cfg)) }

// coreOf returns the shared parts of a loop that does not run.
func coreOf(cfg *config.Config, l *live.Set, store *snapshot.Store) *loop.Loop {
	c := coreWith(cfg)
	c.Learner, c.Store, c.Live = learnerOf(cfg), store, l
	c.Intake = intake.New(intake.Settings{Config: cfg, Live: l, Budget: roomy(cfg)})
	return c
}

func learnerOf(cfg *config.Config) *learning.Learner {
	l, err := learning.New(cfg, 1<<23, zerolog.Nop())
	if err != nil {
		panic(err)
	}
	return l
}
