package daemon

import (
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/incremental/study"
	"streamd/ingest/ndc"
)

// BenchmarkStudy is the cost of a study on one goroutine: a million points of ten features
// and a sample of 50,000.
func BenchmarkStudy(b *testing.B) {
	const blocks, rows, folds = 100, 10_000, 5
	g, err := ndc.New(ndc.Config{Features: 10, Separability: ndc.Expansion(3), Seed: 7})
	if err != nil {
		b.Fatal(err)
	}
	var ids []string
	held := sample.New(sample.Settings{Rows: 50_000}, func(yield func(string) bool) {
		for _, id := range ids {
			if !yield(id) {
				return
			}
		}
	})
	s := g.NewSampler()
	var z incremental.Summariser
	var taker sample.Taker
	features := incremental.DefaultFeatures(10)
	state := incremental.NewState(features)
	parts := make([]*incremental.State, folds)
	for f := range parts {
		parts[f] = incremental.NewState(features)
	}
	for i := range blocks {
		block := s.Block(ndc.Train, int64(i)*rows, rows)
		sum, err := z.Summarise(block)
		if err != nil {
			b.Fatal(err)
		}
		state.Add(sum)
		parts[sample.Fold(sum.Digest(), folds)].Add(sum)
		ids = append(ids, fmt.Sprint(i))
		held.Add(ids[i], taker.Take(block, sum.Digest(), sum.Totals(), held.Levels()))
	}
	for _, flags := range []map[string]string{
		{"model.calibration": "none"},
		{},
		{"model.refine": "line"},
		{"model.refine": "full"},
		{"model.refine": "full", "model.nu": "auto"},
		{"model.refine": "auto", "model.nu": "auto", "model.standardise": "auto"},
		{"model.refine": "auto", "model.nu": "auto", "model.standardise": "auto", "model.balanced": "auto"},
	} {
		b.Run(fmt.Sprint(flags), func(b *testing.B) {
			flags["kafka.topic"] = "none"
			cfg := load(b, flags)
			c := &core{cfg: cfg, options: modelOptions(cfg.Model), jobs: newJobs(zerolog.Nop(), httpapi.NewMetrics()), memory: memory.New(cfg, 4<<30)}
			for b.Loop() {
				s := &studyJob{
					core: c, options: c.options, served: &model.Served{Rows: state.Rows()},
					sums: study.Problem{Whole: state, Folds: parts}, sample: held.Snapshot(state, folds),
				}
				s.make(b.Context())
				if s.served.Model == nil || s.served.Quality == nil || s.refining != nil {
					b.Fatal(s.served.Problem, s.served.Absent)
				}
			}
		})
	}
}
