package fit

import (
	"context"
	"errors"
	"fmt"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/prequential"
)

// Progressive reports how good planes were for rows before they learned from the rows, in the order
// of the file (package prequential).
type Progressive struct {
	Every   int               `json:"every"`   // the planes are solved again after as many rows, or blocks of a topic
	Solves  int64             `json:"solves"`  // cuts that made planes
	Waited  int64             `json:"waited"`  // rows before the first planes, which are not judged
	Options model.OptionsJSON `json:"options"` // of the planes
	// Which baseline labels are no better than, if the settings ask for many right rows; absent if
	// they are better.
	NoBetter string `json:"no_better,omitempty"`
	model.Stretch
	Course []Piece `json:"course"` // of the judged rows, in at most 200 pieces
}

// Piece has the figures of consecutive judged rows.
type Piece struct {
	Rows         int64   `json:"rows"`
	Correctness  float64 `json:"correctness"`
	LargestClass float64 `json:"largest_class"` // share of the class that is the largest of all judged rows
	LastLabel    float64 `json:"last_label"`
}

// progress judges the rows of the file in their order.
func (f *fit) progress(ctx context.Context) (*Progressive, error) {
	options := model.ProgressiveOptions(f.want.Model)
	options.Mean = f.options.Mean
	every := f.want.Progressive
	if every == EveryDefault {
		if every = 1; f.blocks == nil {
			every = max(100, len(f.data.Features))
		}
	}
	r := &Progressive{Every: every, Options: model.NewOptionsJSON(options)}
	if f.blocks == nil { // a cut is a block
		f.data.Cut(every)
		defer f.data.Cut(0)
		every = 1
	}
	p, sums := prequential.NewProgressive(every), incremental.NewState(f.data.Features)
	type block struct {
		rows *incremental.Block
		sums *incremental.Summary
	}
	tools := f.tools()
	err := dataset.Each(ctx, f.data, "judging in order",
		func(worker int, b *incremental.Block, _ int64) (r block, err error) {
			z := &tools[worker]
			b = z.enterAll(b, nil)
			r.rows = b.Clone()
			r.sums, err = z.summariser.Summarise(b)
			return r, err
		},
		func(r block) error {
			p.Judge(r.rows, "")
			if sums.Add(r.sums); !p.Add() {
				return nil
			}
			m, err := sums.Moments().Solve(options)
			if err == nil {
				p.Cut(m)
			} else if errors.Is(err, incremental.ErrClasses) {
				err = nil
			}
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("judge %s in its order: %w", f.data.Path, err)
	}
	r.Solves, r.Waited = p.Solves(), p.Waited()
	labels := p.Tally().Labels()
	if len(labels) == 0 {
		return nil, fmt.Errorf("judge %s in its order: no row comes after planes of two classes; take a smaller --progressive-every", f.data.Path)
	}
	r.Stretch = *model.NewStretch(decision.Value, labels, p.Tally().Figures(labels))
	if f.want.Model.CountsRight() {
		r.NoBetter = r.Stretch.NoBetter(0)
	}
	largest := ""
	for _, c := range r.Classes {
		if share := c.Weight / r.Weight; share == r.LargestClass {
			largest = c.Class
		}
	}
	for _, c := range p.Course() {
		n := float64(c.Rows)
		r.Course = append(r.Course, Piece{c.Rows, float64(c.Right) / n, float64(c.Classes[largest]) / n, float64(c.Repeats) / n})
	}
	return r, nil
}
