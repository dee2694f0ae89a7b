package daemon

import (
	"fmt"
	"testing"

	"streamd/cmd/streamd/daemon/learning"
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
			l := learnerOf(cfg)
			for b.Loop() {
				s := &learning.Study{
					Learner: l, Options: l.Options, Served: &model.Served{Rows: state.Rows()},
					Sums: study.Problem{Whole: state, Folds: parts}, Sample: held.Snapshot(state, folds),
				}
				s.Make(b.Context())
				if s.Served.Model == nil || s.Served.Quality == nil || s.Failed != nil {
					b.Fatal(s.Served.Problem, s.Served.Absent)
				}
			}
		})
	}
}
