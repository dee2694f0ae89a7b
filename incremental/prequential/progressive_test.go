package prequential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// stream makes a block of rows of some classes. Classes come one after the other, labels repeat,
// and some rows have weight 0 or no label.
func stream(r *rand.Rand, block, rows int) *incremental.Block {
	b := &incremental.Block{Features: incremental.DefaultFeatures(2), Classes: []string{"c", "a", "b", incremental.Unlabelled}}
	columns := make([][]float64, 2)
	code := int32(0)
	for range rows {
		if r.IntN(3) == 0 {
			code = int32(r.IntN(min(4, 1+block/2)))
		}
		b.Codes, b.Weights = append(b.Codes, code), append(b.Weights, float64(min(1, r.IntN(6))))
		for j := range columns {
			columns[j] = append(columns[j], float64(code)*float64(j+1)+r.NormFloat64())
		}
	}
	for _, x := range columns {
		b.Columns = append(b.Columns, gram.ColumnOf(x))
	}
	return b
}

// The figures are those of a naive loop, which sums all blocks before anew for each cut.
func TestProgressiveIsTheNaiveLoop(t *testing.T) {
	const seed = 5
	unknowns := 0
	for _, every := range []int{1, 3, 7} {
		r := rand.New(rand.NewPCG(seed, uint64(every)))
		options := incremental.Options{Nu: 2, Standardise: every == 3}
		p, sums := NewProgressive(every), incremental.NewState(incremental.DefaultFeatures(2))
		q := NewProgressive(every) // with restarts
		var blocks []*incremental.Summary
		var z incremental.Summariser
		var waited, rows, right, repeats int64
		last := ""
		pairs := map[[2]string]float64{}
		for i := range 30 {
			b := stream(r, i, 1+r.IntN(20))
			var m *incremental.Model
			if cut := len(blocks) / every * every; cut > 0 {
				before := incremental.NewState(b.Features)
				for _, s := range blocks[:cut] {
					before.Add(s)
				}
				m, _ = before.Moments().Solve(options)
			}
			for row, code := range b.Codes {
				label := b.Classes[code]
				if b.Weights[row] == 0 || label == "" {
					continue
				}
				same := label == last
				if last = label; m == nil {
					waited++
					continue
				}
				class, values := make([]int32, 1), make([]float64, len(m.Planes))
				m.Classify(class, values, []gram.Column{b.Columns[0].Slice(row, row+1), b.Columns[1].Slice(row, row+1)})
				answer := m.Classes[class[0]]
				if !slices.Contains(m.Classes, label) {
					unknowns++
				}
				pairs[[2]string{label, answer}]++
				if rows++; label == answer {
					right++
				}
				if same {
					repeats++
				}
			}
			p.Judge(b, "")
			q.Judge(b, "")
			s, err := z.Summarise(b)
			if err != nil {
				t.Fatal(err)
			}
			due := q.Add()
			if sums.Add(s); p.Add() {
				if m, err := sums.Moments().Solve(options); err == nil {
					p.Cut(m)
					q.Cut(m)
				}
			}
			if due != (len(blocks)%every == every-1) {
				t.Fatalf("every %d: due after %d blocks: %t", every, len(blocks)+1, due)
			}
			again := new(Progressive)
			if err := json.Unmarshal(record(t, q), again); err != nil {
				t.Fatal(err)
			}
			q = again
			blocks = append(blocks, s)
		}
		labels := p.Tally().Labels()
		f := p.Tally().Figures(labels)
		got := map[[2]string]float64{}
		for c, of := range f.Matrix.Rows(9) {
			for a, n := range of {
				if n > 0 {
					got[[2]string{labels[c], labels[a]}] = n
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(pairs) || p.Waited() != waited || rows == 0 {
			t.Errorf("every %d: %v, %v waited, not %v, %v (seed %d)", every, got, p.Waited(), pairs, waited, seed)
		}
		// Restarts after each block leave the same counts and planes.
		if one, two := record(t, p), record(t, q); !bytes.Equal(one, two) {
			t.Errorf("every %d: with restarts %s, not %s", every, two, one)
		}
		if f.LastLabel != float64(repeats)/float64(rows) {
			t.Errorf("every %d: %v repeat, not %d of %d", every, f.LastLabel, repeats, rows)
		}
		var c Piece
		c.Classes = map[string]int64{}
		for _, piece := range p.Course() {
			c.merge(&piece)
		}
		if c.Rows != rows || c.Right != right || c.Repeats != repeats {
			t.Errorf("every %d: the course has %+v, not %d, %d, %d", every, c, rows, right, repeats)
		}
	}
	if unknowns == 0 {
		t.Error("no row was of an unknown class")
	}
}

// The course of many cuts has few pieces, each of as many cuts, and no row is lost.
func TestCourseIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	p, sums := NewProgressive(1), incremental.NewState(incremental.DefaultFeatures(2))
	var z incremental.Summariser
	for i := range 1500 {
		b := stream(r, i, 3)
		p.Judge(b, "")
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		if sums.Add(s); p.Add() {
			if m, err := sums.Moments().Solve(incremental.Options{Nu: 1}); err == nil {
				p.Cut(m)
			}
		}
	}
	rows := int64(0)
	for i, c := range p.course {
		if rows += c.Rows; i < len(p.course)-1 && c.cuts != p.pieces {
			t.Errorf("piece %d is of %d cuts, not %d", i, c.cuts, p.pieces)
		}
	}
	if all := p.Tally().rows; rows != all || len(p.course) > mostPieces || len(p.course) < mostPieces/2 {
		t.Errorf("%d rows of %d in %d pieces", rows, all, len(p.course))
	}
}

func record(t *testing.T, p *Progressive) []byte {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Tallies of parts add up to that of the whole, and the counts of labels that are gone are dropped.
func TestTallies(t *testing.T) {
	var a, b Progressive
	a.tally.count(pair{"x", "x"}, 3)
	a.tally.count(pair{"y", "x"}, 1)
	b.tally.count(pair{"x", "z"}, 2)
	a.tally.rows, b.tally.rows, b.tally.repeats = 4, 2, 1
	a.tally.Merge(&b.tally)
	f := a.Tally().Figures(a.Tally().Labels())
	if got := f.Matrix.Figures(); got.Weight != 6 || got.Correctness != 0.5 || got.LargestClass != 5./6 || f.LastLabel != 1./6 {
		t.Errorf("%+v", got)
	}
	a.Keep([]string{"x", "y"})
	if got := a.Tally().Figures([]string{"x", "y"}).Matrix.Figures(); got.Weight != 4 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{`{}`, `{"every":1,"classes":["a"],"planes":[{}]}`, `{"every":1,"classes":["a","b"],"features":["x"],"planes":[{"class":"b","w":[]}]}`,
		`{"every":1,"classes":["a","b","c"],"features":["x"],"planes":[{"class":"b","w":[1]}]}`} {
		if err := json.Unmarshal([]byte(bad), new(Progressive)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
