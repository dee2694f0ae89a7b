package wire

import (
	"math"
	"slices"
)

// avroStep says what becomes of the values of a type in one place of a record.
type avroStep struct {
	typ      *avroType
	skip     bool       // they are passed over
	place    place      // of a scalar, and the name of others
	fields   []avroStep // of a record
	branches []avroStep // of a union
	others   bool       // some branch is no scalar
	items    *avroStep  // of a list
	list     []place    // of a list's elements
	column   int        // of a list or scalar: its index in avroPlan.columns
}

// avroColumn is a scalar, a list, or what is neither and can only be ignored.
type avroColumn struct {
	name    string
	steps   []*avroStep // of a union of several scalars more than one
	list    bool
	refusal string // why it cannot be a feature, or ""
}

// avroPlan reads the records of a schema into the columns that a decoder wants.
type avroPlan struct {
	root    avroStep // of a record
	schema  *avroSchema
	several bool   // the schema is an array of records
	bad     *Error // why it cannot be used

	columns    []avroColumn
	lists      bool  // some column is a list
	lengths    []int // that it is made for, by column; only where the features are not fixed
	unlabelled bool

	names  []string
	width  int
	absent []int // columns that the schema lacks, and that may be missing
}

// newAvroPlan finds the columns of a schema. They have no places yet.
func (a *avroReader) newAvroPlan(schema *avroSchema) (*avroPlan, *Error) {
	p := &avroPlan{schema: schema, unlabelled: a.unlabelled}
	root := schema.root
	if root.kind == avroArray {
		p.several, root = true, root.items
	}
	if root.kind == avroUnion && len(root.branches) == 2 && root.branches[0].kind == avroNull {
		p.root = avroStep{typ: root, others: true}
		p.root.branches = []avroStep{{typ: root.branches[0]}, {typ: root.branches[1]}}
		if err := a.findFields(p, &p.root.branches[1], root.branches[1], "", nil); err != nil {
			return nil, err
		}
	} else if err := a.findFields(p, &p.root, root, "", nil); err != nil {
		return nil, err
	}
	return p, nil
}

// findFields finds the columns of a record.
func (a *avroReader) findFields(p *avroPlan, s *avroStep, t *avroType, path string, around []*avroType) *Error {
	s.typ = t
	if t.kind != avroRecord || t.means == meansScaled {
		return a.fail(-1, "", "the schema is none of a record or of an array of records, and a row is a record")
	}
	around = append(around, t)
	s.fields = make([]avroStep, len(t.fields))
	for i := range t.fields {
		name := t.fields[i].name
		if path != "" {
			name = path + "." + name
		}
		if err := a.find(p, &s.fields[i], t.fields[i].typ, name, around); err != nil {
			return err
		}
	}
	return nil
}

// find finds the columns of a type under a name. around are the records around it.
func (a *avroReader) find(p *avroPlan, s *avroStep, t *avroType, name string, around []*avroType) *Error {
	s.typ, s.place.name = t, name
	if len(p.columns) > a.mostColumns() {
		return a.fail(-1, "", "the schema has more than %d columns, the limit", a.mostColumns())
	}
	if name != a.opts.Label && name != a.opts.Weight && Matches(a.opts.Ignore, name) {
		s.skip = true
		return nil
	}
	add := func(c avroColumn) {
		c.name, s.column = name, len(p.columns)
		p.lists = p.lists || c.list
		if c.steps == nil {
			c.steps = []*avroStep{s}
		}
		p.columns = append(p.columns, c)
	}
	switch {
	case t.isScalar():
		add(avroColumn{refusal: t.refusal()})
	case t.kind == avroRecord && slices.Contains(around, t):
		add(avroColumn{refusal: "it is a record within itself, which has no end of columns: ignore it"})
	case t.kind == avroRecord:
		return a.findFields(p, s, t, name, around)
	case t.kind == avroArray:
		s.items = &avroStep{}
		if !a.isElement(s.items, t.items) {
			add(avroColumn{refusal: "it is an array of others than numbers, booleans, texts or times: ignore it"})
			return nil
		}
		add(avroColumn{list: true, refusal: t.items.refusal()})
	case t.kind == avroUnion:
		return a.findBranches(p, s, t, name, around, add)
	default:
		add(avroColumn{refusal: t.refusal()})
	}
	return nil
}

// isElement makes the step of a list's elements: scalars, or a union of one and null.
func (a *avroReader) isElement(s *avroStep, t *avroType) bool {
	s.typ = t
	if t.kind != avroUnion {
		return t.isScalar()
	}
	for _, b := range t.branches {
		s.branches = append(s.branches, avroStep{typ: b})
		if !b.isScalar() || b.refusal() != "" {
			return false
		}
	}
	return true
}

// findBranches finds the columns of a union: those of its one branch beside null, or one column
// where all branches are scalars.
func (a *avroReader) findBranches(p *avroPlan, s *avroStep, t *avroType, name string, around []*avroType, add func(avroColumn)) *Error {
	s.branches = make([]avroStep, len(t.branches))
	scalars, others, refusal := 0, 0, ""
	for i, b := range t.branches {
		s.branches[i] = avroStep{typ: b, place: place{name: name}}
		switch {
		case b.kind == avroNull:
		case b.isScalar():
			scalars++
			if reason := b.refusal(); reason != "" {
				refusal = reason
			}
		default:
			others++
		}
	}
	s.others = others > 0
	if others == 0 {
		c := avroColumn{steps: []*avroStep{s}, refusal: refusal}
		for i := range s.branches {
			c.steps = append(c.steps, &s.branches[i])
		}
		add(c)
		return nil
	}
	if others > 1 || scalars > 0 {
		add(avroColumn{refusal: "it is a union of several types, of which some are no single values: ignore it"})
		return nil
	}
	for i, b := range t.branches {
		if b.kind != avroNull {
			return a.find(p, &s.branches[i], b, name, around)
		}
	}
	return nil
}

// settle gives the columns their places. lengths are those of the lists, by column, where the
// features are not fixed.
func (a *avroReader) settle(p *avroPlan, lengths []int) *Error {
	p.lengths, p.names, p.width, p.absent = nil, nil, 0, nil
	fixed, label, weight := a.want.list != nil, -1, -1
	var list [][]byte
	var of []int // the column of each entry of list, and that of its element
	var element []int
	only := a.soleList(p)
	for i := range p.columns {
		c := &p.columns[i]
		switch {
		case c.name == a.opts.Label && label >= 0, c.name == a.opts.Weight && weight >= 0:
			return a.fail(-1, c.name, "the name is used twice")
		case c.name == a.opts.Label:
			label = i
			continue
		case c.name == a.opts.Weight && c.name != "":
			weight = i
			continue
		case i == only:
			continue
		case !c.list:
			list, of, element = append(list, []byte(c.name)), append(of, i), append(element, -1)
			continue
		}
		n := 0
		if fixed {
			for ; n < len(a.want.list); n++ {
				if _, known := a.want.index[string(appendElement(nil, []byte(c.name), n))]; !known {
					break
				}
			}
		} else if lengths != nil {
			n = lengths[i]
		}
		if n > a.opts.Limits.Features {
			return a.fail(0, c.name, "the list has %d elements, more than %d, the limit of features", n, a.opts.Limits.Features)
		}
		for k := range max(n, 1) {
			list, of, element = append(list, appendElement(nil, []byte(c.name), k)), append(of, i), append(element, k)
		}
	}
	if err := a.settleLabel(p, label, weight); err != nil {
		return err
	}
	if only >= 0 {
		return a.settleSole(p, only, of, lengths)
	}
	given := len(list)
	if fixed { // a column that may be missing may be missing from the schema
		has := make(map[string]bool, len(list))
		for _, name := range list {
			has[string(name)] = true
		}
		for j, name := range a.want.list {
			if !has[name] && a.mayLack(j) {
				list = append(list, []byte(name))
				p.absent = append(p.absent, j)
			}
		}
	}
	at, names, err := a.place(list)
	if err != nil {
		return err
	}
	for i := range p.columns {
		if c := &p.columns[i]; c.list && i != label && i != weight {
			c.steps[0].list = c.steps[0].list[:0]
			c.steps[0].skip = true
		}
	}
	for k := range given {
		c := &p.columns[of[k]]
		to := a.placeOfColumn(at[k], names, string(list[k]))
		if at[k] != roleIgnored && c.refusal != "" {
			return a.fail(-1, c.name, "%s", c.refusal)
		}
		if element[k] >= 0 {
			s := c.steps[0]
			s.list = append(s.list, to)
			if at[k] != roleIgnored {
				s.skip = false
				if !fixed && lengths[of[k]] == 0 {
					return a.fail(0, c.name, "the list is empty")
				}
			}
			continue
		}
		for _, s := range c.steps {
			s.place, s.skip = to, at[k] == roleIgnored
		}
	}
	p.names, p.width, p.lengths = names, len(names), slices.Clone(lengths)
	return a.checkWidth(p.width)
}

func (a *avroReader) checkWidth(n int) *Error {
	switch {
	case n == 0:
		return a.fail(-1, "", "the schema has no features")
	case n > a.opts.Limits.Features:
		return a.fail(-1, "", "there are %d features, the limit is %d", n, a.opts.Limits.Features)
	}
	return nil
}

// settleLabel gives label and weight their places.
func (a *avroReader) settleLabel(p *avroPlan, label, weight int) *Error {
	for role, i := range map[int]int{roleLabel: label, roleWeight: weight} {
		if i < 0 {
			continue
		}
		c := &p.columns[i]
		to := place{role: role, name: c.name}
		if a.unlabelled {
			to.role = roleIgnored
		} else if c.list || c.refusal != "" {
			return a.fail(-1, c.name, "it is no single value, as a label and a weight are")
		}
		for _, s := range c.steps {
			s.place, s.skip = to, a.unlabelled
		}
	}
	if a.unlabelled {
		return nil
	}
	names := func(yield func(string) bool) {
		for _, c := range p.columns {
			if !yield(c.name) {
				return
			}
		}
	}
	if label < 0 {
		return a.fail(-1, a.opts.Label, "the schema has no such field for the label: name it (format.label)%s", likeHint(a.opts.Label, names))
	}
	if weight < 0 && a.opts.Weight != "" {
		return a.fail(-1, a.opts.Weight, "the schema has no such field for the weight%s", likeHint(a.opts.Weight, names))
	}
	return nil
}

// soleList is the column that is a list named features, as rows without names have it; −1: none is.
func (a *avroReader) soleList(p *avroPlan) int {
	return slices.IndexFunc(p.columns, func(c avroColumn) bool { return c.list && c.name == "features" && c.refusal == "" })
}

// settleSole gives a list of features without names its places. others are the columns beside it.
func (a *avroReader) settleSole(p *avroPlan, only int, others, lengths []int) *Error {
	for _, i := range others {
		c := &p.columns[i]
		if !a.ignores([]byte(c.name), a.want.list != nil) {
			return a.fail(-1, c.name, "a field beside a list of features: ignore it")
		}
		for _, s := range c.steps {
			s.skip = true
		}
	}
	n := a.want.width
	if n == 0 && lengths != nil {
		n = lengths[only]
	}
	if n > a.opts.Limits.Features {
		return a.fail(0, "features", "the list has %d elements, more than %d, the limit of features", n, a.opts.Limits.Features)
	}
	s := p.columns[only].steps[0]
	s.list = s.list[:0]
	for j := range n {
		s.list = append(s.list, a.placeOfColumn(j, a.want.list, featureName(a.want.list, j)))
	}
	p.names, p.width, p.lengths = a.want.list, n, slices.Clone(lengths)
	return a.checkWidth(n)
}

// lack gives the columns that the schema lacks their values.
func (a *avroReader) lack(p *avroPlan) {
	for _, j := range p.absent {
		a.row[j] = math.NaN()
	}
}

// nothing sets all places under a step to missing values.
func (a *avroReader) nothing(s *avroStep) *Error {
	switch {
	case s.skip:
		return nil
	case s.items != nil:
		for k := range s.list {
			if reason := a.setMissing(&s.list[k]); reason != "" {
				return a.refuse(&s.list[k], reason)
			}
		}
		return nil
	case s.fields != nil:
		for i := range s.fields {
			if err := a.nothing(&s.fields[i]); err != nil {
				return err
			}
		}
		return nil
	case s.others:
		for i := range s.branches {
			if s.branches[i].typ.kind != avroNull {
				return a.nothing(&s.branches[i])
			}
		}
		return nil
	}
	if reason := a.setMissing(&s.place); reason != "" {
		return a.refuse(&s.place, reason)
	}
	return nil
}
