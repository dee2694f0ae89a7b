package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"streamd/cmd/streamd/listing"
	"streamd/cmd/streamd/model"
)

// table is a listing that knows the values which the commands show.
type table struct {
	listing *listing.Writer
	err     error // a value that cannot be shown
}

func newTable(w io.Writer) *table { return &table{listing: listing.New(w, "")} }

func (t *table) row(cells ...string) { t.listing.Row(cells...) }

func (t *table) flush() error {
	if t.err != nil {
		return t.err
	}
	return t.listing.Flush()
}

// utc is a time as --from and --to take it. It is for event times, and for receipts, which others
// read in other time zones.
func utc(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// counted writes a number with a noun: 1 block, 2 blocks.
func counted[N int | int64](n N, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// mostWeights is the number of weights that people see of a plane.
const mostWeights = 20

// planes prints hyperplanes. A single plane has its largest weights, and several planes have none.
func (t *table) planes(features []string, planes []model.PlaneJSON) {
	if len(planes) > 1 {
		t.several(planes, "in "+counted(len(features), "feature")+" (their weights: --json)")
		return
	}
	p := planes[0]
	t.row("plane", fmt.Sprintf("of class %s, x·w = gamma", p.Class))
	t.row("  gamma", fmt.Sprintf("%.6g", p.Gamma))
	var order []int
	for j, w := range p.W {
		if w != 0 {
			order = append(order, j)
		}
	}
	used := len(order)
	if used > mostWeights {
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(math.Abs(p.W[j]), math.Abs(p.W[i])) })
		order = order[:mostWeights]
	}
	for _, j := range order {
		t.row("  w "+features[j], fmt.Sprintf("%.6g", p.W[j]))
	}
	if hidden := used - len(order); hidden > 0 {
		t.row("  …", fmt.Sprintf("and %s (all: --json)", counted(hidden, "smaller weight")))
	}
	if unused := len(features) - used; unused > 0 {
		t.row("  w = 0", "of "+counted(unused, "other feature"))
	}
}

// describeBasis says how many points a basis has, and coordinates where these are fewer.
func describeBasis(b *model.BasisJSON) string {
	points := counted(len(b.Points), "point")
	if b.Projection != nil {
		return counted(b.Size(), "coordinate") + " of " + points
	}
	return points
}

// kernelPlanes prints planes in the coordinates of a basis, without coefficients.
func (t *table) kernelPlanes(b *model.BasisJSON, planes []model.PlaneJSON) {
	if len(planes) > 1 {
		t.several(planes, "over "+describeBasis(b)+" (with their coefficients: --json)")
		return
	}
	coordinates := "K(x, Z)"
	if b.Projection != nil {
		coordinates = "P·K(x, Z)"
	}
	t.row("plane", fmt.Sprintf("of class %s, %s·u = gamma for %s Z (with u: --json)", planes[0].Class, coordinates, describeBasis(b)))
	t.row("  gamma", fmt.Sprintf("%.6g", planes[0].Gamma))
}

func (t *table) several(planes []model.PlaneJSON, where string) {
	t.row("planes", fmt.Sprintf("%d, one class from the rest, %s", len(planes), where))
	for _, p := range planes {
		t.row("  "+p.Class, fmt.Sprintf("gamma %.6g", p.Gamma))
	}
}

// countedClasses writes classes with their rows, as −1 (126), 1 (225).
func countedClasses(classes []string, rows []int64) string {
	texts := make([]string, len(classes))
	for i, class := range classes {
		texts[i] = fmt.Sprintf("%s (%d)", class, rows[i])
	}
	return strings.Join(texts, ", ")
}

func describeOptions(o model.OptionsJSON) string {
	text := fmt.Sprintf("nu %g", o.Nu)
	if o.Balanced {
		text += ", balanced"
	}
	if len(o.ClassWeights) > 0 {
		text += ", class weights"
		for _, class := range slices.Sorted(maps.Keys(o.ClassWeights)) {
			text += fmt.Sprintf(" %s=%g", class, o.ClassWeights[class])
		}
	}
	if o.Standardise {
		text += ", standardised"
	}
	return text
}
