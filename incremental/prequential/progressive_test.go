package prequential

import (
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
	unknowns := 0.
	for _, every := range []int{1, 3, 7} {
		r := rand.New(rand.NewPCG(seed, uint64(every)))
		options := incremental.Options{Nu: 2, Standardise: every == 3}
		p := NewProgressive(incremental.DefaultFeatures(2), options, every)
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
					label = "unknown"
				}
				pairs[[2]string{label, answer}]++
				if rows++; label == answer {
					right++
				}
				if same {
					repeats++
				}
			}
			p.Judge(b)
			s, err := z.Summarise(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Add(s); err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, s)
		}
		f := p.Figures()
		got := map[[2]string]float64{}
		for c, of := range f.Matrix.Rows(9) {
			for a, n := range of {
				if n > 0 {
					got[[2]string{p.Classes()[c], p.Classes()[a]}] = n
				}
			}
		}
		unknown := 0.
		for pair, n := range pairs {
			if pair[0] == "unknown" {
				unknown += n
				delete(pairs, pair)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(pairs) || f.Matrix.Figures().Unknown != unknown || p.Waited() != waited || rows == 0 {
			t.Errorf("every %d: %v, %v waited, not %v, %v, %v unknown (seed %d)", every, got, p.Waited(), pairs, waited, unknown, seed)
		}
		if f.LastLabel != float64(repeats)/float64(rows) {
			t.Errorf("every %d: %v repeat, not %d of %d", every, f.LastLabel, repeats, rows)
		}
		unknowns += unknown
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
	p := NewProgressive(incremental.DefaultFeatures(2), incremental.Options{Nu: 1}, 1)
	var z incremental.Summariser
	for i := range 1500 {
		b := stream(r, i, 3)
		p.Judge(b)
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	rows := int64(0)
	for i, c := range p.course {
		if rows += c.Rows; i < len(p.course)-1 && c.cuts != p.pieces {
			t.Errorf("piece %d is of %d cuts, not %d", i, c.cuts, p.pieces)
		}
	}
	if all, _ := p.all.Totals(); rows != all || len(p.course) > mostPieces || len(p.course) < mostPieces/2 {
		t.Errorf("%d rows of %d in %d pieces", rows, all, len(p.course))
	}
}
