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

// Result is the parameters and figures of one case, in the order in which they are shown.
type Result struct {
	Benchmark  string // in lower case, as "gram"
	Parameters []Parameter
	Samples    []Sample // of the case itself, one for each round
	Figures    []Figure
	// Details are in JSON only, and any value that can be marshalled, such as a digest.
	Details []Parameter
}

// Parameter is a choice. Its key is in snake case, and its value a string, a bool or an
// integer.
type Parameter struct {
	Key   string
	Value any
}

// Figure is a measured quantity: a value for each round, or one value. Its key is the
// quantity in snake case, with its unit.
type Figure struct {
	Key    string
	Rounds []float64
}

// value is the median of the rounds.
func (f Figure) value() float64 { return median(f.Rounds) }

// unit writes a figure's key as Go and its tools write units.
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

// add adds a figure. The function computes it for each round, from 0.
func (r *Result) add(key string, f func(round int) float64) {
	rounds := make([]float64, len(r.Samples))
	for i := range rounds {
		rounds[i] = f(i)
	}
	r.Figures = append(r.Figures, Figure{key, rounds})
}

// set adds a figure with one value.
func (r *Result) set(key string, value float64) {
	r.Figures = append(r.Figures, Figure{key, []float64{value}})
}

// Figure returns the median of a figure. It panics if there is none of that key.
func (r *Result) Figure(key string) float64 {
	i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Key == key })
	return r.Figures[i].value()
}

// Text returns a parameter or a detail as text, or nothing.
func (r *Result) Text(key string) string {
	for _, p := range slices.Concat(r.Parameters, r.Details) {
		if p.Key == key {
			return fmt.Sprint(p.Value)
		}
	}
	return ""
}

// addRows adds the time of a row and the rate.
func (r *Result) addRows() {
	r.add("ns_per_row", func(i int) float64 { return r.Samples[i].nsPerRow() })
	r.add("rows_per_second", func(i int) float64 { return r.Samples[i].rowsPerSecond() })
}

// addBytes adds the rate in units of 10^9 bytes, for rows of so many bytes.
func (r *Result) addBytes(perRow float64) {
	r.add("gb_per_second", func(i int) float64 { return r.Samples[i].rowsPerSecond() * perRow / 1e9 })
}

// addSeconds adds the time of an operation.
func (r *Result) addSeconds() {
	r.add("seconds", func(i int) float64 { return r.Samples[i].nsPerOp() / 1e9 })
}

// addRatio adds a quantity of one side over that of another, within each round.
func (r *Result) addRatio(key string, of func(Sample) float64, side, over []Sample) {
	r.add(key, func(i int) float64 { return of(side[i]) / of(over[i]) })
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

// name is the name in a benchmark line, without the number of processors.
func (r *Result) name() string {
	name := "Benchmark" + strings.ToUpper(r.Benchmark[:1]) + r.Benchmark[1:]
	for _, p := range r.Parameters {
		// A blank would end the name, a slash the value.
		value := strings.NewReplacer(" ", "_", "/", "_").Replace(fmt.Sprint(p.Value))
		name += "/" + p.Key + "=" + value
	}
	return name
}

// line is a line of Go's benchmark format, for one round or, with −1, for all of them.
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

// median returns the value in the middle, or the mean of the two there. It panics without
// values.
func median(values []float64) float64 {
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
