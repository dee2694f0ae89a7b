package reproduce

import (
	"context"
	"math"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/ingest/ndc"
)

// The last plane, after 30 retirements, is to the bit that of the days that are left.
func TestDrift(t *testing.T) {
	const rows = 1000
	planes, between, err := drifting{rows}.planes(context.Background(), &Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	generator, err := ndc.New(ndc.Config{
		Features: driftFeatures, Separability: ndc.Easy, Seed: 1, Drift: ndc.Drift{First: driftBegin * rows, Last: driftEnd * rows},
	})
	if err != nil {
		t.Fatal(err)
	}
	var z incremental.Summariser
	left := incremental.NewState(incremental.DefaultFeatures(driftFeatures))
	summary, err := z.Summarise(generator.NewSampler().Block(ndc.Train, driftWindow*rows, driftWindow*rows))
	if err != nil {
		t.Fatal(err)
	}
	left.Add(summary)
	want, err := left.Moments().Solve(incremental.Options{Nu: driftNu})
	if err != nil {
		t.Fatal(err)
	}
	last := planes[len(planes)-1]
	if got := last.model.Planes[0]; !slices.Equal(got.W, want.Planes[0].W) || got.Gamma != want.Planes[0].Gamma {
		t.Errorf("the last plane is %v, %v, that of its days %v, %v", got.W, got.Gamma, want.Planes[0].W, want.Planes[0].Gamma)
	}
	if len(planes) != driftDays-driftWindow+1 || planes[0].angle != 0 || last.angle < between-10 || last.angle > between+10 {
		t.Errorf("%d planes, from %v to %v degrees, of %v", len(planes), planes[0].angle, last.angle, between)
	}
}

// Planes that came through Kafka are the ones that are reported. Each must have the bits of the
// sums' plane.
func TestDriftWindows(t *testing.T) {
	d := drifting{1000}
	want, _, err := d.planes(t.Context(), &Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, changed := range map[string]int{"alike": -1, "one bit": 7} {
		t.Run(name, func(t *testing.T) {
			windows := func(_ context.Context, days *DriftingDays) (models []*incremental.Model, err error) {
				if days.Days != 60 || days.Window != 30 || days.Rows != 1000 || days.Points.Drift != (ndc.Drift{First: 30_000, Last: 32_000}) {
					t.Errorf("days %+v", days)
				}
				for i, p := range want {
					m := *p.model
					m.Planes = slices.Clone(m.Planes)
					if i == changed {
						m.Planes[0].Gamma = math.Nextafter(m.Planes[0].Gamma, 1)
					}
					models = append(models, &m)
				}
				return models, nil
			}
			results, err := d.run(t.Context(), &Config{Seed: 1, Windows: windows})
			if err != nil {
				t.Fatal(err)
			}
			broken := results[len(results)-1].Broken
			if changed < 0 && broken != "" || changed >= 0 && broken != "the daemon's plane of day 37 is not that of the sums" {
				t.Errorf("broken: %q", broken)
			}
		})
	}
}
