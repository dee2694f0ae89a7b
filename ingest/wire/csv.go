package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// csvPlan says what to do with the fields of a record.
type csvPlan struct {
	// What it was made from, so that a stream of blocks with the same header
	// makes it once.
	header     []byte // the header's line with its end; nil: no header
	mode       HeaderMode
	unlabelled bool

	roles  []int    // per field: the column it goes to, or one of the roles below
	names  []string // of the columns; nil: none
	width  int      // number of columns
	fields [][]byte // scratch: the fields of the first line
}

const (
	roleLabel = -1 - iota
	roleWeight
	roleIgnored
)

// byteOrderMark is what some programs put before the first line of CSV or LIBSVM.
var byteOrderMark = []byte("\xef\xbb\xbf")

func (d *Decoder) decodeCSV(b []byte, header HeaderMode) error {
	start := 0
	if bytes.HasPrefix(b, byteOrderMark) {
		start = len(byteOrderMark)
	}
	start, err := d.planCSV(b, start, header)
	if err != nil {
		return err
	}
	return d.csvRows(b, start)
}

// planCSV looks at the first line and returns where the rows start.
func (d *Decoder) planCSV(b []byte, i int, header HeaderMode) (start int, err error) {
	p := &d.csv
	if i = skipEmptyLines(b, i); i == len(b) {
		return 0, d.fail(-1, "", "there are no rows")
	}
	if p.header != nil && p.mode == header && p.unlabelled == d.unlabelled && bytes.HasPrefix(b[i:], p.header) {
		return i + len(p.header), nil
	}
	p.fields = p.fields[:0]
	end := i
	for {
		field, next, reason := csvField(b, end, nil)
		if reason != "" {
			return 0, d.failAt(end, -1, "", reason)
		}
		if len(p.fields) == d.opts.Limits.Features+2 { // the label and the weight
			return 0, d.failAt(end, -1, "", fmt.Sprintf("the first line has more than %d features, the limit", d.opts.Limits.Features))
		}
		p.fields = append(p.fields, field)
		if end = next; end == len(b) || b[end] != ',' {
			break
		}
		end++
	}
	isHeader, err := d.csvHasHeader(header)
	if err != nil {
		return 0, err
	}
	p.header, p.names, p.roles, p.unlabelled = nil, d.want.names, p.roles[:0], d.unlabelled
	if !isHeader {
		return i, d.planPositions(len(p.fields))
	}
	if err := d.planNames(); err != nil {
		return 0, err
	}
	// Without its line end it could be the start of another header's line.
	if n := lineEnd(b, end); n > 0 {
		end += n
		p.header, p.mode = bytes.Clone(b[i:end]), header
	}
	return end, nil
}

// csvHasHeader decides whether the first line is a header.
func (d *Decoder) csvHasHeader(mode HeaderMode) (bool, error) {
	if mode != HeaderAuto {
		return mode == HeaderPresent, nil
	}
	fields := d.csv.fields
	for _, f := range fields {
		if string(f) == d.opts.Label {
			return true, nil
		}
	}
	label, positional := csvPosition(d.opts.Label, len(fields))
	if !positional {
		label = -1 // a header without the label's name; an error will say so
	}
	numbers, text := 0, -1
	for k, f := range fields {
		if k == label && !(d.unlabelled && len(fields) == d.want.width) || len(f) == 0 {
			continue // an empty field speaks for neither
		}
		// Texts that a float parser takes, such as nan, are bad values rather
		// than names.
		_, end, ok := number(f, 0)
		if !ok || end < len(f) {
			_, err := strconv.ParseFloat(string(f), 64)
			ok = err == nil || isRange(err)
		}
		if ok {
			numbers++
		} else if text < 0 {
			text = k
		}
	}
	if text >= 0 && numbers > 0 {
		return false, d.failAt(0, -1, "", fmt.Sprintf("the first line is neither a row nor clearly a header: field %d, %s, is not a number, others are; "+
			"say which field is the label if it is a row, or declare header=present or header=absent", text+1, quoted(fields[text])))
	}
	return text >= 0, nil
}

func isRange(err error) bool {
	e, ok := err.(*strconv.NumError)
	return ok && e.Err == strconv.ErrRange
}

// csvPosition is which of n fields a label option means by position.
func csvPosition(label string, n int) (int, bool) {
	switch label {
	case "label", "first":
		return 0, true
	case "last":
		return n - 1, true
	}
	k, err := strconv.Atoi(label)
	return k - 1, err == nil && k >= 1 && k <= n
}

// planNames gives the fields roles by the header.
func (d *Decoder) planNames() error {
	p := &d.csv
	label, weight := -1, -1
	for k, f := range p.fields {
		switch name := string(f); {
		case name == d.opts.Label && label >= 0, name == d.opts.Weight && weight >= 0:
			return d.fail(-1, name, "the name is used twice")
		case name == d.opts.Label:
			label = k
		case name == d.opts.Weight && name != "":
			weight = k
		}
	}
	others := len(p.fields)
	if weight >= 0 {
		others--
	}
	if k, ok := csvPosition(d.opts.Label, len(p.fields)); label < 0 && ok && d.opts.Label != "label" &&
		(!d.unlabelled || others != d.want.width) {
		label = k
	}
	if label < 0 && !d.unlabelled {
		return d.fail(-1, d.opts.Label, "there is no such column for the label; the header has %s", listed(p.fields))
	}
	if weight < 0 && d.weighted() {
		return d.fail(-1, d.opts.Weight, "there is no such column for the weight; the header has %s", listed(p.fields))
	}
	var list []string
	for k, f := range p.fields {
		if k == label || k == weight {
			continue
		}
		if reason := badName(f); reason != "" {
			return d.fail(-1, "", "field %d of the header: %s", k+1, reason)
		}
		list = append(list, string(f))
	}
	at, err := d.place(list)
	if err != nil {
		return err
	}
	for k := range p.fields {
		switch k {
		case label:
			p.roles = append(p.roles, roleLabel)
		case weight:
			p.roles = append(p.roles, roleWeight)
		default:
			p.roles, at = append(p.roles, at[0]), at[1:]
		}
	}
	if p.names == nil {
		p.names = list
	}
	return d.planWidth(len(list))
}

// planPositions gives n fields without a header roles.
func (d *Decoder) planPositions(n int) error {
	p := &d.csv
	if d.weighted() {
		return d.fail(-1, d.opts.Weight, "without a header there is no column of that name for the weight")
	}
	label, ok := csvPosition(d.opts.Label, n)
	switch {
	case d.unlabelled && n != d.want.width+1:
		label = -1
	case !ok:
		return d.fail(-1, d.opts.Label, "without a header the label is given as first, last or a column number up to %d", n)
	}
	for k := range n {
		switch {
		case k == label:
			p.roles = append(p.roles, roleLabel)
		case k > label && label >= 0:
			p.roles = append(p.roles, k-1)
		default:
			p.roles = append(p.roles, k)
		}
	}
	if label >= 0 {
		n--
	}
	if d.want.width != 0 && n != d.want.width && n > 0 {
		return d.failAt(0, 0, "", fmt.Sprintf("there %s, want %d", areFeatures(n), d.want.width))
	}
	return d.planWidth(n)
}

func (d *Decoder) planWidth(n int) error {
	switch {
	case n == 0:
		return d.fail(-1, "", "there are no features; the first line is %s, and commas separate fields", listed(d.csv.fields))
	case n > d.opts.Limits.Features:
		return d.fail(-1, "", "there are %d features, the limit is %d", n, d.opts.Limits.Features)
	}
	d.csv.width = n
	return nil
}

// listed shows names in an error.
func listed(fields [][]byte) string {
	const shown = 10
	var s strings.Builder
	for k, f := range fields {
		if k == shown {
			fmt.Fprintf(&s, " and %d more", len(fields)-shown)
			break
		}
		if k > 0 {
			s.WriteString(", ")
		}
		s.WriteString(quoted(f))
	}
	return s.String()
}

// csvRows reads the records from b[i:] by the plan.
func (d *Decoder) csvRows(b []byte, i int) error {
	p := &d.csv
	d.setWidth(p.width)
	for i = skipEmptyLines(b, i); i < len(b); i = skipEmptyLines(b, i) {
		if reason := d.room(p.width); reason != "" {
			return d.failAt(i, d.rows, "", reason)
		}
		code, weight := int32(0), 1.0
		for k, role := range p.roles {
			start := i
			field, end, reason := csvField(b, i, &d.scratch)
			switch {
			case reason != "":
			case role >= 0:
				d.row[role], reason = finite(trimPadding(field))
			case d.unlabelled:
			case role == roleLabel:
				code, reason = d.labels.text(field)
			case role == roleWeight:
				if weight, reason = finite(trimPadding(field)); reason == "" {
					reason = badWeight(weight)
				}
			}
			if reason != "" {
				return d.failAt(start, d.rows, d.csvColumn(role), reason)
			}
			i = end
			more := i < len(b) && b[i] == ','
			if last := k == len(p.roles)-1; more == last {
				return d.failAt(start, d.rows, "", d.csvWidthReason(b, start, k))
			}
			if more {
				i++
			}
		}
		i += lineEnd(b, i)
		d.push(code, weight)
	}
	return d.finishRows(p.names)
}

func (d *Decoder) csvColumn(role int) string {
	switch {
	case role == roleLabel:
		return d.opts.Label
	case role == roleWeight:
		return d.opts.Weight
	}
	return featureName(d.csv.names, role)
}

// csvWidthReason counts the fields of a record of the wrong width, of which
// field k is at b[i].
func (d *Decoder) csvWidthReason(b []byte, i, k int) string {
	n := k
	for {
		n++
		_, end, reason := csvField(b, i, nil)
		if reason != "" || end == len(b) || b[end] != ',' {
			break
		}
		i = end + 1
	}
	return fmt.Sprintf("the row has %d fields, want %d", n, len(d.csv.roles))
}

// csvField reads the field that starts at b[i]. It ends before b[end], which is
// a comma, an LF or the end of b. Blanks around an unquoted field and the CR of
// a line end are not part of it. A quoted field with quotes in it is unquoted
// into scratch, or into memory of its own if scratch is nil.
func csvField(b []byte, i int, scratch *[]byte) (field []byte, end int, reason string) {
	if i < len(b) && b[i] == '"' {
		return csvQuoted(b, i+1, scratch)
	}
	for end = i; end < len(b) && b[end] != ',' && b[end] != '\n'; end++ {
		if b[end] == '"' {
			return nil, end, "a quote inside a field that does not start with one"
		}
	}
	field = b[i:end]
	if n := len(field); n > 0 && field[n-1] == '\r' && (end == len(b) || b[end] == '\n') {
		field = field[:n-1]
	}
	return trimPadding(field), end, ""
}

// csvQuoted is csvField behind an opening quote.
func csvQuoted(b []byte, i int, scratch *[]byte) (field []byte, end int, reason string) {
	var own []byte
	if scratch == nil {
		scratch = &own
	}
	*scratch = (*scratch)[:0]
	plain := true // nothing is in scratch
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return nil, len(b), "a quoted field is not closed"
		}
		part := b[i : i+n]
		i += n + 1
		if i < len(b) && b[i] == '"' { // a doubled quote is a quote
			*scratch = append(append(*scratch, part...), '"')
			plain = false
			i++
			continue
		}
		if plain {
			field = part
		} else {
			*scratch = append(*scratch, part...)
			field = *scratch
		}
		if i < len(b) && b[i] == '\r' && (i+1 == len(b) || b[i+1] == '\n') {
			i++
		}
		if i < len(b) && b[i] != ',' && b[i] != '\n' {
			return nil, i, "text behind the closing quote of a field"
		}
		return field, i, ""
	}
}

// isPadding is whether c is dropped around an unquoted field.
func isPadding(c byte) bool { return c == ' ' || c == '\t' }

func trimPadding(field []byte) []byte {
	for len(field) > 0 && isPadding(field[0]) {
		field = field[1:]
	}
	for len(field) > 0 && isPadding(field[len(field)-1]) {
		field = field[:len(field)-1]
	}
	return field
}

// lineEnd is the length of the line end at b[i]: 0, 1 or 2.
func lineEnd(b []byte, i int) int {
	switch {
	case i < len(b) && b[i] == '\n':
		return 1
	case i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n':
		return 2
	}
	return 0
}

func skipEmptyLines(b []byte, i int) int {
	for {
		n := lineEnd(b, i)
		if n == 0 {
			return i
		}
		i += n
	}
}
