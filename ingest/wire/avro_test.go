package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"streamd/incremental"
	"streamd/ingest/registry"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

// schemas are those of a registry that is always there.
type schemas map[uint32]*registry.Schema

func (s schemas) Get(id uint32) (*registry.Schema, error) {
	if found := s[id]; found != nil {
		return found, nil
	}
	return nil, &registry.BadIDError{ID: id, Reason: "the schema registry does not know it"}
}

func frame(id byte, payload []byte) []byte { return append([]byte{0, 0, 0, 0, id}, payload...) }

// rowSchema has a field of each kind that is learned from, and others that are ignored.
const rowSchema = `{"type":"record","name":"Row","namespace":"a.b","fields":[
	{"name":"label","type":{"type":"enum","name":"Answer","symbols":["no","yes"]}},
	{"name":"i","type":"int"},
	{"name":"skipped","type":{"type":"map","values":{"type":"array","items":"string"}}},
	{"name":"l","type":["null","long"]},
	{"name":"f","type":"float"},
	{"name":"d","type":"double"},
	{"name":"b","type":"boolean"},
	{"name":"s","type":"string"},
	{"name":"dec","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":3}},
	{"name":"day","type":{"type":"int","logicalType":"date"}},
	{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},
	{"name":"inner","type":{"type":"record","name":"Inner","fields":[
		{"name":"x","type":"double"},{"name":"again","type":["null","Inner"]},{"name":"code","type":{"type":"fixed","name":"F","size":2}}]}},
	{"name":"emb","type":{"type":"array","items":["null","float"]}},
	{"name":"more","type":["null","Inner"]}]}`

// avroRows makes rows for rowSchema, and the same rows in JSON.
func avroRows(r *rand.Rand, m int) (rows []map[string]any, text []byte) {
	for range m {
		inner := func() map[string]any {
			var again any
			if r.IntN(3) == 0 {
				again = map[string]any{"x": 1.0, "again": nil, "code": []byte("zz")}
			}
			return map[string]any{"x": float64(r.IntN(1000)) / 8, "again": again, "code": []byte(fmt.Sprint(10 + r.IntN(90)))}
		}
		row := map[string]any{
			"label": []string{"no", "yes"}[r.IntN(2)], "i": int32(r.Int32() - r.Int32()), "l": nil, "f": float32(r.NormFloat64()), "d": r.NormFloat64(),
			"b": r.IntN(2) == 0, "s": fmt.Sprintf("%.3f", r.NormFloat64()), "day": int32(r.IntN(40000) - 10000), "at": nil,
			"inner": inner(), "emb": []any{float32(r.Float32()), nil, float32(2)}, "more": nil,
			"skipped": map[string]any{"k": []string{"v", "w"}, "": []string{}},
		}
		if r.IntN(2) == 0 {
			row["l"] = r.Int64() - r.Int64()
		}
		if r.IntN(2) == 0 {
			row["at"] = r.Int64N(1 << 52)
		}
		if r.IntN(2) == 0 {
			row["more"] = inner()
		}
		cents := r.Int64() >> r.IntN(60)
		if r.IntN(2) == 0 {
			cents = -cents
		}
		var integer []byte
		for n := cents; ; n >>= 8 {
			integer = append([]byte{byte(n)}, integer...)
			if n>>7 == 0 || n>>7 == -1 {
				break
			}
		}
		row["dec"] = integer
		rows = append(rows, row)
		at := "null"
		if us, ok := row["at"].(int64); ok {
			at = fmt.Sprintf("%q", microseconds(us))
		}
		l, _ := json.Marshal(row["l"])
		in := func(name string, v any) string {
			of, ok := v.(map[string]any)
			if !ok {
				return fmt.Sprintf(`%q:null,%q:null`, name+".x", name+".code")
			}
			return fmt.Sprintf(`%q:%v,%q:"%s"`, name+".x", of["x"], name+".code", of["code"])
		}
		text = fmt.Appendf(text, `{"label":%q,"i":%d,"l":%s,"f":%v,"d":%v,"b":%v,"s":%q,"dec":"%s","day":%q,"at":%s,%s,"emb":[%v,null,2],%s}`+"\n",
			row["label"], row["i"], l, float64(row["f"].(float32)), row["d"], row["b"], row["s"], decimal(cents, 3), day(row["day"].(int32)), at,
			in("inner", row["inner"]), float64(row["emb"].([]any)[0].(float32)), in("more", row["more"]))
	}
	return rows, text
}

// TestAvroAgainstJSON: the same rows are one block as JSON, as messages, in an array and in files
// of all codecs, framed and not. The messages are written by another implementation.
func TestAvroAgainstJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 2))
	all := avro.MustParse(rowSchema)
	array := `{"type":"array","items":` + rowSchema + `}`
	of := schemas{1: {ID: 1, Kind: registry.Avro, Text: rowSchema}, 2: {ID: 2, Kind: registry.Avro, Text: array}}
	for _, opts := range []wire.Options{
		{Missing: wire.Missing{Default: wire.MissingZero}},
		{Missing: wire.Missing{Default: wire.MissingIndicator}},
		{Missing: wire.Missing{Default: wire.MissingZero}, Features: []string{"inner.x", "emb[0]", "i", "at", "b", "dec"}, IgnoreUnknown: true},
	} {
		opts.Ignore = []string{"skipped", "*.again"}
		framed, bare, plain := opts, opts, newDecoder(t, opts)
		framed.Schemas = of
		bare.Written = of[1]
		framedDecoder, bareDecoder := newDecoder(t, framed), newDecoder(t, bare)
		for trial := range 30 {
			m := 1 + r.IntN(40)
			if trial == 0 {
				m = 1
			}
			rows, text := avroRows(r, m)
			want, err := plain.Decode(wire.JSON.ContentType(), text)
			if err != nil {
				t.Fatal(err)
			}
			check := func(name string, got *incremental.Block, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				requireSame(t, got, want)
				if fmt.Sprint(got.Features) != fmt.Sprint(want.Features) {
					t.Fatalf("%s: features %q, want %q", name, got.Features, want.Features)
				}
			}
			payload, err := avro.MustParse(array).Encode(rows)
			if err != nil {
				t.Fatal(err)
			}
			b, err := framedDecoder.Decode("", frame(2, payload))
			check("array", b, err)
			for _, codec := range []ocf.WriterOpt{nil, ocf.WithCodec(ocf.DeflateCodec(6)), ocf.WithCodec(ocf.SnappyCodec()), ocf.WithCodec(ocf.MustZstdCodec(nil, nil))} {
				b, err = bareDecoder.Decode("", fileOf(t, all, rows, codec))
				check("file", b, err)
			}
			if m == 1 {
				payload, err := all.Encode(rows[0])
				if err != nil {
					t.Fatal(err)
				}
				b, err = framedDecoder.Decode("application/avro", frame(1, payload))
				check("framed", b, err)
				b, err = bareDecoder.Decode("avro/binary", payload)
				check("bare", b, err)
				object, err := all.AppendSingleObject(nil, rows[0])
				if err != nil {
					t.Fatal(err)
				}
				b, err = bareDecoder.Decode("application/vnd.apache.avro+binary", object)
				check("single object", b, err)
			}
		}
	}
}

func fileOf(t testing.TB, s *avro.Schema, rows []map[string]any, opt ocf.WriterOpt) []byte {
	t.Helper()
	var out bytes.Buffer
	opts := []ocf.WriterOpt{ocf.WithBlockCount(7)}
	if opt != nil {
		opts = append(opts, opt)
	}
	w, err := ocf.NewWriter(&out, s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if err := w.Encode(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A schema of features makes the same of Avro as of JSON.
func TestAvroWithSchema(t *testing.T) {
	made, err := schema.Parse([]byte(`{
		code: {kind: category, from: inner.code, values: ["11", "22", "33"], other: true},
		more: {kind: category, from: more.code, values: ["12", "23"], other: true, missing: own},
		s: {kind: hash, bits: 3}, i: number, at: {kind: time, parts: [hour, month], missing: indicator}, b: bool, nowhere: {kind: number, missing: zero}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(37, 3))
	plain := newDecoder(t, wire.Options{Schema: made, IgnoreUnknown: true})
	files := newDecoder(t, wire.Options{Schema: made, IgnoreUnknown: true})
	for range 20 {
		rows, text := avroRows(r, 1+r.IntN(50))
		want, err := plain.Decode(wire.JSON.ContentType(), text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := files.Decode("", fileOf(t, avro.MustParse(rowSchema), rows, nil))
		if err != nil {
			t.Fatal(err)
		}
		requireSame(t, got, want)
	}
}

// TestAvroErrors: what cannot be learned from is refused, with the column and what would help.
func TestAvroErrors(t *testing.T) {
	record := func(fields string) string {
		return `{"type":"record","name":"R","fields":[{"name":"label","type":"string"}` + fields + `]}`
	}
	label := "\x02a" // the text a
	for _, c := range []struct {
		name, schema, payload string
		opts                  wire.Options
		column, want          string
	}{
		{"a map", record(`,{"name":"m","type":{"type":"map","values":"int"}}`), label, wire.Options{}, "m", "it is a map"},
		{"a recursive record", record(`,{"name":"r","type":["null","R"]}`), label, wire.Options{}, "r", "within itself"},
		{"records in an array", record(`,{"name":"a","type":{"type":"array","items":"R"}}`), label, wire.Options{}, "a", "ignore it"},
		{"several records", record(`,{"name":"u","type":["int","R"]}`), label, wire.Options{}, "u", "union of several types"},
		{"a time of day", record(`,{"name":"t","type":{"type":"int","logicalType":"time-millis"}}`), label, wire.Options{}, "t", "time of day"},
		{"no record", `"string"`, label, wire.Options{}, "", "a row is a record"},
		{"no label", record(``), label, wire.Options{Label: "class"}, "class", "format.label"},
		{"no features", record(``), label, wire.Options{}, "", "no features"},
		{"an unknown column", record(`,{"name":"x","type":"int"},{"name":"y","type":"int"}`), label, wire.Options{Features: []string{"x"}}, "y", "unknown"},
		{"a missing column", record(`,{"name":"x","type":"int"}`), label, wire.Options{Features: []string{"x", "y"}}, "y", "the feature is missing"},
		{"a text", record(`,{"name":"x","type":"string"}`), label + "\x06red", wire.Options{}, "x", "is not a number"},
		{"a null", record(`,{"name":"x","type":["null","int"]}`), label + "\x00", wire.Options{}, "x", "null"},
		{"NaN", record(`,{"name":"x","type":"float"}`), label + "\x00\x00\xc0\x7f", wire.Options{}, "x", "NaN"},
		{"infinite", record(`,{"name":"x","type":"float"}`), label + "\x00\x00\x80\x7f", wire.Options{Missing: wire.Missing{Default: wire.MissingZero}}, "x", "+Inf"},
		{"no branch", record(`,{"name":"x","type":["null","int"]}`), label + "\x04", wire.Options{}, "x", "no branch 2"},
		{"no symbol", record(`,{"name":"x","type":{"type":"enum","name":"E","symbols":["1"]}}`), label + "\x02", wire.Options{}, "x", "no symbol 1"},
		{"cut", record(`,{"name":"x","type":"double"}`), label + "\x00", wire.Options{}, "", "the data ends"},
		{"a long string", record(`,{"name":"x","type":"string"}`), label + "\xfe\xff\xff\xff\xff\x7f", wire.Options{}, "", "the data ends"},
		{"a negative string", record(`,{"name":"x","type":"string"}`), label + "\x01", wire.Options{}, "", "the data ends"},
		{"something behind", record(`,{"name":"x","type":"int"}`), label + "\x00\x00", wire.Options{}, "", "1 bytes behind"},
		{"many nulls", record(`,{"name":"x","type":"int"},{"name":"n","type":{"type":"array","items":"null"}}`), label + "\x00\xfe\xff\xff\xff\xff\x7f", wire.Options{Ignore: []string{"n"}}, "", "more values than"},
		{"many rows of nothing", `{"type":"array","items":{"type":"record","name":"R","fields":[{"name":"label","type":"null"}]}}`, "\xfe\xff\xff\xff\xff\x7f", wire.Options{KeepUnlabelled: true}, "", "no features"},
		{"many rows of null", `{"type":"array","items":{"type":"record","name":"R","fields":[{"name":"label","type":"null"},{"name":"x","type":"null"}]}}`, "\xfe\xff\xff\xff\xff\x7f", wire.Options{KeepUnlabelled: true, Missing: wire.Missing{Default: wire.MissingZero}}, "", "more values than its bytes"},
		{"a deep value", record(`,{"name":"x","type":"int"},{"name":"r","type":["null",{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}]}`), label + "\x00" + strings.Repeat("\x02", 10000) + "\x00", wire.Options{Ignore: []string{"r"}}, "", "nested too deeply"},
		{"two lengths", `{"type":"array","items":` + record(`,{"name":"e","type":{"type":"array","items":"int"}}`) + `}`, "\x04" + label + "\x02\x00\x00" + label + "\x04\x00\x00\x00\x00", wire.Options{}, "e", "more than 1 elements"},
		{"a shorter list", `{"type":"array","items":` + record(`,{"name":"e","type":{"type":"array","items":"int"}}`) + `}`, "\x04" + label + "\x04\x00\x00\x00" + label + "\x02\x00\x00\x00", wire.Options{}, "e[1]", "the feature is missing"},
		{"an empty list", record(`,{"name":"e","type":{"type":"array","items":"int"}}`), label + "\x00", wire.Options{}, "e", "empty"},
		{"no schema", `{"type":"record"}`, label, wire.Options{}, "", "its schema cannot be used"},
		{"a deep schema", strings.Repeat(`{"type":"array","items":`, 20000), label, wire.Options{}, "", "its schema cannot be used"},
		{"many fields", record(manyFields(9000)), label, wire.Options{}, "", "more than 4098 columns"},
		{"doubled records", doubled(20), label, wire.Options{}, "", "more than 4098 columns"},
		{"deep records", doubled(40), label, wire.Options{}, "", "more than 32 deep"},
		{"doubled records of nothing", strings.Replace(doubled(25), `{"name":"a","type":"int"}`, "", 1), label, wire.Options{}, "", "more than 4098 columns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Schemas = schemas{1: {ID: 1, Kind: registry.Avro, Text: c.schema}}
			d := newDecoder(t, c.opts)
			for range 2 { // the second time the plan is kept
				_, err := d.Decode("", frame(1, []byte(c.payload)))
				bad, ok := err.(*wire.Error)
				if !ok || bad.Column != c.column || !strings.Contains(bad.Reason, c.want) || bad.Format != wire.Avro {
					t.Fatalf("got %v, want column %q: %s", err, c.column, c.want)
				}
			}
		})
	}
}

func manyFields(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, `,{"name":"f%d","type":"int"}`, i)
	}
	return s.String()
}

// doubled is a schema of 2^n columns.
func doubled(n int) string {
	s := `{"type":"record","name":"r0","fields":[{"name":"a","type":"int"}]}`
	for i := 1; i < n; i++ {
		s = fmt.Sprintf(`{"type":"record","name":"r%d","fields":[{"name":"a","type":%s},{"name":"b","type":"r%d"}]}`, i, s, i-1)
	}
	return s
}

// TestAvroWithoutSchema: the refusal names the key that would help.
func TestAvroWithoutSchema(t *testing.T) {
	for _, c := range []struct {
		contentType, payload string
		opts                 wire.Options
		want                 string
	}{
		{"application/avro", "\x02a\x00", wire.Options{}, "format.schema_file"},
		{"", "\x00\x00\x00\x00\x07\x02a", wire.Options{Format: wire.Avro}, "format.registry.url"},
		{"application/avro", "\xc3\x0112345678a", wire.Options{Written: &registry.Schema{Kind: registry.Avro, Text: rowSchema}}, "not that of format.schema_file"},
		{"application/avro", "\x00\x00\x00\x00\x07\x02a", wire.Options{Written: &registry.Schema{Kind: registry.Avro, Text: rowSchema}}, "format.registry.url"},
		{"application/json", "\x00\x00\x00\x00\x01\x02a", wire.Options{Schemas: schemas{1: {ID: 1, Kind: registry.Avro, Text: rowSchema}}}, "is not that of schema id 1"},
		{"", "\x00\x00\x00\x00\x02\x02a", wire.Options{Schemas: schemas{}}, "does not know it"},
		{"", "\x00\x00\x00\x00\x02", wire.Options{Schemas: schemas{2: {ID: 2, Kind: registry.JSON}}}, "nothing behind the frame"},
		{"", "Obj\x01", wire.Options{}, "head of the file is cut off"},
	} {
		_, err := newDecoder(t, c.opts).Decode(c.contentType, []byte(c.payload))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.payload, err, c.want)
		}
	}
}

// Files that are changed or cut anywhere are refused, or read as a block that agrees with itself.
func TestAvroCorrupted(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 4))
	rows, _ := avroRows(r, 30)
	opts := wire.Options{Limits: fuzzLimits, Missing: wire.Missing{Default: wire.MissingZero}, Ignore: []string{"skipped", "*.again"}}
	for _, codec := range []ocf.WriterOpt{nil, ocf.WithCodec(ocf.DeflateCodec(6)), ocf.WithCodec(ocf.SnappyCodec()), ocf.WithCodec(ocf.MustZstdCodec(nil, nil))} {
		whole := fileOf(t, avro.MustParse(rowSchema), rows, codec)
		d := newDecoder(t, opts)
		if _, err := d.Decode("", whole); err != nil {
			t.Fatal(err)
		}
		for i := 4; i < len(whole); i += 7 {
			corrupt := bytes.Clone(whole)
			corrupt[i] ^= byte(1 + r.IntN(255))
			for _, b := range [][]byte{corrupt, whole[:i]} {
				if block, err := d.Decode("", b); err == nil {
					requireConsistent(t, block, false)
				}
			}
		}
	}
}

func FuzzAvro(f *testing.F) {
	rows, _ := avroRows(rand.New(rand.NewPCG(37, 5)), 3)
	all := avro.MustParse(rowSchema)
	payload, err := all.Encode(rows[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(rowSchema, payload)
	f.Add(rowSchema, fileOf(f, all, rows, ocf.WithCodec(ocf.SnappyCodec())))
	f.Add(`{"type":"array","items":{"type":"record","name":"R","fields":[{"name":"label","type":"null"},{"name":"features","type":{"type":"array","items":"float"}}]}}`, []byte("\x02\x00\x02\x00\x00\x00\x00\x00"))
	f.Add(doubled(5), []byte("\x02\x00"))
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		s := &registry.Schema{ID: 1, Kind: registry.Avro, Text: text}
		for _, opts := range []wire.Options{{}, {Label: "i", Features: []string{"d", "emb[0]", "emb[1]"}, IgnoreUnknown: true}} {
			opts.Schemas, opts.Written, opts.Limits = schemas{1: s}, s, wideLimits
			opts.Missing, opts.KeepUnlabelled, opts.Ignore = wire.Missing{Default: wire.MissingIndicator}, true, []string{"skipped", "*.again"}
			d := newDecoder(t, opts)
			for _, b := range [][]byte{frame(1, payload), payload} {
				if block, err := d.Decode("application/avro", b); err == nil {
					requireConsistent(t, block, true)
				}
				d.DecodeUnlabelled("application/avro", b)
			}
		}
	})
}

// adultSchema are rows like those of UCI Adult: 14 columns, 8 of them texts.
func adultSchema() (text string, row func(r *rand.Rand) map[string]any) {
	texts := []string{"workclass", "education", "marital", "occupation", "relationship", "race", "sex", "country"}
	numbers := []string{"age", "fnlwgt", "education_num", "gain", "loss", "hours"}
	text = `{"type":"record","name":"Adult","fields":[{"name":"label","type":"string"}`
	for _, name := range texts {
		text += fmt.Sprintf(`,{"name":%q,"type":["null","string"]}`, name)
	}
	for _, name := range numbers {
		text += fmt.Sprintf(`,{"name":%q,"type":"long"}`, name)
	}
	return text + "]}", func(r *rand.Rand) map[string]any {
		row := map[string]any{"label": []string{"<=50K", ">50K"}[r.IntN(2)]}
		for _, name := range texts {
			row[name] = fmt.Sprintf("%s-%d", name, r.IntN(9))
		}
		for _, name := range numbers {
			row[name] = int64(r.IntN(100000))
		}
		return row
	}
}

// BenchmarkAvro reads rows like Adult's, one a message and many in a file, through a schema of
// features.
func BenchmarkAvro(b *testing.B) {
	text, row := adultSchema()
	r := rand.New(rand.NewPCG(37, 6))
	var rows []map[string]any
	for range 4096 {
		rows = append(rows, row(r))
	}
	all := avro.MustParse(text)
	var features strings.Builder
	features.WriteString("{")
	for _, f := range all.Root().Fields[1:] {
		if f.Type.Type == "long" {
			fmt.Fprintf(&features, "%s: number, ", f.Name)
			continue
		}
		var values []string
		for i := range 8 {
			values = append(values, fmt.Sprintf("%s-%d", f.Name, i))
		}
		fmt.Fprintf(&features, "%s: {kind: category, values: [%s], other: true, missing: own}, ", f.Name, strings.Join(values, ", "))
	}
	made, err := schema.Parse([]byte(strings.TrimSuffix(features.String(), ", ") + "}"))
	if err != nil {
		b.Fatal(err)
	}
	opts := wire.Options{Schema: made, Schemas: schemas{1: {ID: 1, Kind: registry.Avro, Text: text}}}
	var messages [][]byte
	for _, row := range rows {
		payload, err := all.Encode(row)
		if err != nil {
			b.Fatal(err)
		}
		messages = append(messages, frame(1, payload))
	}
	for name, payloads := range map[string][][]byte{"message": messages, "file": {fileOf(b, all, rows, nil)}, "deflate": {fileOf(b, all, rows, ocf.WithCodec(ocf.DeflateCodec(6)))}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				d, err := wire.NewDecoder(opts)
				if err != nil {
					b.Error(err)
					return
				}
				for i := 0; p.Next(); i++ {
					if _, err := d.Decode("", payloads[i%len(payloads)]); err != nil {
						b.Error(err)
						return
					}
				}
			})
			n := float64(b.N) * float64(len(rows)) / float64(len(payloads))
			b.ReportMetric(n/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func microseconds(us int64) string {
	return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.999999Z")
}

func day(n int32) string { return time.Unix(int64(n)*86400, 0).UTC().Format(time.DateOnly) }

// decimal writes an integer with so many digits behind the point.
func decimal(n int64, scale int) string {
	return new(big.Rat).SetFrac64(n, int64(math.Pow10(scale))).FloatString(scale)
}

// wideLimits are fuzzLimits for rows of all kinds of values.
var wideLimits = wire.Limits{Bytes: 1 << 16, Rows: 100, Features: 100, Classes: 10}
