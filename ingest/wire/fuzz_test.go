package wire_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// fuzzLimits are so low that a decoder which forgets them is noticed.
var fuzzLimits = wire.Limits{Bytes: 1 << 16, Rows: 100, Features: 16, Classes: 10}

// requireConsistent fails unless a Summary can rely on the block, in which rows may be
// unlabelled.
func requireConsistent(t *testing.T, b *incremental.Block, unlabelled bool) {
	t.Helper()
	if b.Rows() == 0 || len(b.Columns) == 0 {
		t.Fatalf("%d rows of %d features", b.Rows(), len(b.Columns))
	}
	if b.Features != nil && len(b.Features) != len(b.Columns) {
		t.Fatalf("%d names for %d columns", len(b.Features), len(b.Columns))
	}
	for j, c := range b.Columns {
		if c.Len() != b.Rows() {
			t.Fatalf("column %d has %d rows, want %d", j, c.Len(), b.Rows())
		}
		for i := range c.Len() { // touches all memory
			_ = c.At(i)
		}
	}
	if b.Weights != nil && len(b.Weights) != b.Rows() {
		t.Fatalf("%d weights for %d rows", len(b.Weights), b.Rows())
	}
	seen := make(map[string]bool)
	for _, class := range b.Classes {
		if class == "" && !unlabelled || len(class) > 128 || seen[class] {
			t.Fatalf("classes %q", b.Classes)
		}
		seen[class] = true
	}
	for i, code := range b.Codes {
		if code < 0 || int(code) >= len(b.Classes) {
			t.Fatalf("row %d has code %d of %d", i, code, len(b.Classes))
		}
	}
}

// requireBounded fails when a payload stands for more numbers than its bytes have room
// for, once they are decompressed.
func requireBounded(t *testing.T, contentType string, payload []byte, limits wire.Limits, b *incremental.Block) {
	t.Helper()
	cells, most := b.Rows()*len(b.Columns), max(limits.Bytes/8, len(payload)/2)
	if contentType == arrowType { // booleans are decompressed from eight in a byte
		most = len(payload) + limits.Bytes
	}
	if cells > most {
		t.Fatalf("%d rows of %d features from %d bytes, the bound is %d numbers", b.Rows(), len(b.Columns), len(payload), most)
	}
}

// fuzzDecode decodes all inputs with the same few decoders. A decoder must survive
// anything, and its answer must depend on the input alone.
func fuzzDecode(f *testing.F, contentType string) {
	all := []wire.Options{
		{Limits: fuzzLimits},
		{Limits: fuzzLimits, Features: []string{"u", "v"}, Weight: "weight"},
		{Limits: fuzzLimits, Label: "last", Header: wire.HeaderAbsent},
		{Limits: fuzzLimits, Features: []string{"u", "v"}, IgnoreUnknown: true, Missing: wire.Missing{Default: wire.MissingIndicator}},
		{Limits: fuzzLimits, KeepUnlabelled: true, UnlabelledText: "-1"},
		{Limits: fuzzLimits, Ignore: []string{"x*"}, Missing: wire.Missing{Default: wire.MissingMean}},
		{Limits: fuzzLimits, LabelIsID: true, Weight: "weight", WeighUnlabelled: true},
		{Limits: wire.Limits{Bytes: 2048, Rows: 1 << 16, Features: 256, Classes: 10}},
	}
	decoders := make([]*wire.Decoder, len(all))
	for k, opts := range all {
		decoders[k] = newDecoder(f, opts)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for k, d := range decoders {
			b, err := d.Decode(contentType, payload)
			fresh, freshErr := newDecoder(t, all[k]).Decode(contentType, payload)
			if fmt.Sprint(err) != fmt.Sprint(freshErr) {
				t.Fatalf("error %v, with a fresh decoder %v", err, freshErr)
			}
			if err == nil {
				requireConsistent(t, b, all[k].KeepUnlabelled)
				requireBounded(t, contentType, payload, all[k].Limits, b)
				requireSame(t, b, fresh)
				if bad := b.FirstBadRow(); bad != nil && contentType != arrowType && strings.Contains(bad.Reason, "Inf") {
					t.Fatalf("accepted: %v", bad)
				}
			}
			if table, err := d.DecodeUnlabelled(contentType, payload); err == nil {
				if table.Weights != nil && len(table.Weights) != table.Rows || table.Weights != nil && !all[k].WeighUnlabelled {
					t.Fatalf("%d weights for %d rows", len(table.Weights), table.Rows)
				}
				for _, c := range table.Columns {
					if c.Len() != table.Rows || table.Rows == 0 {
						t.Fatalf("%d rows, a column of %d", table.Rows, c.Len())
					}
				}
			}
		}
	})
}

func FuzzArrow(f *testing.F) {
	names, err := filepath.Glob("../../testdata/wire/*.arrow")
	if err != nil || len(names) < 20 {
		f.Fatalf("%d fixtures, want 20 or more (%v)", len(names), err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(overlapping(f, 16))
	fuzzDecode(f, arrowType)
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"label": 1, "features": [0.5, -2e3]}`,
		`[{"label":"a","u":1,"v":2.5,"weight":0},{"v":-4,"u":3,"label":"b","weight":1}]`,
		"{\"label\":true,\"u\":1}\n{\"u\":2,\"label\":\"\\u00e9\\ud83d\\ude00\"}\n",
		`[{"label":null,"features":[1e999]}]`,
		strings.Repeat(`{"label": "a", "u": -1.25, "v": 3e-05, "weight": 1}`+"\n", 6),
		strings.Repeat(`{"features":[0.1,20],"label":1}`+"\n", 6),
	} {
		f.Add([]byte(s))
	}
	fuzzDecode(f, "application/json")
}

func FuzzCSV(f *testing.F) {
	for _, s := range []string{"1,2,3\n-1,0.5,1e3\n", "label,u,v,weight\na,1,2,1\n\"b \"\"c\"\"\", 3 ,\"4\",0\r\n", "v,u,label\n1,2,x", "\xef\xbb\xbf1,2\n\n", "\"\n", strings.Repeat("1,-2.5,3e-05\r\n", 10)} {
		f.Add([]byte(s))
	}
	fuzzDecode(f, "text/csv")
}

func FuzzLIBSVM(f *testing.F) {
	for _, s := range []string{"+1 1:0.5 3:-2e3\n-1 2:1 # comment\n", "a\nb 16:1\n", "1 1:1 1:2\n", "1 qid:1 2:3\n", strings.Repeat("1\n", 200) + "1 256:1\n", strings.Repeat("a 1:-2.5 3:3e-05\n", 10)} {
		f.Add([]byte(s))
	}
	fuzzDecode(f, "application/x-libsvm")
}

// FuzzFile: a file read in blocks gives the same rows as its whole text as one payload,
// or both are refused.
func FuzzFile(f *testing.F) {
	f.Add(byte(1), "label,a\n1,\"2\"\n\n2,3\r\n", byte(0))
	f.Add(byte(2), "1,2\n\"a\nb\",4\n", byte(0))
	f.Add(byte(1), "1 1:2\n#\n2 5:1\n1\n", byte(1))
	f.Add(byte(1), "{\"label\":1,\"u\":1}\n{\"label\":\"}\",\"u\":2}{}\n", byte(2))
	f.Add(byte(2), "[{\"label\":1,\"features\":[1]},{\"label\":1,\"features\":[3]} ,\n{\"label\":\"]\",\"features\":[2]}]\n", byte(2))
	f.Add(byte(1), "sep=;\n#\"\nlabel;u\n\na;1\n#\nb;1.000,5\n", byte(3))
	f.Add(byte(1), "label,u\ra,1\r\"b\r\",2\r", byte(0))
	f.Add(byte(1), "0,1,2\n3,4,5\n", byte(0))
	f.Add(byte(1), "{\"label\":1,\"u\":1}\r{\"label\":2,\"u\":2}\r\n", byte(2))
	german := wire.Options{Comment: "#", Numbers: wire.Notation{DecimalComma: true, Thousands: wire.ThousandsPoint}, Ignore: []string{"q"}}
	all := []wire.Options{{}, german, {Label: "last"}}
	decoders := []*wire.Decoder{newDecoder(f, all[0]), newDecoder(f, all[1]), newDecoder(f, all[2])}
	f.Fuzz(func(t *testing.T, rows byte, text string, kind byte) {
		opts, d := all[int(kind)/3%len(all)], decoders[int(kind)/3%len(all)]
		if text == "" || strings.Contains(text, "\x00") || strings.HasPrefix(text, "\x1f\x8b") {
			return // refused before the format matters: nothing, a file that is binary, or gzip
		}
		format := []wire.Format{wire.CSV, wire.LIBSVM, wire.JSON}[kind%3]
		whole, err := d.Decode(format.ContentType(), []byte(text))
		path := filepath.Join(t.TempDir(), "a."+format.String())
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, fileErr := readAll(path, opts, int(rows)+1)
		if (err == nil) != (fileErr == nil) {
			t.Fatalf("error %v, of the file %v", err, fileErr)
		}
		if err == nil {
			requireSame(t, got, whole)
		}
	})
}

// FuzzNumber compares numbers with strconv's, bit for bit, in a first row and in a row
// among others.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "1.", ".5", "1e23", "9007199254740993", "1e-400", "123456789012345678901234567890e-10", "+5e+5", "0x1p4", "inf", "1_0", "2.2250738585072011e-308"} {
		f.Add(s)
	}
	d := newDecoder(f, wire.Options{Header: wire.HeaderAbsent})
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Trim(s, "0123456789+-.eE") != "" || len(s) == 0 {
			return // only decimal numbers are numbers
		}
		if len(s) >= len(time.DateOnly) && s[4] == '-' && s[7] == '-' {
			return // a date
		}
		want, wantErr := strconv.ParseFloat(s, 64)
		others := strings.Repeat("x,0.25\n", 10)
		for row, before := range map[int]string{0: "", 10: others} {
			b, err := d.Decode("text/csv", []byte(before+"x,"+s+"\n"+others))
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%q: error %v, strconv %v", s, err, wantErr)
			}
			if err == nil && math.Float64bits(b.Columns[0].At(row)) != math.Float64bits(want) {
				t.Fatalf("%q: %v, want %v", s, b.Columns[0].At(row), want)
			}
		}
	})
}

// TestAgainstJSON lets encoding/json read and write random rows.
func TestAgainstJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	d := newDecoder(t, wire.Options{})
	for range 200 {
		m, n := 1+rng.IntN(20), 1+rng.IntN(6)
		want := randomBlock(rng, m, n, []string{"a\"\\\n\t", "é<&>", "\u2028😀"}, []gram.Kind{gram.Float64, gram.Int64})
		rows := make([]map[string]any, m)
		for i := range rows {
			rows[i] = map[string]any{"label": want.Classes[want.Codes[i]]}
			for j := range n {
				rows[i][fmt.Sprintf("n%d\t<%d>", n, j)] = want.Columns[j].At(i)
			}
		}
		payload, err := json.MarshalIndent(rows, "", strings.Repeat(" ", rng.IntN(3)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Decode("application/json", payload)
		if err != nil {
			t.Fatalf("%v\n%s", err, payload)
		}
		requireSame(t, got, want)

		// And the other way round.
		lines, err := wire.Encode(nil, wire.JSON, want)
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(lines))
		for i := range m {
			var row struct {
				Label    string
				Features []float64
			}
			if err := decoder.Decode(&row); err != nil {
				t.Fatal(err)
			}
			if row.Label != want.Classes[want.Codes[i]] || len(row.Features) != n || row.Features[n-1] != want.Columns[n-1].At(i) {
				t.Fatalf("row %d: %+v", i, row)
			}
		}
	}
}

// TestAgainstCSV lets encoding/csv write and read random rows.
func TestAgainstCSV(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	d := newDecoder(t, wire.Options{Label: "the, \"label\""})
	for trial := range 200 {
		m, n := 1+rng.IntN(20), 1+rng.IntN(6)
		want := randomBlock(rng, m, n, []string{"a\"b", "x,y", "line\nbreak", "z"}, []gram.Kind{gram.Float64, gram.Int64})
		at := rng.IntN(n + 1) // where the label is
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		w.UseCRLF = trial%2 == 0 && !strings.Contains(strings.Join(want.Classes, ""), "\n")
		record := make([]string, 0, n+1)
		for i := -1; i < m; i++ {
			record = record[:0]
			for j, c := range want.Columns {
				if i < 0 {
					record = append(record, fmt.Sprintf("n %d\"", j))
				} else {
					record = append(record, strconv.FormatFloat(c.At(i), 'e', -1, 64))
				}
			}
			label := "the, \"label\""
			if i >= 0 {
				label = want.Classes[want.Codes[i]]
			}
			record = append(record[:at], append([]string{label}, record[at:]...)...)
			if err := w.Write(record); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		got, err := d.Decode("text/csv", text.Bytes())
		if err != nil {
			t.Fatalf("%v\n%s", err, text.Bytes())
		}
		requireSame(t, got, want)

		want.Features = got.Features
		lines, err := wire.Encode(nil, wire.CSV, want)
		if err != nil {
			t.Fatal(err)
		}
		records, err := csv.NewReader(bytes.NewReader(lines)).ReadAll()
		if err != nil || len(records) != m+1 || records[0][1] != want.Features[0] || records[m][0] != want.Classes[want.Codes[m-1]] {
			t.Fatalf("%v\n%q", err, records)
		}
	}
}

// TestAllocations: decoding the same kind of block again costs no memory.
func TestAllocations(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, format := range wire.Formats() {
		for _, classes := range [][]string{{"1", "-1"}, {"spam", "ham"}} {
			b := randomBlock(rng, 500, 4, classes, []gram.Kind{gram.Float32, gram.Int16})
			if format != wire.LIBSVM {
				b.Features = []string{"a", "b", "c", "d"}
			}
			payload, err := wire.Encode(nil, format, b)
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Codes { // the same with rows without a label
				if i%3 == 0 {
					b.Codes[i] = 2
				}
			}
			b.Classes = append(b.Classes, incremental.Unlabelled)
			without := payload
			if format != wire.LIBSVM {
				if without, err = wire.Encode(nil, format, b); err != nil {
					t.Fatal(err)
				}
			}
			d := newDecoder(t, wire.Options{KeepUnlabelled: true})
			for _, payload := range [][]byte{payload, without} {
				if n := testing.AllocsPerRun(20, func() {
					if _, err := d.Decode(format.ContentType(), payload); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%v, classes %v: %v allocations per block", format, classes, n)
				}
			}
		}
	}
}
