package main

import (
	"cmp"
	"errors"
	"fmt"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/listing"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
	"streamd/kernels/rules/document"
)

// columnFlags name the columns of a file.
type columnFlags struct {
	Label       string       `default:"label" placeholder:"NAME" help:"Column or field of the labels: its name, first, last, or its number from 1. Without a header, CSV has them in the first column by default. LIBSVM always has them first."`
	LabelSuffix string       `placeholder:"TEXT" help:"Text that is taken off the end of labels, such as the full stop of yes. in some files."`
	Weight      string       `placeholder:"NAME" help:"Column or field with the weights of the rows. Without it every row has weight 1."`
	Ignore      namePatterns `placeholder:"NAME,..." help:"Columns to pass over, of any type: names or patterns such as id or *_at. Columns without names are x1, x2, and so on."`
	csvFlags
}

func (f *columnFlags) options(format string) wire.Options {
	o := wire.Options{Format: formatOf(format), Label: f.Label, LabelSuffix: f.LabelSuffix, Weight: f.Weight, Ignore: f.Ignore}
	o.Limits.Pages, o.Limits.Classes = mostPage(), classesOfFile
	f.csvFlags.choose(&o)
	return o
}

// classesOfFile bounds the classes of a file.
const classesOfFile = 10_000

// mostPage bounds a page of Parquet by the memory: a file's pages are as large as its writer
// likes, but those of DuckDB have 100 MB.
func mostPage() int {
	const least = 64 << 20
	limit, err := memory.Limit(new(config.Config))
	if err != nil {
		return least
	}
	return int(max(least, limit/4))
}

// csvFlags say how a CSV file is written. They have the values of the configuration's format.csv_*.
type csvFlags struct {
	CSVHeader    string              `name:"csv-header" enum:"auto,present,absent" default:"auto" help:"Whether CSV begins with a line of column names: ${enum}. With auto it does where that line has the label's name, or texts and no numbers."`
	CSVComment   commentText         `name:"csv-comment" placeholder:"TEXT" help:"Start of lines of CSV that are passed over, such as #."`
	CSVDecimal   config.CSVDecimal   `name:"csv-decimal" enum:"point,comma" default:"point" help:"Mark before the decimals of numbers in CSV: ${enum}."`
	CSVThousands config.CSVThousands `name:"csv-thousands" enum:"none,comma,point,blank,apostrophe" default:"none" help:"Mark between the thousands of numbers in CSV: ${enum}."`
}

// choose puts the flags, which have been checked, into options.
func (f *csvFlags) choose(o *wire.Options) {
	o.Comment = string(f.CSVComment)
	o.Header, _ = wire.ParseHeader(cmp.Or(f.CSVHeader, "auto"))
	o.Numbers, _ = config.Format{CSVDecimal: f.CSVDecimal, CSVThousands: cmp.Or(f.CSVThousands, config.CSVThousandsNone)}.Notation()
}

// commentText is the start of comments.
type commentText string

// Validate is called by kong.
func (c commentText) Validate() error { return wire.CheckComment(string(c)) }

// namePatterns are patterns of names of columns.
type namePatterns []string

// Validate is called by kong.
func (p namePatterns) Validate() error {
	for _, pattern := range p {
		if err := wire.CheckPattern(pattern); err != nil {
			return err
		}
	}
	return nil
}

// missingFlags choose the treatment of missing values.
type missingFlags struct {
	Missing         config.Missing            `enum:"reject,zero,mean,indicator" default:"reject" help:"Missing values: refuse the file, or count them as 0, as the mean of the rows learned from, or as 0 with a feature that marks them."`
	MissingFeatures map[string]config.Missing `mapsep:"," placeholder:"A=mean,B=zero" help:"Features whose missing values are treated otherwise than by --missing."`
}

func (f *missingFlags) treatment() (wire.Missing, error) {
	for name, text := range f.MissingFeatures {
		if _, err := wire.ParseMissing(string(text)); err != nil {
			return wire.Missing{}, usagef("--missing-features %s: %w", name, err)
		}
	}
	return model.MissingOf(config.Format{Missing: f.Missing, MissingFeatures: f.MissingFeatures}), nil
}

// unlabelledFlags choose the treatment of rows without a label.
type unlabelledFlags struct {
	Unlabelled     config.Unlabelled `enum:"reject,keep" default:"reject" help:"Rows without a label: refuse the file, or keep them. Kept rows count in the rows and the digest, but only --refine unlabelled learns from them, and no accuracy counts them."`
	UnlabelledText string            `placeholder:"TEXT" help:"Label that means a row has none, such as ? or -1. An empty label always does."`
}

// choose puts the treatment into options.
func (f *unlabelledFlags) choose(o *wire.Options) error {
	o.KeepUnlabelled, o.UnlabelledText = f.Unlabelled == config.UnlabelledKeep, f.UnlabelledText
	if err := wire.CheckUnlabelledText(f.UnlabelledText); err != nil {
		return usagef("--unlabelled-text: %w", err)
	}
	return nil
}

// featureFlags choose the features to learn from a file.
type featureFlags struct {
	columnFlags
	Features []string `placeholder:"NAME,..." help:"Features to learn from, in this order. All other columns are ignored. By default every column is a feature that is not to be ignored."`
}

func (f *featureFlags) options(format string) wire.Options {
	o := f.columnFlags.options(format)
	if len(f.Features) > 0 {
		o.Features, o.IgnoreUnknown = f.Features, true
	}
	return o
}

// schemaFlags name the schema of the features.
type schemaFlags struct {
	Schema schemaFile `placeholder:"FILE" help:"Schema of the features, in YAML: what is made of which column. It is that of format.schema in the configuration. Without it, numbers, booleans and times are features as they are, and texts are refused. It takes the place of --features and --missing. auto: what streamd schema infer proposes for the file."`
}

// choose puts the schema into options, if there is one. With auto it is made for the file.
func (f *schemaFlags) choose(s *surroundings, file string, o *wire.Options) error {
	if f.Schema.auto {
		const rows = 20_000 // as streamd schema infer
		p, err := s.inferred(file, *o, rows)
		if err != nil {
			return err
		}
		if f.Schema.of, err = schema.Parse([]byte(p.Text())); err != nil {
			return fmt.Errorf("the schema that is proposed for %s: %w", file, err)
		}
	}
	if s := f.Schema.of; s != nil {
		o.Schema, o.Missing, o.IgnoreUnknown = s, wire.Missing{Features: s.Missing()}, true
	}
	return nil
}

// advised adds to an error about a file with texts what makes features of them.
func (f *schemaFlags) advised(err error, file, label string) error {
	if e, ok := errors.AsType[*wire.Error](err); ok && e.HasTexts() && f.Schema.of == nil {
		if label != defaultLabel {
			file += " --label " + label
		}
		return fmt.Errorf("%w; a schema makes features of texts: streamd schema infer %s proposes one, and --schema auto takes it as it is", err, file)
	}
	return err
}

const defaultLabel = "label" // of the flag

// schemaFile is a schema that a flag names the file of.
type schemaFile struct {
	of   *schema.Schema
	auto bool
}

// UnmarshalText reads the file. It is called by kong.
func (f *schemaFile) UnmarshalText(path []byte) error {
	if f.auto = string(path) == "auto"; f.auto {
		return nil
	}
	text, err := document.ReadFile(string(path), document.MaxFile)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if f.of, err = schema.Parse(text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// optionsFor is options for rows of a model, which may have other columns, too.
func (f *columnFlags) optionsFor(format string, by *model.Classifier) wire.Options {
	o := f.options(format)
	o.Features, o.Missing, o.IgnoreUnknown = by.Features, by.Missing, true
	if by.Schema != nil {
		o.Schema = by.Schema
	}
	o.Limits.Features = dataset.MostFeatures
	return o
}

// formatOf is the format that a flag names. It is 0 for auto.
func formatOf(name string) wire.Format {
	if name == "auto" {
		return 0
	}
	format, err := wire.ParseFormat(name)
	if err != nil {
		panic(err) // the flag's enum has checked it
	}
	return format
}

// warnOf warns of a file that could mean something else, and of columns that look like identifiers.
func (s *surroundings) warnOf(d *dataset.Dataset) error {
	s.warnOfDoubt(d.Path, d.Doubt)
	identifiers, err := d.Identifiers()
	const mostNamed = 20
	for _, name := range identifiers[:min(len(identifiers), mostNamed)] {
		fmt.Fprintf(s.stderr, "streamd: warning: column %q has integers that are all different, as an identifier has; --ignore %s leaves it out\n", name, listing.OneLine(name))
	}
	return err
}

// warnOfDoubt says how a file is taken that could mean something else.
func (s *surroundings) warnOfDoubt(path, doubt string) {
	if doubt != "" {
		fmt.Fprintf(s.stderr, "streamd: warning: %s: %s\n", path, listing.OneLine(doubt))
	}
}
