package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"streamd/ingest/registry"
)

// avroReader reads Avro's binary encoding.
//
// A schema's text has been bounded, and its columns are.
type avroReader struct {
	recordReader
	avroCursor

	ids   avroPlans[uint32] // by schema id
	heads avroPlans[string] // by the schema in a file's head
	own   *avroPlan         // of Options.Written

	lengths []int // of the lists of a row
	unpack  avroUnpacker
}

// avroPlans are the plans that are kept, by what tells their schemas.
type avroPlans[K comparable] struct {
	all  map[K]*avroPlan
	size int // of all
}

// keptPlans bounds the plans, by their columns and themselves.
const keptPlans = 1 << 14

func (k *avroPlans[K]) add(key K, p *avroPlan) {
	if k.size += 64 + len(p.columns); k.all == nil || k.size > keptPlans {
		k.all, k.size = map[K]*avroPlan{}, 64+len(p.columns)
	}
	k.all[key] = p
}

// usable is a plan that may be used, or why its schema cannot be.
func (a *avroReader) usable(p *avroPlan) (*avroPlan, *Error) {
	if p.bad != nil {
		bad := *p.bad
		return nil, &bad
	}
	return p, nil
}

// isFor reports whether a plan that is kept can be used for the payload.
func (p *avroPlan) isFor(a *avroReader) bool { return p != nil && p.unlabelled == a.unlabelled }

// plan is the plan of a schema that is not kept.
func (a *avroReader) plan(s *registry.Schema) *avroPlan {
	schema, err := readAvroSchema(s)
	if err != nil {
		bad := a.fail(-1, "", "its schema cannot be used: %v", err)
		return &avroPlan{recordPlan: recordPlan{unlabelled: a.unlabelled, bad: bad}}
	}
	p, bad := a.newAvroPlan(schema)
	if bad != nil {
		return &avroPlan{recordPlan: recordPlan{unlabelled: a.unlabelled, bad: bad}}
	}
	if !(p.lists && a.want.list == nil) { // else the first row has the lengths
		p.bad = a.settle(p, nil)
	}
	return p
}

// framed reads a payload of a schema of the registry.
func (a *avroReader) framed(s *registry.Schema, payload []byte) *Error {
	p := a.ids.all[s.ID]
	if !p.isFor(a) {
		p = a.plan(s)
		a.ids.add(s.ID, p)
	}
	p, err := a.usable(p)
	if err != nil {
		return err
	}
	return a.message(p, payload)
}

// avroOpening begins a single object, which has the fingerprint of its schema.
var avroOpening = []byte{0xc3, 0x01}

// bare reads a payload without a frame: a file, or one of the schema of the options.
func (a *avroReader) bare(payload []byte) *Error {
	if opensAvroFile(payload) {
		return a.file(payload)
	}
	if a.opts.Written == nil || a.opts.Written.Kind != registry.Avro {
		return a.fail(-1, "", "the payload is Avro without its schema: say which that is (format.schema_file), "+
			"or produce with a schema registry (format.registry.url)")
	}
	if !a.own.isFor(a) {
		a.own = a.plan(a.opts.Written)
	}
	if _, err := a.usable(a.own); err != nil {
		return err
	}
	if bytes.HasPrefix(payload, avroOpening) && len(payload) >= 10 {
		if bytes.Equal(payload[2:10], a.own.schema.fingerprint[:]) {
			return a.message(a.own, payload[10:])
		}
		if err := a.message(a.own, payload); err != nil {
			return a.fail(-1, "", "the payload is a single object of Avro whose schema, with the fingerprint %x, is not that of format.schema_file, %x",
				payload[2:10], a.own.schema.fingerprint)
		}
		return nil
	}
	err := a.message(a.own, payload)
	if err != nil && payload[0] == 0 && len(payload) > 5 {
		err.Reason += "; if the payload is framed for a schema registry, say where that is (format.registry.url)"
	}
	return err
}

// message reads one record, or an array of records, and makes the block.
func (a *avroReader) message(p *avroPlan, payload []byte) *Error {
	a.text = payload
	if err := a.records(p, payload, 1, p.several); err != nil {
		return err
	}
	return a.finishRecords(p)
}

func (a *avroReader) finishRecords(p *avroPlan) *Error {
	if err := a.finishRows(p.names); err != nil {
		return err.(*Error)
	}
	return nil
}

// records reads n records, or an array of records, which are all of b.
func (a *avroReader) records(p *avroPlan, b []byte, n int64, array bool) *Error {
	a.start(b)
	for {
		if array {
			if n = a.blockCount(); n == 0 {
				break
			}
		}
		for ; n > 0; n-- {
			if err := a.record(p); err != nil {
				return err
			}
		}
		if !array {
			break
		}
	}
	switch {
	case a.cut:
		return a.ended()
	case a.at < len(b):
		return a.fail(-1, "", "there are %d bytes behind the last record: its schema is another one", len(b)-a.at)
	}
	return nil
}

// ended is the error of data that is cut.
func (a *avroReader) ended() *Error {
	if a.steps < 0 {
		return a.fail(a.count, "", "the record has more values than its bytes could have, or is nested too deeply")
	}
	return a.fail(a.count, "", "the data ends within the record, or a length in it is malformed: is its schema another one?")
}

// record reads a row.
func (a *avroReader) record(p *avroPlan) *Error {
	if p.lists && a.want.list == nil && a.count == 0 {
		if err := a.measured(p); err != nil {
			return err
		}
	}
	if a.count == 0 {
		a.setWidth(p.width)
	}
	if reason := a.room(p.width); reason != "" {
		return a.fail(a.count, "", "%s", reason)
	}
	a.beginRow()
	a.lack(&p.recordPlan)
	root := &p.root
	if root.branches != nil {
		if n := a.long(); n != 1 && !a.cut {
			return a.fail(a.count, "", "the record is null")
		}
		root = &root.branches[1]
	}
	if err := a.fields(root); err != nil {
		return err
	}
	if a.cut {
		return a.ended()
	}
	return a.endRow()
}

// measured settles the plan by the lengths of the lists of the first row, if they are others than
// it is settled for.
func (a *avroReader) measured(p *avroPlan) *Error {
	start := a.at
	a.lengths = append(a.lengths[:0], make([]int, len(p.columns))...)
	a.measure(&p.root)
	if a.cut {
		return a.ended()
	}
	a.at = start
	for i, n := range a.lengths {
		if p.lengths == nil || p.lengths[i] != n {
			return a.settle(p, a.lengths)
		}
	}
	return nil
}

// measure passes over values and notes the lengths of lists.
func (a *avroReader) measure(s *avroStep) {
	switch {
	case s.items != nil:
		n := a.skipItems(s.typ, 0)
		a.lengths[s.column] = int(min(n, math.MaxInt32))
	case s.fields != nil:
		for i := range s.fields {
			a.measure(&s.fields[i])
		}
	case s.branches != nil:
		if i := a.long(); i >= 0 && i < int64(len(s.branches)) {
			a.measure(&s.branches[i])
		} else {
			a.cut = true
		}
	default:
		a.skip(s.typ, 0)
	}
}

// fields reads the fields of a record.
func (a *avroReader) fields(s *avroStep) *Error {
	if a.steps -= len(s.fields); a.steps < 0 {
		a.cut = true
	}
	for i := range s.fields {
		f := &s.fields[i]
		if f.skip {
			a.skip(f.typ, 0)
			continue
		}
		if err := a.value(f, &f.place); err != nil {
			return err
		}
		if a.cut {
			return a.ended()
		}
	}
	return nil
}

// value reads a value into its place. A scalar has the place p, and others have those of the step.
func (a *avroReader) value(s *avroStep, p *place) *Error {
	t, reason := s.typ, ""
	switch t.kind {
	case avroDouble:
		if b := a.take(8); b != nil {
			reason = a.setNumber(p, math.Float64frombits(binary.LittleEndian.Uint64(b)), true)
		}
	case avroString:
		reason = a.setText(p, a.bytes())
	case avroInt:
		reason = a.integer(t, p, a.long())
	case avroUnion:
		return a.union(s, p)
	case avroNull:
		reason = a.setMissing(p)
	case avroBoolean:
		if b := a.take(1); b != nil {
			reason = a.setBoolean(p, b[0] == 1)
			if b[0] > 1 {
				reason = fmt.Sprintf("the byte %d is no boolean", b[0])
			}
		}
	case avroFloat:
		if b := a.take(4); b != nil {
			reason = a.setNumber(p, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true)
		}
	case avroEnum:
		i := a.long()
		if i < 0 || i >= int64(len(t.symbols)) {
			reason = fmt.Sprintf("the enum has no symbol %d", i)
		} else {
			reason = a.setText(p, t.symbols[i])
		}
	case avroBytes:
		reason = a.octets(t, p, a.bytes())
	case avroFixed:
		reason = a.octets(t, p, a.take(t.size))
	case avroRecord:
		if t.means != meansScaled {
			return a.fields(s)
		}
		scale := a.long()
		if b := a.bytes(); scale < -maxAvroScale || scale > maxAvroScale {
			reason = fmt.Sprintf("the decimal has the scale %d", scale)
		} else {
			reason = a.setDecimal(p, b, int(scale))
		}
	case avroArray:
		return a.array(s)
	}
	if a.cut {
		return a.ended()
	}
	if reason != "" {
		return a.refuse(p, reason)
	}
	return nil
}

// maxAvroScale bounds the scale of a decimal that has its own.
const maxAvroScale = 1000

// integer takes an int or a long.
func (a *avroReader) integer(t *avroType, p *place, n int64) string {
	switch t.means {
	case meansDate:
		if n != int64(int32(n)) {
			return "the date is out of range"
		}
		return a.setTime(p, instant{seconds: secondsPerDay * n})
	case meansTime:
		return a.setTime(p, instantOf(n, t.perSecond))
	case meansSeconds:
		return a.setSeconds(p, instantOf(n, t.perSecond))
	}
	return a.setInteger(p, n)
}

// octets takes bytes, or a fixed number of them.
func (a *avroReader) octets(t *avroType, p *place, b []byte) string {
	switch {
	case a.cut:
		return ""
	case t.means == meansDecimal:
		return a.setDecimal(p, b, t.scale)
	case t.means == meansUUID:
		a.scratch = appendUUID(a.scratch[:0], b)
		return a.setText(p, a.scratch)
	}
	return a.setText(p, b)
}

// union reads a value of a union.
func (a *avroReader) union(s *avroStep, p *place) *Error {
	i := a.long()
	switch {
	case a.cut:
		return a.ended()
	case i < 0 || i >= int64(len(s.branches)):
		return a.refuse(p, fmt.Sprintf("the union has no branch %d", i))
	}
	b := &s.branches[i]
	switch {
	case b.skip:
		a.skip(b.typ, 0)
		return nil
	case b.typ.kind == avroNull && s.others:
		return a.nothing(s)
	case b.typ.isScalar():
		return a.value(b, p)
	}
	return a.value(b, &b.place)
}

// array reads a list.
func (a *avroReader) array(s *avroStep) *Error {
	k := 0
	for n := a.blockCount(); n > 0; n = a.blockCount() {
		for ; n > 0; n-- {
			if a.steps--; a.steps < 0 {
				a.cut = true
			}
			if a.cut {
				return a.ended()
			}
			if k < len(s.list) {
				if err := a.value(s.items, &s.list[k]); err != nil {
					return err
				}
			} else if a.opts.IgnoreUnknown && a.want.list != nil {
				a.skip(s.items.typ, 0)
			} else {
				return a.refuse(&s.place, fmt.Sprintf("the list has more than %d elements, as many as in other rows", len(s.list)))
			}
			k++
		}
	}
	for ; k < len(s.list) && !a.cut; k++ {
		p := &s.list[k]
		if p.role >= 0 && !a.mayLack(p.role) {
			return a.refuse(p, fmt.Sprintf("the feature is missing: the list has %d elements, want %d", k, len(s.list)))
		}
		if p.role >= 0 {
			a.row[p.role] = math.NaN()
		}
	}
	if a.cut {
		return a.ended()
	}
	return nil
}
