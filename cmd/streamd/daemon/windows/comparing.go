package windows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/timeline"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/retire"
)

// Compare implements httpapi.Service.
func (w *Windows) Compare(ctx context.Context, a, b model.Window, nu float64) (c *model.Comparison, err error) {
	err = w.Asked(loop.TaskWindow, func() error { c, err = w.compareWindows(ctx, a, b, nu); return err })
	return c, err
}

func (w *Windows) compareWindows(ctx context.Context, a, b model.Window, nu float64) (*model.Comparison, error) {
	var sums [2]*windowSums
	for i, of := range []model.Window{a, b} {
		s, err := w.sumWindow(ctx, of, nu, false)
		if err != nil {
			return nil, fmt.Errorf("%c: %w", 'a'+i, err)
		}
		sums[i] = s
	}
	if err := sums[1].adopt(sums[0]); err != nil {
		return nil, err
	}
	var served [2]*model.Served
	for i, s := range sums {
		if served[i] = w.solveWindow(ctx, s); served[i].Model == nil {
			return nil, fmt.Errorf("%c: %w: %s", 'a'+i, httpapi.ErrNoPlanes, served[i].Problem)
		}
	}
	c := &model.Comparison{
		A: compared(sums[0], served[0]), B: compared(sums[1], served[1]), Planes: []model.ComparedPlanes{},
		BasisID: sums[0].basisID(), Lacks: slices.Clone(sums[0].lacks),
	}
	options := served[1].Model.Options
	_, scale, err := scaleOf(sums[1])
	if err != nil {
		return nil, err
	}
	c.Scaled = scale != nil
	shared := common(served[0].Model, served[1].Model)
	// The weight of a column of missing values is a multiple of the mean, so it would turn the
	// plane where only the mean moves.
	normals := [2]*incremental.Model{shared[0].WithoutMissing(), shared[1].WithoutMissing()}
	if len(shared[0].Planes) == 0 {
		return nil, fmt.Errorf("the models have planes of different classes: %w", httpapi.ErrNoPlanes)
	}
	if len(shared[0].Planes) > 1 {
		c.Lacks = append(c.Lacks, "correctness of labels: the largest value decides, and the sums know the values of one plane at a time")
	}
	momentsA, momentsB := sums[0].in.Moments(sums[0].sum), sums[1].in.Moments(sums[1].sum)
	onA, onB := momentsA.Losses(options.ClassWeights, shared), momentsB.Losses(options.ClassWeights, shared)
	rightA, rightB := momentsA.Correctness(shared), momentsB.Correctness(shared)
	for r := range shared[0].Planes {
		p, q := &normals[0].Planes[r], &normals[1].Planes[r]
		mean := func(l incremental.Loss) *float64 { return meanLoss(l, options.Balanced) }
		right := func(balanced bool) model.PlanesCorrectness {
			return model.PlanesCorrectness{
				AOnA: correctness(rightA[0][r], balanced), BOnA: correctness(rightA[1][r], balanced),
				AOnB: correctness(rightB[0][r], balanced), BOnB: correctness(rightB[1][r], balanced),
			}
		}
		c.Planes = append(c.Planes, model.ComparedPlanes{
			Class: p.Class, Angle: finite(p.Angle(q, scale)),
			AOnA: mean(onA[0][r]), BOnA: mean(onA[1][r]), AOnB: mean(onB[0][r]), BOnB: mean(onB[1][r]),
			Correctness: right(false), BalancedCorrectness: right(true),
		})
	}
	return c, ctx.Err()
}

// adopt has s solved with the options of like: a study may have published others between the two
// sums. They must be in the same coordinates.
func (s *windowSums) adopt(like *windowSums) error {
	if s.in != like.in || !slices.Equal(s.sum.Features(), like.sum.Features()) {
		return fmt.Errorf("the coordinates of the planes have changed meanwhile: %w", httpapi.ErrUnavailable)
	}
	s.options = like.options
	return nil
}

func compared(s *windowSums, m *model.Served) model.Compared {
	return model.Compared{
		Window: s.window, Digest: m.Digest, Blocks: m.Blocks, Rows: m.Rows,
		Classes: m.Model.Classes, ClassRows: m.Model.Rows, Options: model.NewOptionsJSON(m.Model.Options),
	}
}

// scaleOf names the columns of incremental.Model.WithoutMissing, and has their units in angles,
// nil for their own.
func scaleOf(s *windowSums) (features []string, sigma []float64, err error) {
	imputed, _, err := s.in.Moments(s.sum).Impute(s.options.Mean)
	if err != nil {
		return nil, nil, err
	}
	if s.options.Standardise {
		_, sigma = imputed.Scale()
	}
	return imputed.Features(), sigma, nil
}

// common is two models with the planes of the classes that have one in both, in the same order.
func common(a, b *incremental.Model) []*incremental.Model {
	x, y := *a, *b
	x.Planes, y.Planes = nil, nil
	for _, p := range a.Planes {
		if at := planeOf(b, p.Class); at != nil {
			x.Planes, y.Planes = append(x.Planes, p), append(y.Planes, *at)
		}
	}
	return []*incremental.Model{&x, &y}
}

// planeOf is the plane of a class, or nil.
func planeOf(m *incremental.Model, class string) *incremental.Plane {
	at := slices.IndexFunc(m.Planes, func(p incremental.Plane) bool { return p.Class == class })
	if at < 0 {
		return nil
	}
	return &m.Planes[at]
}

// meanLoss is the loss per weight, nil where no row counts.
func meanLoss(l incremental.Loss, balanced bool) *float64 {
	if balanced {
		return finite((l.Plus/l.PlusWeight + l.Minus/l.MinusWeight) / 2)
	}
	return finite((l.Plus + l.Minus) / (l.PlusWeight + l.MinusWeight))
}

// correctness is the share of weight on its own side of a plane or, balanced, the mean of the
// shares of both sides. It is nil where no row counts, balanced also where one side has none.
func correctness(c incremental.Correctness, balanced bool) *model.Correctness {
	share := func(plus, minus float64) float64 {
		if balanced {
			return (plus/c.PlusWeight + minus/c.MinusWeight) / 2
		}
		return (plus + minus) / (c.PlusWeight + c.MinusWeight)
	}
	out := &model.Correctness{
		Estimate: share(c.Plus.Estimate, c.Minus.Estimate),
		AtLeast:  share(c.Plus.Least, c.Minus.Least),
		AtMost:   share(c.Plus.Most, c.Minus.Most),
	}
	if finite(out.Estimate) == nil {
		return nil
	}
	return out
}

func finite(x float64) *float64 {
	if x-x != 0 {
		return nil
	}
	return &x
}

// Steps implements httpapi.Service.
func (w *Windows) Steps(ctx context.Context, q httpapi.StepsQuery) (s *model.Steps, err error) {
	err = w.Asked(loop.TaskWindow, func() error { s, err = w.steps(ctx, q); return err })
	return s, err
}

func (w *Windows) steps(ctx context.Context, q httpapi.StepsQuery) (*model.Steps, error) {
	whole := model.Window{From: q.From, To: q.To}
	all, err := w.sumWindow(ctx, whole, q.Nu, false)
	if err != nil {
		return nil, err
	}
	blocks, err := w.span(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &model.Steps{
		StepSeconds: q.Step.Seconds(), WindowSeconds: q.Window.Seconds(), BasisID: all.basisID(),
		Options: model.NewOptionsJSON(all.options), Lacks: all.lacks,
	}
	var scale []float64
	if out.Features, scale, err = scaleOf(all); err != nil {
		return nil, err
	}
	out.Scaled = scale != nil
	// Ends of windows are whole steps since 1970, the first after the first block. They are counted
	// in milliseconds: a time.Duration cannot span 293 years.
	step, length := q.Step.Milliseconds(), q.Window.Milliseconds()
	end := floorTo(blocks.First, step) + step
	if n := (blocks.Last-end)/step + 2; n > httpapi.MaxSteps {
		return nil, fmt.Errorf("%w: %d from %s to %s: take a longer step, or narrow them by from and to",
			httpapi.ErrManySteps, n, timeOf(blocks.First).Format(time.RFC3339), timeOf(blocks.Last).Format(time.RFC3339))
	}
	within := func(ms int64) time.Time {
		t := timeOf(ms)
		if q.From != nil && t.Before(*q.From) {
			t = *q.From
		}
		if q.To != nil && t.After(*q.To) {
			t = *q.To
		}
		return t
	}
	out.From = within(end - length)
	var models []*incremental.Model
	numbers := 0
	for ; ; end += step {
		from, to := within(end-length), within(end)
		one := model.Step{From: from, To: to, Classes: []string{}, ClassRows: []int64{}, Planes: []model.StepPlane{}}
		m, err := w.step(ctx, model.Window{From: &from, To: &to}, q.Nu, all, &one)
		if err != nil {
			return nil, err
		}
		models = append(models, m)
		if m != nil {
			numbers += len(m.Planes) * len(m.Features)
		}
		if numbers > httpapi.MaxStepNumbers {
			return nil, fmt.Errorf("%w: the planes have more than %d numbers: take a longer step", httpapi.ErrManySteps, httpapi.MaxStepNumbers)
		}
		out.Steps, out.To = append(out.Steps, one), to
		if end > blocks.Last {
			break
		}
	}
	normals := make([]*incremental.Model, len(models))
	for i, m := range models {
		if m != nil {
			normals[i] = m.WithoutMissing()
		}
	}
	for i, m := range normals {
		if m == nil {
			continue
		}
		for _, p := range model.NewPlanesJSON(m.Planes) {
			own := planeOf(m, p.Class)
			of := model.StepPlane{PlaneJSON: p}
			for _, other := range normals {
				if at := with(other, p.Class); at != nil {
					of.ToFirst = finite(own.Angle(at, scale))
					break
				}
			}
			for _, other := range slices.Backward(normals) {
				if at := with(other, p.Class); at != nil {
					of.ToLast = finite(own.Angle(at, scale))
					break
				}
			}
			out.Steps[i].Planes = append(out.Steps[i].Planes, of)
		}
	}
	return out, ctx.Err()
}

func with(m *incremental.Model, class string) *incremental.Plane {
	if m == nil {
		return nil
	}
	return planeOf(m, class)
}

// step solves a window of steps. The model is nil where there is none.
func (w *Windows) step(ctx context.Context, of model.Window, nu float64, like *windowSums, step *model.Step) (*incremental.Model, error) {
	s, err := w.sumWindow(ctx, of, nu, false)
	if errors.Is(err, httpapi.ErrNoWindow) {
		step.Problem = "there are no blocks"
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.adopt(like); err != nil {
		return nil, err
	}
	served := w.solveWindow(ctx, s)
	step.Digest, step.Blocks, step.Rows, step.Problem = served.Digest, served.Blocks, served.Rows, served.Problem
	for _, c := range s.sum.Totals() {
		step.Classes, step.ClassRows = append(step.Classes, c.Label), append(step.ClassRows, c.Rows)
	}
	return served.Model, ctx.Err()
}

// span is the event times of the first and the last block between from and to, live or archived,
// in milliseconds.
func (w *Windows) span(ctx context.Context, q httpapi.StepsQuery) (timeline.Times, error) {
	return loop.Ask(ctx, w.Loop, func() (timeline.Times, error) {
		above := retire.Lowest
		if q.From != nil {
			above.Milliseconds = firstMillisecond(*q.From)
		}
		oldest, newest, ok := w.Live.Span(above)
		if !ok {
			return timeline.Times{}, w.noWindow()
		}
		span := timeline.Times{First: oldest.Time.UnixMilli(), Last: newest.Time.UnixMilli()}
		if q.To != nil {
			span.Last = min(span.Last, firstMillisecond(*q.To)-1)
		}
		return span, nil
	})
}

// floorTo is the last whole step since 1970 that is not after ms.
func floorTo(ms, step int64) int64 { return ms - ((ms%step)+step)%step }

// The first and the last time that RFC 3339 can write as the end of a window. All event times lie
// between them, the last millisecond of the year 9999 included.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
)

// timeOf is the time of ms since 1970, at least earliest and at most latest.
func timeOf(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	}
	return t
}
