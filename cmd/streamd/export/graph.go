package export

import (
	"fmt"
	"slices"
	"strings"
)

// op is an operation of a node on rows. Vectors have a fixed width. An argument of width 1 stands
// for a vector of equal elements.
type op uint8

const (
	opNumbers  op = iota // numbers of the row's columns at: NaN where one is missing
	opText               // text of the row's column at[0]
	opConstant           // numbers
	opConcat             // arguments one behind the other
	opPick               // elements at of the argument
	opAdd
	opSub
	opMul
	opDiv
	opMost  // larger one of two; neither may be NaN
	opLeast // smaller one of two; neither may be NaN
	opAbs
	opExp     // of a number that is at most 0
	opLog1p   // log(1+x) of a number above −1
	opLargest // largest element
	opSum     // sum of the elements
	opAffine  // bias + matrix times the argument
	opOrdered // opAffine that adds in the order of the elements: bias, and then one product after the other
	opSquares // squared distance of the argument from each of the points
	opIs      // for each of texts: 1 if the text of the argument equals it, else 0
	opBelow   // place in a table: number of the element's knots below it, plus the place of its own table
	opTable   // numbers at the places of opBelow
	opWhere   // elements of the second argument where the first one holds, else of the third
	opNumber  // 1 where a condition holds, else 0

	// Conditions. A comparison with NaN does not hold.
	opMissing // a number is NaN, or a text stands for a missing value
	opLess
	opAtMost
	opEqual
	opAll // all elements hold

	// Places of classes, of width 1.
	opFirst // place of the largest element, the first of equal ones
	opPlace // 0, or 1 where the condition holds
)

// node is one operation and its result. It is immutable.
type node struct {
	op      op
	width   int
	args    []*node
	at      []int
	numbers []float64   // of a constant or a table; bias of opAffine
	lists   [][]float64 // rows of a matrix, points, or knots by element
	texts   []string
}

// isCondition reports whether the elements are true or false.
func (n *node) isCondition() bool { return n.op >= opMissing && n.op <= opAll }

// isPlace reports whether the elements are whole numbers.
func (n *node) isPlace() bool { return n.op == opFirst || n.op == opPlace || n.op == opBelow }

// filled is the form of an operator with the texts of the node's arguments for %a, %b and %c.
func (n *node) filled(form string, argument func(i int) string) string {
	var texts []string
	for i := range n.args {
		texts = append(texts, "%"+string(rune('a'+i)), argument(i))
	}
	return strings.NewReplacer(texts...).Replace(form)
}

func constant(numbers ...float64) *node {
	return &node{op: opConstant, width: len(numbers), numbers: numbers}
}

// elementwise is an operation on arguments of equal width, or of width 1.
func elementwise(o op, args ...*node) *node {
	width := 1
	for _, a := range args {
		if a.width != 1 && width != 1 && a.width != width {
			panic(fmt.Sprintf("export: operation %d on vectors of %d and %d elements", o, width, a.width))
		}
		width = max(width, a.width)
	}
	return &node{op: o, width: width, args: args}
}

// reduced is an operation whose result is one element.
func reduced(o op, a *node) *node { return &node{op: o, width: 1, args: []*node{a}} }

func concat(args ...*node) *node {
	if len(args) == 1 {
		return args[0]
	}
	n := &node{op: opConcat, args: args}
	for _, a := range args {
		n.width += a.width
	}
	return n
}

// pick is the elements at of a, and a itself where these are all in order.
func pick(a *node, at []int) *node {
	if len(at) == a.width && slices.Equal(at, upTo(a.width)) {
		return a
	}
	return &node{op: opPick, width: len(at), args: []*node{a}, at: at}
}

// upTo lists 0 to n−1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// affine is bias + rows·a.
func affine(a *node, rows [][]float64, bias []float64) *node {
	return &node{op: opAffine, width: len(rows), args: []*node{a}, lists: rows, numbers: bias}
}

func where(condition, a, b *node) *node { return elementwise(opWhere, condition, a, b) }

// walk calls f with each node of the results, once, arguments first.
func walk(f func(*node), results ...*node) {
	seen := map[*node]bool{}
	var visit func(n *node)
	visit = func(n *node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		for _, a := range n.args {
			visit(a)
		}
		f(n)
	}
	for _, n := range results {
		visit(n)
	}
}
