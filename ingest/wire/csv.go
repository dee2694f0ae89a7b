package wire

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// csvReader reads CSV.
type csvReader struct {
	*textRows
	plan    csvPlan
	fields  [][]byte // of the first line
	scratch []byte
	number  []byte // a field in plain notation
}

// csvPlan gives the fields of a record their columns.
type csvPlan struct {
	// A stream of blocks with the same header makes the plan once. It depends on
	// these.
	header     []byte // the header's line with its end; nil: no header
	mode       HeaderMode
	unlabelled bool

	guessed    bool   // the header was taken for one by its looks
	labelClass string // the class that such a header has in the label's place; empty: none

	separator byte     // of fields
	roles     []int    // per field its column, or one of the roles below
	names     []string // of the columns; nil: none
	width     int      // number of columns
}

// The roles of fields that are no features.
const (
	roleLabel = -1 - iota
	roleWeight
	roleIgnored
	roleUnknown // and not to be ignored
	roleText    // and below: column roleText − role, of texts
)

// decode reads a payload.
func (c *csvReader) decode(header HeaderMode) error {
	start := 0
	if bytes.HasPrefix(c.text, byteOrderMark) {
		start = len(byteOrderMark)
	}
	start, err := c.makePlan(start, header)
	if err != nil {
		return err
	}
	return c.readRows(start)
}

// makePlan looks at the first line from position i on and returns the start of the
// rows.
func (c *csvReader) makePlan(i int, mode HeaderMode) (start int, err error) {
	b, p := c.text, &c.plan
	if i = c.skipVoid(b, i); i == len(b) {
		return 0, c.fail(-1, "", "there are no rows")
	}
	if p.header != nil && p.mode == mode && p.unlabelled == c.unlabelled && bytes.HasPrefix(b[i:], p.header) {
		return i + len(p.header), nil
	}
	c.fields = c.fields[:0]
	p.header = nil
	first := i
	if separator, n := separatorLine(b[i:]); n > 0 {
		if bytes.IndexByte(separators, separator) < 0 {
			return 0, c.failAt(i, -1, "", fmt.Sprintf("the line sep=%c names no separator of fields: want a comma, tab, semicolon or bar", separator))
		}
		if i = c.skipVoid(b, i+n); i == len(b) {
			return 0, c.fail(-1, "", "there are no rows")
		}
		p.separator = separator
	} else {
		p.separator = c.separatorOf(b[i:])
	}
	end := i
	for {
		field, next, reason := csvField(b, end, p.separator, nil)
		if reason != "" {
			return 0, c.failAt(end, -1, "", reason)
		}
		if len(c.fields) == c.mostColumns() {
			return 0, c.failAt(end, -1, "", fmt.Sprintf("the first line has more than %d columns, the limit", c.mostColumns()))
		}
		c.fields = append(c.fields, field)
		if end = next; end == len(b) || b[end] != p.separator {
			break
		}
		end++
	}
	isHeader, err := c.hasHeader(mode)
	if err != nil {
		return 0, err
	}
	p.names, p.roles, p.unlabelled = c.want.list, p.roles[:0], c.unlabelled
	if !isHeader {
		if err := c.planPositions(len(c.fields)); err != nil {
			return 0, err
		}
		return i, nil
	}
	if err := c.planNames(); err != nil {
		return 0, c.explained(err)
	}
	// Without its line end it could be the start of another header's line.
	if n := lineEnd(b, end); n > 0 {
		end += n
		p.header, p.mode = bytes.Clone(b[first:end]), mode
	}
	return end, nil
}

// explained adds to an error how the first line was taken, where that was decided by its looks.
func (c *csvReader) explained(e *Error) *Error {
	if e != nil && c.plan.guessed {
		e.Reason += "; the first line was taken for a header: if it is a row, " + headerHint
	}
	return e
}

// planNames gives the fields roles by the header.
func (c *csvReader) planNames() *Error {
	p := &c.plan
	label, weight := -1, -1
	place, byPlace := csvPlace(c.opts.Label, len(c.fields))
	byPlace = byPlace || labelIsPlace(c.opts.Label)
	for k, f := range c.fields {
		switch name := string(f); {
		case byPlace && name == c.opts.Label && k != place:
			c.doubtf("the label is the column in the place %s, which is %s, not the one of that name", name, quoted(c.fields[min(place, len(c.fields)-1)]))
		case byPlace && name == c.opts.Label:
		case name == c.opts.Label && label >= 0, name == c.opts.Weight && weight >= 0:
			return c.fail(-1, name, "the name is used twice")
		case name == c.opts.Label:
			label = k
		case name == c.opts.Weight && name != "":
			weight = k
		}
	}
	if byPlace && place >= 0 && place < len(c.fields) {
		if _, feature := c.want.index[string(c.fields[place])]; !c.unlabelled || !feature {
			label = place
		}
	}
	if label >= 0 && label == weight {
		return c.fail(-1, c.opts.Weight, "the column is both the label, by its place %s, and the weight", c.opts.Label)
	}
	if label < 0 && !c.unlabelled {
		return c.fail(-1, c.opts.Label, "there is no such column for the label; the header has %s%s%s%s", listed(c.fields), c.labelHint(), c.separatorHint(), likeHint(c.opts.Label, textsOf(c.fields)))
	}
	if weight < 0 && c.weighted() {
		return c.fail(-1, c.opts.Weight, "there is no such column for the weight; the header has %s%s", listed(c.fields), likeHint(c.opts.Weight, textsOf(c.fields)))
	}
	var list [][]byte
	for k, f := range c.fields {
		if k != label && k != weight {
			list = append(list, f)
		}
	}
	at, names, err := c.place(list)
	if err != nil {
		return err
	}
	for k := range c.fields {
		switch k {
		case label:
			p.roles = append(p.roles, roleLabel)
		case weight:
			p.roles = append(p.roles, roleWeight)
		default:
			p.roles, at = append(p.roles, at[0]), at[1:]
		}
	}
	p.names = names
	return c.planWidth(len(names))
}

// planPositions gives n fields without a header roles.
func (c *csvReader) planPositions(n int) *Error {
	if c.weighted() {
		return c.fail(-1, c.opts.Weight, "without a header there is no column of that name for the weight: if the first line is a header, %s", headerHint)
	}
	label, ok := c.placeOfLabel(n)
	at, names, err := c.placeNameless(n)
	switch {
	case c.unlabelled && (err == nil || !ok || n == 1):
		label = -1
	case !ok:
		return c.fail(-1, c.opts.Label, "without a header the label is given as first, last or a column number up to %d%s; if the first line is a header, %s", n, c.labelHint(), headerHint)
	default:
		some, theirs, bad := c.placeNameless(n - 1)
		if bad == nil || !c.unlabelled {
			at, names, err = some, theirs, bad
		}
	}
	if err != nil && (n > 1 || label < 0) {
		err.Row, err.Line = 0, 1
		return err
	}
	width := 0
	for k := range n {
		if k == label {
			c.plan.roles = append(c.plan.roles, roleLabel)
			continue
		}
		if at[0] >= 0 {
			width++
		}
		c.plan.roles, at = append(c.plan.roles, at[0]), at[1:]
	}
	c.plan.names = names
	return c.planWidth(width)
}

func (c *csvReader) planWidth(n int) *Error {
	switch {
	case n == 0 && !c.opts.LabelAlone:
		return c.fail(-1, "", "there are no features: no comma, semicolon, tab or bar separates fields in the first line, %s", listed(c.fields))
	case n > c.opts.Limits.Features:
		return c.fail(-1, "", "there are %d features, the limit is %d", n, c.opts.Limits.Features)
	}
	c.plan.width = n
	for k, role := range c.plan.roles {
		if role >= 0 && c.texts && c.textsAt(role) != nil {
			c.plan.roles[k] = roleText - role
		}
	}
	return nil
}

// listed shows names in an error.
func listed(fields [][]byte) string {
	const shown = 10
	var list []string
	for _, f := range fields[:min(len(fields), shown)] {
		list = append(list, quoted(f))
	}
	s := strings.Join(list, ", ")
	if more := len(fields) - shown; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// readRows reads the records from position i on by the plan.
func (c *csvReader) readRows(i int) error {
	b, p := c.text, &c.plan
	separator, plain := p.separator, c.opts.Numbers.isPlain()
	c.setWidth(p.width)
	for i = c.skipVoid(b, i); i < len(b); i = c.skipVoid(b, i) {
		if reason := c.room(p.width); reason != "" {
			return c.failAt(i, c.count, "", reason)
		}
		code, weight := int32(0), 1.0
		for k, role := range p.roles {
			start := i
			if role >= 0 && plain { // a number as it is, as nearly every field
				x, end, ok := strictNumber(b, i)
				if last := k == len(p.roles)-1; ok && !last && end < len(b) && b[end] == separator {
					c.row[role], i = x, end+1
					continue
				} else if ok && last && (end == len(b) || lineEnd(b, end) > 0) {
					c.row[role], i = x, end
					continue
				}
			}
			field, end, reason := csvField(b, i, separator, &c.scratch)
			if !plain && reason == "" && role > roleIgnored && !(role == roleLabel && c.labels.rows) {
				field, reason = c.opts.Numbers.plain(trimPadding(field), &c.number)
			}
			switch {
			case reason != "" || role == roleIgnored:
			case role <= roleText:
				c.row[roleText-role], reason = c.textsAt(roleText - role).text(field)
			case role >= 0:
				if field = trimPadding(field); c.gapped && isMissing(field) && c.takesMissing(p.names, role) {
					c.row[role] = math.NaN()
				} else {
					c.row[role], reason = textValue(field)
				}
			case role == roleLabel:
				if !c.unlabelled {
					code, reason = c.labels.text(field)
				}
			case role == roleWeight && c.weighted():
				if weight, reason = textValue(trimPadding(field)); reason == "" {
					reason = badWeight(weight)
				}
			}
			if reason != "" {
				return c.rowError(start, role, reason)
			}
			i = end
			more := i < len(b) && b[i] == separator
			if last := k == len(p.roles)-1; more == last {
				return c.failAt(start, c.count, "", c.widthReason(start, k))
			}
			if more {
				i++
			}
		}
		i += lineEnd(b, i)
		c.push(code, weight)
	}
	if err := c.checkGuess(); err != nil {
		return err
	}
	return c.finishRows(p.names)
}

// rowError is an error in the field at a position, of a role.
func (c *csvReader) rowError(at, role int, reason string) error {
	if c.count > 0 || c.plan.guessed {
		return c.explained(c.failAt(at, c.count, c.columnOf(role), reason))
	}
	return c.failAt(at, c.count, c.columnOf(role), reason+c.separatorHint())
}

// columnOf is the name of a role's column.
func (c *csvReader) columnOf(role int) string {
	switch role {
	case roleLabel:
		return c.opts.Label
	case roleWeight:
		return c.opts.Weight
	case roleIgnored:
		return ""
	}
	if role <= roleText {
		role = roleText - role
	}
	return featureName(c.plan.names, role)
}

// widthReason counts the fields of a record of the wrong width whose field k is at
// position i.
func (c *csvReader) widthReason(i, k int) string {
	for n := k + 1; ; n++ {
		_, end, reason := csvField(c.text, i, c.plan.separator, nil)
		if reason != "" || end == len(c.text) || c.text[end] != c.plan.separator {
			return fmt.Sprintf("the row has %d fields, want %d", n, len(c.plan.roles))
		}
		i = end + 1
	}
}

// separators of fields. The first one that the first line has separates them.
var separators, commaLast = []byte{',', '\t', ';', '|'}, []byte{'\t', ';', '|', ','}

// separatorOf is the separator of a text that starts with the first line. Where commas come
// before decimals, they separate fields only if nothing else does.
func (c *csvReader) separatorOf(b []byte) byte {
	order := separators
	if c.opts.Numbers.DecimalComma {
		order = commaLast
	}
	best, inQuotes := len(order), false
	for _, c := range b {
		if best == 0 || c == '\n' && !inQuotes {
			break
		}
		if c == '"' {
			inQuotes = !inQuotes
		}
		if at := bytes.IndexByte(order[:best], c); at >= 0 && !inQuotes {
			best = at
		}
	}
	if best == len(order) {
		best = 0
	}
	return order[best]
}

// separatorHint explains a first line that has another separator beside commas.
func (c *csvReader) separatorHint() string {
	for _, field := range c.fields {
		if c.plan.separator == ',' && bytes.ContainsAny(field, "\t;|") {
			return "; its commas separate fields: write decimals with a point if they are meant by them"
		}
	}
	return ""
}

// csvField reads the field that starts at b[i]. It ends before b[end], which is
// a separator, an LF or the end of b. Blanks around an unquoted field and the CR of
// a line end are not part of it. A quoted field with quotes in it is unquoted
// into scratch, or into memory of its own if scratch is nil.
func csvField(b []byte, i int, separator byte, scratch *[]byte) (field []byte, end int, reason string) {
	if i < len(b) && b[i] == '"' {
		return csvQuoted(b, i+1, separator, scratch)
	}
	for end = i; end < len(b) && b[end] != separator && b[end] != '\n'; end++ {
		if b[end] == '"' {
			return nil, end, "a quote inside a field that does not start with one"
		}
	}
	field = b[i:end]
	if end == len(b) || b[end] == '\n' {
		field = bytes.TrimSuffix(field, []byte{'\r'})
	}
	return trimPadding(field), end, ""
}

// csvQuoted is csvField behind an opening quote.
func csvQuoted(b []byte, i int, separator byte, scratch *[]byte) (field []byte, end int, reason string) {
	doubled := false // a doubled quote is a quote
	for end = i; ; end += 2 {
		n := bytes.IndexByte(b[end:], '"')
		if n < 0 {
			return nil, len(b), "a quoted field is not closed"
		}
		if end += n; end+1 == len(b) || b[end+1] != '"' {
			break
		}
		doubled = true
	}
	if field = b[i:end]; doubled {
		field = csvUnquoted(field, scratch)
	}
	end++
	if end < len(b) && b[end] == '\r' && (end+1 == len(b) || b[end+1] == '\n') {
		end++
	}
	if end < len(b) && b[end] != separator && b[end] != '\n' {
		return nil, end, "text behind the closing quote of a field"
	}
	return field, end, ""
}

// csvUnquoted halves the doubled quotes of a field.
func csvUnquoted(field []byte, scratch *[]byte) (out []byte) {
	if scratch != nil {
		out = (*scratch)[:0]
		defer func() { *scratch = out }()
	}
	for {
		n := bytes.Index(field, []byte(`""`))
		if n < 0 {
			return append(out, field...)
		}
		out, field = append(out, field[:n+1]...), field[n+2:]
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

// skipVoid passes over empty lines and comments from position i on.
func (b *builder) skipVoid(text []byte, i int) int {
	for {
		n := lineEnd(text, i)
		if n == 0 {
			if n = b.comment(text[i:]); n == 0 {
				return i
			}
		}
		i += n
	}
}

// comment is the length of the comment that a text begins with, with its line end, or 0.
func (b *builder) comment(text []byte) int {
	if b.opts.Comment == "" || len(text) < len(b.opts.Comment) || string(text[:len(b.opts.Comment)]) != b.opts.Comment {
		return 0
	}
	return lineLength(text)
}
