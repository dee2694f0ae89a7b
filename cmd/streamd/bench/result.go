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
// has one value.
type Figure struct {
	Key    Key
	Rounds []float64
}

// Value is the median of the rounds.
func (f Figure) Value() float64 { return Median(f.Rounds) }

// A Key names a figure in JSON: the quantity in snake case with its unit.
type Key string

// The keys that several benchmarks use.
const (
	NsPerRow       Key = "ns_per_row"
	RowsPerSecond  Key = "rows_per_second"
	GBPerSecond    Key = "gb_per_second" // 10^9 bytes
	GFLOPPerSecond Key = "gflop_per_second"
	PeakShare      Key = "peak_share"     // of the processor's measured multiply-adds
	PeakRSSBytes   Key = "peak_rss_bytes" // largest resident set
	Seconds        Key = "seconds"

	ReadRatio  Key = "read_ratio"  // to reading the same bytes
	CopyRatio  Key = "copy_ratio"  // to copying the same bytes
	DrainRatio Key = "drain_ratio" // share of the rate of fetching the same records and dropping them

	PureGoRatio       Key = "purego_ratio"
	GonumRatio        Key = "gonum_ratio"
	EncodingJSONRatio Key = "encoding_json_ratio"
	EncodingCSVRatio  Key = "encoding_csv_ratio"
)

// unit is the key in a benchmark line, as Go and its tools write units.
func (k Key) unit() string {
	switch k {
	case GBPerSecond:
		return "GB/s"
	case PeakRSSBytes:
		return "peak-RSS-bytes"
	}
	unit := strings.ReplaceAll(string(k), "gflop", "GFLOP")
	if of, ok := strings.CutSuffix(unit, "_per_second"); ok {
		unit = of + "/s"
	}
	return strings.ReplaceAll(strings.Replace(unit, "_per_", "/", 1), "_", "-")
}

// Add adds a figure, which f computes for each round from 0. Where the rounds
// of two sides are compared, that is the place to divide them.
func (r *Result) Add(key Key, f func(round int) float64) {
	rounds := make([]float64, len(r.Samples))
	for i := range rounds {
		rounds[i] = f(i)
	}
	r.Figures = append(r.Figures, Figure{key, rounds})
}

// Set adds a figure that has one value.
func (r *Result) Set(key Key, value float64) {
	r.Figures = append(r.Figures, Figure{key, []float64{value}})
}

// Figure is the median of a figure; it panics if there is none of that key.
func (r *Result) Figure(key Key) float64 {
	i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Key == key })
	return r.Figures[i].Value()
}

// AddRows adds the case's time per row and its rate.
func (r *Result) AddRows() {
	r.Add(NsPerRow, func(i int) float64 { return r.Samples[i].NsPerRow() })
	r.Add(RowsPerSecond, func(i int) float64 { return r.Samples[i].RowsPerSecond() })
}

// AddBytes adds the rate in bytes, of which a row has so many.
func (r *Result) AddBytes(perRow float64) {
	r.Add(GBPerSecond, func(i int) float64 { return r.Samples[i].RowsPerSecond() * perRow / 1e9 })
}

// AddBound adds the ratio to a side that cannot be beaten: how many times its
// time the case takes for a row.
func (r *Result) AddBound(key Key, side []Sample) {
	r.Add(key, func(i int) float64 { return r.Samples[i].NsPerRow() / side[i].NsPerRow() })
}

// AddSpeedup adds the ratio to another way to do the same: how many times the
// case's time it takes for a row.
func (r *Result) AddSpeedup(key Key, side []Sample) {
	r.Add(key, func(i int) float64 { return side[i].NsPerRow() / r.Samples[i].NsPerRow() })
}

// MarshalJSON writes the parameters and the medians as one flat object.
func (r Result) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"benchmark":%q`, r.Benchmark)
	put := func(key string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("%s of benchmark %s: %w", key, r.Name(), err)
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
		if err := put(string(f.Key), f.Value()); err != nil {
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

// Name is the name of the case in a benchmark line, without the number of
// processors.
func (r *Result) Name() string {
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
	b.WriteString(r.Name())
	if processors > 1 {
		fmt.Fprintf(&b, "-%d", processors)
	}
	ops, perOp := int64(0), make([]float64, len(r.Samples))
	for i, s := range r.Samples {
		if round < 0 || round == i {
			ops += s.Ops
		}
		perOp[i] = s.NsPerOp()
	}
	fmt.Fprintf(&b, "\t%8d", ops)
	for _, f := range append([]Figure{{"ns_per_op", perOp}}, r.Figures...) {
		value := f.Value()
		if round >= 0 && len(f.Rounds) == len(r.Samples) {
			value = f.Rounds[round]
		}
		fmt.Fprintf(&b, "\t%10s %s", digits(value), f.Key.unit())
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

// Median is the value in the middle, or the mean of the two there. It panics
// when there is no value.
func Median(values []float64) float64 {
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
