//go:build !production

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"streamd/cmd/streamd/bench"
	"streamd/cmd/streamd/reproduce"
)

// reproduceCmd puts the papers' tables beside our own results.
type reproduceCmd struct {
	Tables  []string `arg:"" name:"table" help:"Tables to compute, as listed above."`
	Data    string   `default:"../shared/data" placeholder:"DIR" help:"Folder of the data sets. fung-2.4, fig-2.7, fig-2.8, fig-2.11, fig-3.3, fig-5.1, spiral, checkerboard, xor and checkerboard-knowledge make their own data."`
	Check   bool     `help:"Fail when a figure is farther from the paper's, or from a known difference, than its tolerance and what chance allows, or a file is missing from the folder. Sets that are no longer offered, such as Galaxy Dim, are named and are no failure."`
	Seed    uint64   `default:"1" help:"First seed of the divisions into folds, of made points and of random starts."`
	Seeds   *int     `placeholder:"N" help:"Number of seeds. Figures are means over them, with their standard error. By default as many as take less than a minute on a core: 10 for most tables."`
	SVG     string   `name:"svg" placeholder:"FILE" help:"Draw the picture of a table that has one: fig-2.7, fig-2.8, fig-2.11, fig-3.3, fig-4.4, fig-5.1, spiral, checkerboard, xor, checkerboard-knowledge."`
	DayRows int      `default:"1000000" help:"Points of a day of fig-2.7."`
	reproduceKafka
	jsonFlag

	tables, drawn []*reproduce.Table
}

// Help lists the tables; kong shows it.
func (*reproduceCmd) Help() string {
	var b strings.Builder
	b.WriteString("The tables are")
	for _, t := range reproduce.Tables() {
		fmt.Fprintf(&b, "\n\n%s: %s", t.Name, t.Title)
	}
	b.WriteString("\n\nThe data sets are not part of streamd. A file of the folder is gzipped CSV without a header, the label first. " +
		"The originals are at")
	for _, line := range reproduce.Sources() {
		b.WriteString("\n\n" + line)
	}
	return b.String()
}

// Validate implements kong's interface.
func (c *reproduceCmd) Validate() error {
	const maxSeeds = 1000
	if c.Seeds != nil && (*c.Seeds < 1 || *c.Seeds > maxSeeds) {
		return fmt.Errorf("--seeds %d: must be 1 to %d", *c.Seeds, maxSeeds)
	}
	if err := bench.Within("day-rows", 1000, 10_000_000, c.DayRows); err != nil {
		return err
	}
	if err := c.check(c.Tables); err != nil {
		return err
	}
	c.tables, c.drawn = nil, nil
	for _, name := range c.Tables {
		t, err := reproduce.Find(name)
		if err != nil {
			return err
		}
		if slices.Contains(c.tables, t) {
			return fmt.Errorf("table %s is named twice", name)
		}
		c.tables = append(c.tables, t)
		if c.Check {
			if err := t.Checkable(given(c.Seeds, 0)); err != nil {
				return fmt.Errorf("--seeds: %w", err)
			}
		}
		if t.Drawn() {
			c.drawn = append(c.drawn, t)
		}
	}
	if c.SVG != "" && len(c.drawn) != 1 {
		return fmt.Errorf("--svg: %d of these tables have a picture; name one that has", len(c.drawn))
	}
	return nil
}

func (c *reproduceCmd) Run(ctx context.Context, s *surroundings) error {
	config := reproduce.Config{Data: c.Data, Seed: c.Seed, Seeds: given(c.Seeds, 0), DayRows: c.DayRows, Windows: c.windows(s)}
	report := reproduce.Report{Seed: c.Seed}
	var off []string
	for _, t := range c.tables {
		config.Progress = func(dataSet string) {
			line := t.Name + ": " + dataSet
			if isTerminal(s.stderr) {
				fmt.Fprint(s.stderr, eraseLine+line)
			} else {
				fmt.Fprintln(s.stderr, line)
			}
		}
		results, err := t.Run(ctx, &config)
		if isTerminal(s.stderr) {
			fmt.Fprint(s.stderr, eraseLine)
		}
		if err != nil {
			return err
		}
		report.Results = append(report.Results, results...)
		for i := range results {
			if fault := results[i].Fault(); fault != "" {
				off = append(off, fault)
			}
		}
		if !c.JSON {
			if err := report.Print(s.stdout, t); err != nil {
				return err
			}
		}
	}
	if c.JSON {
		if err := printJSON(s.stdout, report); err != nil {
			return err
		}
	}
	if c.SVG != "" {
		if err := c.draw(ctx, &config); err != nil {
			return err
		}
	}
	if c.Check && off != nil {
		return fmt.Errorf("not as published:\n%s", strings.Join(off, "\n"))
	}
	return nil
}

func (c *reproduceCmd) draw(ctx context.Context, config *reproduce.Config) error {
	var b bytes.Buffer // a failure leaves no file
	if err := c.drawn[0].Draw(ctx, &b, config); err != nil {
		return err
	}
	return os.WriteFile(c.SVG, b.Bytes(), 0o644)
}
