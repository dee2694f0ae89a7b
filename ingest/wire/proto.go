package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"streamd/ingest/registry"
)

// protoReader reads messages of Protobuf, each of which is a row. Every field that is not passed
// over takes a byte or more, so that a message bounds its own reading.
type protoReader struct {
	recordReader
	ids map[protoID]*protoPlan
	own *protoPlan // of Options.Written

	size    int // columns of ids
	nth     int // the row, from 1
	lengths []int
	indexes []int64
}

// protoID tells a message of a schema. Its indexes are written as in the payload.
type protoID struct {
	schema  uint32
	indexes string
}

// maxIndexes bounds the depth of a message's type within others.
const maxIndexes = 16

// framed reads a payload of a schema of the registry. Before the message are the indexes of its
// type in the file: their number, and each of them, or a zero for the first message of the file.
func (r *protoReader) framed(s *registry.Schema, payload []byte) *Error {
	var at int
	if r.indexes, at = appendProtoIndexes(r.indexes[:0], payload); at == 0 {
		return r.fail(-1, "", "the indexes of the message's type behind the frame are cut off or malformed")
	}
	p := r.ids[protoID{s.ID, string(payload[:at])}]
	if p == nil || p.unlabelled != r.unlabelled {
		p = r.plan(func() (protoreflect.MessageDescriptor, *Error) {
			file, err := readProto(s)
			if err != nil {
				return nil, r.fail(-1, "", "its schema cannot be used: %v", err)
			}
			m, ok := messageAt(file, r.indexes)
			if !ok {
				return nil, r.fail(-1, "", "the schema has no message with the indexes %v", r.indexes)
			}
			return m, nil
		})
		if r.size += 64 + len(p.columns); r.ids == nil || r.size > keptPlans {
			r.ids, r.size = map[protoID]*protoPlan{}, 64+len(p.columns)
		}
		r.ids[protoID{s.ID, string(payload[:at])}] = p
	}
	return r.message(p, payload[at:])
}

// bare reads a payload without a frame.
func (r *protoReader) bare(payload []byte) *Error {
	if r.opts.Written == nil || r.opts.Written.Kind != registry.Protobuf {
		return r.fail(-1, "", "the payload is Protobuf without its schema: say which that is (format.schema_file, format.message), "+
			"or produce with a schema registry (format.registry.url)")
	}
	if r.own == nil || r.own.unlabelled != r.unlabelled {
		r.own = r.plan(func() (protoreflect.MessageDescriptor, *Error) {
			m, err := readDescriptors([]byte(r.opts.Written.Text), r.opts.Written.Message)
			if err != nil {
				return nil, r.fail(-1, "", "its schema cannot be used: %v", err)
			}
			return m, nil
		})
	}
	return r.message(r.own, payload)
}

// plan is the plan of a message.
func (r *protoReader) plan(of func() (protoreflect.MessageDescriptor, *Error)) *protoPlan {
	m, bad := of()
	var p *protoPlan
	if bad == nil {
		p, bad = r.newProtoPlan(m)
	}
	if bad == nil && !(p.lists && r.want.list == nil) { // else the message has the lengths
		bad = r.settle(p, nil)
	}
	if bad != nil {
		return &protoPlan{recordPlan: recordPlan{unlabelled: r.unlabelled, bad: bad}}
	}
	return p
}

// settle gives the columns and their fields their places.
func (r *protoReader) settle(p *protoPlan, lengths []int) *Error {
	if err := r.settleColumns(&p.recordPlan, lengths); err != nil {
		return err
	}
	for i, f := range p.fields {
		c := &p.columns[i]
		if f.skip = c.skip; c.list {
			f.places = c.places
		} else if !c.skip {
			f.place = c.places[0]
		}
	}
	return nil
}

// message reads a message and makes the block.
func (r *protoReader) message(p *protoPlan, payload []byte) *Error {
	if p.bad != nil {
		bad := *p.bad
		return &bad
	}
	r.text = payload
	if p.lists && r.want.list == nil {
		r.lengths = append(r.lengths[:0], make([]int, len(p.columns))...)
		if err := r.measure(p.root, payload, 0); err != nil {
			return err
		}
		for i, n := range r.lengths {
			if p.lengths == nil || p.lengths[i] != n {
				if err := r.settle(p, r.lengths); err != nil {
					return err
				}
				break
			}
		}
	}
	r.setWidth(p.width)
	if reason := r.room(p.width); reason != "" {
		return r.fail(0, "", "%s", reason)
	}
	r.nth++
	r.beginRow()
	r.lack(&p.recordPlan)
	if err := r.fields(p.root, payload, 0); err != nil {
		return err
	}
	if err := r.complete(p.root, true); err != nil {
		return err
	}
	if err := r.endRow(); err != nil {
		return err
	}
	if err := r.finishRows(p.names); err != nil {
		return err.(*Error)
	}
	return nil
}

const protoCut = "the message is cut off or malformed: is its schema another one?"

// next is the next field of a message and the bytes of its value. n is what both take, or 0 if they
// are malformed.
func nextProtoField(b []byte) (number protowire.Number, typ protowire.Type, value []byte, n int) {
	number, typ, k := protowire.ConsumeTag(b)
	if k < 0 {
		return 0, 0, nil, 0
	}
	m := protowire.ConsumeFieldValue(number, typ, b[k:])
	if m < 0 {
		return 0, 0, nil, 0
	}
	return number, typ, b[k : k+m], k + m
}

// maxProtoDepth bounds the messages within messages that are columns. A plan has no more.
const maxProtoDepth = 100

// fields reads the fields of a message.
func (r *protoReader) fields(m *protoMessage, b []byte, depth int) *Error {
	m.row = r.nth
	for len(b) > 0 {
		number, typ, value, n := nextProtoField(b)
		if n == 0 || depth > maxProtoDepth {
			return r.fail(r.count, "", protoCut)
		}
		b = b[n:]
		f := m.field(number)
		if f == nil || f.skip {
			continue
		}
		if err := r.field(f, typ, value, depth); err != nil {
			return err
		}
	}
	return nil
}

// field reads a field, or some elements of a list.
func (r *protoReader) field(f *protoField, typ protowire.Type, value []byte, depth int) *Error {
	if f.row != r.nth {
		f.row, f.read = r.nth, 0
	}
	if f.list && typ == protowire.BytesType && f.wire != protowire.BytesType {
		packed, n := protowire.ConsumeBytes(value)
		for n >= 0 && len(packed) > 0 {
			k := protowire.ConsumeFieldValue(1, f.wire, packed)
			if k < 0 {
				return r.fail(r.count, f.place.name, protoCut)
			}
			if err := r.element(f, packed[:k]); err != nil {
				return err
			}
			packed = packed[k:]
		}
		return nil
	}
	switch {
	case typ != f.wire:
		return r.fail(r.count, f.place.name, protoCut)
	case f.kind == protoMessages && f.wrapped == nil:
		inner, _ := protowire.ConsumeBytes(value)
		return r.fields(f.message, inner, depth+1)
	case f.list:
		return r.element(f, value)
	}
	if reason := r.value(f, &f.place, value); reason != "" {
		return r.refuse(&f.place, reason)
	}
	return nil
}

// element reads the next element of a list.
func (r *protoReader) element(f *protoField, value []byte) *Error {
	if f.read == len(f.places) {
		if r.opts.IgnoreUnknown && r.want.list != nil {
			return nil
		}
		name := ""
		if len(f.places) > 0 {
			name = f.places[0].name
		}
		return r.fail(r.count, name, "the list has more than %d elements, as many as are expected", len(f.places))
	}
	p := &f.places[f.read]
	f.read++
	if reason := r.value(f, p, value); reason != "" {
		return r.refuse(p, reason)
	}
	return nil
}

// value reads a value into a place. It has the length of its type.
func (r *protoReader) value(f *protoField, p *place, b []byte) (reason string) {
	switch f.wire {
	case protowire.Fixed32Type:
		u := binary.LittleEndian.Uint32(b)
		switch f.kind {
		case protoFloat:
			return r.setNumber(p, float64(math.Float32frombits(u)), true)
		case protoSfixed32:
			return r.setInteger(p, int64(int32(u)))
		}
		return r.setInteger(p, int64(u))
	case protowire.Fixed64Type:
		u := binary.LittleEndian.Uint64(b)
		switch f.kind {
		case protoDouble:
			return r.setNumber(p, math.Float64frombits(u), true)
		case protoSfixed64:
			return r.setInteger(p, int64(u))
		}
		return r.setUnsigned(p, u)
	case protowire.VarintType:
		u, _ := protowire.ConsumeVarint(b)
		switch {
		case f.kind == protoBoolean:
			return r.setBoolean(p, u != 0)
		case f.kind == protoEnum:
			return r.symbol(f, p, int32(u))
		case f.kind == protoZigzag && f.bits == 32:
			return r.setInteger(p, protowire.DecodeZigZag(u&math.MaxUint32))
		case f.kind == protoZigzag:
			return r.setInteger(p, protowire.DecodeZigZag(u))
		case f.unsigned && f.bits == 32:
			return r.setInteger(p, int64(uint32(u)))
		case f.unsigned:
			return r.setUnsigned(p, u)
		case f.bits == 32:
			return r.setInteger(p, int64(int32(u)))
		}
		return r.setInteger(p, int64(u))
	}
	b, _ = protowire.ConsumeBytes(b)
	switch {
	case f.kind == protoText:
		return r.setText(p, b)
	case f.wrapped != nil:
		return r.unwrapped(f.wrapped, p, b)
	case f.kind == protoNumeral:
		return r.numeral(p, b)
	case f.kind == protoDate:
		day, reason := protoDay(b)
		if reason != "" {
			return reason
		}
		return r.setTime(p, instant{day * secondsPerDay, 0})
	}
	seconds, nanos, ok := protoTime(b)
	switch {
	case !ok:
		return protoCut
	case f.kind == protoSpan:
		return r.setSeconds(p, spanOf(seconds, nanos))
	case nanos < 0 || nanos >= 1e9:
		return "the time has " + strconv.FormatInt(nanos, 10) + " nanoseconds: want 0 to 999999999"
	}
	return r.setTime(p, instant{seconds, nanos})
}

// spanOf is an instant of seconds and of nanoseconds of the same sign.
func spanOf(seconds, nanos int64) instant {
	seconds, nanos = seconds+nanos/1e9, nanos%1e9
	if nanos < 0 {
		seconds, nanos = seconds-1, nanos+1e9
	}
	return instant{seconds, nanos}
}

// setUnsigned takes an integer without a sign.
func (r *protoReader) setUnsigned(p *place, u uint64) string {
	return r.setNumber(p, float64(u), u < 1<<53)
}

// symbol takes the name of an enum's value, or its number if the schema does not have it.
func (r *protoReader) symbol(f *protoField, p *place, n int32) string {
	if name, ok := f.symbols[n]; ok {
		return r.setText(p, name)
	}
	r.scratch = strconv.AppendInt(r.scratch[:0], int64(n), 10)
	return r.setText(p, r.scratch)
}

// unwrapped reads the message of a wrapper, whose only field is the first.
func (r *protoReader) unwrapped(f *protoField, p *place, b []byte) (reason string) {
	given := false
	for len(b) > 0 {
		number, typ, value, n := nextProtoField(b)
		if n == 0 || number == 1 && typ != f.wire {
			return protoCut
		}
		if b = b[n:]; number == 1 {
			given = true
			if reason = r.value(f, p, value); reason != "" {
				return reason
			}
		}
	}
	if !given {
		return r.byDefault(f, p)
	}
	return ""
}

// protoTime reads a Timestamp or a Duration.
func protoTime(b []byte) (seconds, nanos int64, ok bool) {
	for len(b) > 0 {
		number, typ, value, n := nextProtoField(b)
		if n == 0 || number <= 2 && typ != protowire.VarintType {
			return 0, 0, false
		}
		if b = b[n:]; number <= 2 {
			u, _ := protowire.ConsumeVarint(value)
			if number == 1 {
				seconds = int64(u)
			} else {
				nanos = int64(int32(u))
			}
		}
	}
	return seconds, nanos, true
}

// protoDay reads a Date of the years 1 to 9999, as the days since 1970.
func protoDay(b []byte) (day int64, reason string) {
	var parts [3]int64 // year, month, day
	for len(b) > 0 {
		number, typ, value, n := nextProtoField(b)
		if n == 0 || number <= 3 && typ != protowire.VarintType {
			return 0, protoCut
		}
		if b = b[n:]; number <= 3 {
			u, _ := protowire.ConsumeVarint(value)
			parts[number-1] = int64(int32(u))
		}
	}
	at := time.Date(int(parts[0]), time.Month(parts[1]), int(parts[2]), 0, 0, 0, 0, time.UTC)
	if parts[0] < 1 || parts[0] > 9999 || int64(at.Month()) != parts[1] || int64(at.Day()) != parts[2] {
		return 0, fmt.Sprintf("there is no date of the year %d, month %d and day %d", parts[0], parts[1], parts[2])
	}
	return at.Unix() / secondsPerDay, ""
}

// numeral reads a Decimal.
func (r *protoReader) numeral(p *place, b []byte) string {
	digits, scale, ok := protoDecimal(b)
	switch {
	case !ok:
		return protoCut
	case scale < -maxAvroScale || scale > maxAvroScale:
		return "the decimal has the scale " + strconv.FormatInt(scale, 10)
	}
	return r.setDecimal(p, digits, int(scale))
}

// protoDecimal reads a Decimal: its digits in bytes, its precision, which is passed over, and its
// scale. There is a digit.
func protoDecimal(b []byte) (digits []byte, scale int64, ok bool) {
	for len(b) > 0 {
		number, typ, value, n := nextProtoField(b)
		if n == 0 || number == 1 && typ != protowire.BytesType || number == 3 && typ != protowire.VarintType {
			return nil, 0, false
		}
		switch b = b[n:]; number {
		case 1:
			digits, _ = protowire.ConsumeBytes(value)
		case 3:
			u, _ := protowire.ConsumeVarint(value)
			scale = int64(int32(u))
		}
	}
	if len(digits) == 0 {
		digits = []byte{0}
	}
	return digits, scale, true
}

// byDefault takes what an absent value means.
func (r *protoReader) byDefault(f *protoField, p *place) string {
	if f.absent == nil {
		return r.setMissing(p)
	}
	switch v := f.absent.Interface().(type) {
	case bool:
		return r.setBoolean(p, v)
	case protoreflect.EnumNumber:
		return r.symbol(f, p, int32(v))
	case int32:
		return r.setInteger(p, int64(v))
	case int64:
		return r.setInteger(p, v)
	case uint32:
		return r.setInteger(p, int64(v))
	case uint64:
		return r.setUnsigned(p, v)
	case float32:
		return r.setNumber(p, float64(v), true)
	case float64:
		return r.setNumber(p, v, true)
	case string:
		r.scratch = append(r.scratch[:0], v...)
	case []byte:
		r.scratch = append(r.scratch[:0], v...)
	}
	return r.setText(p, r.scratch)
}

// complete gives the fields that the message does not have their values. present is whether the
// message itself is there: the fields of one that is not are missing.
func (r *protoReader) complete(m *protoMessage, present bool) *Error {
	for _, f := range m.fields {
		switch {
		case f.skip:
		case f.message != nil:
			if err := r.complete(f.message, present && f.message.row == r.nth); err != nil {
				return err
			}
		case f.list:
			if f.row != r.nth {
				f.row, f.read = r.nth, 0
			}
			for ; f.read < len(f.places); f.read++ {
				p := &f.places[f.read]
				if p.role < 0 {
					continue
				}
				if present && !r.mayLack(p.role) {
					return r.refuse(p, "the feature is missing: the list is shorter than "+strconv.Itoa(len(f.places)))
				}
				if reason := r.setMissing(p); !r.mayLack(p.role) && reason != "" {
					return r.refuse(p, reason)
				}
				r.row[p.role] = math.NaN()
			}
		case f.row == r.nth:
		case !present:
			if reason := r.setMissing(&f.place); reason != "" {
				return r.refuse(&f.place, reason)
			}
		default:
			if reason := r.byDefault(f, &f.place); reason != "" {
				return r.refuse(&f.place, reason)
			}
		}
	}
	return nil
}

// measure notes the lengths of the lists of a message.
func (r *protoReader) measure(m *protoMessage, b []byte, depth int) *Error {
	for len(b) > 0 {
		number, typ, value, n := nextProtoField(b)
		if n == 0 || depth > maxProtoDepth {
			return r.fail(0, "", protoCut)
		}
		b = b[n:]
		f := m.field(number)
		switch {
		case f == nil || typ != protowire.BytesType && !f.list:
		case f.message != nil && typ == protowire.BytesType:
			inner, _ := protowire.ConsumeBytes(value)
			if err := r.measure(f.message, inner, depth+1); err != nil {
				return err
			}
		case f.list && typ == protowire.BytesType && f.wire != protowire.BytesType:
			packed, _ := protowire.ConsumeBytes(value)
			for len(packed) > 0 {
				k := protowire.ConsumeFieldValue(1, f.wire, packed)
				if k < 0 {
					return r.fail(0, "", protoCut)
				}
				packed = packed[k:]
				r.lengths[f.column]++
			}
		case f.list:
			r.lengths[f.column]++
		}
	}
	return nil
}
