package bench

import (
	"bytes"
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

// Wire measures decoding and packing: from a payload to the columns that the
// kernel reads, each of which is then brought as float64, stretch by stretch,
// into a buffer in the first-level cache. (A decoded Arrow stream is a view;
// without the packing nothing of it would have been read.)
//
// Baselines are a copy of the payload and, where the standard library has a
// decoder, that decoder followed by the same packing: encoding/json into a
// struct per row, encoding/csv with strconv. A payload is decoded again and
// again, as one that has just come out of a socket it is in the cache.
type Wire struct {
	Formats  []wire.Format
	Features []int
	Type     Type
	Threads  []int
	Rows     int // per payload
}

// Measure runs all combinations.
func (c Wire) Measure(ctx context.Context, plan Plan, report *Report) error {
	at, cases := 0, len(c.Formats)*len(c.Features)*len(c.Threads)
	for _, n := range c.Features {
		block := normalBlock(rand.New(rand.NewPCG(1, uint64(n))), c.Type, c.Rows, n, 2)
		for _, format := range c.Formats {
			payload, err := wire.Encode(nil, format, block)
			if err != nil {
				return fmt.Errorf("make a payload: %w", err)
			}
			for _, threads := range c.Threads {
				r := Result{Benchmark: "wire", Parameters: []Parameter{
					{"format", format.String()}, {"features", n}, {"type", string(c.Type)}, {"threads", threads}, {"rows", c.Rows},
				}}
				if err := c.measure(ctx, plan.Case(at, cases, r.name()), &r, format, payload, threads); err != nil {
					return err
				}
				if err := report.Add(r); err != nil {
					return err
				}
				at++
			}
		}
	}
	return nil
}

func (c Wire) measure(ctx context.Context, plan Plan, r *Result, format wire.Format, payload []byte, threads int) error {
	rows, size := int64(c.Rows), float64(len(payload))
	standard, hasStandard := standardLibrary[format]
	own, copies, library := make([]work, threads), make([]work, threads), make([]work, threads)
	for i := range threads {
		decoder, err := wire.NewDecoder(wire.Options{Limits: wire.Limits{Bytes: len(payload) + 1, Rows: c.Rows}})
		if err != nil {
			return err
		}
		tile, to := make([]float64, stretch), make([]byte, len(payload))
		own[i] = func() (int64, error) {
			b, err := decoder.Decode(format.ContentType(), payload)
			if err != nil {
				return 0, err
			}
			pack(tile, b.Columns)
			return rows, nil
		}
		copies[i] = func() (int64, error) {
			copy(to, payload)
			return rows, nil
		}
		library[i] = func() (int64, error) {
			columns, _, err := standard.decode(payload)
			if err != nil {
				return 0, err
			}
			pack(tile, columns)
			return rows, nil
		}
	}
	sides := []side{{"decode and pack", loop(own...)}, {"copy", loop(copies...)}}
	if hasStandard {
		sides = append(sides, side{"standard library", loop(library...)})
	}
	samples, err := plan.alternate(ctx, sides...)
	if err != nil {
		return err
	}
	r.Samples = samples[0]
	r.addRows()
	r.addBytes(size / float64(rows))
	r.set("bytes_per_row", size/float64(rows))
	r.addBound("copy_ratio", samples[1])
	if hasStandard {
		r.addSpeedup(standard.ratio, samples[2])
	}
	return nil
}

// standardLibrary is the other way to do it.
var standardLibrary = map[wire.Format]struct {
	ratio  string
	decode func(payload []byte) (columns []gram.Column, labels []float64, err error)
}{
	wire.JSON: {"encoding_json_ratio", decodeJSON},
	wire.CSV:  {"encoding_csv_ratio", decodeCSV},
}

// stretch is how many numbers of a column are packed at a time, as the kernel
// does.
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
	var columns [][]float64
	var labels []float64
	var row struct {
		Label    float64   `json:"label"`
		Features []float64 `json:"features"`
	}
	for d := json.NewDecoder(bytes.NewReader(payload)); ; {
		err := d.Decode(&row)
		if errors.Is(err, io.EOF) {
			return views(columns), labels, nil
		}
		if err != nil {
			return nil, nil, err
		}
		labels = append(labels, row.Label)
		columns = appendRow(columns, row.Features)
	}
}

// decodeCSV reads records of a label and features, without a header.
func decodeCSV(payload []byte) ([]gram.Column, []float64, error) {
	var columns [][]float64
	var labels, row []float64
	d := csv.NewReader(bytes.NewReader(payload))
	d.ReuseRecord = true
	for {
		record, err := d.Read()
		if errors.Is(err, io.EOF) {
			return views(columns), labels, nil
		}
		if err != nil {
			return nil, nil, err
		}
		row = row[:0]
		for _, field := range record {
			x, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, nil, err
			}
			row = append(row, x)
		}
		labels = append(labels, row[0])
		columns = appendRow(columns, row[1:])
	}
}

func appendRow(columns [][]float64, row []float64) [][]float64 {
	if columns == nil {
		columns = make([][]float64, len(row))
	}
	for j, x := range row {
		columns[j] = append(columns[j], x)
	}
	return columns
}

func views(columns [][]float64) []gram.Column {
	v := make([]gram.Column, len(columns))
	for j, c := range columns {
		v[j] = gram.ColumnOf(c)
	}
	return v
}
