package history

import (
	"context"
	"math"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/snapshot"
)

const (
	sampleEvery = 5 * time.Second // the shortest interval of the history
	recordEvery = time.Minute     // a crash loses at most this much of the history
)

// Recorder adds samples of the status to the history and saves the history. It runs
// beside the loop and reads only the status.
type Recorder struct {
	log   zerolog.Logger
	store *snapshot.Store
	limit int64 // of the memory

	mu    sync.Mutex
	rings *Rings
}

// NewRecorder continues a saved history, if record is not nil.
func NewRecorder(log zerolog.Logger, store *snapshot.Store, limit int64, record []byte) *Recorder {
	r := &Recorder{log: log, store: store, limit: limit, rings: new(Rings)}
	if record != nil {
		rings, err := Decode(record)
		if err != nil {
			log.Warn().Err(err).Msg("the history of the status page cannot be read and begins anew")
		} else {
			r.rings = rings
		}
	}
	return r
}

// Figures are those that samples are made of.
type Figures interface {
	Status() httpapi.Status
	Prequential() *model.Prequential
}

// Run adds samples until ctx ends, and then saves the history.
func (r *Recorder) Run(ctx context.Context, of Figures) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	saved := time.Now()
	r.sample(saved, of)
	for {
		select {
		case <-ctx.Done():
			r.sample(time.Now(), of)
			r.save()
			return
		case now := <-tick.C:
			r.sample(now, of)
			if now.Sub(saved) >= recordEvery {
				saved = now
				r.save()
			}
		}
	}
}

func (r *Recorder) sample(now time.Time, of Figures) {
	s, p := of.Status(), of.Prequential()
	sample := Sample{
		Rows: s.Rows.Read, Judged: p.Rows, Right: p.Right,
		Repeats: p.Repeats, Classes: p.Classes, Balanced: math.NaN(), Lag: s.Lag(), Memory: memoryInUse(),
	}
	if p.Window != nil {
		sample.Balanced = p.Window.BalancedCorrectness
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rings.Add(now, sample)
}

func (r *Recorder) save() {
	record := r.Encoded()
	if err := r.store.SaveHistory(record); err != nil {
		r.log.Warn().Err(err).Msg("the history of the status page could not be saved")
	}
}

// Encoded is the history as the snapshot has it.
func (r *Recorder) Encoded() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rings.AppendBinary(nil)
}

// memoryInUse is the bytes that the Go runtime has from the system.
func memoryInUse() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// History implements httpapi.Service.
func (r *Recorder) History(span model.Span) *model.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.rings.History(span, time.Now())
	h.MemoryLimit = r.limit
	return h
}
