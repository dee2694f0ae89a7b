package wire

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// A Schema makes the features of rows from the columns of payloads. What it makes of a row depends
// on that row alone. It is immutable.
type Schema interface {
	// Sources are the columns that payloads must have.
	Sources() []Source
	// Columns are the names of the features, in their order.
	Columns() []string
	// Ignores are the names of columns that are passed over.
	Ignores() []string
	// NewMaker makes what makes the features of one block after another.
	NewMaker() Maker
}

// Source is a column of payloads.
type Source struct {
	Name string
	Text bool // its values are names, of the classes that they would be as labels; none has 2^15 words
	Gaps bool // its values may be missing

	Verbatim bool // a text is its own name: "1.0" is not 1
}

// A Maker belongs to one goroutine.
type Maker interface {
	// Make makes the features of a block of m rows. in has the sources: numbers, or of a text the
	// codes of its values; a missing value is NaN. names has the names of the codes for each text,
	// and nil for other sources. Codes keep their names until renewed is true, as for the first
	// block. room is the most bytes that Make may need. The columns may share the memory of in, and
	// are valid until the next call.
	Make(m int, in []gram.Column, names [][]string, renewed bool, room int) ([]gram.Column, *Unmade)
}

// Unmade says why Make has made no features.
type Unmade struct {
	Row    int // the first bad row; -1: the trouble is not with one row
	Source string
	Reason string
	Memory bool // there is not room enough
}

// coder gives the values of a column of texts codes. A code stands for one name until the coder is
// renewed. Its methods return a code, or NaN for a missing value, or the reason why there is none.
type coder struct {
	b        *builder
	verbatim bool

	ids     map[string]int32 // name → code
	spelled spellings        // text → code
	names   []string         // code → name

	small   [smallLabels]int32 // integer + smallLabels/2 → code, or -1
	scratch []byte
}

// maxText bounds the bytes of a text, and keptTexts those of all texts that are kept from one block
// to the next. A block's texts take no more than Limits.Numbers.
const (
	maxText   = 64<<10 - 2 // fewer than 2^15 words, which package schema counts
	keptTexts = 4 << 20
	textEntry = 100 // bytes of a map's entry, about
)

func (b *builder) newCoder(verbatim bool) *coder {
	t := &coder{b: b, verbatim: verbatim}
	t.renew()
	return t
}

func (t *coder) renew() {
	t.ids, t.spelled, t.names = map[string]int32{}, newSpellings(), nil
	for i := range t.small {
		t.small[i] = -1
	}
}

// renewTexts forgets the texts of former blocks where they are many.
func (b *builder) renewTexts() {
	m := &b.making
	if m.held <= keptTexts {
		return
	}
	m.held, m.renewed = 0, true
	for _, t := range m.texts {
		if t != nil {
			t.renew()
		}
	}
	for _, t := range m.named {
		t.renew()
	}
}

// holds counts a text that is kept, or says that there is no room for it.
func (t *coder) holds(n int) (reason string) {
	b := t.b
	if b.making.held += n + textEntry; b.making.held > b.opts.Limits.Numbers {
		b.short = true
		return fmt.Sprintf("the texts of the block take more than %d bytes, the limit", b.opts.Limits.Numbers)
	}
	return ""
}

// code is the code of a name.
func (t *coder) code(name string) (code float64, reason string) {
	id, ok := t.ids[name]
	if !ok {
		id = int32(len(t.names))
		t.ids[name] = id
		t.names = append(t.names, name)
		reason = t.holds(len(name))
	}
	return float64(id), reason
}

// text is the code of a text, with blanks around it.
func (t *coder) text(b []byte) (code float64, reason string) {
	if id, ok := t.spelled.id(b); ok {
		return float64(id), ""
	}
	if isMissing(trimPadding(b)) {
		return math.NaN(), ""
	}
	if !t.verbatim {
		b = trimPadding(b)
	}
	switch {
	case len(b) > maxText:
		return 0, fmt.Sprintf("the text has %d bytes, the limit is %d", len(b), maxText)
	case !utf8.Valid(b):
		return 0, "the text " + quoted(b) + " is not valid UTF-8"
	}
	spelling := string(b)
	name := spelling
	if class, reason := classOfText(spelling); reason == "" && !t.verbatim {
		name = class
	}
	if code, reason = t.code(name); reason == "" {
		t.spelled.add(spelling, int32(code))
		reason = t.holds(len(spelling))
	}
	return code, reason
}

// number is the code of a value that is a number in its format.
func (t *coder) number(x float64) (code float64, reason string) {
	if math.IsNaN(x) {
		return x, ""
	}
	k := int(x)
	at := k + smallLabels/2
	small := uint(at) < smallLabels && float64(k) == x
	if small && t.small[at] >= 0 {
		return float64(t.small[at]), ""
	}
	if math.IsInf(x, 0) {
		t.scratch = strconv.AppendFloat(t.scratch[:0], x, 'g', -1, 64)
	} else {
		t.scratch = incremental.AppendNumberLabel(t.scratch[:0], x)
	}
	if id, ok := t.ids[string(t.scratch)]; ok {
		code = float64(id)
	} else {
		code, reason = t.code(string(t.scratch))
	}
	if small {
		t.small[at] = int32(code)
	}
	return code, reason
}

// boolean is the code of a value that is a boolean in its format.
func (t *coder) boolean(is bool) (code float64, reason string) {
	return t.code(strconv.FormatBool(is))
}

// numbers makes codes of a column of numbers, such as those of LIBSVM.
func (t *coder) numbers(c gram.Column) (bad int, reason string) {
	values, _ := gram.Values[float64](c)
	for i := range values {
		if values[i], reason = t.number(values[i]); reason != "" {
			return i, reason
		}
	}
	return 0, ""
}

// making makes the features of blocks by Options.Schema.
type making struct {
	maker   Maker
	sources []Source
	texts   []*coder // of each source; nil: its values are numbers
	names   [][]string
	renewed bool
	held    int               // bytes of the texts
	objects map[string]bool   // of JSON that have sources
	named   map[string]*coder // of columns that are read as texts (Options.AsTexts), in Arrow
}

// withSchema makes a decoder's options and features those of a schema.
func withSchema(opts Options) (Options, features, error) {
	s := opts.Schema
	columns, sources := s.Columns(), s.Sources()
	if opts.Features != nil && !slices.Equal(opts.Features, columns) {
		return opts, features{}, fmt.Errorf("decoder: the features are %.200q, and the schema makes %.200q", opts.Features, columns)
	}
	if n := len(columns); n > opts.Limits.Features {
		return opts, features{}, fmt.Errorf("decoder: the schema makes %d features: want up to %d", n, opts.Limits.Features)
	}
	opts.Missing = Missing{Features: map[string]MissingPolicy{}}
	list := make([]string, len(sources))
	for j, source := range sources {
		list[j] = source.Name
		if source.Gaps {
			opts.Missing.Features[source.Name] = MissingNaN
		}
	}
	opts.Features = columns
	opts.Ignore = slices.Clone(opts.Ignore)
	for _, name := range s.Ignores() {
		opts.Ignore = append(opts.Ignore, patternOf(name))
	}
	if err := opts.checkNames(list); err != nil {
		return opts, features{}, err
	}
	all, twice := newNames(list)
	if twice != "" {
		return opts, features{}, fmt.Errorf("decoder: the schema has column %q twice", twice)
	}
	return opts, features{names: all, width: len(list), columns: columns}, nil
}

// patternOf is the pattern of one name.
func patternOf(name string) string {
	var p []byte
	for i := range len(name) {
		switch name[i] {
		case '*', '?', '[', '\\':
			p = append(p, '\\')
		}
		p = append(p, name[i])
	}
	return string(p)
}

// prepareSchema makes room for the texts of the schema's sources.
func (b *builder) prepareSchema() {
	b.texts = b.opts.AsTexts
	if b.opts.Schema == nil {
		return
	}
	m := &b.making
	m.maker, m.sources = b.opts.Schema.NewMaker(), b.opts.Schema.Sources()
	m.texts, m.names, m.renewed = make([]*coder, len(m.sources)), make([][]string, len(m.sources)), true
	m.objects = map[string]bool{}
	for j, source := range m.sources {
		for i, c := range source.Name {
			if c == '.' {
				m.objects[source.Name[:i]] = true
			}
		}
		if source.Text {
			b.texts = true
			m.texts[j] = b.newCoder(source.Verbatim)
		}
	}
}

// textsAt has the codes of column j. It is nil if the column has numbers.
func (b *builder) textsAt(j int) *coder {
	if b.opts.AsTexts && j >= 0 {
		for len(b.making.texts) <= j {
			b.making.texts = append(b.making.texts, b.newCoder(false))
		}
	}
	if uint(j) < uint(len(b.making.texts)) {
		return b.making.texts[j]
	}
	return nil
}

// textsNamed has the codes of a named column. It is nil if the column has numbers.
func (b *builder) textsNamed(name string) *coder {
	if b.opts.AsTexts {
		t := b.making.named[name]
		if t == nil {
			if t = b.newCoder(false); b.making.named == nil {
				b.making.named = map[string]*coder{}
			}
			b.making.named[name] = t
		}
		return t
	}
	if len(b.making.texts) == 0 {
		return nil
	}
	if j, ok := b.want.index[name]; ok {
		return b.making.texts[j]
	}
	return nil
}

// made makes the features of the columns, which hold so many bytes.
func (b *builder) made(held int) *Error {
	m := &b.making
	for j, t := range m.texts {
		if t == nil {
			continue
		}
		if b.format == LIBSVM {
			if bad, reason := t.numbers(b.columns[j]); reason != "" {
				return b.fail(bad, m.sources[j].Name, "%s", reason)
			}
		}
		m.names[j] = t.names
	}
	rows := b.columns[0].Len()
	columns, bad := m.maker.Make(rows, b.columns, m.names, m.renewed, max(0, b.opts.Limits.Numbers-held-m.held))
	if bad != nil {
		b.short = bad.Memory
		return b.fail(bad.Row, bad.Source, "%s", bad.Reason)
	}
	m.renewed = false
	b.block.Features, b.block.Columns = b.want.columns, columns
	return nil
}

// SourcesOf is a schema that makes nothing: its features are the columns that s makes features of,
// any of whose values may be missing. Decoder.Texts has their texts.
func SourcesOf(s Schema) Schema { return sourcesOf{s} }

type sourcesOf struct{ Schema }

func (s sourcesOf) Sources() []Source {
	list := slices.Clone(s.Schema.Sources())
	for j := range list {
		list[j].Gaps = true
	}
	return list
}

func (s sourcesOf) Columns() (names []string) {
	for _, source := range s.Sources() {
		names = append(names, source.Name)
	}
	return names
}

func (s sourcesOf) NewMaker() Maker { return s }

func (sourcesOf) Make(_ int, in []gram.Column, _ [][]string, _ bool, _ int) ([]gram.Column, *Unmade) {
	return in, nil
}

// Texts are the texts of the last block's columns, with Options.AsTexts or SourcesOf a schema:
// names[j][c] is that of the code c in column j, where a missing value is NaN. It is nil for
// columns of numbers, such as the elements of Arrow's lists.
func (d *Decoder) Texts() (names [][]string) {
	b := &d.builder
	if _, is := b.opts.Schema.(sourcesOf); is {
		return slices.Clone(b.making.names)
	}
	if !b.opts.AsTexts {
		return nil
	}
	for j := range b.columns {
		var t *coder
		switch b.format {
		case Arrow:
			t = b.making.named[featureName(b.block.Features, j)]
		default:
			t = b.textsAt(j)
		}
		if b.format == LIBSVM {
			t.numbers(b.columns[j]) // there is room: it has none but a sample
		}
		if t == nil {
			names = append(names, nil)
			continue
		}
		names = append(names, t.names)
	}
	return names
}

// mayLack is whether a source's values may be missing: then a row of JSON need not have it.
func (b *builder) mayLack(j int) bool {
	return b.opts.AsTexts || b.opts.Schema != nil && b.making.sources[j].Gaps
}

// codedTexts reads the arrays of field k, whose values are texts, as codes.
func (r *batchReader) codedTexts(k int) ([]byte, error) {
	a := r.a
	field := &a.plan.fields[k]
	typ := field.typ
	if field.encoded {
		typ = field.index
	}
	s, err := r.scalars(typ, r.rows, field.name)
	if err != nil {
		return nil, err
	}
	out, err := a.allocate(8 * r.rows)
	if err != nil {
		return nil, err
	}
	codes := unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(out))), r.rows)
	reason, bad := "", 0
	if field.encoded {
		entries := &a.dictionaries[k]
		if entries.rows < 0 {
			return nil, a.fail(-1, field.name, "the stream has no dictionary for the column")
		}
		bad, reason = a.entryTexts(codes, &s, entries, field)
	} else {
		for bad = range codes {
			if codes[bad], reason = a.textCode(&s, bad, field); reason != "" {
				break
			}
		}
	}
	if reason != "" {
		r.badRow(bad, field.name, reason)
	}
	return out, nil
}

// entryTexts writes the codes of a dictionary's entries. It stops at a bad element.
func (a *arrowReader) entryTexts(codes []float64, s, entries *scalars, field *arrowField) (bad int, reason string) {
	const unknown = -1
	a.entries = slices.Grow(a.entries[:0], entries.rows)[:entries.rows]
	for i := range a.entries {
		a.entries[i] = unknown
	}
	s.numbers(codes, 0)
	for i, index := range codes {
		switch {
		case s.isNull(i):
			if codes[i] = math.NaN(); !field.gaps {
				return i, isNull
			}
			continue
		case !(index >= 0 && index < float64(entries.rows)):
			return i, "the index is outside its dictionary"
		}
		code := &a.entries[int(index)]
		if *code == unknown {
			if *code, reason = a.textCode(entries, int(index), field); reason != "" {
				return i, reason
			}
		}
		codes[i] = *code
	}
	return 0, ""
}

// textCode is the code of element i of an array of texts, numbers, booleans or times.
func (a *arrowReader) textCode(s *scalars, i int, field *arrowField) (code float64, reason string) {
	t := field.texts
	switch {
	case s.isNull(i):
		if !field.gaps {
			return 0, isNull
		}
		return math.NaN(), ""
	case s.typ.layout == layoutBits:
		return t.boolean(bit(s.data, i))
	case s.isNumbers():
		var x [1]float64
		s.numbers(x[:], i)
		if kind := s.typ.kind; (kind == gram.Int64 || kind == gram.Uint64) && math.Abs(x[0]) >= 1<<53 {
			return 0, fmt.Sprintf("the number, about %v, has more than 53 bits; send it as a string", x[0])
		}
		return t.number(x[0])
	}
	text, reason := s.spelling(i, &a.scratch)
	if reason != "" {
		return 0, reason
	}
	return t.text(text)
}
