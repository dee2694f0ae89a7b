package concepts

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"
)

// digest is SHA-256 over the features and the labels, as testdata/drift.py of the table drift
// computes it.
func digest(s *Stream) string {
	h := sha256.New()
	for _, column := range s.Columns {
		binary.Write(h, binary.LittleEndian, column)
	}
	binary.Write(h, binary.LittleEndian, s.Labels)
	return hex.EncodeToString(h.Sum(nil))
}

// All rows are those of River's generators, bit for bit.
func TestRowsOfRiver(t *testing.T) {
	text, err := os.ReadFile("../../../cmd/streamd/reproduce/testdata/drift.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Runs []struct {
			Stream string
			Seed   uint32
			Each   int
			Change float64
			Rows   string
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, g := range golden.Runs {
		var s *Stream
		switch seen[g.Stream]++; g.Stream {
		case "sea":
			s = SEA(g.Seed, g.Each)
		case "hyperplane":
			s = Hyperplane(g.Seed, 2*g.Each, g.Each, g.Change)
		default:
			t.Fatalf("stream %q", g.Stream)
		}
		if got := digest(s); got != g.Rows {
			t.Errorf("%s, seed %d: the rows are %s, those of River %s", g.Stream, g.Seed, got, g.Rows)
		}
	}
	if seen["sea"] < 3 || seen["hyperplane"] < 3 {
		t.Errorf("only %v", seen)
	}
}

// A block is rows of the stream.
func TestBlock(t *testing.T) {
	s := SEA(1, 50)
	b := s.Block(60, 90)
	if b.Rows() != 30 || len(b.Columns) != 3 || len(s.Changes) != 3 || s.Changes[2] != 150 {
		t.Fatalf("%d rows of %d features, changes %v", b.Rows(), len(b.Columns), s.Changes)
	}
	for i := range b.Rows() {
		if b.Classes[b.Codes[i]] == "1" != (s.Labels[60+i] == 1) {
			t.Errorf("row %d has the class %s", i, b.Classes[b.Codes[i]])
		}
		for j, c := range b.Columns {
			if math.Float64bits(c.At(i)) != math.Float64bits(s.Columns[j][60+i]) {
				t.Errorf("feature %d of row %d is %v", j, i, c.At(i))
			}
		}
	}
}
