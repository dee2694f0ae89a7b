package sample

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"

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
	kept     []copies
	settings Settings
	limits   map[string]limit // of each stratum
}

// copies are equal rows of blocks.
type copies struct {
	of     *kept
	number int
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
		kept: make([]copies, 0, len(s.copies)), settings: s.settings, limits: make(map[string]limit, len(s.strata)),
	}
	for k, number := range s.copies {
		out.kept = append(out.kept, copies{k, number})
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

// chosen is a row that may be in a view.
type chosen struct {
	from *kept
	place
	hash uint64
}

func (c chosen) label() string { return c.from.labels[c.rows().codes[c.row]] }

func (c chosen) rows() *rows { return c.from.pieces[c.piece] }

func (c chosen) weight() float64 { return c.rows().weight(int(c.row)) }

func (c chosen) at(j int) float64 { return c.rows().at(int(c.row), j) }

// compare orders rows by hash, and those of equal hashes, which are mostly of
// equal blocks, by everything that can be seen of them.
func (c chosen) compare(d chosen) int {
	if c.hash != d.hash {
		return cmp.Compare(c.hash, d.hash)
	}
	r, s := c.rows(), d.rows()
	if order := cmp.Or(
		bytes.Compare(c.from.digest[:], d.from.digest[:]),
		cmp.Compare(r.index[c.row], s.index[d.row]),
		strings.Compare(c.label(), d.label()),
		cmp.Compare(c.weight(), d.weight()),
	); order != 0 {
		return order
	}
	for j := range r.n {
		x, y := c.at(j), d.at(j)
		if order := cmp.Compare(math.Float64bits(x), math.Float64bits(y)); order != 0 {
			return order
		}
	}
	return 0
}

// View chooses the rows of the sample and puts them in columns.
func (s *Snapshot) View() *View {
	strata := map[string][]chosen{}
	number := make(map[*kept]int, len(s.kept))
	for _, k := range s.kept {
		number[k.of] = k.number
		z := streamOf(s.settings.Seed, &k.of.digest)
		for piece, r := range k.of.pieces {
			for i, level := range r.level {
				name := s.settings.stratum(k.of.labels[r.codes[i]])
				if int(level) >= s.limits[name].level {
					strata[name] = append(strata[name], chosen{k.of, place{int32(piece), int32(i)}, z.hash(r.index[i], int(level))})
				}
			}
		}
	}
	var all []chosen
	for name, rows := range strata {
		slices.SortFunc(rows, chosen.compare)
		room := int(s.limits[name].quota)
		for _, c := range rows {
			for range min(room, number[c.from]) {
				all = append(all, c)
				room--
			}
		}
	}
	if s.settings.Balanced {
		slices.SortFunc(all, chosen.compare)
	}
	return s.view(all)
}

func (s *Snapshot) view(all []chosen) *View {
	v := &View{Totals: s.totals, Lacking: s.lacking}
	b := &incremental.Block{Features: s.features, Codes: make([]int32, len(all))}
	code := map[string]int32{}
	for c, t := range s.totals {
		code[t.Label] = int32(c)
		b.Classes = append(b.Classes, t.Label)
	}
	weighted := false
	for i, c := range all {
		b.Codes[i] = code[c.label()]
		weighted = weighted || c.weight() != 1
	}
	if weighted {
		b.Weights = make([]float64, len(all))
		for i, c := range all {
			b.Weights[i] = c.weight()
		}
	}
	if s.folds > 0 {
		v.Fold = make([]int32, len(all))
		for i, c := range all {
			v.Fold[i] = int32(Fold(c.from.digest, s.folds))
		}
	}
	for j := range s.features {
		b.Columns = append(b.Columns, column(all, j))
	}
	v.Block = b
	return v
}

func column(all []chosen, j int) gram.Column {
	narrow := make([]float32, len(all))
	for i, c := range all {
		x := c.at(j)
		if narrow[i] = float32(x); float64(narrow[i]) != x {
			wide := make([]float64, len(all))
			for i, c := range all {
				wide[i] = c.at(j)
			}
			return gram.ColumnOf(wide)
		}
	}
	return gram.ColumnOf(narrow)
}
