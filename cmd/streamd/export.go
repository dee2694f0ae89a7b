package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"streamd/cmd/streamd/export"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
)

// exportCmd writes a model down for other runtimes.
type exportCmd struct {
	Model   string   `arg:"" optional:"" help:"A saved answer of GET /v1/model, or of fit --json. Without one the daemon is asked."`
	ONNX    string   `name:"onnx" placeholder:"FILE" help:"Write a graph of ONNX: standard operators of opset 17 on doubles."`
	SQL     bool     `name:"sql" help:"Print SQL: the label as an expression over the columns, or with --table a statement."`
	Table   []string `sep:"." placeholder:"NAME" help:"With --sql: print a statement that selects the label, the values and the probabilities of a table's rows. Its name may be SCHEMA.TABLE."`
	Keep    []string `placeholder:"COLUMN,..." help:"With --table: columns of the table to select, too."`
	C       string   `name:"c" placeholder:"FILE" help:"Write a file of C99 that needs nothing else."`
	Sklearn string   `name:"sklearn" placeholder:"FILE" help:"Write the JSON from which streamd.Classifier.load of the Python package predicts, without this program."`
	MLflow  string   `name:"mlflow" placeholder:"DIR" help:"Make a folder of MLflow, with the graph of ONNX and the signature."`
	windowFlags
	daemonFlags
}

// Validate implements kong's interface.
func (c *exportCmd) Validate() error {
	switch {
	case c.ONNX == "" && !c.SQL && c.C == "" && c.Sklearn == "" && c.MLflow == "":
		return errors.New("say what to write: --onnx, --sql, --c, --sklearn or --mlflow")
	case c.Table != nil && !c.SQL:
		return errors.New("--table goes with --sql")
	case c.Keep != nil && c.Table == nil:
		return errors.New("--keep goes with --table")
	case c.Model != "" && c.chosen():
		return errors.New("--from, --to and --positions choose a model of the daemon: leave out the file")
	}
	return c.check()
}

func (c *exportCmd) Run(ctx context.Context, s *surroundings) error {
	answer, err := c.model(ctx, s)
	if err != nil {
		return err
	}
	by, err := answer.Classifier()
	if err != nil {
		return err
	}
	p, err := export.New(by, answer.Fingerprint)
	if err != nil {
		return fmt.Errorf("the model cannot be exported: %w", err)
	}
	var wrote []string
	if c.Sklearn != "" {
		// The threshold of a rule is that of the model, also where the record lacks it.
		answer.Decision = model.NewDecisionJSON(by.DecidesBy(), len(answer.Classes), "")
		text, err := json.Marshal(answer)
		if err == nil {
			err = os.WriteFile(c.Sklearn, append(text, '\n'), 0o666)
		}
		if err != nil {
			return fmt.Errorf("--sklearn: %w", err)
		}
		wrote = append(wrote, c.Sklearn)
	}
	if c.ONNX != "" {
		if err := os.WriteFile(c.ONNX, p.ONNX(export.Tensors), 0o666); err != nil {
			return fmt.Errorf("--onnx: %w", err)
		}
		wrote = append(wrote, c.ONNX)
	}
	if c.C != "" {
		text, err := p.C()
		if err == nil {
			err = os.WriteFile(c.C, text, 0o666)
		}
		if err != nil {
			return fmt.Errorf("--c: %w", err)
		}
		wrote = append(wrote, c.C)
	}
	if c.MLflow != "" {
		if err := p.MLflow(c.MLflow); err != nil {
			return fmt.Errorf("--mlflow: %w", err)
		}
		wrote = append(wrote, c.MLflow)
	}
	if c.SQL {
		text, err := c.statement(p)
		if err != nil {
			return fmt.Errorf("--sql: %w", err)
		}
		wrote = []string{text} // alone, so that a program can take it
	}
	return printLines(s, wrote)
}

// statement is the expression, or with --table the statement.
func (c *exportCmd) statement(p *export.Program) (string, error) {
	if c.Table != nil {
		return p.Select(c.Table, c.Keep)
	}
	text, err := p.Expression()
	if errors.Is(err, export.ErrLong) {
		err = fmt.Errorf("%w: name the table with --table", err)
	}
	return text, err
}

func (c *exportCmd) model(ctx context.Context, s *surroundings) (*httpapi.ModelAnswer, error) {
	if c.Model != "" {
		return savedModel(c.Model)
	}
	daemon, err := c.client(s)
	if err != nil {
		return nil, err
	}
	var m httpapi.ModelAnswer
	_, err = daemon.call(ctx, http.MethodGet, withQuery("/v1/model", c.query()), answerTimeout+httpapi.MaxWait, &m)
	return &m, err
}

// printLines prints texts, each with the end of a line.
func printLines(s *surroundings, lines []string) error {
	_, err := fmt.Fprintln(s.stdout, strings.Join(lines, "\n"))
	return err
}
