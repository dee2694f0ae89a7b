package predictions

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
)

// pieceBytes is the length from which text is handed on.
const pieceBytes = 32 << 10

// text collects text and hands it on in pieces. After an error it drops everything.
type text struct {
	to    io.Writer
	piece []byte
	err   error
}

func newText(to io.Writer) *text {
	return &text{to: to, piece: make([]byte, 0, pieceBytes+4<<10)}
}

// failed says whether it is of no use to go on.
func (t *text) failed() bool { return t.err != nil }

func (t *text) add(pieces ...string) {
	for _, p := range pieces {
		t.piece = append(t.piece, p...)
	}
}

// separate adds a comma before element i of a list, unless it is the first.
func (t *text) separate(i int) {
	if i > 0 {
		t.piece = append(t.piece, ',')
	}
}

// finite makes a number that is not finite an error. JSON has no form for it.
func (t *text) finite(x float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		t.err = cmp.Or(t.err, fmt.Errorf("a number of the answer is %v: the features or the model are out of range", x))
	}
}

// number adds a finite number.
func (t *text) number(x float64) {
	t.finite(x)
	t.piece = strconv.AppendFloat(t.piece, x, 'g', -1, 64)
}

// numbers adds a list of JSON.
func (t *text) numbers(xs []float64) {
	t.piece = append(t.piece, '[')
	for i, x := range xs {
		t.separate(i)
		t.number(x)
	}
	t.piece = append(t.piece, ']')
	t.flushFull()
}

// named adds an object of JSON. The keys are quoted.
func (t *text) named(keys [][]byte, xs []float64) {
	t.piece = append(t.piece, '{')
	for i, x := range xs {
		t.separate(i)
		t.piece = append(append(t.piece, keys[i]...), ':')
		t.number(x)
	}
	t.piece = append(t.piece, '}')
	t.flushFull()
}

// lists adds a list of n lists of JSON.
func (t *text) lists(n int, of func(i int) []float64) {
	t.piece = append(t.piece, '[')
	for i := 0; i < n && !t.failed(); i++ {
		t.separate(i)
		t.numbers(of(i))
	}
	t.piece = append(t.piece, ']')
}

func (t *text) flushFull() {
	if len(t.piece) >= pieceBytes {
		t.flush()
	}
}

// flush hands on all text, and returns the first error so far.
func (t *text) flush() error {
	if t.err == nil && len(t.piece) > 0 {
		_, t.err = t.to.Write(t.piece)
	}
	t.piece = t.piece[:0]
	return t.err
}
