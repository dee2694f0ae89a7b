package wire

import "slices"

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
	column   int        // of a list or scalar: its index in recordPlan.columns
}

// avroPlan reads the records of a schema into the columns that a decoder wants.
type avroPlan struct {
	recordPlan
	root    avroStep // of a record
	schema  *avroSchema
	several bool          // the schema is an array of records
	steps   [][]*avroStep // by column; of a union of several scalars more than one
}

// newAvroPlan finds the columns of a schema. They have no places yet.
func (a *avroReader) newAvroPlan(schema *avroSchema) (*avroPlan, *Error) {
	p := &avroPlan{recordPlan: recordPlan{unlabelled: a.unlabelled}, schema: schema}
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
	if err := a.grow(&p.recordPlan, len(around)); err != nil {
		return err
	}
	if name != a.opts.Label && name != a.opts.Weight && Matches(a.opts.Ignore, name) {
		s.skip = true
		return nil
	}
	add := func(c recordColumn, steps ...*avroStep) {
		c.name, s.column = name, len(p.columns)
		p.lists = p.lists || c.list
		p.columns, p.steps = append(p.columns, c), append(p.steps, append(steps, s))
	}
	switch {
	case t.isScalar():
		add(recordColumn{refusal: t.refusal()})
	case t.kind == avroRecord && slices.Contains(around, t):
		add(recordColumn{refusal: "it is a record within itself, which has no end of columns: ignore it"})
	case t.kind == avroRecord:
		return a.findFields(p, s, t, name, around)
	case t.kind == avroArray:
		s.items = &avroStep{}
		if !a.isElement(s.items, t.items) {
			add(recordColumn{refusal: "it is an array of others than numbers, booleans, texts or times: ignore it"})
			return nil
		}
		add(recordColumn{list: true, refusal: t.items.refusal()})
	case t.kind == avroUnion:
		return a.findBranches(p, s, t, name, around, add)
	default:
		add(recordColumn{refusal: t.refusal()})
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
func (a *avroReader) findBranches(p *avroPlan, s *avroStep, t *avroType, name string, around []*avroType, add func(recordColumn, ...*avroStep)) *Error {
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
		var steps []*avroStep
		for i := range s.branches {
			steps = append(steps, &s.branches[i])
		}
		add(recordColumn{refusal: refusal}, steps...)
		return nil
	}
	if others > 1 || scalars > 0 {
		add(recordColumn{refusal: "it is a union of several types, of which some are no single values: ignore it"})
		return nil
	}
	for i, b := range t.branches {
		if b.kind != avroNull {
			return a.find(p, &s.branches[i], b, name, around)
		}
	}
	return nil
}

// settle gives the columns and their steps their places.
func (a *avroReader) settle(p *avroPlan, lengths []int) *Error {
	if err := a.settleColumns(&p.recordPlan, lengths); err != nil {
		return err
	}
	for i, steps := range p.steps {
		c := &p.columns[i]
		for _, s := range steps {
			if s.skip = c.skip; c.list {
				s.list = c.places
			} else if !c.skip {
				s.place = c.places[0]
			}
		}
	}
	return nil
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
