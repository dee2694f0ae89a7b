package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Result is one case: its parameters and its figures, in the order in which
// they are shown.
type Result struct {
	Benchmark  string // in lower case, as "gram"
	Parameters []Parameter
	Samples    []Sample // of the case itself, one per round
	Figures    []Figure
	// Details are found and yet no figures, such as a digest: they are in JSON
	// only, and their values are whatever can be marshalled.
	Details []Parameter
}

// Parameter is something chosen. Its key is in snake case, its value a string,
// a bool or an integer.
type Parameter struct {
	Key   string
	Value any
}

// Figure is something measured, in each round. What is not measured in rounds
// has one value. Its key is the quantity in snake case, with its unit.
type Figure struct {
	Key    string
	Rounds []float64
}

// value is the median of the rounds.
func (f Figure) value() float64 { return median(f.Rounds) }

// unit is a figure's key in a benchmark line, as Go and its tools write units.
func unit(key string) string {
	switch key {
	case "gb_per_second":
		return "GB/s"
	case "peak_rss_bytes":
		return "peak-RSS-bytes"
	}
	unit := strings.ReplaceAll(key, "gflop", "GFLOP")
	if of, ok := strings.CutSuffix(unit, "_per_second"); ok {
		unit = of + "/s"
	}
	return strings.ReplaceAll(strings.Replace(unit, "_per_", "/", 1), "_", "-")
}

// add adds a figure, which f computes for each round from 0. Where the rounds
// of two sides are compared, that is the place to divide them.
func (r *Result) add(key string, f func(round int) float64) {
	rounds := make([]float64, len(r.Samples))
	for i := range rounds {
		rounds[i] = f(i)
	}
	r.Figures = append(r.Figures, Figure{key, rounds})
}

// set adds a figure that has one value.
func (r *Result) set(key string, value float64) {
	r.Figures = append(r.Figures, Figure{key, []float64{value}})
}

// Figure is the median of a figure; it panics if there is none of that key.
func (r *Result) Figure(key string) float64 {
	i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Key == key })
	return r.Figures[i].value()
}

// addRows adds the case's time per row and its rate.
func (r *Result) addRows() {
	r.add("ns_per_row", func(i int) float64 { return r.Samples[i].nsPerRow() })
	r.add("rows_per_second", func(i int) float64 { return r.Samples[i].rowsPerSecond() })
}

// addBytes adds the rate in bytes, of which a row has so many.
func (r *Result) addBytes(perRow float64) {
	r.add("gb_per_second", func(i int) float64 { return r.Samples[i].rowsPerSecond() * perRow / 1e9 }) // 10^9 bytes
}

// addBound adds the ratio to a side that cannot be beaten: how many times its
// time the case takes for a row.
func (r *Result) addBound(key string, side []Sample) {
	r.add(key, func(i int) float64 { return r.Samples[i].nsPerRow() / side[i].nsPerRow() })
}

// addSpeedup adds the ratio to another way to do the same: how many times the
// case's time it takes for a row.
func (r *Result) addSpeedup(key string, side []Sample) {
	r.add(key, func(i int) float64 { return side[i].nsPerRow() / r.Samples[i].nsPerRow() })
}

// MarshalJSON writes the parameters and the medians as one flat object.
func (r Result) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"benchmark":%q`, r.Benchmark)
	put := func(key string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("%s of benchmark %s: %w", key, r.name(), err)
		}
		fmt.Fprintf(&b, ",%q:%s", key, text)
		return nil
	}
	for _, p := range r.Parameters {
		if err := put(p.Key, p.Value); err != nil {
			return nil, err
		}
	}
	if err := put("rounds", len(r.Samples)); err != nil {
		return nil, err
	}
	for _, f := range r.Figures {
		if err := put(f.Key, f.value()); err != nil {
			return nil, err
		}
	}
	for _, d := range r.Details {
		if err := put(d.Key, d.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// name is the name of the case in a benchmark line, without the number of
// processors.
func (r *Result) name() string {
	name := "Benchmark" + strings.ToUpper(r.Benchmark[:1]) + r.Benchmark[1:]
	for _, p := range r.Parameters {
		// A blank would end the name, a slash the value.
		value := strings.NewReplacer(" ", "_", "/", "_").Replace(fmt.Sprint(p.Value))
		name += "/" + p.Key + "=" + value
	}
	return name
}

// line is the case as a line of Go's benchmark format: of one round, or, for
// −1, of all of them.
func (r *Result) line(round, processors int) string {
	var b strings.Builder
	b.WriteString(r.name())
	if processors > 1 {
		fmt.Fprintf(&b, "-%d", processors)
	}
	ops, perOp := int64(0), make([]float64, len(r.Samples))
	for i, s := range r.Samples {
		if round < 0 || round == i {
			ops += s.Ops
		}
		perOp[i] = s.nsPerOp()
	}
	fmt.Fprintf(&b, "\t%8d", ops)
	for _, f := range append([]Figure{{"ns_per_op", perOp}}, r.Figures...) {
		value := f.value()
		if round >= 0 && len(f.Rounds) == len(r.Samples) {
			value = f.Rounds[round]
		}
		fmt.Fprintf(&b, "\t%10s %s", digits(value), unit(f.Key))
	}
	return b.String()
}

// digits writes a value with four digits or more.
func digits(x float64) string {
	if math.Abs(x) >= 1000 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// median is the value in the middle, or the mean of the two there. It panics
// when there is no value.
func median(values []float64) float64 {
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
