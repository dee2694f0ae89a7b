package main

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strconv"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/tuning"
)

// autoFlag is a positive number, or that it is to be chosen; the zero value was
// not given.
type autoFlag struct {
	value float64
	auto  bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *autoFlag) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*f = autoFlag{auto: true}
		return nil
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(value > 0) || math.IsInf(value, 0) {
		return fmt.Errorf("must be a positive number or auto, not %s", text)
	}
	*f = autoFlag{value: value}
	return nil
}

// defaultFolds is how many folds choose ν unless there are --folds.
const defaultFolds = 10

// tuningReport is how ν was chosen.
type tuningReport struct {
	Folds     int                 `json:"folds"`
	Criterion string              `json:"criterion"`
	Nu        float64             `json:"nu"`
	Best      float64             `json:"best"` // what the criterion says of nu
	Points    []model.TuningPoint `json:"points"`
}

func (r *tuningReport) describe() string {
	return fmt.Sprintf("%g, chosen by the %s of %s on %d folds", r.Nu, r.Criterion, percent(r.Best), r.Folds)
}

// tune is train and trainFolds with a ν that it chooses by the rows of each fold
// and the path of planes without it.
func (f *fit) tune(ctx context.Context) (*tuningReport, error) {
	trial := tuning.New(f.options, tuning.Grid(), f.state.Moments().Classes())
	for fold := range f.folds {
		rest, held, err := f.without(ctx, fold)
		if err != nil {
			return nil, err
		}
		if err := trial.Hold(rest, held); err != nil {
			return nil, fmt.Errorf("choose nu for %s: without fold %d of %d: %w", f.data.path, fold+1, f.folds, err)
		}
	}
	tools := f.dividers()
	err := each(ctx, f.s, "choosing nu", f.data,
		func(worker int, b *incremental.Block, firstRow int64) (scores []*tuning.Score, err error) {
			for fold, part := range tools[worker].parts(b, firstRow) {
				scores = append(scores, trial.Score(fold, f.of(fold).enter(worker, part)))
			}
			return scores, nil
		},
		func(scores []*tuning.Score) error {
			for _, s := range scores {
				trial.Add(s)
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	curve := trial.Curve()
	criterion := tuning.For(f.options, true)
	solved, chosen, err := curve.Solve(f.coordinates.moments(f.state), criterion)
	if err != nil {
		return nil, fmt.Errorf("learn from %s: %w", f.data.path, err)
	}
	f.options.Nu, f.model = chosen.Nu, solved
	f.foldModels = trial.Models(chosen.Nu)
	r := model.NewTuning([]tuning.Curve{curve}, 0, criterion, chosen)
	return &tuningReport{Folds: f.folds, Criterion: r.Criterion, Nu: r.Nu, Best: r.Best, Points: r.Curves[0].Points}, nil
}

// divider takes folds out of blocks, into memory that is used again.
type divider struct {
	deal    *dealer
	rows    [][]int // of each fold
	block   incremental.Block
	numbers []float64
	weights []float64
}

// dividers are one for each worker.
func (f *fit) dividers() []divider {
	d := make([]divider, workers())
	for i := range d {
		if f.folds > 0 {
			d[i].deal, d[i].rows = newDealer(f.folds, f.seed), make([][]int, f.folds)
		}
	}
	return d
}

// parts has the rows of each fold. A part is valid until the next.
func (d *divider) parts(b *incremental.Block, firstRow int64) iter.Seq2[int, *incremental.Block] {
	return func(yield func(int, *incremental.Block) bool) {
		for fold := range d.rows {
			d.rows[fold] = d.rows[fold][:0]
		}
		for i := range b.Rows() {
			fold := d.deal.of(firstRow + int64(i))
			d.rows[fold] = append(d.rows[fold], i)
		}
		for fold, rows := range d.rows {
			if !yield(fold, d.gather(b, rows)) {
				return
			}
		}
	}
}

// divide tells the rows of one fold from the rest.
func (d *divider) divide(b *incremental.Block, firstRow int64, fold int) (held, rest []int) {
	for i := range b.Rows() {
		if d.deal.of(firstRow+int64(i)) == fold {
			held = append(held, i)
		} else {
			rest = append(rest, i)
		}
	}
	return held, rest
}

// gather has the given rows. It is valid until the next call.
func (d *divider) gather(b *incremental.Block, rows []int) *incremental.Block {
	m := len(rows)
	if cap(d.numbers) < m*len(b.Columns) {
		d.numbers = make([]float64, m*len(b.Columns))
	}
	part := &d.block
	*part = incremental.Block{Features: b.Features, Classes: b.Classes, Columns: part.Columns[:0], Codes: part.Codes[:0]}
	for j, column := range b.Columns {
		numbers := d.numbers[j*m:][:m]
		for i, row := range rows {
			numbers[i] = column.At(row)
		}
		part.Columns = append(part.Columns, gram.ColumnOf(numbers))
	}
	for _, row := range rows {
		part.Codes = append(part.Codes, b.Codes[row])
	}
	if b.Weights != nil {
		d.weights = d.weights[:0]
		for _, row := range rows {
			d.weights = append(d.weights, b.Weights[row])
		}
		part.Weights = d.weights
	}
	return part
}
