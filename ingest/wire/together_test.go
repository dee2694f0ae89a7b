package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/twmb/avro"

	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

// Rows that are decoded together are those that are decoded one by one. Payloads of which one has a
// fault, or not one row, are not taken together.
func TestRowsTogetherAreRowsAlone(t *testing.T) {
	made, err := schema.Parse([]byte(`{c: {kind: category, values: [a, b], other: true, missing: own}, x: number, y: {kind: number, missing: indicator}, d: {kind: category, values: ["1", "2"], missing: own}}`))
	if err != nil {
		t.Fatal(err)
	}
	const record = `{"type":"record","name":"R","fields":[{"name":"label","type":["null","string"]},{"name":"w","type":"double"},` +
		`{"name":"c","type":["null","string"]},{"name":"x","type":"double"},{"name":"y","type":["null","double"]},{"name":"d","type":["null","string"]}]}`
	codec := avro.MustParse(record)
	known := schemas{7: {ID: 7, Kind: registry.Avro, Text: record}, 8: {ID: 8, Kind: registry.JSON, Text: `{"type":"object"}`}}
	text := func(r *rand.Rand, of ...string) any {
		if i := r.IntN(len(of) + 1); i < len(of) {
			return of[i]
		}
		return nil
	}
	row := func(r *rand.Rand) map[string]any {
		y := any(nil)
		if r.IntN(3) > 0 {
			y = float64(r.IntN(9))
		}
		return map[string]any{
			"label": text(r, "p", "q", "r"), "w": float64(r.IntN(3)), "x": r.NormFloat64(), "y": y,
			"c": text(r, "a", "b", "z"), "d": text(r, "1", "2"),
		}
	}
	inJSON := func(v map[string]any) []byte {
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	inAvro := func(v map[string]any) []byte {
		out, err := codec.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, c := range map[string]struct {
		contentType string
		options     wire.Options
		encode      func(map[string]any) []byte
		bad         [][]byte // which are no single rows
	}{
		"JSON": {wire.JSON.ContentType(), wire.Options{Schema: made}, inJSON, [][]byte{
			[]byte(`{"label":"p"`), []byte(`[{"label":"p","w":1,"x":1}]`), nil, []byte("7"), []byte(`{"label":"p","w":1,"x":"one","d":"1"}`),
			append(append(inJSON(row(rand.New(rand.NewPCG(1, 1)))), '\n'), inJSON(row(rand.New(rand.NewPCG(1, 2))))...),
		}},
		"JSON of numbers": {"", wire.Options{Format: wire.JSON, Features: []string{"x", "w2"}}, func(v map[string]any) []byte {
			return fmt.Appendf(nil, `{"label":%q,"w":%v,"features":[%v,%v]}`, fmt.Sprint(v["label"]), v["w"], v["x"], v["w"])
		}, [][]byte{[]byte(`{"label":"p","w":1,"features":[1]}`)}},
		"JSON that is framed": {"", wire.Options{Schema: made, Schemas: known}, func(v map[string]any) []byte {
			return registrytest.Frame(8, inJSON(v))
		}, [][]byte{registrytest.Frame(9, []byte(`{}`)), registrytest.Frame(8, nil), registrytest.Frame(7, inAvro(row(rand.New(rand.NewPCG(1, 3)))))}},
		"Avro": {wire.Avro.ContentType(), wire.Options{Schema: made, Written: known[7]}, inAvro, [][]byte{
			{2}, fileOf(t, codec, []map[string]any{row(rand.New(rand.NewPCG(1, 4)))}, nil), append(inAvro(row(rand.New(rand.NewPCG(1, 5)))), 0),
		}},
		"Avro that is framed": {"", wire.Options{Schema: made, Schemas: known}, func(v map[string]any) []byte {
			return registrytest.Frame(7, inAvro(v))
		}, [][]byte{registrytest.Frame(7, []byte{2}), inJSON(row(rand.New(rand.NewPCG(1, 6))))}},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.KeepUnlabelled, c.options.Weight = true, "w"
			alone, together := newDecoder(t, c.options), newDecoder(t, c.options)
			r := rand.New(rand.NewPCG(43, uint64(len(name))))
			taken := 0
			for range 200 {
				var payloads [][]byte
				bad := -1
				for i := range 1 + r.IntN(40) {
					if r.IntN(60) == 0 {
						payloads = append(payloads, c.bad[r.IntN(len(c.bad))])
						bad = i
						continue
					}
					payloads = append(payloads, c.encode(row(r)))
				}
				b, ok := together.DecodeRows(c.contentType, payloads)
				if taken == 0 && !ok && bad < 0 { // the first one of its schema
					if _, err := together.Decode(c.contentType, payloads[0]); err != nil {
						t.Fatal(err)
					}
					b, ok = together.DecodeRows(c.contentType, payloads)
				}
				if ok != (bad < 0) {
					t.Fatalf("%d payloads, of which %d is none: %v", len(payloads), bad, ok)
				}
				if !ok {
					continue
				}
				taken++
				if b.Rows() != len(payloads) {
					t.Fatalf("%d rows of %d payloads", b.Rows(), len(payloads))
				}
				for i, payload := range payloads {
					want, err := alone.Decode(c.contentType, bytes.Clone(payload))
					if err != nil || want.Rows() != 1 {
						t.Fatalf("%d rows alone: %v", want.Rows(), err)
					}
					if b.Classes[b.Codes[i]] != want.Classes[want.Codes[0]] || b.Weight(i) != want.Weight(0) || len(b.Columns) != len(want.Columns) {
						t.Fatalf("row %d is another one", i)
					}
					for j := range b.Columns {
						if got, want := b.Columns[j].At(i), want.Columns[j].At(0); got != want {
							t.Fatalf("row %d has %v for feature %d, and %v alone", i, got, j, want)
						}
					}
				}
			}
			if taken < 20 {
				t.Errorf("%d of 200 were taken together", taken)
			}
		})
	}
	free := newDecoder(t, wire.Options{Format: wire.JSON})
	if _, ok := free.DecodeRows("", [][]byte{[]byte(`{"label":"a","x":1}`)}); ok {
		t.Error("rows are taken together whose features are not fixed")
	}
	csv := newDecoder(t, wire.Options{Format: wire.CSV, Features: []string{"x"}})
	if _, ok := csv.DecodeRows("", [][]byte{[]byte("1,a\n")}); ok {
		t.Error("CSV is taken together")
	}
}

// FuzzRows: payloads that are taken together have one row each, the one that Decode makes.
func FuzzRows(f *testing.F) {
	const record = `{"type":"record","name":"R","fields":[{"name":"label","type":"string"},{"name":"u","type":["null","double"]},{"name":"v","type":"long"}]}`
	for _, s := range []string{`{"label":"a","u":1,"v":2}`, `{"features":[1,null],"label":true}`, `{"v":"x","label":7} `, `[{"label":"a","u":1,"v":2}]`, "\x02a\x00\x04", "\x02b\x02\x00\x00\x00\x00\x00\x00\xf0\x3f\x05"} {
		for _, framed := range []byte{0, 1, 2, 3} {
			f.Add(framed, []byte(s), []byte(`{"u":3,"label":"b","v":4}`))
			f.Add(framed, []byte("\x02b\x00\x06"), []byte(s))
		}
	}
	known := schemas{1: {ID: 1, Kind: registry.Avro, Text: record}, 2: {ID: 2, Kind: registry.JSON, Text: "{}"}}
	options := wire.Options{Features: []string{"u", "v"}, Missing: wire.Missing{Default: wire.MissingZero}}
	framed, bare := options, options
	framed.Schemas, bare.Written = known, known[1]
	f.Fuzz(func(t *testing.T, kind byte, a, b []byte) {
		of, contentType := bare, []string{wire.JSON.ContentType(), wire.Avro.ContentType()}[kind%2]
		payloads := [][]byte{a, b, a}
		if kind%4 > 1 {
			of, contentType = framed, ""
			for i := range payloads {
				payloads[i] = frame(2-kind%2, payloads[i])
			}
		}
		together, alone := newDecoder(t, of), newDecoder(t, of)
		_, _ = together.Decode(contentType, payloads[0]) // it has a plan for the schema then
		rows, ok := together.DecodeRows(contentType, payloads)
		if !ok {
			return
		}
		for i, payload := range payloads {
			want, err := alone.Decode(contentType, payload)
			if err != nil || want.Rows() != 1 || rows.Rows() != len(payloads) {
				t.Fatalf("payload %d of %d rows was taken, which alone fails: %v", i, rows.Rows(), err)
			}
			got := rows.Slice(i, i+1)
			if got.Classes[got.Codes[0]] != want.Classes[want.Codes[0]] {
				t.Fatalf("payload %d has another class", i)
			}
			for j, c := range got.Columns {
				if math.Float64bits(c.At(0)) != math.Float64bits(want.Columns[j].At(0)) {
					t.Fatalf("payload %d has %v for feature %d, and %v alone", i, c.At(0), j, want.Columns[j].At(0))
				}
			}
		}
	})
}
