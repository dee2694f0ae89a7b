package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/ingest/wire"
)

// predictCmd classifies rows here, by the planes of one model: the values are,
// bit for bit, those that the daemon would answer with, and no limit on a
// request stands in the way of a long file.
type predictCmd struct {
	File string `arg:"" help:"Rows with or without labels, in CSV, LIBSVM, JSON or Arrow, also gzipped; - is standard input."`
	columnFlags
	Format string `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of a file whose name does not end in one, and of standard input: ${enum}."`
	Model  string `placeholder:"FILE" help:"Use a saved answer of GET /v1/model, or of fit --json, instead of asking the daemon."`
	Values bool   `help:"Print the value x·w − gamma of each plane behind the label, too."`
	daemonFlags
	jsonFlag
}

// maxInput bounds what is decoded at once.
const maxInput = 1 << 30 // bytes

func (c *predictCmd) Run(ctx context.Context, s *surroundings) error {
	answer, err := c.model(ctx, s)
	if err != nil {
		return err
	}
	m, err := modelOf(answer)
	if err != nil {
		return err
	}
	rows, err := c.rows(s, m.Features)
	if err != nil {
		return err
	}
	class := make([]int32, rows.Rows)
	values := make([]float64, rows.Rows*len(m.Planes))
	m.Classify(class, values, rows.Columns)
	for i, value := range values {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("predict %s: row %d: its value is %v; are its features finite?", c.File, i/len(m.Planes), value)
		}
	}
	if c.JSON {
		return printJSON(s.stdout, c.report(answer, m, class, values))
	}
	out := bufio.NewWriter(s.stdout)
	var line []byte
	for i, k := range class {
		line = append(line[:0], m.Classes[k]...)
		if c.Values {
			for _, value := range values[i*len(m.Planes):][:len(m.Planes)] {
				line = strconv.AppendFloat(append(line, '\t'), value, 'g', -1, 64)
			}
		}
		out.Write(append(line, '\n')) // Flush has the error
	}
	return out.Flush()
}

// report is the answer that the daemon gives to the same rows.
func (c *predictCmd) report(of *httpapi.ModelAnswer, m *incremental.Model, class []int32, values []float64) httpapi.PredictAnswer {
	r := httpapi.PredictAnswer{
		Model: of.Fingerprint, Classes: m.Classes, Labels: make([]string, len(class)), Values: make([][]float64, len(class)),
	}
	for _, p := range m.Planes {
		r.Planes = append(r.Planes, p.Class)
	}
	for i, k := range class {
		r.Labels[i] = m.Classes[k]
		r.Values[i] = values[i*len(m.Planes):][:len(m.Planes)]
	}
	return r
}

func (c *predictCmd) model(ctx context.Context, s *surroundings) (*httpapi.ModelAnswer, error) {
	var m httpapi.ModelAnswer
	if c.Model == "" {
		daemon, err := c.client(s, tokenFlag{})
		if err != nil {
			return nil, err
		}
		_, err = daemon.call(ctx, "GET", "/v1/model", answerTimeout, &m)
		return &m, err
	}
	text, err := os.ReadFile(c.Model)
	if err != nil {
		return nil, fmt.Errorf("--model: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("--model %s: not a model in JSON: %w", c.Model, err)
	}
	return &m, nil
}

// modelOf is the classifier in an answer that may have been saved and changed.
func modelOf(a *httpapi.ModelAnswer) (*incremental.Model, error) {
	wrong := func(format string, args ...any) (*incremental.Model, error) {
		return nil, fmt.Errorf("the model cannot be used: "+format, args...)
	}
	k := len(a.Classes)
	if k < 2 {
		return wrong("it has %d classes", k)
	}
	planes := k
	if k == 2 {
		planes = 1
	}
	if len(a.Planes) != planes {
		return wrong("it has %d planes for %d classes", len(a.Planes), k)
	}
	m := &incremental.Model{Features: a.Features, Classes: a.Classes}
	for _, p := range a.Planes {
		if len(p.W) != len(a.Features) {
			return wrong("the plane of class %q has %d weights for %d features", p.Class, len(p.W), len(a.Features))
		}
		m.Planes = append(m.Planes, incremental.Plane{Class: p.Class, W: p.W, Gamma: p.Gamma})
	}
	return m, nil
}

// rows reads the input as a whole.
func (c *predictCmd) rows(s *surroundings, features []string) (wire.Table, error) {
	options, err := c.columnFlags.options(c.Format)
	if err != nil {
		return wire.Table{}, usageError{err}
	}
	options.Features = features
	options.Limits.Bytes, options.Limits.Rows = maxInput, maxInput
	in := s.stdin
	if c.File != "-" {
		reader, err := wire.OpenFile(c.File, options, 1)
		if err != nil {
			return wire.Table{}, err
		}
		options.Format = reader.Format()
		reader.Close()
		file, err := os.Open(c.File)
		if err != nil {
			return wire.Table{}, err
		}
		defer file.Close()
		in = file
	} else if options.Format == 0 {
		return wire.Table{}, usagef("--format says what comes in on standard input: csv, libsvm, json or arrow")
	}
	text, err := readAll(in)
	if err != nil {
		return wire.Table{}, fmt.Errorf("read %s: %w", c.File, err)
	}
	decoder, err := wire.NewDecoder(options)
	if err != nil {
		return wire.Table{}, err
	}
	rows, err := decoder.DecodeUnlabelled("", text)
	if err != nil {
		return wire.Table{}, fmt.Errorf("read %s: %w", c.File, err)
	}
	return rows, nil
}

// readAll reads up to maxInput bytes, unzipped if need be.
func readAll(in io.Reader) ([]byte, error) {
	buffered := bufio.NewReader(in)
	in = buffered
	if head, _ := buffered.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		in = z
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err == nil && len(text) > maxInput {
		return nil, fmt.Errorf("it has more than %d bytes; cut it into pieces", maxInput)
	}
	return text, err
}
