package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"streamd/cmd/streamd/listing"
	"streamd/ingest/kafka"
)

type lettersShowCmd struct {
	ID  letterID `arg:"" help:"The letter, as listed."`
	Out string   `short:"o" placeholder:"FILE" help:"Write the raw value to a file, or with - to standard output and nothing else there."`
	Hex bool     `help:"Show the value in hexadecimal."`
	lettersFlags
}

// letterReport is the report of show. Key, value and headers' values are in base64.
type letterReport struct {
	letter
	Connector      string         `json:"connector"`
	Key            []byte         `json:"key"`          // null if there is none, or the letter lacks it
	Value          []byte         `json:"value"`        // null if there is none, or the letter lacks it
	ValueSHA256    string         `json:"value_sha256"` // hash of a value that the letter lacks
	Headers        []letterHeader `json:"headers"`
	OmittedHeaders int64          `json:"omitted_headers"`
}

type letterHeader struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

func (c *lettersShowCmd) Run(ctx context.Context, s *surroundings) error {
	d, err := c.open(s)
	if err != nil {
		return err
	}
	defer d.close()
	found := false
	others, err := d.read(ctx, []kafka.Range{c.ID.asRange()}, func(id letterID, r *kafka.Record, l *kafka.DeadLetter) error {
		found = true
		return c.print(s, letterOf(id, r.Time, l), r, l)
	})
	switch {
	case err != nil:
		return err
	case others > 0:
		return fmt.Errorf("record %s of %s is no dead letter", c.ID, d.topic)
	case !found:
		return fmt.Errorf("there is no record %s in %s; streamd letters list shows those that there are", c.ID, d.topic)
	}
	return nil
}

func (c *lettersShowCmd) print(s *surroundings, listed letter, r *kafka.Record, l *kafka.DeadLetter) error {
	if c.Out != "" {
		if l.OmittedValue != nil || l.Last != l.Offset {
			return fmt.Errorf("the letter does not have the value; the record is %s", listed.source())
		}
		if c.Out == "-" {
			_, err := s.stdout.Write(l.Value)
			return err
		}
		if err := os.WriteFile(c.Out, l.Value, 0o600); err != nil {
			return err
		}
	}
	if c.JSON {
		report := letterReport{letter: listed, Connector: l.Connector, Key: l.Key, Value: l.Value, Headers: []letterHeader{}, OmittedHeaders: l.OmittedHeaders}
		if o := l.OmittedValue; o != nil {
			report.ValueSHA256 = hex.EncodeToString(o.SHA256[:])
		}
		for _, h := range r.Headers {
			report.Headers = append(report.Headers, letterHeader{h.Key, h.Value})
		}
		return printJSON(s.stdout, report)
	}
	t := newTable(s.stdout)
	t.row("letter", listed.ID.String())
	t.row("written", listed.WrittenAt.Local().Format(time.DateTime))
	t.row("record", listed.source())
	if listed.Time != nil {
		t.row("its time", listed.Time.Local().Format(time.DateTime))
	}
	t.row("reason", listed.Reason+" ("+listed.Stage+")")
	t.row("message", listed.Message)
	for _, h := range r.Headers {
		t.row("header", h.Key, content(h.Value, nil, shownText))
	}
	if l.OmittedHeaders > 0 {
		t.row("headers", fmt.Sprintf("%d more, not in the letter", l.OmittedHeaders))
	}
	t.row("key", content(l.Key, l.OmittedKey, shownText))
	if err := t.flush(); err != nil || c.Out != "" {
		return err
	}
	show := shownText
	if c.Hex {
		show = hex.Dump
	}
	_, err := fmt.Fprintf(s.stdout, "value (%s)\n%s\n", counted(listed.Bytes, "byte"), strings.TrimSuffix(content(l.Value, l.OmittedValue, show), "\n"))
	return err
}

// mostShown bounds the shown bytes of a key, a header or a value.
const mostShown = 4096

// content shows a key or a value that the letter may lack.
func content(data []byte, omitted *kafka.Omitted, show func([]byte) string) string {
	switch {
	case omitted != nil:
		return fmt.Sprintf("not in the letter: %d bytes with SHA-256 %x", omitted.Size, omitted.SHA256)
	case data == nil:
		return "none"
	case len(data) > mostShown:
		return fmt.Sprintf("%s\n… and %d bytes more", show(data[:mostShown]), len(data)-mostShown)
	}
	return show(data)
}

// shownText is data as lines of text. Others have chosen the data, so control characters are
// escaped.
func shownText(data []byte) string {
	if !utf8.Valid(data) {
		return fmt.Sprintf("%q", data)
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = listing.OneLine(lines[i])
	}
	return strings.Join(lines, "\n")
}
