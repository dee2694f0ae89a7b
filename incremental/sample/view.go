package sample

import (
	"cmp"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Snapshot is a Sample at a moment. It is cheap to make. Its View does the work, which
// may run while the Sample changes.
type Snapshot struct {
	folds    int
	features []string
	totals   []incremental.ClassTotal // of the classes, without Unlabelled
	without  incremental.ClassTotal   // of the rows without a label
	lacking  int
	held     []held
	settings Settings
	limits   map[string]limit // by stratum
	ids      map[int32]string // by place in held, the first block; nil if all rows have labels
	weights  [][]float64      // by place in held, of the blocks, largest first; nil: all weigh 1
}

type limit struct {
	level int // some rows of lower levels are not held
	quota int64
}

// Snapshot returns the present sample. state is the sum of the live blocks. folds is the
// number of folds of blocks, or 0.
func (s *Sample) Snapshot(state *incremental.State, folds int) *Snapshot {
	out := &Snapshot{
		folds: folds, features: state.Features(), totals: state.Totals(), without: state.Unlabelled(), lacking: s.Lacking(),
		held: slices.Clone(s.held), settings: s.settings, limits: make(map[string]limit, len(s.strata)),
	}
	quota := s.quota()
	for name, t := range s.strata {
		out.limits[name] = limit{t.sure, quota}
	}
	if s.unlabelled() {
		out.ids = make(map[int32]string, len(s.kept))
		for id, at := range s.kept {
			if first, ok := out.ids[at]; !ok || id < first {
				out.ids[at] = id
			}
		}
	}
	return out
}

// Weighted is Snapshot with each row's weight multiplied by that of its block. The totals are those
// of weighted, the sum of the weighted blocks, in any coordinates. The rows are chosen as if all
// blocks weighed 1. Then those of blocks of weight 0 are left out.
func (s *Sample) Weighted(state *incremental.State, folds int, weighted *incremental.State, weight func(id string) float64) *Snapshot {
	out := s.Snapshot(state, folds)
	out.totals, out.without = weighted.Totals(), weighted.Unlabelled()
	out.weights = make([][]float64, len(out.held))
	for id, at := range s.kept {
		out.weights[at] = append(out.weights[at], weight(id))
	}
	for _, w := range out.weights {
		slices.SortFunc(w, func(a, b float64) int { return cmp.Compare(b, a) })
	}
	return out
}

// View is the sample of the rows of a live set that have a label.
type View struct {
	// Block has the rows, by ascending hash. Its first rows, for any number, are a
	// sample of that size (of all classes together, if balanced). Its classes are
	// those of the live set, in canonical order.
	Block *incremental.Block

	// Fold is the fold of each row's block, or nil.
	Fold []int32

	// Totals count the live rows that the rows of each class stand for, in the
	// order of Block.Classes.
	Totals []incremental.ClassTotal

	// Lacking is the number of live blocks that lack rows. If it is 0, the view is a
	// function of the live set. Otherwise it is a smaller sample of the other rows.
	Lacking int
}

// Complete reports whether the view has every row of the sample.
func (v *View) Complete() bool { return v.Lacking == 0 }

// chosen is a row that may be in a view. It has no pointers, because the garbage
// collector would track each one that sorting moves.
type chosen struct {
	hash  uint64
	block int32 // index in held
	copy  int32 // index in weights of the block
	place
}

// compare orders rows by hash. Rows of equal hashes, mostly of equal blocks, are ordered
// by all of their contents.
func (s *Snapshot) compare(c, d chosen) int {
	if c.hash != d.hash {
		return cmp.Compare(c.hash, d.hash)
	}
	return cmp.Or(compare(s.held[c.block].part, c.place, s.held[d.block].part, d.place), cmp.Compare(s.weight(d), s.weight(c)))
}

// weight is the weight of the block of a row.
func (s *Snapshot) weight(c chosen) float64 {
	if s.weights == nil {
		return 1
	}
	return s.weights[c.block][c.copy]
}

// View chooses the rows of the sample that have a label and lays them out in columns.
func (s *Snapshot) View() *View { return s.view(s.choose(false)) }

// Unlabelled is the sample of the rows of a live set that have no label.
type Unlabelled struct {
	View           // of the class incremental.Unlabelled
	Places []Place // of each row
}

// Place locates a row. Of blocks with equal rows it names the one with the first id.
type Place struct {
	Block string
	Row   int // 0-based, rows of weight 0 included
}

// Unlabelled chooses the rows of the sample that have no label.
func (s *Snapshot) Unlabelled() *Unlabelled {
	all := s.choose(true)
	other := *s
	other.totals = []incremental.ClassTotal{s.without}
	out := &Unlabelled{View: *other.view(all), Places: make([]Place, len(all))}
	for i, c := range all {
		r, row := s.held[c.block].part.row(c.place)
		out.Places[i] = Place{s.ids[c.block], int(r.place(row))}
	}
	return out
}

// choose chooses the rows of the sample with a label, or those without.
func (s *Snapshot) choose(unlabelled bool) []chosen {
	strata := map[string][]chosen{}
	for block, h := range s.held {
		p := h.part
		if p == nil {
			continue
		}
		z, none := streamOf(p.seed, &p.digest), p.unlabelled()
		for piece := range p.pieces {
			r := &p.pieces[piece]
			for i := range r.len() {
				code := r.code(i)
				if (code == none) != unlabelled {
					continue
				}
				level, name := r.level(i), s.settings.stratum(p.labels[code])
				if level >= s.limits[name].level {
					c := chosen{z.hash(r.index(i), level), int32(block), 0, place{int32(piece), int32(i)}}
					for c.copy = range s.apart(c.block) {
						strata[name] = append(strata[name], c)
					}
				}
			}
		}
	}
	var all []chosen
	for name, rows := range strata {
		slices.SortFunc(rows, s.compare)
		room := int(s.limits[name].quota)
		for _, c := range rows {
			copies := s.held[c.block].copies / s.apart(c.block)
			for range min(room, int(copies)) {
				all = append(all, c)
				room--
			}
		}
	}
	if s.settings.Balanced {
		slices.SortFunc(all, s.compare)
	}
	return slices.DeleteFunc(all, func(c chosen) bool { return s.weight(c) == 0 })
}

// apart is the number of copies of a block that are chosen apart: all if they have weights, or else
// one that stands for all.
func (s *Snapshot) apart(block int32) int32 {
	if s.weights == nil {
		return 1
	}
	return int32(len(s.weights[block]))
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
	for i, c := range all { // copy whole rows: each is far in memory from the last one
		p := s.held[c.block].part
		r, row := p.row(c.place)
		b.Codes[i] = code[p.labels[r.code(row)]]
		b.Weights[i] = r.weight(row) * s.weight(c)
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
