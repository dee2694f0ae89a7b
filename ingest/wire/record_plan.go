package wire

import (
	"iter"
	"math"
	"slices"
)

// recordColumn is a column of a schema of records: a single value, a list of them, or what is
// neither and can only be ignored.
type recordColumn struct {
	name    string
	list    bool
	refusal string // why it cannot be a feature, or ""

	// What settleColumns has found:
	skip   bool    // it is passed over
	places []place // one; of a list one for each element
}

// recordPlan is where the columns of a schema go.
type recordPlan struct {
	columns    []recordColumn
	nodes      int    // types in their places, columns or not
	lists      bool   // some column is a list
	lengths    []int  // that it is made for, by column; only where the features are not fixed
	unlabelled bool   // it is for rows whose labels are of no interest
	bad        *Error // why it cannot be used

	names  []string
	width  int
	absent []int // columns that the schema lacks, and that may be missing
}

// maxRecordDepth bounds the records within records that are columns.
const maxRecordDepth = 32

// grow counts a type in a place of the schema, so many records deep.
func (r *recordReader) grow(p *recordPlan, depth int) *Error {
	const perColumn = 4
	p.nodes++
	switch most := r.mostColumns(); {
	case len(p.columns) > most || p.nodes > perColumn*most:
		return r.fail(-1, "", "the schema has more than %d columns, the limit", most)
	case depth > maxRecordDepth:
		return r.fail(-1, "", "the schema has records more than %d deep within each other: ignore the outer ones", maxRecordDepth)
	}
	return nil
}

// settleColumns gives the columns their places. lengths are those of the lists, by column, where
// the features are not fixed.
func (r *recordReader) settleColumns(p *recordPlan, lengths []int) *Error {
	p.lengths, p.names, p.width, p.absent = nil, nil, 0, nil
	fixed, label, weight := r.want.list != nil, -1, -1
	var list [][]byte
	var of []int // the column of each entry of list
	only := r.soleList(p)
	for i := range p.columns {
		c := &p.columns[i]
		if c.name == r.opts.Refused && c.name != "" {
			heed := "have the connector drop those (delete.tombstone.handling.mode=tombstone)"
			if r.format == Avro {
				heed = "set format.envelope: debezium"
			}
			return r.fail(-1, c.name, "the row says whether it was deleted, and a deleted one would be learned from: %s; format.ignore: %s reads all rows as they are", heed, c.name)
		}
		switch {
		case c.name == r.opts.Label && label >= 0, c.name == r.opts.Weight && weight >= 0:
			return r.fail(-1, c.name, "the name is used twice")
		case c.name == r.opts.Label:
			label = i
			continue
		case c.name == r.opts.Weight && c.name != "":
			weight = i
			continue
		case i == only:
			continue
		case !c.list:
			list, of = append(list, []byte(c.name)), append(of, i)
			continue
		}
		n := 0
		if fixed {
			for ; n < len(r.want.list); n++ {
				if _, known := r.want.index[string(appendElement(nil, []byte(c.name), n))]; !known {
					break
				}
			}
		} else if lengths != nil {
			n = lengths[i]
		}
		if n > r.opts.Limits.Features {
			return r.fail(0, c.name, "the list has %d elements, more than %d, the limit of features", n, r.opts.Limits.Features)
		}
		for k := range max(n, 1) {
			list, of = append(list, appendElement(nil, []byte(c.name), k)), append(of, i)
		}
	}
	if err := r.settleLabel(p, label, weight); err != nil {
		return err
	}
	if only >= 0 {
		return r.settleSole(p, only, of, lengths)
	}
	given := len(list)
	if fixed { // a column that may be missing may be missing from the schema
		has := make(map[string]bool, len(list))
		for _, name := range list {
			has[string(name)] = true
		}
		for j, name := range r.want.list {
			if !has[name] && r.mayLack(j) {
				list = append(list, []byte(name))
				p.absent = append(p.absent, j)
			}
		}
	}
	at, names, err := r.place(list)
	if err != nil {
		return err
	}
	for i := range p.columns {
		if i != label && i != weight {
			p.columns[i].places, p.columns[i].skip = nil, true
		}
	}
	for k := range given {
		c := &p.columns[of[k]]
		to := r.placeOfColumn(at[k], names, string(list[k]))
		if at[k] != roleIgnored && c.refusal != "" {
			return r.fail(-1, c.name, "%s", c.refusal)
		}
		c.places = append(c.places, to)
		c.skip = c.skip && at[k] == roleIgnored
		if c.list && !c.skip && !fixed && lengths[of[k]] == 0 {
			return r.fail(0, c.name, "the list is empty")
		}
	}
	p.names, p.width, p.lengths = names, len(names), slices.Clone(lengths)
	return r.checkWidth(p.width)
}

func (r *recordReader) checkWidth(n int) *Error {
	switch {
	case n == 0 && !r.opts.LabelAlone:
		return r.fail(-1, "", "the schema has no features")
	case n > r.opts.Limits.Features:
		return r.fail(-1, "", "there are %d features, the limit is %d", n, r.opts.Limits.Features)
	}
	return nil
}

// settleLabel gives label and weight their places.
func (r *recordReader) settleLabel(p *recordPlan, label, weight int) *Error {
	for _, of := range [...]struct{ role, column int }{{roleLabel, label}, {roleWeight, weight}} {
		if of.column < 0 {
			continue
		}
		c := &p.columns[of.column]
		to := place{role: of.role, name: c.name}
		ignored := r.unlabelled && (of.role == roleLabel || !r.textRows.weighted())
		if ignored {
			to.role = roleIgnored
		} else if c.list || c.refusal != "" {
			return r.fail(-1, c.name, "it is no single value, as a label and a weight are")
		}
		c.places, c.skip = []place{to}, ignored
	}
	names := func(yield func(string) bool) {
		for _, c := range p.columns {
			if !yield(c.name) {
				return
			}
		}
	}
	if label < 0 && !r.unlabelled {
		if hasName(names, "op") && hasName(names, "source.connector") {
			return r.fail(-1, "", "the payload is a change of Debezium: set format.envelope: debezium and blocks.unit: key")
		}
		return r.fail(-1, r.opts.Label, "the schema has no such field for the label: name it (format.label)%s", likeHint(r.opts.Label, names))
	}
	if weight < 0 && r.textRows.weighted() {
		return r.fail(-1, r.opts.Weight, "the schema has no such field for the weight%s", likeHint(r.opts.Weight, names))
	}
	return nil
}

func hasName(names iter.Seq[string], name string) bool {
	for n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// soleList is the column that is a list named features, as rows without names have it; −1: none is.
func (r *recordReader) soleList(p *recordPlan) int {
	return slices.IndexFunc(p.columns, func(c recordColumn) bool { return c.list && c.name == "features" && c.refusal == "" })
}

// settleSole gives a list of features without names its places. others are the columns beside it.
func (r *recordReader) settleSole(p *recordPlan, only int, others, lengths []int) *Error {
	for _, i := range others {
		c := &p.columns[i]
		if !r.ignores([]byte(c.name), r.want.list != nil) {
			return r.fail(-1, c.name, "a field beside a list of features: ignore it")
		}
		c.skip = true
	}
	n := r.want.width
	if n == 0 && lengths != nil {
		n = lengths[only]
	}
	if n > r.opts.Limits.Features {
		return r.fail(0, "features", "the list has %d elements, more than %d, the limit of features", n, r.opts.Limits.Features)
	}
	c := &p.columns[only]
	c.places, c.skip = nil, false
	for j := range n {
		c.places = append(c.places, r.placeOfColumn(j, r.want.list, featureName(r.want.list, j)))
	}
	p.names, p.width, p.lengths = r.want.list, n, slices.Clone(lengths)
	return r.checkWidth(n)
}

// lack gives the columns that the schema lacks their values.
func (r *recordReader) lack(p *recordPlan) {
	for _, j := range p.absent {
		r.row[j] = math.NaN()
	}
}
