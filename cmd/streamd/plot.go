package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
	"streamd/kernels/rules"
)

// plotCmd draws the regions of a classifier.
type plotCmd struct {
	Model string `arg:"" help:"A saved answer of GET /v1/model, or of fit --json, for two features."`
	Data  string `placeholder:"FILE" help:"File of rows to draw, too: 2000 at random if it has more. Planes in the features themselves need rows, to show where these are."`
	columnFlags
	Knowledge string `placeholder:"FILE" help:"Outline the sets of a file of rules, as of fit --knowledge."`
	Format    string `enum:"auto,arrow,json,csv,libsvm" default:"auto" help:"Format of data whose name does not end in one: ${enum}."`
	Out       string `short:"o" default:"regions.png" placeholder:"FILE" help:"Picture to write, a .png or .svg. Names in other letters than Latin, Greek and Cyrillic need an .svg. (default: ${default})"`
}

// mostDrawn is the number of rows in a picture. More cannot be told apart.
const mostDrawn = 2000

// Validate implements kong's interface.
func (c *plotCmd) Validate() error {
	if ext := filepath.Ext(c.Out); ext != ".png" && ext != ".svg" {
		return fmt.Errorf("--out %s: its name must end in .png or .svg", c.Out)
	}
	return nil
}

func (c *plotCmd) Run(ctx context.Context, s *surroundings) error {
	answer, err := savedModel(c.Model)
	if err != nil {
		return err
	}
	by, err := answer.Classifier()
	if err != nil {
		return fmt.Errorf("%s: %w", c.Model, err)
	}
	picture := plot.Regions{Classifier: by}
	if c.Data != "" {
		data, err := dataset.Open(c.Data, c.optionsFor(c.Format, by), s.watchRows)
		if err != nil {
			return err
		}
		rows, err := data.Sample(ctx, mostDrawn, 0, false)
		if err != nil {
			return err
		}
		picture.Rows = rows.Block
	}
	if c.Knowledge != "" {
		if picture.Sets, err = c.sets(ctx, by); err != nil {
			return err
		}
	}
	draw := picture.PNG
	if filepath.Ext(c.Out) == ".svg" {
		draw = picture.SVG
	}
	var drawn bytes.Buffer
	err = draw(&drawn)
	if errors.Is(err, plot.ErrNoRows) {
		err = fmt.Errorf("%w: name them with --data", err)
	}
	if err != nil {
		return fmt.Errorf("draw %s: %w", c.Model, err)
	}
	if err := os.WriteFile(c.Out, drawn.Bytes(), 0o666); err != nil {
		return fmt.Errorf("draw %s: %w", c.Model, err)
	}
	_, err = fmt.Fprintln(s.stdout, c.Out)
	return err
}

// sets returns the sets of the rules.
func (c *plotCmd) sets(ctx context.Context, by *model.Classifier) (sets []plot.Set, err error) {
	rules, err := rules.Load(c.Knowledge)
	if err != nil {
		return nil, err
	}
	bound, err := rules.Bind(ctx, by.Features, by.Model.Classes)
	if err != nil {
		return nil, err
	}
	for i := range bound {
		sets = append(sets, plot.NewSet(&bound[i].Set, by.Model.Classes))
	}
	return sets, nil
}
