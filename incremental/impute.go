package incremental

import (
	"fmt"
	"slices"

	"streamd/incremental/gram"
)

// MissingName names the column that is 1 where the value of a feature is missing, and 0
// otherwise. The feature's own column is 0 there, so both columns are summed like any
// other.
func MissingName(feature string) string { return feature + " missing" }

// Imputed is a feature whose missing values count as the mean of its other values.
//
// With x in the feature's column and r in that of MissingName, the mean is
// μ = Σvx/(Σv − Σvr), and a plane is solved in x + μr. That is a linear change of
// coordinates of the sums, so no row is read again when μ changes. In the model's own
// columns the weight of r is μ times that of x.
type Imputed struct {
	Feature int     // its column
	Missing int     // the column of MissingName
	Mean    float64 // μ; 0 when no row has a value
}

// Impute returns the moments of the rows with each missing value of the given features
// replaced by the mean, without the columns of MissingName. It also returns how they were
// imputed. It fails if a feature lacks one of its two columns.
func (m *Moments) Impute(features []string) (*Moments, []Imputed, error) {
	if len(features) == 0 {
		return m, nil, nil
	}
	if m.regulariser != nil {
		return nil, nil, fmt.Errorf("missing values cannot be imputed in the coordinates of a kernel")
	}
	imputed := make([]Imputed, len(features))
	all := m.weight()
	for i, name := range features {
		j, r := slices.Index(m.features, name), slices.Index(m.features, MissingName(name))
		if j < 0 || r < 0 {
			return nil, nil, fmt.Errorf("feature %q has no column of missing values", name)
		}
		var sum, missing double
		for c := range m.classes {
			sum, missing = sum.add(m.classes[c].s[j]), missing.add(m.classes[c].s[r])
		}
		imputed[i] = Imputed{Feature: j, Missing: r}
		if there := all.sub(missing); there.hi > 0 {
			imputed[i].Mean = sum.div(there).hi
		}
	}
	kept := keptColumns(len(m.features), imputed)
	in := &Moments{features: pick(m.features, columnsOf(kept)), classes: make([]classMoments, len(m.classes))}
	for c := range m.classes {
		from, to := &m.classes[c], &in.classes[c]
		*to = classMoments{label: from.label, rows: from.rows, weight: from.weight, s: make([]double, len(kept))}
		to.cross = make([]double, 0, gram.PackedLen(len(kept)))
		cross := func(j, k int) double { return from.cross[gram.PackedLen(max(j, k))+min(j, k)] }
		for a, x := range kept {
			to.s[a] = from.s[x.Feature]
			if x.Missing >= 0 {
				to.s[a] = to.s[a].add(from.s[x.Missing].mul(toDouble(x.Mean)))
			}
			for _, y := range kept[:a+1] {
				t := cross(x.Feature, y.Feature)
				if x.Missing >= 0 {
					t = t.add(cross(x.Missing, y.Feature).mul(toDouble(x.Mean)))
				}
				if y.Missing >= 0 {
					t = t.add(cross(x.Feature, y.Missing).mul(toDouble(y.Mean)))
				}
				if x.Missing >= 0 && y.Missing >= 0 {
					t = t.add(cross(x.Missing, y.Missing).mul(toDouble(x.Mean)).mul(toDouble(y.Mean)))
				}
				to.cross = append(to.cross, t)
			}
		}
	}
	return in, imputed, nil
}

// keptColumns lists the n columns that remain after imputation, in order. Missing is −1
// for an unchanged column.
func keptColumns(n int, imputed []Imputed) (kept []Imputed) {
	gone, by := make([]bool, n), make([]*Imputed, n)
	for i := range imputed {
		gone[imputed[i].Missing], by[imputed[i].Feature] = true, &imputed[i]
	}
	for j := range n {
		switch {
		case gone[j]:
		case by[j] != nil:
			kept = append(kept, *by[j])
		default:
			kept = append(kept, Imputed{Feature: j, Missing: -1})
		}
	}
	return kept
}

func columnsOf(kept []Imputed) []int {
	at := make([]int, len(kept))
	for a := range kept {
		at[a] = kept[a].Feature
	}
	return at
}

// ImputeColumns returns the columns with missing values replaced by the means, like Impute.
// Changed columns are copies.
func ImputeColumns(columns []gram.Column, imputed []Imputed) []gram.Column {
	if len(imputed) == 0 {
		return columns
	}
	var out []gram.Column
	for _, x := range keptColumns(len(columns), imputed) {
		c := columns[x.Feature]
		if x.Missing >= 0 {
			values, missing := make([]float64, c.Len()), make([]float64, c.Len())
			c.Copy(values, 0)
			columns[x.Missing].Copy(missing, 0)
			for i, r := range missing {
				values[i] += float64(x.Mean * r)
			}
			c = gram.ColumnOf(values)
		}
		out = append(out, c)
	}
	return out
}

// ImputeBlock is ImputeColumns for a block.
func ImputeBlock(b *Block, imputed []Imputed) *Block {
	if len(imputed) == 0 {
		return b
	}
	in := *b
	in.Columns = ImputeColumns(b.Columns, imputed)
	if b.Features != nil {
		in.Features = pick(b.Features, columnsOf(keptColumns(len(b.Columns), imputed)))
	}
	return &in
}

// WithoutMissing returns the model in the coordinates of Impute, without the columns of
// MissingName: that of rows in which a missing value is the mean. It is m where nothing is
// imputed.
func (m *Model) WithoutMissing() *Model {
	if len(m.Imputed) == 0 {
		return m
	}
	kept := columnsOf(keptColumns(len(m.Features), m.Imputed))
	in := *m
	in.Features, in.Imputed, in.Planes = pick(m.Features, kept), nil, slices.Clone(m.Planes)
	if m.Mean != nil {
		mean := slices.Clone(m.Mean)
		for _, x := range m.Imputed { // that of all rows is the mean of those that have a value
			mean[x.Feature] += float64(x.Mean * m.Mean[x.Missing])
		}
		in.Mean = pick(mean, kept)
	}
	if m.Deviation != nil {
		in.Deviation = pick(m.Deviation, kept)
	}
	for p := range in.Planes {
		in.Planes[p].W = pick(m.Planes[p].W, kept)
	}
	return &in
}

// WithPlanesOf returns m with the planes of in, which is in the coordinates of
// WithoutMissing.
func (m *Model) WithPlanesOf(in *Model) *Model {
	out := *m
	out.Options = in.Options
	out.Options.Mean = m.Options.Mean
	out.Planes = expandPlanes(in.Planes, len(m.Features), m.Imputed)
	return &out
}

// WithMissing is the inverse of WithoutMissing, for columns that have the model's features in
// order and the columns of MissingName of those that have a mean.
func (m *Model) WithMissing(columns []string, mean map[string]float64) *Model {
	at := make(map[string]int, len(columns))
	for j, name := range columns {
		at[name] = j
	}
	out := *m
	out.Features, out.Imputed, out.Mean, out.Deviation = columns, nil, nil, nil
	for _, name := range m.Features {
		if mu, ok := mean[name]; ok {
			out.Imputed = append(out.Imputed, Imputed{Feature: at[name], Missing: at[MissingName(name)], Mean: mu})
		}
	}
	out.Planes = expandPlanes(m.Planes, len(columns), out.Imputed)
	if m.Mean != nil { // the marks of a row that has all values are 0
		out.Mean = make([]float64, len(columns))
		for j, name := range m.Features {
			out.Mean[at[name]] = m.Mean[j]
		}
	}
	return &out
}

// expandPlanes returns planes in n columns.
func expandPlanes(planes []Plane, n int, imputed []Imputed) []Plane {
	kept := keptColumns(n, imputed)
	out := slices.Clone(planes)
	for p := range out {
		w := make([]float64, n)
		for a, x := range kept {
			w[x.Feature] = planes[p].W[a]
			if x.Missing >= 0 {
				w[x.Missing] = float64(x.Mean * w[x.Feature])
			}
		}
		out[p].W = w
	}
	return out
}

// imputing solves in the coordinates of Impute, and returns the models in those of m.
func (m *Moments) imputing(o Options, solve func(in *Moments, o Options) ([]*Model, error)) ([]*Model, []Imputed, error) {
	in, imputed, err := m.Impute(o.Mean)
	if err != nil {
		return nil, nil, err
	}
	plain := o
	plain.Mean = nil
	models, err := solve(in, plain)
	if err != nil {
		return nil, nil, err
	}
	like := m.model(o)
	like.Imputed = imputed
	for a, x := range keptColumns(len(m.features), imputed) {
		like.Deviation[x.Feature] = models[0].Deviation[a]
	}
	for i, solved := range models {
		models[i] = like.WithPlanesOf(solved)
	}
	return models, imputed, nil
}
