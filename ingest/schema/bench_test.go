package schema

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/incremental"
	"streamd/ingest/registry"
	"streamd/ingest/wire"
)

// census are the columns of texts of the UCI Adult data, and how many values each has. Beside them
// the data has six columns of whole numbers.
var census = []struct {
	name   string
	values int
}{{"workclass", 8}, {"education", 16}, {"marital", 7}, {"occupation", 14}, {"relationship", 6}, {"race", 5}, {"sex", 2}, {"country", 41}}

var censusNumbers = []string{"age", "weight", "years", "gain", "loss", "hours"}

// BenchmarkCensus decodes blocks of 10,000 rows with the columns of the UCI Adult data by a schema,
// and sums them.
func BenchmarkCensus(b *testing.B) {
	const m = 10_000
	var text strings.Builder
	for _, c := range census {
		var values []string
		for i := range c.values {
			values = append(values, fmt.Sprintf("%s-%d", c.name, i))
		}
		fmt.Fprintf(&text, "%s: {kind: category, values: [%s], other: true, missing: own}\n", c.name, strings.Join(values, ", "))
	}
	for _, name := range censusNumbers {
		fmt.Fprintf(&text, "%s: number\n", name)
	}
	s, err := Parse([]byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name, contentType string
		payload           []byte
	}{
		{"arrow-dictionary", wire.Arrow.ContentType(), censusArrow(b, m, true)},
		{"arrow", wire.Arrow.ContentType(), censusArrow(b, m, false)},
		{"json", "application/json", censusText(m, true)},
		{"csv", "text/csv; header=present", censusText(m, false)},
		{"avro", wire.Avro.ContentType(), censusAvro(m)},
	} {
		for _, sum := range []bool{false, true} {
			name := c.name + "/decode"
			if sum {
				name = c.name + "/sum"
			}
			b.Run(name, func(b *testing.B) {
				d, err := wire.NewDecoder(wire.Options{Schema: s, Label: "income", Written: &registry.Schema{Kind: registry.Avro, Text: censusSchema()}})
				if err != nil {
					b.Fatal(err)
				}
				var z incremental.Summariser
				b.ReportAllocs()
				for b.Loop() {
					block, err := d.Decode(c.contentType, c.payload)
					if err == nil && sum {
						_, err = z.Summarise(block)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/m, "ns/row")
			})
		}
	}
}

// censusRows calls row for each of m rows: indices of texts, numbers, and the class.
func censusRows(m int, row func(texts []int, numbers []int64, rich bool)) {
	r := rand.New(rand.NewPCG(37, 3))
	texts, numbers := make([]int, len(census)), make([]int64, len(censusNumbers))
	for range m {
		for j, c := range census {
			texts[j] = r.IntN(1 + r.IntN(c.values))
		}
		for j := range numbers {
			numbers[j] = r.Int64N(100)
		}
		numbers[1] = r.Int64N(1_000_000)
		row(texts, numbers, r.IntN(4) == 0)
	}
}

func censusText(m int, inJSON bool) []byte {
	var out bytes.Buffer
	if !inJSON {
		for _, c := range census {
			out.WriteString(c.name + ",")
		}
		out.WriteString(strings.Join(censusNumbers, ",") + ",income\n")
	}
	censusRows(m, func(texts []int, numbers []int64, rich bool) {
		label := map[bool]string{false: "<=50K", true: ">50K"}[rich]
		if !inJSON {
			for j, c := range census {
				fmt.Fprintf(&out, "%s-%d,", c.name, texts[j])
			}
			for _, x := range numbers {
				fmt.Fprintf(&out, "%d,", x)
			}
			out.WriteString(label + "\n")
			return
		}
		out.WriteByte('{')
		for j, c := range census {
			fmt.Fprintf(&out, `"%s":"%s-%d",`, c.name, c.name, texts[j])
		}
		for j, x := range numbers {
			fmt.Fprintf(&out, `"%s":%d,`, censusNumbers[j], x)
		}
		fmt.Fprintf(&out, `"income":"%s"}`+"\n", label)
	})
	return out.Bytes()
}

// censusSchema is that of an array of records of Avro.
func censusSchema() string {
	var fields []string
	for _, c := range census {
		fields = append(fields, fmt.Sprintf(`{"name":%q,"type":"string"}`, c.name))
	}
	for _, name := range censusNumbers {
		fields = append(fields, fmt.Sprintf(`{"name":%q,"type":"long"}`, name))
	}
	return `{"type":"array","items":{"type":"record","name":"Row","fields":[` + strings.Join(fields, ",") + `,{"name":"income","type":"string"}]}}`
}

func censusAvro(m int) []byte {
	out := binary.AppendVarint(nil, int64(m))
	put := func(text string) { out = append(binary.AppendVarint(out, int64(len(text))), text...) }
	censusRows(m, func(texts []int, numbers []int64, rich bool) {
		for j, c := range census {
			put(fmt.Sprintf("%s-%d", c.name, texts[j]))
		}
		for _, x := range numbers {
			out = binary.AppendVarint(out, x)
		}
		put(map[bool]string{false: "<=50K", true: ">50K"}[rich])
	})
	return append(out, 0)
}

func censusArrow(b *testing.B, m int, encoded bool) []byte {
	b.Helper()
	typ := arrow.DataType(arrow.BinaryTypes.String)
	if encoded {
		typ = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	}
	var fields []arrow.Field
	for _, c := range census {
		fields = append(fields, arrow.Field{Name: c.name, Type: typ})
	}
	for _, name := range censusNumbers {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
	}
	fields = append(fields, arrow.Field{Name: "income", Type: typ})
	schema := arrow.NewSchema(fields, nil)
	batch := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	appendText := func(column int, text string) {
		var err error
		switch to := batch.Field(column).(type) {
		case *array.StringBuilder:
			to.Append(text)
		case *array.BinaryDictionaryBuilder:
			err = to.AppendString(text)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	censusRows(m, func(texts []int, numbers []int64, rich bool) {
		for j, c := range census {
			appendText(j, fmt.Sprintf("%s-%d", c.name, texts[j]))
		}
		for j, x := range numbers {
			batch.Field(len(census) + j).(*array.Int64Builder).Append(x)
		}
		appendText(len(fields)-1, map[bool]string{false: "<=50K", true: ">50K"}[rich])
	})
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(batch.NewRecordBatch()), w.Close()); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}
