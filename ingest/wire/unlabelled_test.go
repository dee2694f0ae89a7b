package wire_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"streamd/ingest/wire"
)

// Arrays in an array are rows in the order of the features, and encoding/json reads the
// same bits. With labels they are refused: an array has no place for one.
func TestArrayRows(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 8))
	want := make([][]float64, 100)
	for i := range want {
		for range 3 {
			want[i] = append(want[i], r.NormFloat64()*math.Pow(10, float64(r.IntN(40)-20)))
		}
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, features := range [][]string{nil, {"a", "b", "c"}} {
		d := newDecoder(t, wire.Options{Features: features, Weight: "weight"})
		for range 2 { // a decoder is used again
			table, err := d.DecodeUnlabelled("application/json", text)
			if err != nil || table.Rows != len(want) || len(table.Columns) != 3 {
				t.Fatalf("%d rows, %v", table.Rows, err)
			}
			for i, row := range want {
				for j, x := range row {
					if got := table.Columns[j].At(i); math.Float64bits(got) != math.Float64bits(x) {
						t.Fatalf("row %d, column %d: %v, want %v", i, j, got, x)
					}
				}
			}
		}
		if _, err := d.Decode("application/json", text); err == nil || !strings.Contains(err.Error(), "want a row, an object, but there is an array") {
			t.Errorf("arrays with labels: %v", err)
		}
	}
}

func TestArrayRowsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`[[1,2],[1,2,3]]`:                  "row 1: line 1: there are 3 features in the row, want 2",
		"[[1,2],\n[1]]":                    "row 1: line 2: there is 1 feature in the row, want 2",
		`[[1,2],[]]`:                       "row 1: line 1: there are 0 features in the row, want 2",
		`[[]]`:                             "row 0: line 1: there are 0 features in the row, want 2",
		`[[1,2],[1,"red"]]`:                `row 1: line 1: column "b": "red" is not a number: send one, or ignore the column`,
		`[[1,2],[1,[2]]]`:                  `row 1: line 1: column "b": want a number, but there is an array`,
		`[[1,2],[1,null]]`:                 `row 1: line 1: column "b": the value is null: send one, or say what missing values count as`,
		`[[1,2],{"a":1,"b":2}]`:            `row 1: line 1: column "a": a field beside a list of features`,
		`[{"a":1,"b":2},[1,2]]`:            `row 1: line 1: column "features": a list of features where other rows or fields have named ones`,
		`[[1,2]`:                           "row 0: line 1: the row is not followed by a comma or the end of the array",
		`[[1,2`:                            `row 0: line 1: column "features": want a comma or the end of the list, but there is the end`,
		`[1,2]`:                            "row 0: line 1: want a row, an object or an array in an array, but there is \"1\"",
		`[[1,2],[1e999,2]]`:                `row 1: line 1: column "a": "1e999" overflows float64`,
		"{\"features\":[1,2]}\n[[1,2]]":    `row 1: line 2: column "a": want a number, but there is an array`,
		`[` + strings.Repeat("[", 1e6):     `row 0: line 1: column "a": want a number, but there is an array`,
		`[[` + strings.Repeat("1,", 1<<16): `row 0: line 1: column "x65537": want a number, but there is the end`,
	} {
		_, err := newDecoder(t, wire.Options{Features: []string{"a", "b"}}).DecodeUnlabelled("application/json", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "json: ") || strings.TrimPrefix(err.Error(), "json: ") != want {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

func TestSniff(t *testing.T) {
	for text, want := range map[string]wire.Format{
		"\xff\xff\xff\xff\x10\x00\x00\x00": wire.Arrow,
		` {"a":1}`:                         wire.JSON,
		"\n[[1,2]]":                        wire.JSON,
		"1 1:0.5 2:3\n":                    wire.LIBSVM,
		"# comment\n1 1:0.5\n":             wire.LIBSVM,
		"a,b\n1,2\n":                       wire.CSV,
		"1 2\n":                            wire.CSV,
		"":                                 wire.CSV,
		"\x00":                             wire.CSV,
	} {
		if got := wire.Sniff([]byte(text)); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}
