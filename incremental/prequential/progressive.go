package prequential

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/confusion"
)

// Progressive judges the blocks of a log by planes of the blocks before (progressive validation:
// Blum, Kalai and Langford 1999). The planes are solved again at cuts, after every so many blocks,
// from the exact sums of the blocks so far. So the figures are a function of the order of the
// blocks and of the settings alone: it does not matter how fast the blocks come.
//
// Rows before the first planes are not judged, and planes take rows of two classes. A class that
// has come since the last cut is not known, and its rows are wrong. The caller has the sums, and
// solves: a cut costs O(n³) for n features. A Progressive is not safe for concurrent use.
type Progressive struct {
	every   int
	model   *incremental.Model // of the last cut; nil: no planes
	last    string             // label of the row before
	blocks  int64
	waiting int64
	solves  int64
	tally   Tally

	course []Piece
	pieces int // cuts that a piece of the course is of

	class  []int32
	values []float64
	counts []int64
}

// Tally counts judged rows.
type Tally struct {
	pairs         map[pair]int64
	rows, repeats int64
	loss          float64 // sum, of the rows of known classes
	known         int64   // rows of known classes
}

type pair struct{ label, answer string }

// Piece has the counts of consecutive judged rows.
type Piece struct {
	Rows, Right, Repeats int64
	Classes              map[string]int64 // rows of each label
	cuts                 int
}

// mostPieces bounds the course. When there are as many, two become one.
const mostPieces = 200

// NewProgressive begins with no blocks, and wants planes after every so many of them.
func NewProgressive(every int) *Progressive { return &Progressive{every: every, pieces: 1} }

// Judge judges the rows of the next block. Rows of weight 0, or without a label, do not count.
// before is the label before its first row, "" for that of the last row of the block before.
func (p *Progressive) Judge(b *incremental.Block, before string) {
	m, planes := p.model, 0
	var known []int
	if m != nil {
		known, planes = b.ClassesIn(m.Classes), len(m.Planes)
		p.class = slices.Grow(p.class[:0], b.Rows())[:b.Rows()]
		p.values = slices.Grow(p.values[:0], b.Rows()*planes)[:b.Rows()*planes]
		m.Classify(p.class, p.values, b.Columns)
		p.counts = slices.Grow(p.counts[:0], len(b.Classes)*len(m.Classes))[:len(b.Classes)*len(m.Classes)]
		clear(p.counts)
	}
	if before == "" {
		before = p.last
	}
	for i, code := range b.Codes {
		label := b.Classes[code]
		if b.Weight(i) == 0 || label == incremental.Unlabelled {
			continue
		}
		repeats := label == before
		before = label
		if m == nil {
			p.waiting++
			continue
		}
		t, class := &p.tally, int32(known[code])
		p.counts[int(code)*len(m.Classes)+int(p.class[i])]++
		t.rows++
		if repeats {
			t.repeats++
		}
		if class >= 0 {
			t.known++
			t.loss += min(SquaredError(p.values[i*planes:][:planes], class), mostLoss)
		}
		p.course[len(p.course)-1].count(label, class == p.class[i], repeats)
	}
	p.last = before
	if m == nil {
		return
	}
	for code, label := range b.Classes {
		for answer, n := range p.counts[code*len(m.Classes):][:len(m.Classes)] {
			if n > 0 {
				p.tally.count(pair{label, m.Classes[answer]}, n)
			}
		}
	}
}

func (t *Tally) count(of pair, n int64) {
	if t.pairs == nil {
		t.pairs = map[pair]int64{}
	}
	t.pairs[of] += n
}

// Add counts the block that was judged last. due says that it ends a cut: then the planes of all
// blocks so far are wanted by Cut.
func (p *Progressive) Add() (due bool) {
	p.blocks++
	return p.blocks%int64(p.every) == 0
}

// Cut takes the planes that judge the next blocks.
func (p *Progressive) Cut(m *incremental.Model) {
	p.model = m
	p.solves++
	p.next()
}

// Drop forgets the planes, where rows that they were made of are to be forgotten. The next cut has
// others, and the rows until then are not judged.
func (p *Progressive) Drop() { p.model = nil }

// next begins the rows of the next cut.
func (p *Progressive) next() {
	if n := len(p.course); n > 0 && p.course[n-1].cuts < p.pieces {
		p.course[n-1].cuts++
		return
	}
	if len(p.course) == mostPieces {
		p.pieces *= 2
		for i := range mostPieces / 2 {
			p.course[i] = p.course[2*i]
			p.course[i].merge(&p.course[2*i+1])
		}
		p.course = p.course[:mostPieces/2]
	}
	p.course = append(p.course, Piece{Classes: map[string]int64{}, cuts: 1})
}

func (c *Piece) count(label string, right, repeats bool) {
	c.Rows++
	c.Classes[label]++
	if right {
		c.Right++
	}
	if repeats {
		c.Repeats++
	}
}

func (c *Piece) merge(o *Piece) {
	c.Rows, c.Right, c.Repeats, c.cuts = c.Rows+o.Rows, c.Right+o.Right, c.Repeats+o.Repeats, c.cuts+o.cuts
	for label, rows := range o.Classes {
		c.Classes[label] += rows
	}
}

// Waited is the number of rows that came while there were no planes, and Solves that of the cuts
// that made planes.
func (p *Progressive) Waited() int64 { return p.waiting }
func (p *Progressive) Solves() int64 { return p.solves }

// Tally has the counts of all judged rows.
func (p *Progressive) Tally() *Tally { return &p.tally }

// Course has the counts of all judged rows since the start, in their order and in at most 200
// pieces, each of as many cuts but for the last.
func (p *Progressive) Course() []Piece {
	return slices.DeleteFunc(slices.Clone(p.course), func(c Piece) bool { return c.Rows == 0 })
}

// Keep drops the counts of labels that are not among some, and the label of the last row if it is
// none of them.
func (p *Progressive) Keep(labels []string) {
	if !slices.Contains(labels, p.last) {
		p.last = ""
	}
	maps.DeleteFunc(p.tally.pairs, func(of pair, _ int64) bool {
		return !slices.Contains(labels, of.label) || !slices.Contains(labels, of.answer)
	})
}

// Merge adds the counts of another tally.
func (t *Tally) Merge(o *Tally) {
	for of, n := range o.pairs {
		t.count(of, n)
	}
	t.rows, t.repeats, t.loss, t.known = t.rows+o.rows, t.repeats+o.repeats, t.loss+o.loss, t.known+o.known
}

// Labels are the labels of the rows and of the answers, in order.
func (t *Tally) Labels() []string {
	all := map[string]bool{}
	for of := range t.pairs {
		all[of.label], all[of.answer] = true, true
	}
	return slices.Sorted(maps.Keys(all))
}

// Figures are those of the rows and answers of some labels, in order.
func (t *Tally) Figures(labels []string) Figures {
	f := Figures{Matrix: confusion.New(len(labels)), SquaredLoss: t.loss / float64(t.known), LastLabel: float64(t.repeats) / float64(t.rows)}
	for of, n := range t.pairs {
		class, is := slices.BinarySearch(labels, of.label)
		answer, has := slices.BinarySearch(labels, of.answer)
		if is && has {
			f.Matrix.Add(int32(class), int32(answer), float64(n))
		}
	}
	return f
}

// saved is the record of a Progressive. Numbers of JSON have the bits of those that were written.
type saved struct {
	Every    int          `json:"every"`
	Last     string       `json:"last"`
	Blocks   int64        `json:"blocks"`
	Waiting  int64        `json:"waiting"`
	Solves   int64        `json:"solves"`
	Rows     int64        `json:"rows"`
	Repeats  int64        `json:"repeats"`
	Known    int64        `json:"known"`
	Loss     float64      `json:"loss"`
	Pairs    []savedPair  `json:"pairs"`
	Features []string     `json:"features,omitempty"`
	Classes  []string     `json:"classes,omitempty"`
	Planes   []savedPlane `json:"planes,omitempty"`
}

type savedPair struct {
	Label  string `json:"label"`
	Answer string `json:"answer"`
	Rows   int64  `json:"rows"`
}

type savedPlane struct {
	Class string    `json:"class"`
	W     []float64 `json:"w"`
	Gamma float64   `json:"gamma"`
}

// MarshalJSON writes the counts and the planes, without the course.
func (p *Progressive) MarshalJSON() ([]byte, error) {
	t := &p.tally
	s := saved{
		Every: p.every, Last: p.last, Blocks: p.blocks, Waiting: p.waiting, Solves: p.solves,
		Rows: t.rows, Repeats: t.repeats, Known: t.known, Loss: t.loss, Pairs: []savedPair{},
	}
	for of, n := range t.pairs {
		s.Pairs = append(s.Pairs, savedPair{of.label, of.answer, n})
	}
	slices.SortFunc(s.Pairs, func(a, b savedPair) int {
		return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Answer, b.Answer))
	})
	if m := p.model; m != nil {
		s.Features, s.Classes = m.Features, m.Classes
		for _, plane := range m.Planes {
			s.Planes = append(s.Planes, savedPlane{plane.Class, plane.W, plane.Gamma})
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (p *Progressive) UnmarshalJSON(text []byte) error {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if s.Every < 1 || s.Blocks < 0 || len(s.Planes) > 0 && len(s.Classes) < 2 {
		return errors.New("the progressive figures have no cuts, or planes without classes")
	}
	*p = Progressive{every: s.Every, last: s.Last, blocks: s.Blocks, waiting: s.Waiting, solves: s.Solves, pieces: 1}
	p.tally = Tally{rows: s.Rows, repeats: s.Repeats, known: s.Known, loss: s.Loss}
	for _, of := range s.Pairs {
		p.tally.count(pair{of.Label, of.Answer}, of.Rows)
	}
	if len(s.Planes) == 0 {
		return nil
	}
	m := &incremental.Model{Features: s.Features, Classes: s.Classes}
	for _, plane := range s.Planes {
		if len(plane.W) != len(s.Features) || !finite(plane.Gamma) || !slices.Contains(s.Classes, plane.Class) {
			return errors.New("the progressive figures have a plane of another shape")
		}
		m.Planes = append(m.Planes, incremental.Plane{Class: plane.Class, W: plane.W, Gamma: plane.Gamma})
	}
	if n := len(s.Planes); n != len(s.Classes) && (n != 1 || len(s.Classes) != 2) {
		return errors.New("the progressive figures have other planes than classes")
	}
	p.model = m
	p.next()
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Every is the number of blocks of a cut, and Features are those of the planes, nil without.
func (p *Progressive) Every() int { return p.every }
func (p *Progressive) Features() []string {
	if p.model == nil {
		return nil
	}
	return p.model.Features
}
