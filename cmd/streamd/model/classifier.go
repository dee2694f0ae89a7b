package model

import (
	"errors"
	"fmt"

	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
	"streamd/kernels"
)

// A Classifier has planes in the features or, for a kernel, in the coordinates K(x, Z)
// of a basis Z of t points, or their projection. It takes t kernel evaluations and t
// multiplications per plane to classify a row of a kernel classifier. Its planes say nothing about
// single features: Model.Contributions has no meaning for its rows, while Hat.Leverage holds
// for their coordinates.
//
// A Classifier is immutable and may be shared.
type Classifier struct {
	Features []string           // the n features of the rows
	Missing  wire.Missing       // treatment of their missing values
	Schema   *schema.Schema     // makes the features; nil: they are columns as they are
	Map      *kernels.Map       // from n features to coordinates; nil: none
	Model    *incremental.Model // planes in these coordinates, or in the n features
	Rule     *decision.Rule     // from decision values to labels; nil: the decision values decide
}

// mapRows is the number of rows that are mapped to coordinates at once.
const mapRows = 1024

// Classify fills values (m × planes) with the decision values x'w − γ of rows of the n
// features, and class (m) with the classes that the rule decides by them.
func (c *Classifier) Classify(class []int32, values []float64, columns []gram.Column) {
	planes := len(c.Model.Planes)
	c.InCoordinates(columns, func(from, to int, in []gram.Column) {
		c.Model.Classify(class[from:to], values[from*planes:to*planes], in)
	})
	if rule := c.DecidesBy(); rule.Kind() != decision.Value { // else the planes have decided so
		rule.Decide(class, values)
	}
}

// DecidesBy is the rule of labels.
func (c *Classifier) DecidesBy() *decision.Rule {
	if c.Rule == nil {
		return decision.ByValue(len(c.Model.Classes))
	}
	return c.Rule
}

// InCoordinates calls f with the rows in the coordinates of the planes, a stretch at a
// time from the first row to the last. The columns are valid until f returns.
func (c *Classifier) InCoordinates(columns []gram.Column, f func(from, to int, in []gram.Column)) {
	rows := columns[0].Len()
	if c.Map == nil {
		f(0, rows, columns)
		return
	}
	mapper := kernels.NewMapper(c.Map)
	stretch := make([]gram.Column, len(columns))
	for from := 0; from < rows; from += mapRows {
		to := min(from+mapRows, rows)
		for j, column := range columns {
			stretch[j] = column.Slice(from, to)
		}
		f(from, to, mapper.Map(stretch))
	}
}

// New makes a classifier that decides by value of planes and, for a kernel, of their basis. Both
// may come from outside: New checks that they fit together. The planes have the order of the
// classes. Two classes have one plane, that of the second.
func New(features, classes []string, planes []incremental.Plane, basis *BasisJSON) (*Classifier, error) {
	k := len(classes)
	of := classes // of the planes
	switch {
	case k < 2:
		return nil, fmt.Errorf("it has %d classes", k)
	case k == 2:
		of = classes[1:]
	}
	if len(planes) != len(of) {
		return nil, fmt.Errorf("it has %d planes for %d classes", len(planes), k)
	}
	seen := make(map[string]bool, k)
	for _, class := range classes {
		if seen[class] {
			return nil, fmt.Errorf("it has class %q twice", class)
		}
		seen[class] = true
	}
	for i, p := range planes {
		if p.Class != of[i] {
			return nil, fmt.Errorf("its plane %d is of class %q; in the order of its classes it would be of %q", i+1, p.Class, of[i])
		}
	}
	if len(features) == 0 {
		return nil, errors.New("it has no features")
	}
	c := &Classifier{Features: features, Rule: decision.ByValue(k), Model: &incremental.Model{Features: features, Classes: classes, Planes: planes}}
	unit := "features"
	if basis != nil {
		var err error
		if c.Map, err = basis.Map(len(features)); err != nil {
			return nil, err
		}
		c.Model.Features, unit = c.Map.Names(), "coordinates of the basis"
	}
	for _, p := range planes {
		if len(p.W) != len(c.Model.Features) {
			return nil, fmt.Errorf("the plane of class %q has %d weights for %d %s", p.Class, len(p.W), len(c.Model.Features), unit)
		}
	}
	return c, nil
}
