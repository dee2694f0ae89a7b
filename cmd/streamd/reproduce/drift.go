package reproduce

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/plot"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/ingest/ndc"
)

// drifting is figure 2.7: days of points, of which a window holds 30. After them, every day one
// comes and the oldest one goes. Meanwhile the points drift to other clusters.
type drifting struct{ rows int } // of a day

const (
	driftDays, driftWindow = 60, 30
	// The days between these ends have points of both clusters.
	driftBegin, driftEnd = 30, 32
	driftFeatures        = 10
	driftNu              = 0.1 // that of table 2.4
	driftTest            = 100_000
)

// defaultDay is the number of points of a day.
const defaultDay = 1_000_000

// DriftingDays are the points of figure 2.7, a day after the other. A window moves over them. Each
// time a day comes, the window's first one goes.
type DriftingDays struct {
	Days, Window int
	Rows         int // of a day
	Points       ndc.Config
	Nu           float64
}

// days describes the points.
func (d drifting) days(c *Config) *DriftingDays {
	return &DriftingDays{
		Days: driftDays, Window: driftWindow, Rows: d.rows, Nu: driftNu,
		Points: ndc.Config{
			Features: driftFeatures, Separability: ndc.Easy, Seed: c.Seed,
			Drift: ndc.Drift{First: driftBegin * int64(d.rows), Last: driftEnd * int64(d.rows)},
		},
	}
}

// driftPlane is the plane of the window at the end of a day.
type driftPlane struct {
	day   int
	model *incremental.Model
	// alike says whether the sums that are added and subtracted here have the same plane, bit for
	// bit. Without Config.Windows it is theirs.
	alike bool
	angle float64 // to the first plane, in degrees
	test  float64 // correctness on other points of the day
}

// planes returns the planes at the ends of days 30 to 60, and the angle between the planes of
// either cluster alone.
func (d drifting) planes(ctx context.Context, c *Config) (planes []driftPlane, between float64, err error) {
	generator, err := ndc.New(d.days(c).Points)
	if err != nil {
		return nil, 0, err
	}
	var windows []*incremental.Model
	if c.Windows != nil {
		if windows, err = c.Windows(ctx, d.days(c)); err != nil {
			return nil, 0, err
		}
	}
	days := make([]*incremental.Summary, driftDays)
	group, ctx := errgroup.WithContext(ctx)
	for worker := range c.workers() {
		group.Go(func() error {
			sampler := generator.NewSampler()
			var z incremental.Summariser
			for day := worker; day < driftDays; day += c.workers() {
				if err := ctx.Err(); err != nil {
					return err
				}
				var err error
				if days[day], err = z.Summarise(sampler.Block(ndc.Train, int64(day)*int64(d.rows), d.rows)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	live := incremental.NewState(incremental.DefaultFeatures(generator.Features()))
	sampler := generator.NewSampler()
	for i, day := range days {
		live.Add(day)
		if i >= driftWindow {
			live.Remove(days[i-driftWindow])
		}
		if i+1 < driftWindow {
			continue
		}
		p := driftPlane{day: i + 1, alike: true}
		if p.model, err = live.Moments().Solve(incremental.Options{Nu: driftNu}); err != nil {
			return nil, 0, err
		}
		if c.Windows != nil {
			here, there := p.model.Planes[0], windows[len(planes)].Planes[0]
			p.model, p.alike = windows[len(planes)], slices.Equal(here.W, there.W) && here.Gamma == there.Gamma
		}
		test := sampler.Block(ndc.Test, int64(i)*int64(d.rows), min(driftTest, d.rows))
		p.test = correctness(p.model, newton.Blocks{test})
		planes = append(planes, p)
	}
	for i := range planes {
		planes[i].angle = angle(planes[0].model, planes[i].model)
	}
	first, last := incremental.NewState(live.Features()), incremental.NewState(live.Features())
	for _, day := range days[:driftBegin] {
		first.Add(day)
	}
	for _, day := range days[driftEnd:] {
		last.Add(day)
	}
	from, err := first.Moments().Solve(incremental.Options{Nu: driftNu})
	if err != nil {
		return nil, 0, err
	}
	to, err := last.Moments().Solve(incremental.Options{Nu: driftNu})
	if err != nil {
		return nil, 0, err
	}
	return planes, angle(from, to), nil
}

// angle is the angle between the normals of two planes in degrees, from 0 to 180. The thesis
// (section 2.3.1) takes the smaller angle between the lines, which is 90 at most.
func angle(a, b *incremental.Model) float64 {
	return a.Planes[0].Angle(&b.Planes[0], nil)
}

func runDrift(ctx context.Context, c *Config) ([]Result, error) { return drifting{c.day()}.run(ctx, c) }

func drawDrift(ctx context.Context, w io.Writer, c *Config) error {
	return drifting{c.day()}.draw(ctx, w, c)
}

// run returns the planes of every fifth day, as in the thesis. All are checked.
func (d drifting) run(ctx context.Context, c *Config) ([]Result, error) {
	planes, between, err := d.planes(ctx, c)
	if err != nil {
		return nil, err
	}
	const step, closeBy = 5, 5
	var results []Result
	var previous float64
	var broken string
	for i, p := range planes {
		if p.angle < previous {
			broken = fmt.Sprintf("the angle of day %d, %.1f°, is smaller than the day before", p.day, p.angle)
		}
		if !p.alike {
			broken = fmt.Sprintf("the daemon's plane of day %d is not that of the sums", p.day)
		}
		previous = p.angle
		if i%step == 0 {
			results = append(results, Result{
				DataSet: fmt.Sprintf("Days %d to %d", p.day-driftWindow+1, p.day), Rows: driftWindow * d.rows, Features: driftFeatures,
				Method: psvm.name, Nu: driftNu, Test: &p.test, Angle: &p.angle,
			})
		}
	}
	if broken == "" && math.Abs(previous-between) > closeBy {
		broken = fmt.Sprintf("the last angle is more than %d° from that between the clusters", closeBy)
	}
	if c.Windows != nil && broken == "" {
		results[len(results)-1].Remark = fmt.Sprintf("the %d planes are those of a daemon that read the points from Kafka; each has the bits of sums that are added and subtracted here", len(planes))
	}
	return append(results, Result{DataSet: "Either cluster alone", Method: psvm.name, Angle: &between, Broken: broken}), nil
}

// draw draws the angles of all days.
func (d drifting) draw(ctx context.Context, w io.Writer, c *Config) error {
	planes, between, err := d.planes(ctx, c)
	if err != nil {
		return err
	}
	chart := plot.Chart{
		Title: "Angle between the normals and the first one", X: "days that came and went", Y: "degrees", Height: 400,
		Line: plot.XYs{{X: 0, Y: between}, {X: driftDays - driftWindow, Y: between}}, Note: "between the planes of either cluster",
	}
	for _, p := range planes {
		chart.Points = append(chart.Points, plot.XY{X: float64(p.day - driftWindow), Y: p.angle})
	}
	return plot.Charts(w, chart)
}
