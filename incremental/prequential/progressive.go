package prequential

import (
	"errors"
	"fmt"
	"slices"

	"streamd/incremental"
)

// Progressive judges the blocks of a log by planes of the blocks before (progressive validation:
// Blum, Kalai and Langford 1999). The planes are solved again at cuts, after every so many blocks,
// from the exact sums of all blocks so far. So the figures are a function of the order of the
// blocks and of the settings alone: it does not matter how fast the blocks come.
//
// Rows before the first planes are not judged, and planes take rows of two classes. A class that
// has come since the last cut is unknown, and its rows are wrong. A cut costs O(n³) for n
// features. The sums take O(n²) memory for each class. It is not safe for concurrent use.
type Progressive struct {
	options incremental.Options
	every   int
	state   *incremental.State
	model   *incremental.Model // of the last cut; nil: no planes yet

	all     Evaluation
	course  []Piece
	pieces  int // cuts that a piece of the course is of
	last    string
	blocks  int64
	waiting int64 // rows before the first planes
	solves  int

	class  []int32
	values []float64
}

// Piece has the counts of consecutive judged rows.
type Piece struct {
	Rows, Right, Repeats int64
	Classes              map[string]int64 // rows of each label
	cuts                 int
}

// mostPieces bounds the course. When there are as many, two become one.
const mostPieces = 200

// NewProgressive begins with no blocks. Planes have the options, and are solved after every so many
// blocks.
func NewProgressive(features []string, o incremental.Options, every int) *Progressive {
	return &Progressive{options: o, every: every, state: incremental.NewState(features), pieces: 1}
}

// Judge judges the rows of the next block. Rows of weight 0, or without a label, do not count.
func (p *Progressive) Judge(b *incremental.Block) {
	m := p.model
	var known []int
	planes := 0
	if m != nil {
		known, planes = b.ClassesIn(m.Classes), len(m.Planes)
		p.class = slices.Grow(p.class[:0], b.Rows())[:b.Rows()]
		p.values = slices.Grow(p.values[:0], b.Rows()*planes)[:b.Rows()*planes]
		m.Classify(p.class, p.values, b.Columns)
	}
	for i, code := range b.Codes {
		label := b.Classes[code]
		if b.Weight(i) == 0 || label == incremental.Unlabelled {
			continue
		}
		repeats := label == p.last
		p.last = label
		if m == nil {
			p.waiting++
			continue
		}
		class := int32(known[code])
		p.all.Add(class, p.class[i], SquaredError(p.values[i*planes:][:planes], class), repeats)
		p.course[len(p.course)-1].count(label, class == p.class[i], repeats)
	}
}

// Add adds the sums of the block that was judged last. If planes are due they are solved: an error
// is that of the solve.
func (p *Progressive) Add(s *incremental.Summary) error {
	p.state.Add(s)
	if p.blocks++; p.blocks%int64(p.every) != 0 {
		return nil
	}
	m, err := p.state.Moments().Solve(p.options)
	switch {
	case errors.Is(err, incremental.ErrClasses):
		return nil
	case err != nil:
		return fmt.Errorf("solve for the planes after %d blocks: %w", p.blocks, err)
	}
	p.solves++
	p.model = m
	p.all.SetClasses(m.Classes)
	p.next()
	return nil
}

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

// Classes are those of the figures.
func (p *Progressive) Classes() []string { return p.all.Classes() }

// Figures are those of all judged rows.
func (p *Progressive) Figures() Figures { return p.all.Window() }

// Waited is the number of rows that came before the first planes, and Solves that of the cuts that
// made planes.
func (p *Progressive) Waited() int64 { return p.waiting }
func (p *Progressive) Solves() int   { return p.solves }

// Course has the counts of all judged rows, in their order and in at most 200 pieces, each of as
// many cuts but for the last.
func (p *Progressive) Course() []Piece {
	return slices.DeleteFunc(slices.Clone(p.course), func(c Piece) bool { return c.Rows == 0 })
}
