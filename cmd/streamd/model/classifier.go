// Package classifier is what rows are classified by: planes in the features
// themselves or, for a kernel, in the coordinates K(x, Z) of a basis Z; and the
// form in which a basis is written down, served and read back.
//
// The rows of a kernel classifier go from their columns through the map to the
// planes, at t kernel evaluations and t multiplications per plane. What is read
// off planes by feature, as incremental.Model.Contributions does, has no meaning
// for rows then: their features are not the planes'. What is read off a row's
// coordinates, as Hat.Leverage, is right for the mapped columns.
package model

import (
	"errors"
	"fmt"
	"strconv"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
)

// A Classifier is immutable and may be shared.
type Classifier struct {
	Features []string           // n: of the rows
	Map      *kernels.Map       // from n features to t coordinates; nil: none
	Model    *incremental.Model // planes in the t coordinates, or in the n features
}

// mapRows is how many rows are in kernel coordinates at once.
const mapRows = 1024

// Classify is incremental.Model.Classify for rows of the n features.
func (c *Classifier) Classify(class []int32, values []float64, columns []gram.Column) {
	if c.Map == nil {
		c.Model.Classify(class, values, columns)
		return
	}
	planes := len(c.Model.Planes)
	InCoordinates(c.Map, columns, func(from, to int, in []gram.Column) {
		c.Model.Classify(class[from:to], values[from*planes:to*planes], in)
	})
}

// InCoordinates calls f with stretches of rows, from the first to the last, in the
// coordinates of m; the columns are valid until f returns.
func InCoordinates(m *kernels.Map, columns []gram.Column, f func(from, to int, in []gram.Column)) {
	mapper := kernels.NewMapper(m)
	rows := columns[0].Len()
	some := make([]gram.Column, len(columns))
	for from := 0; from < rows; from += mapRows {
		to := min(from+mapRows, rows)
		for j, column := range columns {
			some[j] = column.Slice(from, to)
		}
		f(from, to, mapper.Map(some))
	}
}

// Coordinates names the coordinates of a basis of t points: z1, z2, …
func Coordinates(t int) []string {
	names := make([]string, t)
	for i := range names {
		names[i] = "z" + strconv.Itoa(i+1)
	}
	return names
}

// New makes a classifier of planes and, for a kernel, of the basis that they are
// in. Both may come from outside: New checks that they fit. The planes stand in the
// order of the classes; of two classes there is the plane of the second alone.
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
	c := &Classifier{Features: features, Model: &incremental.Model{Features: features, Classes: classes, Planes: planes}}
	what := "features"
	if basis != nil {
		var err error
		if c.Map, err = basis.Map(len(features)); err != nil {
			return nil, err
		}
		c.Model.Features, what = Coordinates(c.Map.Points()), "points of the basis"
	}
	for _, p := range planes {
		if len(p.W) != len(c.Model.Features) {
			return nil, fmt.Errorf("the plane of class %q has %d weights for %d %s", p.Class, len(p.W), len(c.Model.Features), what)
		}
	}
	return c, nil
}
