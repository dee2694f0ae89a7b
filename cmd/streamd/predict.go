package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/listing"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/incremental"
	"streamd/ingest/wire"
)

// predictCmd classifies rows in this process, by the planes of one model. The values are
// those of the daemon bit for bit, and the daemon's limits on requests do not apply to a
// long file.
type predictCmd struct {
	File string `arg:"" optional:"" help:"Rows with or without labels, in CSV, LIBSVM, JSON, Arrow or Parquet, also compressed by gzip or Zstandard; - is standard input."`
	columnFlags
	Format string `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of standard input and of a file whose name does not end in one: ${enum}."`
	Model  string `placeholder:"FILE" help:"Use a saved answer of GET /v1/model, or of fit --json, instead of asking the daemon."`
	Output string `enum:"text,csv,arrow" default:"text" help:"Form of the output: ${enum}. csv and arrow are those of the daemon's answers, with all values and probabilities."`
	Form   string `enum:"columns,rows" default:"columns" help:"Layout of --json: ${enum}. With rows each row is an object with the names of the classes."`
	Values bool   `help:"Print the value of each plane behind the label: x·w − gamma, or the quantity that the model's decision ranks by (log odds, expected cost)."`

	Probabilities bool `help:"Print the probability of each class, in the order of the model's classes. The model must decide by probabilities, or by their costs."`
	Contributions bool `help:"Print for each plane the contribution of each feature to x·w − gamma, counted from the mean row."`
	Top           int  `placeholder:"N" help:"Print only the N largest contributions."`
	predictWindow
	topicFlags
	Leverage bool `help:"Print the row's leverage divided by the mean leverage of the rows learned from. A row of several times that is unlike any of them. It asks the daemon in one request, so the daemon's limits apply."`
	daemonFlags
	jsonFlag
}

// maxInput bounds the input, which is decoded at once.
const maxInput = 1 << 30 // bytes

func (c *predictCmd) Run(ctx context.Context, s *surroundings) error {
	if c.Topic != "" {
		return c.answerTopic(ctx, s)
	}
	if c.Output == "arrow" && isTerminal(s.stdout) {
		return usagef("--output arrow is not for a terminal: send it to a file or a program")
	}
	answer, err := c.model(ctx, s)
	if err != nil {
		return err
	}
	by, err := answer.Classifier()
	if err != nil {
		return err
	}
	m := by.Model
	switch {
	case c.Contributions && by.Map != nil:
		return errors.New("the model cannot be used with --contributions: its planes are over the points of a kernel's basis, not the features")
	case c.Contributions && len(m.Mean) == 0:
		return errors.New("the model cannot be used with --contributions: it has no mean of the features")
	case c.Probabilities && answer.Calibration == nil:
		return errors.New("the model cannot be used with --probabilities: it has no calibration")
	case c.Probabilities && !by.Rule.HasProbabilities():
		return errors.New("the model cannot be used with --probabilities: it decides by value, and they could contradict its labels")
	}
	options := c.optionsFor(c.Format, by)
	if c.Leverage { // the daemon treats missing values
		options.Features, options.Missing = by.Missing.Base(by.Features), wire.Missing{Default: wire.MissingNaN}
	}
	rows, err := c.rows(s, options)
	if err != nil {
		return err
	}
	if c.Leverage {
		return c.ask(ctx, s, m, options.Features, rows)
	}
	p := predictions.NewTable(by, answer.Fingerprint, answer.Method)
	if err := p.Predict(by, rows.Columns, rows.Rows); err != nil {
		return fmt.Errorf("predict %s: %w", c.File, err)
	}
	if c.Contributions {
		p.Contributions = model.NewContributions(m, rows.Columns, c.top(m))
	}
	if form, ok := c.form(); ok {
		if err := p.Write(s.stdout, form); err != nil {
			return fmt.Errorf("predict %s: %w", c.File, err)
		}
		return nil
	}
	return c.print(s.stdout, &p)
}

// form is the form of the output, unless that is lines of text.
func (c *predictCmd) form() (form predictions.Form, ok bool) {
	switch {
	case c.Output == "csv":
		return predictions.CSV, true
	case c.Output == "arrow":
		return predictions.Arrow, true
	case c.Form == "rows":
		return predictions.Rows, true
	}
	return predictions.Columns, c.JSON
}

// print prints a line for each row, with the parts that are asked for.
func (c *predictCmd) print(w io.Writer, p *predictions.Table) error {
	out := bufio.NewWriter(w)
	var line []byte
	probabilities := make([]float64, len(p.Classes))
	for i, k := range p.Labels {
		line = append(line[:0], listing.OneLine(p.Classes[k])...)
		if c.Values {
			line = appendNumbers(line, p.Shown(i))
		}
		if c.Probabilities {
			p.Probabilities(probabilities, i)
			line = appendNumbers(line, probabilities)
		}
		if c.Contributions {
			for plane := range p.Planes {
				line = append(line, '\t')
				order, of := p.Contributions.Of(i, plane)
				for rank, j := range order {
					line = appendContribution(line, rank, p.Features[j], of[j])
				}
			}
		}
		out.Write(append(line, '\n')) // Flush has the error
	}
	return out.Flush()
}

// Validate implements kong's interface.
func (c *predictCmd) Validate() error {
	switch {
	case c.Top < 0:
		return fmt.Errorf("--top %d: must be 1 or more", c.Top)
	case c.Top > 0 && !c.Contributions:
		return errors.New("--top goes with --contributions")
	case c.Form == "rows" && !c.JSON && c.Topic == "":
		return errors.New("--form goes with --json, or with --topic")
	case c.Output != "text" && c.JSON:
		return fmt.Errorf("--output %s and --json are two forms: name one", c.Output)
	case c.Output != "text" && (c.Contributions || c.Leverage):
		return fmt.Errorf("--output %s has no place for --contributions and --leverage; --json has", c.Output)
	case c.Leverage && c.Model != "":
		return errors.New("--leverage asks the daemon, since a saved model lacks the factors; leave out --model")
	case c.Topic != "":
		return c.checkTopic()
	case c.File == "":
		return errors.New("which rows? Name a file, - for standard input, or a topic (--topic)")
	case c.configFile.Config != "" || c.Brokers != nil || c.Group != "" || c.Listen != "":
		return errors.New("--config, --brokers, --group and --listen go with --topic")
	}
	window, err := c.window()
	if err == nil && window.chosen() && (c.Leverage || c.Model != "") {
		err = errors.New("--from, --to and --positions go neither with --model, which names a model, nor with --leverage, which the model of a window does not have")
	}
	return err
}

// stopsWithin has no limit for a topic, which has its own: shutdown_timeout.
func (c *predictCmd) stopsWithin() time.Duration {
	if c.Topic != "" {
		return forever
	}
	return interrupted
}

// top is the number of contributions to print.
func (c *predictCmd) top(m *incremental.Model) int {
	if c.Top > 0 {
		return c.Top
	}
	return len(m.Features)
}

func appendNumbers(line []byte, numbers []float64) []byte {
	for _, x := range numbers {
		line = strconv.AppendFloat(append(line, '\t'), x, 'g', -1, 64)
	}
	return line
}

func appendContribution(line []byte, rank int, feature string, x float64) []byte {
	if rank > 0 {
		line = append(line, ' ')
	}
	return fmt.Appendf(line, "%s=%+.6g", listing.OneLine(feature), x)
}

// ask makes the daemon predict, since only the daemon has the factors for leverages.
func (c *predictCmd) ask(ctx context.Context, s *surroundings, m *incremental.Model, features []string, rows wire.Table) error {
	daemon, err := c.client(s)
	if err != nil {
		return err
	}
	// The label is a column that the daemon ignores, unless a feature has its name.
	block := &incremental.Block{
		Features: features, Columns: rows.Columns, Classes: []string{"0"}, Codes: make([]int32, rows.Rows),
	}
	encoder := wire.NewEncoder(wire.Arrow)
	encoder.Missing = true
	body, err := encoder.Append(nil, block)
	if err != nil {
		return fmt.Errorf("predict %s: %w", c.File, err)
	}
	path := "/v1/predict?leverage=true&form=" + c.Form
	if c.Contributions {
		path += fmt.Sprintf("&contributions=true&top=%d", c.top(m))
	}
	var a predictions.PredictAnswer
	into := any(&a)
	if c.JSON {
		into = nil // the answer is printed as it comes
	}
	text, err := daemon.send(ctx, http.MethodPost, path, payload{contentType: wire.Arrow.ContentType(), body: body}, answerTimeout, into)
	if err != nil {
		return err
	}
	if c.JSON {
		return printAnswer(s.stdout, text)
	}
	if c.Probabilities && a.Probabilities == nil {
		return errors.New("the daemon's model has no probabilities any more")
	}
	out := bufio.NewWriter(s.stdout)
	for i, label := range a.Labels {
		line := []byte(listing.OneLine(label))
		if c.Values {
			line = appendNumbers(line, a.Values[i])
		}
		if c.Probabilities {
			line = appendNumbers(line, a.Probabilities[i])
		}
		if c.Contributions {
			for _, of := range a.Contributions.Rows[i] {
				line = append(line, '\t')
				for rank, feature := range c.order(m, of) {
					line = appendContribution(line, rank, feature, of[feature])
				}
			}
		}
		for matrix, h := range a.Leverage.Rows[i] {
			line = fmt.Appendf(line, "\t%.4g", h/a.Leverage.Typical[matrix])
		}
		out.Write(append(line, '\n')) // Flush has the error
	}
	return out.Flush()
}

// order lists the features of a row's contributions in the order of the answer.
func (c *predictCmd) order(m *incremental.Model, of map[string]float64) []string {
	features := make([]string, 0, len(of))
	for _, feature := range m.Features {
		if _, ok := of[feature]; ok {
			features = append(features, feature)
		}
	}
	if c.top(m) < len(m.Features) {
		slices.SortStableFunc(features, func(a, b string) int { return cmp.Compare(math.Abs(of[b]), math.Abs(of[a])) })
	}
	return features
}

func (c *predictCmd) model(ctx context.Context, s *surroundings) (*httpapi.ModelAnswer, error) {
	if c.Model != "" {
		m, err := savedModel(c.Model)
		if err != nil {
			return nil, fmt.Errorf("--model: %w", err)
		}
		return m, nil
	}
	var m httpapi.ModelAnswer
	daemon, err := c.client(s)
	if err != nil {
		return nil, err
	}
	window, err := c.window()
	if err != nil {
		return nil, err
	}
	_, err = daemon.call(ctx, http.MethodGet, withQuery("/v1/model", window.query()), answerTimeout+httpapi.MaxWait, &m)
	return &m, err
}

// savedModel reads a saved answer of GET /v1/model or report of fit --json.
func savedModel(path string) (*httpapi.ModelAnswer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Unwrap(err))
	}
	var m httpapi.ModelAnswer
	if err := unmarshalModel(text, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &m, nil
}

func unmarshalModel(text []byte, m *httpapi.ModelAnswer) error {
	if err := json.Unmarshal(text, m); err != nil {
		return fmt.Errorf("not a model in JSON: %w", err)
	}
	return nil
}

// rows reads the input as a whole.
func (c *predictCmd) rows(s *surroundings, options wire.Options) (wire.Table, error) {
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
	}
	text, err := readAll(in)
	if err != nil {
		return wire.Table{}, fmt.Errorf("read %s: %w", c.File, err)
	}
	if options.Format == 0 && !wire.HasOwnFormat(text) {
		return wire.Table{}, usagef("--format must name the format of standard input: csv, libsvm, json or arrow")
	}
	decoder, err := wire.NewDecoder(options)
	if err != nil {
		return wire.Table{}, err
	}
	rows, err := decoder.DecodeFile(text)
	if err != nil {
		return wire.Table{}, fmt.Errorf("read %s: %w", c.File, err)
	}
	s.warnOfDoubt(c.File, decoder.Doubt())
	return rows, nil
}

// readAll reads up to maxInput bytes, and unzips them if they are compressed.
func readAll(in io.Reader) ([]byte, error) {
	unzipped, err := wire.Unzipped(in)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(unzipped, maxInput+1))
	if err == nil && len(text) > maxInput {
		return nil, fmt.Errorf("it has more than %d bytes; cut it into pieces", maxInput)
	}
	return text, err
}
