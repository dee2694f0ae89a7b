package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

// Census measures rows with texts: eight categories and six numbers, as the UCI Adult data has
// them, of which a schema makes 121 columns. A daemon reads a topic of them, against a drain (see
// Ingest), and one goroutine decodes them and sums them without a topic.
type Census struct {
	Total     int64    `name:"rows" default:"6000000" help:"Rows in the topic, all at random."`
	Format    []string `default:"arrow,avro" enum:"arrow,text,json,csv,avro" help:"Format of the messages: ${enum}. Arrow has dictionaries, text is Arrow without."`
	BlockRows int      `default:"10000" help:"Rows of a message. With 1, 10,000 messages are a block."`
	Through
	Repeats
}

// censusMessages is the number of messages that are decoded without a topic.
const censusMessages = 20

// offsetsPerBlock is the size of a block where messages are rows.
const offsetsPerBlock = 10_000

// Check implements Benchmark.
func (c Census) Check() error {
	return cmp.Or(Within("rows", 1, 1<<40, c.Total), Within("block-rows", 1, 1<<20, c.BlockRows), c.Through.Check(), c.Repeats.check())
}

// Measure implements Benchmark.
func (c Census) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, time.Second, len(c.Format))
	for _, name := range c.Format {
		if err := c.with(ctx, func(t *topic) error { return c.measure(ctx, run, t, name) }); err != nil {
			return err
		}
	}
	return nil
}

func (c Census) measure(ctx context.Context, run *Run, t *topic, name string) error {
	format := censusFormats[name]
	var payloads [][]byte
	message := func(i int64) (payload []byte, err error) { // equal ones would have the same sample
		if payload, err = format.encode(censusRows(uint64(i), c.BlockRows)); err == nil && i < censusMessages {
			payloads = append(payloads, payload)
		}
		return payload, err
	}
	reading := &reading{topic: t, log: run.Log}
	var err error
	if reading.learns, err = c.settings(t.dir); err != nil {
		return err
	}
	if reading.written, err = c.fill(ctx, run, t, format.contentType, message); err != nil {
		return err
	}
	sides := []side{{"daemon", reading.learn}, {"drain", reading.drain}}
	if c.BlockRows > 1 { // the sums of one row say nothing
		sides = append(sides, parallel("decode and sum", 1, func(int) work { return c.sums(format.contentType, payloads) }))
	}
	r := Result{Benchmark: "census", Parameters: []Parameter{
		{"format", name}, {"rows", c.Total}, {"block_rows", c.BlockRows}, {"partitions", t.partitions}, {"broker", t.kind()},
	}}
	return run.measure(ctx, r, sides, func(r *Result, samples [][]Sample) {
		r.addRows()
		r.add("drain_rows_per_second", func(i int) float64 { return samples[1][i].rowsPerSecond() })
		if len(sides) > 2 {
			r.add("sums_ns_per_row", func(i int) float64 { return samples[2][i].nsPerRow() })
		}
		r.set("bytes_per_row", float64(reading.written.Bytes)/float64(reading.written.Rows))
		r.Details = []Parameter{{"state_digest", reading.digest}}
	})
}

// fill writes the messages to the topic until it has all rows.
func (c Census) fill(ctx context.Context, run *Run, t *topic, contentType string, message func(i int64) ([]byte, error)) (all replayed, err error) {
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: t.cluster, Topic: t.name}, run.Log)
	if err != nil {
		return all, err
	}
	defer p.Close()
	headers := []kafka.Header{{Key: "content-type", Value: []byte(contentType)}}
	for ; all.Rows < c.Total; all.Blocks++ {
		payload, err := message(all.Blocks)
		if err != nil {
			return all, err
		}
		if err := p.Write(ctx, int(all.Blocks)%t.partitions, nil, payload, headers, time.Time{}); err != nil {
			return all, err
		}
		all.Rows += int64(c.BlockRows)
		all.Bytes += int64(len(payload))
	}
	return all, p.Flush(ctx)
}

// sums decodes and sums the messages one after the other.
func (c Census) sums(contentType string, payloads [][]byte) work {
	d, err := c.decoder()
	var z incremental.Summariser
	next := 0
	return func() (int64, error) {
		if err != nil {
			return 0, err
		}
		b, err := d.Decode(contentType, payloads[next%len(payloads)])
		if err == nil {
			_, err = z.Summarise(b)
		}
		next++
		return int64(c.BlockRows), err
	}
}

// censusTexts are the columns of texts of the UCI Adult data, and how many values each has.
var censusTexts = []struct {
	name   string
	values int
}{{"workclass", 8}, {"education", 16}, {"marital", 7}, {"occupation", 14}, {"relationship", 6}, {"race", 5}, {"sex", 2}, {"country", 41}}

var censusNumbers = []string{"age", "weight", "years", "gain", "loss", "hours"}

func censusText(column, value int) string {
	return fmt.Sprintf("%s-%d", censusTexts[column].name, value)
}

// censusSchema is the schema of features, in YAML.
func censusSchema() string {
	var text strings.Builder
	for j, c := range censusTexts {
		var values []string
		for i := range c.values {
			values = append(values, censusText(j, i))
		}
		fmt.Fprintf(&text, "%s: {kind: category, values: [%s], other: true, missing: own}\n", c.name, strings.Join(values, ", "))
	}
	for _, name := range censusNumbers {
		fmt.Fprintf(&text, "%s: number\n", name)
	}
	return text.String()
}

// schema is Avro's schema of a message: a record, or an array of records.
func (c Census) schema() string {
	var fields []string
	for _, c := range censusTexts {
		fields = append(fields, fmt.Sprintf(`{"name":%q,"type":"string"}`, c.name))
	}
	for _, name := range censusNumbers {
		fields = append(fields, fmt.Sprintf(`{"name":%q,"type":"long"}`, name))
	}
	row := `{"type":"record","name":"Row","fields":[` + strings.Join(fields, ",") + `,{"name":"income","type":"string"}]}`
	if c.BlockRows == 1 {
		return row
	}
	return `{"type":"array","items":` + row + `}`
}

// settings are a daemon's settings of the rows. Their schemas are in dir.
func (c Census) settings(dir string) (map[string]string, error) {
	features, messages := filepath.Join(dir, "features.yaml"), filepath.Join(dir, "rows.avsc")
	settings := map[string]string{"format.schema": features, "format.schema_file": messages, "format.label": "income"}
	if c.BlockRows == 1 {
		settings["blocks.unit"], settings["blocks.offsets"] = "offsets", strconv.Itoa(offsetsPerBlock)
	}
	return settings, errors.Join(
		os.WriteFile(features, []byte(censusSchema()), 0o600), os.WriteFile(messages, []byte(c.schema()), 0o600))
}

func (c Census) decoder() (*wire.Decoder, error) {
	s, err := schema.Parse([]byte(censusSchema()))
	if err != nil {
		return nil, err
	}
	return wire.NewDecoder(wire.Options{
		Schema: s, Label: "income", Written: &registry.Schema{Kind: registry.Avro, Text: c.schema()},
	})
}

// censusRow is a row: the numbers of its texts, the numbers, and the class.
type censusRow struct {
	texts   []int
	numbers []int64
	income  string
}

// censusRows makes rows at random. Small values of a text are the more frequent ones.
func censusRows(seed uint64, rows int) []censusRow {
	r := rand.New(rand.NewPCG(37, seed))
	all := make([]censusRow, rows)
	for i := range all {
		row := censusRow{income: "<=50K"}
		for _, c := range censusTexts {
			row.texts = append(row.texts, r.IntN(1+r.IntN(c.values)))
		}
		for range censusNumbers {
			row.numbers = append(row.numbers, r.Int64N(100))
		}
		row.numbers[1] = r.Int64N(1_000_000)
		if r.IntN(4) == 0 {
			row.income = ">50K"
		}
		all[i] = row
	}
	return all
}

// censusFormats are the ways to write a message.
var censusFormats = map[string]struct {
	contentType string
	encode      func(rows []censusRow) ([]byte, error)
}{
	"arrow": {wire.Arrow.ContentType(), func(rows []censusRow) ([]byte, error) { return encodeCensusArrow(rows, true) }},
	"text":  {wire.Arrow.ContentType(), func(rows []censusRow) ([]byte, error) { return encodeCensusArrow(rows, false) }},
	"json":  {wire.JSON.ContentType(), encodeCensusJSON},
	"csv":   {wire.CSV.ContentType() + "; header=present", encodeCensusCSV},
	"avro":  {wire.Avro.ContentType(), encodeCensusAvro},
}

func encodeCensusJSON(rows []censusRow) ([]byte, error) {
	var out bytes.Buffer
	for _, row := range rows {
		out.WriteByte('{')
		for j, v := range row.texts {
			fmt.Fprintf(&out, "%q:%q,", censusTexts[j].name, censusText(j, v))
		}
		for j, x := range row.numbers {
			fmt.Fprintf(&out, "%q:%d,", censusNumbers[j], x)
		}
		fmt.Fprintf(&out, "\"income\":%q}\n", row.income)
	}
	return out.Bytes(), nil
}

func encodeCensusCSV(rows []censusRow) ([]byte, error) {
	var out bytes.Buffer
	for _, c := range censusTexts {
		out.WriteString(c.name + ",")
	}
	out.WriteString(strings.Join(censusNumbers, ",") + ",income\n")
	for _, row := range rows {
		for j, v := range row.texts {
			out.WriteString(censusText(j, v) + ",")
		}
		for _, x := range row.numbers {
			fmt.Fprintf(&out, "%d,", x)
		}
		out.WriteString(row.income + "\n")
	}
	return out.Bytes(), nil
}

func encodeCensusAvro(rows []censusRow) ([]byte, error) {
	var out []byte
	if len(rows) > 1 { // an array
		out = binary.AppendVarint(out, int64(len(rows)))
	}
	put := func(text string) { out = append(binary.AppendVarint(out, int64(len(text))), text...) }
	for _, row := range rows {
		for j, v := range row.texts {
			put(censusText(j, v))
		}
		for _, x := range row.numbers {
			out = binary.AppendVarint(out, x)
		}
		put(row.income)
	}
	if len(rows) > 1 {
		out = append(out, 0)
	}
	return out, nil
}

func encodeCensusArrow(rows []censusRow, dictionaries bool) ([]byte, error) {
	text := arrow.DataType(arrow.BinaryTypes.String)
	if dictionaries {
		text = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	}
	var fields []arrow.Field
	for _, c := range censusTexts {
		fields = append(fields, arrow.Field{Name: c.name, Type: text})
	}
	for _, name := range censusNumbers {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
	}
	fields = append(fields, arrow.Field{Name: "income", Type: text})
	of := arrow.NewSchema(fields, nil)
	batch := array.NewRecordBuilder(memory.DefaultAllocator, of)
	put := func(column int, text string) error {
		switch to := batch.Field(column).(type) {
		case *array.BinaryDictionaryBuilder:
			return to.AppendString(text)
		case *array.StringBuilder:
			to.Append(text)
		}
		return nil
	}
	for _, row := range rows {
		for j, v := range row.texts {
			if err := put(j, censusText(j, v)); err != nil {
				return nil, err
			}
		}
		for j, x := range row.numbers {
			batch.Field(len(row.texts) + j).(*array.Int64Builder).Append(x)
		}
		if err := put(len(fields)-1, row.income); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(of))
	err := errors.Join(w.Write(batch.NewRecordBatch()), w.Close())
	return out.Bytes(), err
}
