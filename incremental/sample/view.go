package sample

import (
	"cmp"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Snapshot is a Sample at a moment. It is cheap to make, and what costs is done
// in its View, which may run while the Sample goes on.
type Snapshot struct {
	folds    int
	features []string
	totals   []incremental.ClassTotal
	lacking  int
	held     []held
	settings Settings
	limits   map[string]limit // of each stratum
}

type limit struct {
	level int // rows of lower levels are not all held
	quota int64
}

// Snapshot is the sample as it is. The state is the sum of the live blocks;
// folds is the number of folds that blocks are in, 0 for none.
func (s *Sample) Snapshot(state *incremental.State, folds int) *Snapshot {
	out := &Snapshot{
		folds: folds, features: state.Features(), totals: state.Totals(), lacking: s.Lacking(),
		held: slices.Clone(s.held), settings: s.settings, limits: make(map[string]limit, len(s.strata)),
	}
	quota := s.quota()
	for name, t := range s.strata {
		out.limits[name] = limit{t.sure, quota}
	}
	return out
}

// View is the sample of a live set.
type View struct {
	// Block has the rows, by ascending hash: any first part of them is a
	// sample too, of as many rows (of all classes together, when balanced).
	// Its classes are those of the live set, in canonical order.
	Block *incremental.Block

	// Fold is, of each row, the fold of its block: nil when there are none.
	Fold []int32

	// Totals are the live rows that the rows of each class stand for, in the
	// order of Block.Classes.
	Totals []incremental.ClassTotal

	// Lacking is the number of live blocks of which rows are missing: 0 when
	// the view is a function of the live set. A view of which rows are missing
	// is a smaller sample of the other rows.
	Lacking int
}

// Complete says whether the view has every row of the sample.
func (v *View) Complete() bool { return v.Lacking == 0 }

// chosen is a row that may be in a view. It has no pointers, which would have to be
// told the garbage collector whenever sorting moves it.
type chosen struct {
	hash  uint64
	block int32 // among those held
	place
}

// compare orders rows by hash, and those of equal hashes, which are mostly of
// equal blocks, by everything that can be seen of them.
func (s *Snapshot) compare(c, d chosen) int {
	if c.hash != d.hash {
		return cmp.Compare(c.hash, d.hash)
	}
	return compare(s.held[c.block].part, c.place, s.held[d.block].part, d.place)
}

// View chooses the rows of the sample and puts them in columns.
func (s *Snapshot) View() *View {
	strata := map[string][]chosen{}
	for block, h := range s.held {
		p := h.part
		if p == nil {
			continue
		}
		z := streamOf(p.seed, &p.digest)
		for piece := range p.pieces {
			r := &p.pieces[piece]
			for i := range r.len() {
				level := r.level(i)
				name := s.settings.stratum(p.labels[r.code(i)])
				if level >= s.limits[name].level {
					c := chosen{z.hash(r.index(i), level), int32(block), place{int32(piece), int32(i)}}
					strata[name] = append(strata[name], c)
				}
			}
		}
	}
	var all []chosen
	for name, rows := range strata {
		slices.SortFunc(rows, s.compare)
		room := int(s.limits[name].quota)
		for _, c := range rows {
			for range min(room, int(s.held[c.block].copies)) {
				all = append(all, c)
				room--
			}
		}
	}
	if s.settings.Balanced {
		slices.SortFunc(all, s.compare)
	}
	return s.view(all)
}

func (s *Snapshot) view(all []chosen) *View {
	m, n := len(all), len(s.features)
	b := &incremental.Block{
		Features: s.features, Columns: make([]gram.Column, n),
		Codes: make([]int32, m), Weights: make([]float64, m),
	}
	v := &View{Block: b, Totals: s.totals, Lacking: s.lacking}
	code := map[string]int32{}
	for c, t := range s.totals {
		code[t.Label] = int32(c)
		b.Classes = append(b.Classes, t.Label)
	}
	if s.folds > 0 {
		v.Fold = make([]int32, m)
	}
	narrow := make([][]float32, n)
	for j := range narrow {
		narrow[j] = make([]float32, m)
	}
	weighted, isWide := false, make([]bool, n)
	for i, c := range all { // each row is far from the one before it
		p := s.held[c.block].part
		r, row := p.row(c.place)
		b.Codes[i] = code[p.labels[r.code(row)]]
		b.Weights[i] = r.weight(row)
		weighted = weighted || b.Weights[i] != 1
		if s.folds > 0 {
			v.Fold[i] = int32(Fold(p.digest, s.folds))
		}
		for j := range narrow {
			x := r.at(row, j)
			narrow[j][i] = float32(x)
			isWide[j] = isWide[j] || !isFloat32(x)
		}
	}
	if !weighted {
		b.Weights = nil
	}
	for j := range b.Columns {
		if !isWide[j] {
			b.Columns[j] = gram.ColumnOf(narrow[j])
			continue
		}
		wide := make([]float64, m)
		for i, c := range all {
			r, row := s.held[c.block].part.row(c.place)
			wide[i] = r.at(row, j)
		}
		b.Columns[j] = gram.ColumnOf(wide)
	}
	return v
}
