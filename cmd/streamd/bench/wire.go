package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// Wire measures decoding and packing, from a payload to the columns that the kernel reads.
// Packing copies each column as float64, stretch by stretch, into a buffer in the
// first-level cache. Without it nothing of an Arrow stream would be read, because its
// decoded columns are views.
//
// The baselines are a copy of the payload and, where the standard library has a decoder,
// that decoder followed by the same packing: encoding/json into a struct per row, and
// encoding/csv with strconv. A payload is decoded again and again, so it is in the cache,
// as it is after it came out of a socket.
type Wire struct {
	Format   []string `default:"arrow,json,csv,libsvm" enum:"arrow,json,csv,libsvm" help:"Formats: ${enum}."`
	Features []int    `default:"10" help:"Features of a row."`
	Type     Type     `default:"float32" enum:"float32,float64" help:"Type of the numbers: ${enum}."`
	Rows     int      `default:"20000" help:"Rows of a payload."`
	Threads
	Timed
}

// Check implements Benchmark.
func (c Wire) Check() error {
	return cmp.Or(
		Within("features", 1, maxFeatures, c.Features...), Within("rows", 1, maxRows, c.Rows),
		c.Threads.check(), c.Timed.check())
}

// Measure implements Benchmark. An operation is a payload.
func (c Wire) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, c.Time, len(c.Format)*len(c.Features)*len(c.list()))
	for _, n := range c.Features {
		block := normalBlock(rand.New(rand.NewPCG(1, uint64(n))), c.Type, c.Rows, n, 2)
		for _, name := range c.Format {
			format, err := wire.ParseFormat(name)
			if err != nil {
				return err
			}
			payload, err := wire.Encode(nil, format, block)
			if err != nil {
				return fmt.Errorf("make a payload: %w", err)
			}
			for _, threads := range c.list() {
				if err := c.measure(ctx, run, format, n, payload, threads); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c Wire) measure(ctx context.Context, run *Run, format wire.Format, n int, payload []byte, goroutines int) error {
	rows := int64(c.Rows)
	tile := func() []float64 { return make([]float64, stretch) }
	sides := []side{
		parallel("decode and pack", goroutines, func(int) work {
			decoder, err := wire.NewDecoder(wire.Options{Limits: wire.Limits{Bytes: len(payload) + 1, Rows: c.Rows}})
			tile := tile()
			return func() (int64, error) {
				if err != nil {
					return 0, err
				}
				b, err := decoder.Decode(format.ContentType(), payload)
				if err == nil {
					pack(tile, b.Columns)
				}
				return rows, err
			}
		}),
		parallel("copy", goroutines, func(int) work {
			to := make([]byte, len(payload))
			return func() (int64, error) {
				copy(to, payload)
				return rows, nil
			}
		}),
	}
	standard, hasStandard := standardLibrary[format]
	if hasStandard {
		sides = append(sides, parallel("standard library", goroutines, func(int) work {
			tile := tile()
			return func() (int64, error) {
				columns, _, err := standard.decode(payload)
				pack(tile, columns)
				return rows, err
			}
		}))
	}
	r := Result{Benchmark: "wire", Parameters: []Parameter{
		{"format", format.String()}, {"features", n}, {"type", string(c.Type)}, {"threads", goroutines}, {"rows", c.Rows},
	}}
	return run.measure(ctx, r, sides, func(r *Result, samples [][]Sample) {
		perRow := float64(len(payload)) / float64(rows)
		r.addRows()
		r.addBytes(perRow)
		r.set("bytes_per_row", perRow)
		r.addRatio("copy_ratio", Sample.nsPerRow, samples[0], samples[1])
		if hasStandard {
			r.addRatio(standard.ratio, Sample.nsPerRow, samples[2], samples[0])
		}
	})
}

// standardLibrary has the decoders of the standard library.
var standardLibrary = map[wire.Format]struct {
	ratio  string
	decode func(payload []byte) (columns []gram.Column, labels []float64, err error)
}{
	wire.JSON: {"encoding_json_ratio", decodeJSON},
	wire.CSV:  {"encoding_csv_ratio", decodeCSV},
}

// stretch is the number of values of a column that are packed at a time, as the kernel does.
const stretch = 256

func pack(tile []float64, columns []gram.Column) {
	for _, c := range columns {
		for from := 0; from < c.Len(); from += len(tile) {
			c.Copy(tile[:min(len(tile), c.Len()-from)], from)
		}
	}
}

// decodeJSON reads lines of {"label":0,"features":[…]}.
func decodeJSON(payload []byte) ([]gram.Column, []float64, error) {
	var row struct {
		Label    float64   `json:"label"`
		Features []float64 `json:"features"`
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	return decodeRows(func() (float64, []float64, error) {
		err := d.Decode(&row)
		return row.Label, row.Features, err
	})
}

// decodeCSV reads records of a label and features, without a header.
func decodeCSV(payload []byte) ([]gram.Column, []float64, error) {
	d := csv.NewReader(bytes.NewReader(payload))
	d.ReuseRecord = true
	var row []float64
	return decodeRows(func() (float64, []float64, error) {
		record, err := d.Read()
		if err != nil {
			return 0, nil, err
		}
		row = row[:0]
		for _, field := range record {
			x, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return 0, nil, err
			}
			row = append(row, x)
		}
		return row[0], row[1:], nil
	})
}

// decodeRows gathers the rows that next returns until io.EOF.
func decodeRows(next func() (label float64, features []float64, err error)) (views []gram.Column, labels []float64, err error) {
	var columns [][]float64
	for {
		label, features, err := next()
		if errors.Is(err, io.EOF) {
			for _, c := range columns {
				views = append(views, gram.ColumnOf(c))
			}
			return views, labels, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if columns == nil {
			columns = make([][]float64, len(features))
		}
		labels = append(labels, label)
		for j, x := range features {
			columns[j] = append(columns[j], x)
		}
	}
}
