package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"streamd/ingest/registry"
)

// maxProtoNesting bounds the brackets of a text within each other, before it gets to a parser that
// calls itself.
const maxProtoNesting = 200

// knownProtos are the files that Kafka Connect's converter imports, and that no registry has, since
// its serializer brings them along. What is not read of them is left out.
var knownProtos = map[string]string{
	"confluent/meta.proto": `syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
		message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
		message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
		extend google.protobuf.FileOptions { Meta file_meta = 1088; }
		extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
		extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
		extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
		extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }`,
	"confluent/type/decimal.proto": `syntax = "proto3"; package confluent.type;
		message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }`,
	"google/type/date.proto": `syntax = "proto3"; package google.type;
		message Date { int32 year = 1; int32 month = 2; int32 day = 3; }`,
	"google/type/timeofday.proto": `syntax = "proto3"; package google.type;
		message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }`,
}

// readProto makes the descriptor of the file that a schema of a registry is.
func readProto(s *registry.Schema) (protoreflect.FileDescriptor, error) {
	name := "schema.proto"
	texts := maps.Clone(knownProtos)
	for _, r := range append(slices.Clone(s.References), registry.Reference{Name: name, Text: s.Text}) {
		depth := 0
		for _, c := range []byte(r.Text) {
			switch c {
			case '{', '[', '(', '<':
				depth++
			case '}', ']', ')', '>':
				depth--
			}
			if depth > maxProtoNesting {
				return nil, fmt.Errorf("%s nests more than %d deep", r.Name, maxProtoNesting)
			}
		}
		texts[r.Name] = r.Text
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(texts)}),
		MaxParallelism: 1,
	}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// readDescriptors finds the message of a name among the files of a FileDescriptorSet. Without a
// name it is the only one of the last file.
func readDescriptors(set []byte, name string) (protoreflect.MessageDescriptor, error) {
	var all descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(set, &all); err != nil || len(all.File) == 0 {
		return nil, errors.New("it is neither a schema of Avro in JSON nor a FileDescriptorSet, as protoc --include_imports --descriptor_set_out writes it")
	}
	files, err := protodesc.NewFiles(&all)
	if err != nil {
		return nil, fmt.Errorf("%w: was it written with --include_imports?", err)
	}
	if name != "" {
		found, err := files.FindDescriptorByName(protoreflect.FullName(name))
		if m, ok := found.(protoreflect.MessageDescriptor); ok && err == nil {
			return m, nil
		}
		return nil, fmt.Errorf("there is no message %.100q (format.message): name one with its package, such as shop.v1.Visit", name)
	}
	last, err := files.FindFileByPath(all.File[len(all.File)-1].GetName())
	if err != nil {
		return nil, err
	}
	if n := last.Messages().Len(); n != 1 {
		return nil, fmt.Errorf("%s has %d messages: name one, with its package (format.message)", last.Path(), n)
	}
	return last.Messages().Get(0), nil
}

// messageAt is the message that indexes lead to.
func messageAt(file protoreflect.FileDescriptor, indexes []int64) (protoreflect.MessageDescriptor, bool) {
	all := file.Messages()
	var m protoreflect.MessageDescriptor
	for _, i := range indexes {
		if i < 0 || i >= int64(all.Len()) {
			return nil, false
		}
		m = all.Get(int(i))
		all = m.Messages()
	}
	return m, m != nil
}

// protoKind is how the values of a field are written.
type protoKind uint8

const (
	protoVarint protoKind = iota // int32, int64, uint32, uint64
	protoZigzag                  // sint32, sint64
	protoBoolean
	protoEnum
	protoFixed32 // fixed32
	protoSfixed32
	protoFloat
	protoFixed64
	protoSfixed64
	protoDouble
	protoText     // string and bytes
	protoMessages // messages within messages
	protoInstant  // google.protobuf.Timestamp
	protoSpan     // google.protobuf.Duration
	protoNumeral  // confluent.type.Decimal
	protoDate     // google.type.Date
	protoClock    // google.type.TimeOfDay
)

// protoField is a field of a message in one place.
type protoField struct {
	kind     protoKind
	bits     int // of an integer: 32, or 64
	unsigned bool
	wire     protowire.Type
	list     bool
	skip     bool
	wrapped  *protoField         // the value of a wrapper, such as google.protobuf.DoubleValue
	symbols  map[int32][]byte    // of protoEnum
	message  *protoMessage       // of protoMessages
	absent   *protoreflect.Value // what an absent field means; nil: it is missing
	place    place
	places   []place // of a list's elements
	column   int     // its index in recordPlan.columns; -1: it has none

	row  int // the last row, from 1, that has it
	read int // elements of the list in that row
}

// protoMessage is a message in one place.
type protoMessage struct {
	few    []*protoField // by number, where it is small
	many   map[protowire.Number]*protoField
	fields []*protoField // those that are not passed over
	row    int           // the last row, from 1, that has it
}

// fewNumbers is the numbers that have a place in a slice.
const fewNumbers = 256

// field is the field of a number; nil: it is unknown, or passed over.
func (m *protoMessage) field(n protowire.Number) *protoField {
	if int(n) < len(m.few) {
		return m.few[n]
	}
	return m.many[n]
}

func (m *protoMessage) add(n protowire.Number, f *protoField) {
	m.fields = append(m.fields, f)
	if n < fewNumbers {
		for int(n) >= len(m.few) {
			m.few = append(m.few, nil)
		}
		m.few[n] = f
		return
	}
	if m.many == nil {
		m.many = map[protowire.Number]*protoField{}
	}
	m.many[n] = f
}

// protoPlan reads the messages of a type into the columns that a decoder wants.
type protoPlan struct {
	recordPlan
	root   *protoMessage
	fields []*protoField // by column
}

// newProtoPlan finds the columns of a message. They have no places yet.
func (r *protoReader) newProtoPlan(of protoreflect.MessageDescriptor) (*protoPlan, *Error) {
	p := &protoPlan{recordPlan: recordPlan{unlabelled: r.unlabelled}}
	var err *Error
	p.root, err = r.findMessage(p, of, "", nil)
	return p, err
}

// findMessage finds the columns of a message under a path. around are the messages around it.
func (r *protoReader) findMessage(p *protoPlan, of protoreflect.MessageDescriptor, path string, around []protoreflect.FullName) (*protoMessage, *Error) {
	m := &protoMessage{}
	around = append(slices.Clip(around), of.FullName())
	for i := range of.Fields().Len() {
		d := of.Fields().Get(i)
		name := path + string(d.Name())
		if err := r.grow(&p.recordPlan, len(around)); err != nil {
			return nil, err
		}
		if name != r.opts.Label && name != r.opts.Weight && Matches(r.opts.Ignore, name) {
			continue
		}
		f, refusal := newProtoField(d, around)
		if refusal == "" && f.kind == protoMessages && f.wrapped == nil {
			var err *Error
			if f.message, err = r.findMessage(p, d.Message(), name+".", around); err != nil {
				return nil, err
			}
			f.column = -1
			m.add(d.Number(), f)
			continue
		}
		f.column = len(p.columns)
		p.lists = p.lists || f.list
		p.columns = append(p.columns, recordColumn{name: name, list: f.list, refusal: refusal})
		p.fields = append(p.fields, f)
		m.add(d.Number(), f)
	}
	return m, nil
}

var protoKinds = map[protoreflect.Kind]protoField{
	protoreflect.BoolKind:     {kind: protoBoolean, wire: protowire.VarintType},
	protoreflect.EnumKind:     {kind: protoEnum, wire: protowire.VarintType},
	protoreflect.Int32Kind:    {kind: protoVarint, bits: 32, wire: protowire.VarintType},
	protoreflect.Int64Kind:    {kind: protoVarint, bits: 64, wire: protowire.VarintType},
	protoreflect.Uint32Kind:   {kind: protoVarint, bits: 32, unsigned: true, wire: protowire.VarintType},
	protoreflect.Uint64Kind:   {kind: protoVarint, bits: 64, unsigned: true, wire: protowire.VarintType},
	protoreflect.Sint32Kind:   {kind: protoZigzag, bits: 32, wire: protowire.VarintType},
	protoreflect.Sint64Kind:   {kind: protoZigzag, bits: 64, wire: protowire.VarintType},
	protoreflect.Fixed32Kind:  {kind: protoFixed32, wire: protowire.Fixed32Type},
	protoreflect.Sfixed32Kind: {kind: protoSfixed32, wire: protowire.Fixed32Type},
	protoreflect.FloatKind:    {kind: protoFloat, wire: protowire.Fixed32Type},
	protoreflect.Fixed64Kind:  {kind: protoFixed64, wire: protowire.Fixed64Type},
	protoreflect.Sfixed64Kind: {kind: protoSfixed64, wire: protowire.Fixed64Type},
	protoreflect.DoubleKind:   {kind: protoDouble, wire: protowire.Fixed64Type},
	protoreflect.StringKind:   {kind: protoText, wire: protowire.BytesType},
	protoreflect.BytesKind:    {kind: protoText, wire: protowire.BytesType},
	protoreflect.MessageKind:  {kind: protoMessages, wire: protowire.BytesType},
}

// protoSymbols are the names of an enum's values.
func protoSymbols(of protoreflect.EnumDescriptor) map[int32][]byte {
	symbols := map[int32][]byte{}
	for values, i := of.Values(), 0; i < values.Len(); i++ {
		v := values.Get(i)
		if _, has := symbols[int32(v.Number())]; !has { // others are its aliases
			symbols[int32(v.Number())] = []byte(v.Name())
		}
	}
	return symbols
}

// newProtoField reads what a field is, or why it cannot be a feature.
func newProtoField(d protoreflect.FieldDescriptor, around []protoreflect.FullName) (f *protoField, refusal string) {
	made, known := protoKinds[d.Kind()]
	f = &made
	f.list = d.IsList()
	switch {
	case !known:
		return f, "it is a group: ignore it"
	case d.IsMap():
		return f, "it is a map, whose keys are no columns: ignore it"
	case f.kind == protoEnum:
		f.symbols = protoSymbols(d.Enum())
	}
	if f.kind != protoMessages {
		if !d.HasPresence() || d.HasDefault() {
			v := d.Default()
			f.absent = &v
		}
		return f, ""
	}
	of := d.Message()
	switch name := of.FullName(); {
	case name == "google.protobuf.Timestamp":
		f.kind = protoInstant
	case name == "google.protobuf.Duration":
		f.kind = protoSpan
	case name == "confluent.type.Decimal":
		f.kind = protoNumeral
	case name == "google.type.Date":
		f.kind = protoDate
	case name == "google.type.TimeOfDay":
		f.kind = protoClock
		return f, "it is a time of day, which is no value: ignore it"
	case strings.HasPrefix(string(name), "google.protobuf.") && strings.HasSuffix(string(name), "Value") && of.Fields().Len() == 1 && of.Fields().Get(0).Kind() != protoreflect.MessageKind:
		f.wrapped, refusal = newProtoField(of.Fields().Get(0), around)
		if f.list = d.IsList() || f.wrapped.list; f.list {
			return f, "it is a list of wrapped values: ignore it"
		}
		return f, refusal
	case f.list:
		return f, "it is a list of messages: ignore it"
	case slices.Contains(around, name):
		return f, "it is a message within itself, which has no end of columns: ignore it"
	}
	return f, ""
}
