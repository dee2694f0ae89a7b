package intake

import (
	"encoding/json"
	"maps"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/prequential"
)

// Progressive figures (package prequential) are a function of the log: each block is judged by
// planes of the live blocks before it in its partition, which are solved again after every
// drift.every blocks of the partition. The loop judges, in the order of the log. So the figures do
// not depend on speed, on workers or on restarts: a save has the counts and the planes at its
// positions. Figures of several partitions add up, and need no order among these.

// copies reports whether results have their rows, for the loop.
func (w *pool) copies() bool { return w.Config.Drift.Every > 0 }

// judgeInOrder judges the rows of the next block of a partition, which has been applied. before is
// the label before its first row, "" for that of the partition's last row. b is nil where no
// figures are wanted.
func (in *Intake) judgeInOrder(number int, b *incremental.Block, before string) {
	if b == nil || b.Rows() == 0 {
		return
	}
	in.dropLeft()
	r := &in.record
	r.mu.Lock()
	p := r.progress[number]
	if p == nil {
		p = prequential.NewProgressive(in.Config.Drift.Every)
		r.progress[number] = p
	}
	names := in.Live.Features().Names()
	if of := p.Features(); of != nil && !slices.Equal(of, names) {
		p.Drop()
	}
	p.Judge(b, before)
	due := p.Add()
	r.mu.Unlock()
	if !due {
		return
	}
	options := model.ProgressiveOptions(in.Config.Model)
	options.Mean = in.Decoding.Missing.Means(names)
	var m *incremental.Model
	err := incremental.ErrClasses
	if sums := in.Live.SumsOf(number); sums != nil {
		m, err = sums.Moments().Solve(options)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		p.Drop()
		return
	}
	p.Cut(m)
}

// dropLeft drops planes that were made of blocks that have left on request.
func (in *Intake) dropLeft() {
	left := in.Live.TakeLeft()
	if left == nil {
		return
	}
	r := &in.record
	r.mu.Lock()
	defer r.mu.Unlock()
	for number := range left {
		if p := r.progress[number]; p != nil {
			p.Drop()
		}
	}
}

// Progress is the progressive figures for a save, as JSON; nil where there are none. It has
// neither planes nor labels of what has left.
func (in *Intake) Progress() (json.RawMessage, error) {
	if !in.copies() {
		return nil, nil
	}
	in.dropLeft()
	var labels []string
	for _, of := range in.Live.Features().Total().Totals() {
		labels = append(labels, of.Label)
	}
	r := &in.record
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.progress {
		p.Keep(labels)
	}
	return json.Marshal(r.progress)
}

// RestoreProgress continues saved figures, unless drift.every is another. After an error they begin
// anew.
func (in *Intake) RestoreProgress(text json.RawMessage) error {
	if !in.copies() {
		return nil
	}
	var of map[int]*prequential.Progressive
	if err := json.Unmarshal(text, &of); err != nil {
		return err
	}
	for number, p := range of {
		if p == nil || p.Every() != in.Config.Drift.Every {
			delete(of, number)
		}
	}
	if of != nil {
		in.record.progress = of
	}
	return nil
}

// progressive reports the figures for classes, which are those of the model of now.
func (r *record) progressive(every int, classes []string) *model.Progressive {
	if every == 0 {
		return nil
	}
	labels := slices.Sorted(slices.Values(classes))
	a := &model.Progressive{Every: every, Partitions: []model.ProgressivePartition{}}
	var all prequential.Tally
	stretch := func(t *prequential.Tally) *model.Stretch {
		f := t.Figures(labels)
		if f.Matrix.Figures().Weight == 0 {
			return nil
		}
		return model.NewStretch(decision.Value, labels, f)
	}
	for _, number := range slices.Sorted(maps.Keys(r.progress)) {
		p := r.progress[number]
		all.Merge(p.Tally())
		a.Waited += p.Waited()
		a.Solves += p.Solves()
		of := model.ProgressivePartition{Partition: number, Waited: p.Waited(), Solves: p.Solves()}
		if s := stretch(p.Tally()); s != nil {
			of.Rows, of.Correctness, of.LargestClass, of.LastLabel = int64(s.Weight), &s.Correctness, &s.LargestClass, s.LastLabel
		}
		a.Partitions = append(a.Partitions, of)
	}
	a.Figures = stretch(&all)
	return a
}
