package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"streamd/ingest/registry"
)

// Limits bound the contents of a payload. Zero means the default.
type Limits struct {
	Bytes    int // of the payload, and of a decompressed Arrow body; default 64 MiB
	Rows     int // default 1 << 20
	Features int // default 4096
	Classes  int // default 1000
	Numbers  int // bytes of memory for the decoded numbers; default four times Bytes
	Pages    int // bytes of a page of Parquet, compressed or not; default Bytes
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
	if l.Pages == 0 {
		l.Pages = l.Bytes
	}
	return l
}

func (l Limits) check() error {
	switch {
	case min(l.Bytes, l.Rows, l.Features, l.Classes, l.Numbers, l.Pages) < 0:
		return fmt.Errorf("limits %+v: negative", l)
	case max(l.Rows, l.Classes) > math.MaxInt32: // row indices and codes are int32 on the way
		return fmt.Errorf("limits %+v: more than 2³¹−1 rows or classes", l)
	}
	return nil
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
	// CSV "first", "last" and a 1-based column number are places, with or without a
	// header; without a header "label" means the first column. A label such as 0, -1 or
	// 1.0 is a name, which only a header has. LIBSVM's label is
	// always the first field.
	Label string

	// LabelSuffix is taken off the end of labels that are texts, such as the full stop of "yes.".
	LabelSuffix string

	// KeepUnlabelled keeps rows without a label, as rows of the class
	// incremental.Unlabelled. Otherwise they are refused. UnlabelledText is a label that
	// means there is none, such as "?" or "-1". Empty: only an empty or absent label does.
	KeepUnlabelled bool
	UnlabelledText string

	// LabelIsID has the label be the id of its row: a text is taken as it is, an integer has any
	// number of digits, and a block may have as many ids as rows. A row without one is refused.
	LabelIsID bool

	// Weight is the name of the column or field with the rows' weights. Empty:
	// there is none. CSV without a header and LIBSVM have no place for weights:
	// the former is refused then, the latter read with all weights 1. WeighUnlabelled has
	// DecodeUnlabelled read weights, too.
	Weight          string
	WeighUnlabelled bool

	// Features, when not nil, selects and orders the features by name. Data
	// without names is taken by position if it has as many, in LIBSVM at most
	// as many. Nil: each block has the features of its payload, and features with
	// names come in their canonical order (incremental.CompareFeatures), whatever
	// the order in the payload.
	Features []string

	// Ignore are patterns (path.Match) of columns that are not learned from. They may
	// be of any type. The label and the weight are never ignored. Columns without
	// names have the names x1, x2, … here, but a list of features is taken as it is.
	Ignore []string

	// IgnoreUnknown ignores columns that are not among the features, once those are
	// fixed. Otherwise such a column is an error. A feature that is missing is an
	// error in any case.
	IgnoreUnknown bool

	// Missing says what becomes of missing values. Features may list the columns of marks
	// (Missing.Columns), or leave them out.
	Missing Missing

	// Schema, when not nil, makes the features. Features is then nil or Schema.Columns, and
	// Missing does not count.
	Schema Schema

	// Schemas has the schemas of payloads that are framed for a schema registry. Nil: those are
	// refused.
	Schemas Schemas

	// Written is the schema that payloads without a frame are written with, such as Avro's. Nil:
	// only those are read that have it themselves.
	Written *registry.Schema

	// Refused is the name of a field that no schema of a payload may have, unless it is ignored,
	// because it says which rows were deleted. Empty: there is none.
	Refused string

	// AsTexts reads every column but the label as texts, for Decoder.Texts, and any value may be
	// missing. Features, Schema and Missing are nil.
	AsTexts bool

	// LabelAlone, with AsTexts, lets a row have no column but the label.
	LabelAlone bool

	// Header is for CSV whose content type does not declare a header. Comment begins lines of
	// CSV that are passed over; empty: none do. Numbers says how CSV writes numbers.
	Header  HeaderMode
	Comment string
	Numbers Notation

	Limits Limits
}

// CheckComment says why no comment of CSV can begin with a text.
func CheckComment(text string) error {
	const most = 8
	if len(text) > 1 && text[0] == '|' && len(text) <= most && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
		return nil // an empty first field before a bar, and a second one that nothing else has
	}
	for _, r := range text {
		if r <= ' ' || r > '~' || r >= '0' && r <= '9' || strings.ContainsRune("\"'+-.,;|", r) || r|0x20 >= 'a' && r|0x20 <= 'z' {
			return fmt.Errorf("%q does not begin comments: want signs that begin no field, such as #, %% or //", text)
		}
	}
	if len(text) > most {
		return fmt.Errorf("%q does not begin comments: want up to %d bytes", text, most)
	}
	return nil
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

// UnknownFeature reports whether the payload has a column that is none of the features, where such
// columns are not ignored.
func (e *Error) UnknownFeature() bool { return strings.HasPrefix(e.Reason, unknownFeature) }

// HasTexts reports whether the column has a text where a number is wanted, of which a schema could
// make features.
func (e *Error) HasTexts() bool { return strings.Contains(e.Reason, isNoNumber) }

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

// quoted shows the start of a peer's text in an error.
func quoted(b []byte) string {
	const shown = 40
	if len(b) > shown {
		return strconv.Quote(string(b[:shown])) + "…"
	}
	return strconv.Quote(string(b))
}

// areFeatures counts features in words.
func areFeatures(n int) string {
	if n == 1 {
		return "is 1 feature"
	}
	return fmt.Sprintf("are %d features", n)
}

// badWeight is the reason why a weight cannot be used, or "".
func badWeight(w float64) string {
	if !(w >= 0) || math.IsInf(w, 1) {
		return fmt.Sprintf("the weight is %v: want a finite number ≥ 0", w)
	}
	return ""
}
