package wire_test

import (
	"bytes"
	"crypto/sha256"
	"os"
	"strings"
	"testing"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// TestFrames: a data frame of pandas has one digest, whatever format pandas has written it
// in. It has an id and a category of text, which are ignored, and an age that is missing in
// some rows. See testdata/wire/frame.py.
func TestFrames(t *testing.T) {
	const frames = "frame.arrows frame.feather frame.parquet frame_v1.parquet frame.ndjson frame.json frame.csv frame.csv.gz frame.csv.zst frame.tsv frame_semicolons.csv"
	for _, c := range []struct {
		files    string
		opts     wire.Options
		features string
	}{
		{frames, wire.Options{Ignore: []string{"id", "city", "age"}}, "amount born grade member paid seen"},
		{frames, wire.Options{Ignore: []string{"id", "city"}, Missing: wire.Missing{Default: wire.MissingZero}}, "age amount born grade member paid seen"},
		{frames, wire.Options{Ignore: []string{"id", "city"}, Missing: wire.Missing{Features: map[string]wire.MissingPolicy{"age": wire.MissingIndicator}}},
			"age " + incremental.MissingName("age") + " amount born grade member paid seen"},
		{"vectors.arrows vectors.parquet vectors.ndjson", wire.Options{}, "big[0] big[1] emb[0] emb[1] emb[2] two[0] two[1] u"},
	} {
		var first [sha256.Size]byte
		for k, name := range strings.Fields(c.files) {
			for _, rowsPerBlock := range []int{5, 1000} {
				b, err := readAll("../../testdata/wire/"+name, c.opts, rowsPerBlock)
				if err != nil {
					t.Fatal(err)
				}
				if features := strings.Join(b.Features, " "); features != c.features || strings.Join(b.Classes, " ") != "false true" || b.Rows() != 24 {
					t.Errorf("%s: %d rows of %s, classes %s, want features %s", name, b.Rows(), features, b.Classes, c.features)
				}
				if k == 0 {
					first = digest(t, b, len(b.Columns))
				}
				if digest(t, b, len(b.Columns)) != first {
					t.Errorf("%s has another digest", name)
				}
			}
		}
	}
	if _, err := readAll("../../testdata/wire/frame.parquet", wire.Options{Ignore: []string{"id", "city"}}, 10); err == nil || !strings.Contains(err.Error(), `column "age": the value is null`) {
		t.Errorf("missing values: %v", err)
	}
}

// TestParquetCorrupted changes single bytes of Parquet files, and cuts them. Nothing
// panics, and an accepted file makes consistent blocks.
func TestParquetCorrupted(t *testing.T) {
	for _, name := range []string{"frame", "frame_v1", "vectors"} {
		whole, err := os.ReadFile("../../testdata/wire/" + name + ".parquet")
		if err != nil {
			t.Fatal(err)
		}
		loose := wire.Options{Limits: fuzzLimits, Missing: wire.Missing{Default: wire.MissingZero}, Ignore: []string{"city"}}
		if _, err := newDecoder(t, loose).DecodeFile(whole); err != nil {
			t.Fatal(err)
		}
		loose.Limits = wire.Limits{Bytes: 1000}
		if _, err := newDecoder(t, loose).DecodeFile(whole); err == nil {
			t.Error("an Arrow stream of more than 1000 bytes is accepted")
		}
		for i := 4; i < len(whole); i += 29 {
			corrupt := bytes.Clone(whole)
			corrupt[i] = []byte{0, 0x7f, 0x80, 0xff}[i%4]
			readParquet(t, corrupt)
			readParquet(t, whole[:i])
		}
	}
}

// readParquet decodes a Parquet file if it can.
func readParquet(t *testing.T, text []byte) {
	t.Helper()
	table, err := newDecoder(t, wire.Options{Limits: fuzzLimits}).DecodeFile(text)
	if err == nil {
		requireConsistent(t, &incremental.Block{Columns: table.Columns, Codes: make([]int32, table.Rows), Classes: []string{"a"}}, false)
	}
}

func FuzzParquet(f *testing.F) {
	for _, name := range []string{"frame", "frame_v1", "vectors"} {
		b, err := os.ReadFile("../../testdata/wire/" + name + ".parquet")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if wire.IsParquet(text) {
			readParquet(t, text)
		}
	})
}
