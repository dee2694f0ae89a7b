package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// controlCmd reads and writes the control topic.
type controlCmd struct {
	List    controlListCmd    `cmd:"" help:"List the selectors that are in force, and the records that cannot be read."`
	Retire  controlRetireCmd  `cmd:"" help:"Put a selector in force: its blocks stay retired, in every replica and when the log is read again."`
	Restore controlRestoreCmd `cmd:"" help:"Take a selector back: blocks that no other one chooses are read from the log again."`
}

// controlFlags name the control topic.
type controlFlags struct {
	configFile
	Brokers []string `placeholder:"HOST:PORT" help:"Addresses of the cluster. The default is kafka.brokers of the configuration."`
	Topic   string   `placeholder:"NAME" help:"Control topic. The default is retire.topic of the configuration."`
	jsonFlag
}

// controlTopic is a control topic and its contents.
type controlTopic struct {
	*control.Listing
	cluster kafka.Cluster
	name    string
	header  string // retire.header
	log     zerolog.Logger
}

// open reads the topic. Faults for which daemons refuse it are printed.
func (f *controlFlags) open(ctx context.Context, s *surroundings) (*controlTopic, error) {
	given := map[string]string{}
	if len(f.Brokers) > 0 {
		given["kafka.brokers"] = strings.Join(f.Brokers, ",")
	}
	if f.Topic != "" {
		given["retire.topic"] = f.Topic
	}
	cfg, err := f.loadFrom(s, config.Sources{Flags: given, NoTopic: true}, map[string]string{"--kafka.brokers": "--brokers", "--retire.topic": "--topic"})
	if err != nil {
		return nil, err
	}
	if cfg.Retire.Topic == "" {
		return nil, usagef("there is no control topic: name it with --topic, or as retire.topic of the configuration")
	}
	t := &controlTopic{name: cfg.Retire.Topic, header: cfg.Retire.Header, log: consoleLog(s.stderr)}
	if t.cluster, err = settings.Cluster(cfg.Kafka, consoleLog(s.stderr)); err != nil {
		return nil, usageError{err}
	}
	if t.Listing, err = control.List(ctx, t.cluster, t.name, int(cfg.Kafka.MaxMessageBytes), t.log); err != nil {
		return nil, err
	}
	for _, warning := range t.Warnings {
		fmt.Fprintln(s.stderr, "warning: "+warning)
	}
	return t, nil
}

// write writes a record of a name to some partitions. A value of nil is a tombstone.
func (t *controlTopic) write(ctx context.Context, name string, value []byte, partitions []int) error {
	var records []control.Record
	for _, partition := range partitions {
		records = append(records, control.Record{Partition: partition, Key: []byte(name), Value: value})
	}
	return control.Write(ctx, t.cluster, t.name, records, t.log)
}

// controlReport is the report of list.
type controlReport struct {
	Topic     string            `json:"topic"`
	Selectors []controlSelector `json:"selectors"` // in force
	Bases     []controlBasis    `json:"bases"`
	Bad       []badControl      `json:"bad"`
}

type controlSelector struct {
	Name      string           `json:"name"`
	Partition int              `json:"partition"`
	Offset    int64            `json:"offset"`
	Time      time.Time        `json:"time"` // of the record
	Retire    *retire.Selector `json:"retire"`
}

// controlBasis is the basis of a model's replicas.
type controlBasis struct {
	Model  string `json:"model"`
	Parts  int    `json:"parts"`  // 0: it is not whole
	Bytes  int    `json:"bytes"`  // of all parts
	Reason string `json:"reason"` // why it is not whole; "": it is
}

// badControl is a record that cannot be read: the latest one of its name, or one without a name.
type badControl struct {
	Name      string `json:"name"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Records   int64  `json:"records"`
	Reason    string `json:"reason"`
}

type controlListCmd struct {
	controlFlags
}

func (c *controlListCmd) Run(ctx context.Context, s *surroundings) error {
	topic, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	report := controlReport{Topic: topic.name, Selectors: []controlSelector{}, Bases: []controlBasis{}, Bad: []badControl{}}
	for i := range topic.InForce {
		in := &topic.InForce[i]
		report.Selectors = append(report.Selectors, controlSelector{in.Name, in.Partition, in.Offset, in.Time.UTC(), &in.Selector})
	}
	for _, b := range topic.Bases {
		report.Bases = append(report.Bases, controlBasis{b.Model, b.Parts, len(b.Content), b.Fault})
	}
	for _, bad := range topic.Bad {
		report.Bad = append(report.Bad, badControl{bad.Name, bad.Partition, bad.Offset, bad.Records, bad.Reason.Error()})
	}
	if c.JSON {
		return printJSON(s.stdout, report)
	}
	t := newTable(s.stdout)
	t.row("NAME", "WRITTEN", "RECORD", "RETIRES")
	for _, in := range report.Selectors {
		text, err := json.Marshal(in.Retire)
		if err != nil {
			return err
		}
		t.row(printable(in.Name), in.Time.Local().Format(time.DateTime), fmt.Sprintf("%s/%d/%d", topic.name, in.Partition, in.Offset), string(text))
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, b := range report.Bases {
		text := fmt.Sprintf("it has %s in %s", counted(b.Bytes, "byte"), counted(b.Parts, "part"))
		if b.Reason != "" {
			text = "it is not whole, and changes nothing: " + b.Reason
		}
		fmt.Fprintf(s.stderr, "the topic has a basis of the model %s: %s\n", printable(b.Model), text)
	}
	for _, bad := range report.Bad {
		what := counted(bad.Records, "record")
		if bad.Name != "" {
			what = "the latest record of " + printable(bad.Name)
		}
		fmt.Fprintf(s.stderr, "%s at %s/%d/%d cannot be read, and changes nothing: %s\n", what, topic.name, bad.Partition, bad.Offset, bad.Reason)
	}
	return nil
}

// printable is a name as it is, or quoted if a terminal could not show it.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.TrimSpace(name) != name || name == "" {
		return quoted
	}
	return name
}

// controlName is the name of a selector.
type controlName struct {
	Name string `arg:"" help:"Name of the selector: the key of its record."`
}

func (c *controlName) check() error {
	switch {
	case c.Name == "":
		return errors.New("the name is empty")
	case control.IsBasisKey(c.Name):
		return errors.New("names that begin with basis/ are those of the parts of bases")
	}
	return nil
}

// writtenReport is the report of retire and restore.
type writtenReport struct {
	Topic      string           `json:"topic"`
	Name       string           `json:"name"`
	Partitions []int            `json:"partitions"`       // that the record was written to
	Retire     *retire.Selector `json:"retire,omitempty"` // in force now; absent: none
	Before     *retire.Selector `json:"before,omitempty"` // in force before
}

type controlRetireCmd struct {
	controlName
	selectorFlags
	controlFlags
}

// Help is called by kong.
func (c *controlRetireCmd) Help() string {
	return "Every daemon with this control topic retires the blocks that the flags choose, also those that come later, until the name is restored. " +
		"Another selector of the same name takes the place of the former one. streamd retire --dry-run with the same flags shows which blocks of a daemon it chooses now."
}

// Validate implements kong's interface.
func (c *controlRetireCmd) Validate() error {
	return errors.Join(c.controlName.check(), c.selectorFlags.check())
}

func (c *controlRetireCmd) Run(ctx context.Context, s *surroundings) error {
	chosen, err := c.selector(s)
	if err != nil {
		return err
	}
	topic, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	value, err := control.Value(chosen, topic.header)
	if err != nil {
		return err
	}
	report := writtenReport{Topic: topic.name, Name: c.Name, Retire: chosen}
	return c.put(ctx, s, topic, value, &report)
}

// put writes a record to the partitions of its name, or to the first one.
func (f *controlFlags) put(ctx context.Context, s *surroundings, topic *controlTopic, value []byte, report *writtenReport) error {
	if report.Partitions, report.Before = topic.Named(report.Name); report.Partitions == nil {
		report.Partitions = []int{0}
	}
	if err := topic.write(ctx, report.Name, value, report.Partitions); err != nil {
		return err
	}
	if f.JSON {
		return printJSON(s.stdout, report)
	}
	t := newTable(s.stdout)
	t.row("topic", topic.name)
	before := "in place of"
	if report.Retire == nil {
		before = "takes back"
	}
	for _, part := range []struct {
		does string
		of   *retire.Selector
	}{{"retires", report.Retire}, {before, report.Before}} {
		if part.of == nil {
			continue
		}
		text, err := json.Marshal(part.of)
		if err != nil {
			return err
		}
		t.row(part.does, string(text))
	}
	return t.flush()
}

type controlRestoreCmd struct {
	controlName
	controlFlags
}

// Validate implements kong's interface.
func (c *controlRestoreCmd) Validate() error { return c.check() }

func (c *controlRestoreCmd) Run(ctx context.Context, s *surroundings) error {
	topic, err := c.open(ctx, s)
	if err != nil {
		return err
	}
	if partitions, _ := topic.Named(c.Name); partitions == nil {
		return fmt.Errorf("no selector of the name %s is in force; streamd control list shows those that are", printable(c.Name))
	}
	// A tombstone takes a selector back, and compaction leaves nothing of its name.
	return c.put(ctx, s, topic, nil, &writtenReport{Topic: topic.name, Name: c.Name})
}
