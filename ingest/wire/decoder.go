package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Limits bound what a payload may hold. Zero means the default.
type Limits struct {
	Bytes    int // of the payload, and of what an Arrow body decompresses to; default 64 MiB
	Rows     int // default 1 << 20
	Features int // default 4096
	Classes  int // default 1000
	Numbers  int // bytes of memory that a payload is decoded to; default four times Bytes
}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		limit *int
		value int
	}{{&l.Bytes, 64 << 20}, {&l.Rows, 1 << 20}, {&l.Features, 4096}, {&l.Classes, 1000}} {
		if *f.limit == 0 {
			*f.limit = f.value
		}
	}
	if l.Numbers == 0 {
		l.Numbers = 4 * l.Bytes
	}
	return l
}

// cells bounds rows × features of sparse rows: as float64 they take no more than the
// largest payload.
func (l Limits) cells() int { return l.Bytes / 8 }

// Options say how payloads are to be read. The zero value reads whatever names
// itself: a label called "label", no weights, any features.
type Options struct {
	// Format is for payloads without a content type. Zero: those are refused.
	Format Format

	// Label is the name of the label's column or field, "label" by default. In
	// CSV it may also be "first", "last" or a 1-based column number, unless a
	// header has a column of that very name; without a header "label" means
	// the first column. LIBSVM's label is always the first field.
	Label string

	// Weight is the name of the column or field with the rows' weights. Empty:
	// there is none. CSV without a header and LIBSVM have no place for weights:
	// the former is refused then, the latter read with all weights 1.
	Weight string

	// Features, when not nil, selects and orders the features by name. Data
	// without names is taken by position if it has as many, in LIBSVM at most
	// as many. Nil: each block has the features that it happens to have, and
	// those with names come in their canonical order (incremental.CompareFeatures),
	// whatever the order in the payload.
	Features []string

	// Header is for CSV whose content type does not declare a header.
	Header HeaderMode

	Limits Limits
}

// Error says why a payload is refused.
type Error struct {
	Format Format // 0: not known yet
	Row    int    // first bad row, 0-based; -1: the trouble is not with one row
	Line   int    // of the text, 1-based; 0: not known, or the format has no lines
	Column string // empty: the trouble is not with one column or field
	Reason string
	Memory bool // the payload may be fine where Limits.Numbers is larger
}

func (e *Error) Error() string {
	var s strings.Builder
	if e.Format != 0 {
		s.WriteString(e.Format.String() + ": ")
	}
	if e.Row >= 0 {
		fmt.Fprintf(&s, "row %d: ", e.Row)
	}
	if e.Line > 0 {
		fmt.Fprintf(&s, "line %d: ", e.Line)
	}
	if e.Column != "" {
		fmt.Fprintf(&s, "column %q: ", e.Column)
	}
	s.WriteString(e.Reason)
	return s.String()
}

// Table is what remains of a block without labels and weights.
type Table struct {
	Columns []gram.Column
	Rows    int
}

// Decoder makes blocks of payloads. See the package comment for who owns the
// memory.
type Decoder struct {
	opts Options
	want features // what the next block must have

	// The payload in hand.
	format     Format
	text       []byte // of the formats that have lines
	unlabelled bool

	labels  *labels
	codes   []int32
	weights []float64
	block   incremental.Block
	columns []gram.Column

	// The row formats read one row into row and then push it into cols.
	row  []float64
	cols [][]float64
	rows int
	held int // bytes that cols had at most

	short bool // of memory: Limits.Numbers was met

	seen    names // the names of the last block whose features were not fixed
	sorted  ordered
	scratch []byte
	csv     csvPlan
	json    jsonState
	arrow   arrowState
}

// features says what columns a block must have: these names in this order, or
// just that many, or anything.
type features struct {
	names []string       // nil: not fixed
	index map[string]int // of names
	width int            // 0: not fixed; else the number of names if there are any
}

// NewDecoder checks the options and makes a decoder.
func NewDecoder(opts Options) (*Decoder, error) {
	opts.Limits = opts.Limits.withDefaults()
	if l := opts.Limits; l.Bytes < 0 || l.Rows < 0 || l.Features < 0 || l.Classes < 0 || l.Numbers < 0 {
		return nil, fmt.Errorf("decoder: limits %+v: negative", l)
	}
	// Row indices and codes are int32 on the way.
	if opts.Limits.Rows > math.MaxInt32 || opts.Limits.Classes > math.MaxInt32 {
		return nil, fmt.Errorf("decoder: limits %+v: more than 2³¹−1 rows or classes", opts.Limits)
	}
	if opts.Format != 0 && !opts.Format.valid() {
		return nil, fmt.Errorf("decoder: unknown %v", opts.Format)
	}
	if opts.Header > HeaderAbsent {
		return nil, fmt.Errorf("decoder: unknown header mode %d", opts.Header)
	}
	if opts.Label == "" {
		opts.Label = "label"
	}
	if opts.Label == opts.Weight {
		return nil, fmt.Errorf("decoder: %q is both the label and the weight", opts.Label)
	}
	d := &Decoder{opts: opts, labels: newLabels(opts.Limits.Classes)}
	if opts.Features == nil {
		return d, nil
	}
	if n := len(opts.Features); n == 0 || n > opts.Limits.Features {
		return nil, fmt.Errorf("decoder: %d features: want 1 to %d", n, opts.Limits.Features)
	}
	for _, name := range opts.Features {
		if name == opts.Label || name == opts.Weight {
			return nil, fmt.Errorf("decoder: feature %q is also the label or the weight", name)
		}
	}
	known, twice := newNames(slices.Clone(opts.Features))
	if twice != "" {
		return nil, fmt.Errorf("decoder: feature %q is named twice", twice)
	}
	d.want = features{names: known.list, index: known.index, width: len(known.list)}
	return d, nil
}

// Decode makes a block of a payload. The content type may be empty if the
// options name a format. The block's position is left unset. The error is an
// *Error; the decoder stays usable.
func (d *Decoder) Decode(contentType string, payload []byte) (*incremental.Block, error) {
	d.unlabelled = false
	if err := d.decode(contentType, payload); err != nil {
		return nil, err
	}
	return &d.block, nil
}

// DecodeUnlabelled is Decode for rows whose labels are unknown or of no
// interest: a label and a weight are ignored where there are any. CSV without a
// header has a label if it has one column more than Options.Features; with
// Features nil it has none.
func (d *Decoder) DecodeUnlabelled(contentType string, payload []byte) (Table, error) {
	d.unlabelled = true
	if err := d.decode(contentType, payload); err != nil {
		return Table{}, err
	}
	b := &d.block
	return Table{Columns: b.Columns, Rows: b.Columns[0].Len()}, nil
}

func (d *Decoder) decode(contentType string, payload []byte) error {
	d.format = 0
	if len(payload) > d.opts.Limits.Bytes {
		return d.fail(-1, "", "the payload has %d bytes, the limit is %d", len(payload), d.opts.Limits.Bytes)
	}
	if len(payload) == 0 {
		return d.fail(-1, "", "the payload is empty")
	}
	if payload[0] == 0 {
		if len(payload) < 5 {
			return d.fail(-1, "", "the payload starts with a zero byte, which opens no format")
		}
		return d.fail(-1, "", "the payload is framed for a schema registry (schema id %d); "+
			"produce it without the registry's serializer", binary.BigEndian.Uint32(payload[1:]))
	}
	format, header := d.opts.Format, HeaderAuto
	if contentType != "" {
		var ok bool
		if format, header, ok = FormatOf(contentType); !ok {
			return d.fail(-1, "", "content type %s is not supported: want %s, %s, %s, %s or %s", quoted([]byte(contentType)),
				Arrow.ContentType(), JSON.ContentType(), ndjsonContentType, CSV.ContentType(), LIBSVM.ContentType())
		}
	} else if format == 0 {
		return d.fail(-1, "", "there is no content type and no format is configured")
	}
	d.begin(format, payload)
	if format != Arrow && len(payload) >= 4 && binary.LittleEndian.Uint32(payload) == continuation {
		return d.fail(-1, "", "this is an Arrow stream, whose content type is %s", Arrow.ContentType())
	}
	var err error
	switch format {
	case Arrow:
		err = d.decodeArrow(payload)
	case JSON:
		err = d.decodeJSON(payload)
	case CSV:
		if header == HeaderAuto {
			header = d.opts.Header
		}
		err = d.decodeCSV(payload, header)
	case LIBSVM:
		err = d.decodeLIBSVM(payload)
	}
	return err
}

// keptBytes is how much memory is kept from one block to the next in any case.
const keptBytes = 4 << 20

// begin forgets the last block. Its memory is used again, unless that was grown by a
// block four times as large.
func (d *Decoder) begin(format Format, text []byte) {
	if used := 8 * d.rows * len(d.cols); used < d.held/4 && d.held > keptBytes {
		d.cols, d.columns, d.held = nil, nil, 0
	} else {
		d.held = max(d.held, used)
	}
	if d.arrow.arena.shrink() {
		d.columns, d.arrow.parts, d.arrow.labels, d.arrow.dictionary = nil, nil, labelArray{}, labelArray{}
	}
	d.format, d.text, d.short = format, text, false
	d.labels.reset()
	d.codes, d.weights = d.codes[:0], d.weights[:0]
	d.columns, d.rows = d.columns[:0], 0
	d.block = incremental.Block{}
	for j := range d.cols {
		d.cols[j] = d.cols[j][:0]
	}
	d.cols = d.cols[:0]
}

// finish makes the block; d.columns, d.codes and d.weights are filled.
func (d *Decoder) finish(names []string, weights []float64) {
	d.block.Features, d.block.Columns = names, d.columns
	if d.opts.Features == nil {
		d.block.Features, d.block.Columns = d.sorted.features(names, d.columns)
	}
	if d.unlabelled {
		return
	}
	d.block.Classes, d.block.Codes, d.block.Weights = d.labels.classes, d.codes, weights
}

func (d *Decoder) fail(row int, column, format string, args ...any) *Error {
	return &Error{Format: d.format, Row: row, Column: column, Reason: fmt.Sprintf(format, args...), Memory: d.short}
}

// failAt is fail at a position in the text.
func (d *Decoder) failAt(pos, row int, column, reason string) *Error {
	return &Error{Format: d.format, Row: row, Column: column, Reason: reason, Memory: d.short,
		Line: 1 + bytes.Count(d.text[:min(pos, len(d.text))], []byte{'\n'})}
}

// featureName is what errors call column j.
func featureName(names []string, j int) string {
	if j < len(names) {
		return names[j]
	}
	return incremental.DefaultFeature(j)
}

// weighted is whether rows are to have weights.
func (d *Decoder) weighted() bool { return d.opts.Weight != "" && !d.unlabelled }

// setWidth makes rows of n numbers.
func (d *Decoder) setWidth(n int) {
	d.row = slices.Grow(d.row[:0], n)[:n]
	d.growCols(n)
}

// growCols widens the block to n columns, with zeros in the rows so far.
func (d *Decoder) growCols(n int) {
	for len(d.cols) < n {
		if len(d.cols) < cap(d.cols) { // take up the slice left there by an earlier block
			d.cols = d.cols[:len(d.cols)+1]
		} else {
			d.cols = append(d.cols, nil)
		}
		last := &d.cols[len(d.cols)-1]
		*last = slices.Grow((*last)[:0], d.rows)[:d.rows]
		clear(*last)
	}
}

// room is the reason why there is no room for one more row of n numbers, or "".
func (d *Decoder) room(n int) string {
	switch rows := d.rows + 1; {
	case n > d.opts.Limits.Features:
		return fmt.Sprintf("the row has more than %d features, the limit", d.opts.Limits.Features)
	case rows > d.opts.Limits.Rows:
		return fmt.Sprintf("the block has more than %d rows, the limit", d.opts.Limits.Rows)
	case rows > d.cells()/max(n, 1):
		d.short = d.cells() == d.opts.Limits.Numbers/8
		return fmt.Sprintf("the block has more than %d numbers, the limit for rows of %d bytes: send fewer rows in one", d.cells(), len(d.text))
	}
	return ""
}

// cells bounds rows × features of the text in hand. A number in dense text takes two
// bytes or more, so that only sparse rows can meet the bound.
func (d *Decoder) cells() int {
	return min(max(d.opts.Limits.cells(), len(d.text)/2), d.opts.Limits.Numbers/8)
}

// push adds the row in hand.
func (d *Decoder) push(code int32, weight float64) {
	for j, x := range d.row {
		d.cols[j] = append(d.cols[j], x)
	}
	d.rows++
	if d.unlabelled {
		return
	}
	d.codes = append(d.codes, code)
	if d.weighted() {
		d.weights = append(d.weights, weight)
	}
}

// finishRows makes the block of the pushed rows.
func (d *Decoder) finishRows(names []string) error {
	if d.rows == 0 {
		return d.fail(-1, "", "there are no rows")
	}
	for _, c := range d.cols {
		d.columns = append(d.columns, gram.ColumnOf(c))
	}
	var weights []float64
	if d.weighted() && d.format != LIBSVM {
		weights = d.weights
	}
	d.finish(names, weights)
	return nil
}

// badWeight is the reason why a weight cannot be used, or "".
func badWeight(w float64) string {
	if !(w >= 0) || math.IsInf(w, 1) {
		return fmt.Sprintf("the weight is %v: want a finite number ≥ 0", w)
	}
	return ""
}

// maxName bounds the name of a feature, in bytes.
const maxName = 256

// badName is the reason why a name from a peer cannot be a feature's, or "".
func badName(name []byte) string {
	switch {
	case len(name) == 0:
		return "a feature has an empty name"
	case len(name) > maxName:
		return fmt.Sprintf("the name of feature %s has %d bytes, the limit is %d", quoted(name), len(name), maxName)
	case !utf8.Valid(name):
		return fmt.Sprintf("the name of feature %s is not valid UTF-8", quoted(name))
	}
	return ""
}

// names is an immutable list of distinct names.
type names struct {
	list  []string
	index map[string]int
}

// newNames indexes a list, which it keeps; or returns a name that is in it twice.
func newNames(list []string) (n names, twice string) {
	n = names{list: list, index: make(map[string]int, len(list))}
	for j, name := range list {
		if _, ok := n.index[name]; ok {
			return names{}, name
		}
		n.index[name] = j
	}
	return n, ""
}

// ordered puts features into their canonical order.
type ordered struct {
	from    []string // the names of the last block, as they came
	names   []string // in order
	at      []int    // of each of these, the place among from
	columns []gram.Column
}

// features gives names and columns in the order of the names. The columns are valid
// until the next call. Nil names have no order.
func (o *ordered) features(names []string, columns []gram.Column) ([]string, []gram.Column) {
	if slices.IsSortedFunc(names, incremental.CompareFeatures) {
		return names, columns
	}
	if !slices.Equal(names, o.from) {
		o.at = make([]int, len(names))
		for j := range o.at {
			o.at[j] = j
		}
		slices.SortFunc(o.at, func(i, j int) int { return incremental.CompareFeatures(names[i], names[j]) })
		o.from, o.names = names, make([]string, len(names))
		for j, i := range o.at {
			o.names[j] = names[i]
		}
	}
	o.columns = o.columns[:0]
	for _, i := range o.at {
		o.columns = append(o.columns, columns[i])
	}
	return o.names, o.columns
}

// areFeatures counts them in words.
func areFeatures(n int) string {
	if n == 1 {
		return "is 1 feature"
	}
	return fmt.Sprintf("are %d features", n)
}

// place matches a block's feature names with what is wanted: feature j of the
// block is to become column at[j]. An error names what is missing or unknown.
func (d *Decoder) place(list []string) (at []int, err *Error) {
	if d.want.names == nil {
		if n := len(list); d.want.width != 0 && n != d.want.width {
			return nil, d.fail(-1, "", "there %s, want %d", areFeatures(n), d.want.width)
		}
	}
	known, twice := newNames(list)
	if twice != "" {
		return nil, d.fail(-1, twice, "the name is used twice")
	}
	at = make([]int, len(list))
	for j, name := range list {
		at[j] = j
		if d.want.names == nil {
			continue
		}
		to, ok := d.want.index[name]
		if !ok {
			return nil, d.fail(-1, name, "the feature is unknown")
		}
		at[j] = to
	}
	for _, name := range d.want.names {
		if _, ok := known.index[name]; !ok {
			return nil, d.fail(-1, name, "the feature is missing")
		}
	}
	return at, nil
}
