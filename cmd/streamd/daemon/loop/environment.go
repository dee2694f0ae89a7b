package loop

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/events"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/ingest/registry"
	"streamd/ingest/wire"
	"streamd/snapshot"
)

// Environment is what every part works with. It knows none of them.
type Environment struct {
	Config   *config.Config
	Log      zerolog.Logger
	Learner  *learning.Learner
	Memory   *memory.Budget
	Metrics  *httpapi.Metrics
	Problems *problems.Board
	EventLog *events.Log
	Registry *registry.Client // of the schemas of messages; nil: there is none
	Decoding wire.Options     // of the records of the topic
	Store    *snapshot.Store
	Topic    *passes.Log // its records can be read again
	Salt     [32]byte    // of the hashes of keys in the log
}

// NewEnvironment makes it without a snapshot. Events and problems are those of the daemon that this
// one succeeds; nil: they begin anew.
func NewEnvironment(cfg *config.Config, log zerolog.Logger, told *events.Log, board *problems.Board) (*Environment, error) {
	limit, err := memory.Limit(cfg)
	if err != nil {
		return nil, err
	}
	e := &Environment{Config: cfg, Log: log, Memory: memory.New(cfg, limit), Metrics: httpapi.NewMetrics(), EventLog: told, Problems: board}
	if e.Learner, err = learning.New(cfg, e.Memory.Values, log); err != nil {
		return nil, err
	}
	rand.Read(e.Salt[:]) // never fails
	if e.EventLog == nil {
		e.EventLog = events.New(time.Now())
	}
	if e.Problems == nil {
		e.Problems = problems.New(log, e.EventLog.Add)
	}
	if e.Registry, err = settings.Registry(cfg.Format.Registry, log); err != nil {
		return nil, err
	}
	e.Decoding, err = settings.Decoding(cfg, e.Memory, e.Registry)
	return e, err
}

// Configure changes the configuration, before anything is made by it.
func (e *Environment) Configure(cfg *config.Config) (err error) {
	e.Config, e.Learner = cfg, e.Learner.With(cfg)
	e.Decoding, err = settings.Decoding(cfg, e.Memory, e.Registry)
	return err
}

// Logged is the name of a block in the log. A key may be a person's name, and the log may
// outlive the block. So keys are hashed with a random salt that only this process has.
// Lines of one process about one key have the same hash.
func (e *Environment) Logged(id string) string {
	if e.Config.Blocks.Unit != config.UnitKey {
		return id
	}
	h := hmac.New(sha256.New, e.Salt[:])
	h.Write([]byte(id))
	return "key#" + hex.EncodeToString(h.Sum(nil)[:8])
}
