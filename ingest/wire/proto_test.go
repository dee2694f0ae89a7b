package wire_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

const rowProto = `syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/duration.proto";
import "place.proto";

message Other { string x = 1; message Row { int32 y = 1; } }
message Row {
	string label = 1;
	int32 i = 2; int64 l = 3; uint64 u = 4; sint32 si = 5; sint64 sl = 6;
	fixed32 f3 = 7; sfixed64 f6 = 8; float f = 9; double d = 10; bool b = 11;
	string s = 12;
	optional double o = 13;
	google.protobuf.Timestamp at = 14;
	google.protobuf.DoubleValue w = 15;
	google.protobuf.Duration took = 16;
	Place place = 300;
	repeated float emb = 17;
	repeated double loose = 18 [packed = false];
	map<string, int32> skipped = 19;
	repeated Place places = 20;
	oneof one { int32 p = 21; string q = 22; }
	Row again = 23;
}`

const placeProto = `syntax = "proto3"; package shop.v1; enum Kind { NONE = 0; TOWN = 5; VILLAGE = 7; } message Place { double x = 1; Kind kind = 2; optional int32 n = 3; }`

// rowMessage compiles rowProto with a compiler of its own use, and its set of descriptors.
func rowMessage(t testing.TB) (m protoreflect.MessageDescriptor, set []byte) {
	t.Helper()
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"row.proto": rowProto, "place.proto": placeProto}),
	})}
	files, err := c.Compile(context.Background(), "row.proto")
	if err != nil {
		t.Fatal(err)
	}
	var all descriptorpb.FileDescriptorSet
	seen := map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all.File = append(all.File, protodesc.ToFileDescriptorProto(f))
	}
	add(files[0])
	if set, err = proto.Marshal(&all); err != nil {
		t.Fatal(err)
	}
	return files[0].Messages().ByName("Row"), set
}

// protoRow makes a message and the same row in JSON. Fields are absent at random.
func protoRow(r *rand.Rand, of protoreflect.MessageDescriptor) (payload []byte, text string) {
	m := dynamicpb.NewMessage(of)
	var out strings.Builder
	set := func(name string, v any, spelled string) {
		m.Set(of.Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(v))
		fmt.Fprintf(&out, `%q:%s,`, name, spelled)
	}
	some := func() bool { return r.IntN(4) > 0 }
	either := func(name string, is bool, v any, absent string) {
		if is {
			set(name, v, fmt.Sprint(v))
			return
		}
		fmt.Fprintf(&out, `%q:%s,`, name, absent)
	}
	label := []string{"yes", "no"}[r.IntN(2)]
	set("label", label, fmt.Sprintf("%q", label))
	either("i", some(), r.Int32()-r.Int32(), "0")
	either("l", some(), r.Int64()-r.Int64(), "0")
	either("u", some(), r.Uint64(), "0")
	either("si", some(), r.Int32()-r.Int32(), "0")
	either("sl", some(), r.Int64()-r.Int64(), "0")
	either("f3", some(), r.Uint32(), "0")
	either("f6", some(), r.Int64()-r.Int64(), "0")
	if f := float32(r.NormFloat64()); some() {
		set("f", f, fmt.Sprint(float64(f)))
	} else {
		out.WriteString(`"f":0,`)
	}
	either("d", some(), r.NormFloat64(), "0")
	either("b", some(), r.IntN(2) == 0, "false")
	number := fmt.Sprint(r.IntN(1000))
	set("s", number, `"`+number+`"`)
	either("o", some(), r.NormFloat64(), "null")
	inner := func(name string, fields map[string]any) {
		d := of.Fields().ByName(protoreflect.Name(name))
		v := dynamicpb.NewMessage(d.Message())
		for k, x := range fields {
			v.Set(d.Message().Fields().ByName(protoreflect.Name(k)), protoreflect.ValueOf(x))
		}
		m.Set(d, protoreflect.ValueOfMessage(v))
	}
	if at := time.Unix(r.Int64N(1<<32)-1<<31, int64(r.IntN(1e9))).UTC(); some() {
		inner("at", map[string]any{"seconds": at.Unix(), "nanos": int32(at.Nanosecond())})
		fmt.Fprintf(&out, `"at":%q,`, at.Format("2006-01-02T15:04:05.999999999Z"))
	} else {
		out.WriteString(`"at":null,`)
	}
	if some() {
		x := r.NormFloat64()
		inner("w", map[string]any{"value": x})
		fmt.Fprintf(&out, `"w":%v,`, x)
	} else {
		out.WriteString(`"w":null,`)
	}
	inner("took", map[string]any{"seconds": int64(-3), "nanos": int32(-500_000_000)})
	out.WriteString(`"took":-3.5,`)
	switch r.IntN(3) {
	case 0:
		out.WriteString(`"place.x":null,"place.kind":null,"place.n":null,`)
	case 1:
		inner("place", map[string]any{})
		out.WriteString(`"place.x":0,"place.kind":"NONE","place.n":null,`)
	default:
		inner("place", map[string]any{"x": 2.5, "kind": protoreflect.EnumNumber(7), "n": int32(0)})
		out.WriteString(`"place.x":2.5,"place.kind":"VILLAGE","place.n":0,`)
	}
	for name, values := range map[string][]any{"emb": {float32(0.5), float32(-2), float32(0)}, "loose": {1.25, 3.0}} {
		list := m.Mutable(of.Fields().ByName(protoreflect.Name(name))).List()
		for i, v := range values {
			list.Append(protoreflect.ValueOf(v))
			fmt.Fprintf(&out, `"%s[%d]":%v,`, name, i, v)
		}
	}
	if r.IntN(2) == 0 {
		set("p", int32(7), "7")
		out.WriteString(`"q":null`)
	} else {
		set("q", "8", `"8"`)
		out.WriteString(`"p":null`)
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	payload = protowire.AppendTag(payload, 999, protowire.BytesType) // of a newer schema
	return protowire.AppendBytes(payload, []byte("new")), "{" + out.String() + "}"
}

// TestProtoAgainstJSON: the same rows are the same blocks as JSON, framed and by a file of
// descriptors. The messages are written by another implementation.
func TestProtoAgainstJSON(t *testing.T) {
	of, set := rowMessage(t)
	made, err := schema.Parse([]byte(`{place.kind: {kind: category, values: [NONE, TOWN, VILLAGE], missing: own}, i: number, o: {kind: number, missing: mean}, at: {kind: time, parts: [hour], missing: indicator}, q: {kind: category, values: ["8"], other: true, missing: own}}`))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(37, 8))
	for name, opts := range map[string]wire.Options{
		"zero":      {Missing: wire.Missing{Default: wire.MissingZero}, Ignore: []string{"place.kind"}},
		"indicator": {Missing: wire.Missing{Default: wire.MissingIndicator}, Ignore: []string{"place.kind"}},
		"features":  {Missing: wire.Missing{Default: wire.MissingZero}, Features: []string{"place.x", "emb[1]", "emb[0]", "at", "u"}, IgnoreUnknown: true},
		"schema":    {Schema: made, IgnoreUnknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			opts.Ignore = append(opts.Ignore, "skipped", "places", "again")
			framed, bare := opts, opts
			framed.Schemas = schemas{5: {ID: 5, Kind: registry.Protobuf, Text: rowProto, References: []registry.Reference{{Name: "place.proto", Text: placeProto}}}}
			bare.Written = &registry.Schema{Kind: registry.Protobuf, Text: string(set), Message: "shop.v1.Row"}
			a, b, c := newDecoder(t, opts), newDecoder(t, framed), newDecoder(t, bare)
			for range 300 {
				payload, text := protoRow(r, of)
				want, err := a.Decode(wire.JSON.ContentType(), []byte(text))
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				got, err := b.Decode("", frame(5, append([]byte{2, 2}, payload...))) // the second message
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				requireSame(t, got, want)
				if fmt.Sprint(got.Features) != fmt.Sprint(want.Features) {
					t.Fatalf("features %q, want %q", got.Features, want.Features)
				}
				got, err = c.Decode("application/x-protobuf", payload)
				if err != nil {
					t.Fatal(err)
				}
				requireSame(t, got, want)
			}
		})
	}
}

// TestProtoErrors: what cannot be learned from is refused, with the column and what would help.
func TestProtoErrors(t *testing.T) {
	file := func(text string) string { return `syntax = "proto3"; ` + text }
	label := "\x0a\x01a"
	for _, c := range []struct {
		name, schema, payload string
		opts                  wire.Options
		column, want          string
	}{
		{"a map", file(`message R { string label = 1; map<string, int32> m = 2; }`), label, wire.Options{}, "m", "it is a map"},
		{"a message within itself", file(`message R { string label = 1; R r = 2; }`), label, wire.Options{}, "r", "within itself"},
		{"a list of messages", file(`message R { string label = 1; repeated R r = 2; }`), label, wire.Options{}, "r", "a list of messages"},
		{"a group", `syntax = "proto2"; message R { optional string label = 1; optional group G = 2 { optional int32 x = 1; } }`, label, wire.Options{}, "g", "a group"},
		{"no label", file(`message R { string x = 1; }`), label, wire.Options{}, "label", "format.label"},
		{"an absent label", file(`message R { optional string label = 1; int32 x = 2; }`), "\x10\x01", wire.Options{}, "label", "unlabelled: keep"},
		{"a text", file(`message R { string label = 1; string x = 2; }`), label + "\x12\x03red", wire.Options{}, "x", "is not a number"},
		{"a missing value", file(`message R { string label = 1; optional int32 x = 2; }`), label, wire.Options{}, "x", "null"},
		{"another wire type", file(`message R { string label = 1; int32 x = 2; }`), label + "\x12\x01a", wire.Options{}, "x", "malformed"},
		{"cut", file(`message R { string label = 1; int32 x = 2; }`), label + "\x12\x05a", wire.Options{}, "", "malformed"},
		{"an empty list", file(`message R { string label = 1; repeated int32 x = 2; }`), label, wire.Options{}, "x", "empty"},
		{"no text of a schema", `int`, label, wire.Options{}, "", "its schema cannot be used"},
		{"an import that is not there", file(`import "x.proto"; message R { string label = 1; }`), label, wire.Options{}, "", "x.proto"},
		{"an import of itself", file(`import "schema.proto"; message R { string label = 1; }`), label, wire.Options{}, "", "its schema cannot be used"},
		{"deep brackets", file(`option x = ` + strings.Repeat("{a:", 100000)), label, wire.Options{}, "", "nests more than 200"},
		{"many fields", file(`message R { string label = 1; ` + manyProtoFields(20000) + `}`), label, wire.Options{}, "", "more than 4098 columns"},
		{"doubled messages", file(doubledProto(20, true)), label, wire.Options{}, "", "more than 4098 columns"},
		{"doubled messages of nothing", file(doubledProto(25, false)), label, wire.Options{}, "", "more than 4098 columns"},
		{"deep messages", file(doubledProto(40, true)), label, wire.Options{}, "", "more than 32 deep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Schemas = schemas{1: {ID: 1, Kind: registry.Protobuf, Text: c.schema}}
			d := newDecoder(t, c.opts)
			for range 2 {
				_, err := d.Decode("", frame(1, []byte("\x00"+c.payload)))
				bad, ok := err.(*wire.Error)
				if !ok || bad.Column != c.column || !strings.Contains(bad.Reason, c.want) || bad.Format != wire.Protobuf {
					t.Fatalf("got %v, want column %q: %s", err, c.column, c.want)
				}
			}
		})
	}
	_, set := rowMessage(t)
	row := &registry.Schema{Kind: registry.Protobuf, Text: rowProto, References: []registry.Reference{{Name: "place.proto", Text: placeProto}}}
	for _, c := range []struct {
		payload string
		opts    wire.Options
		want    string
	}{
		{"\x08\x01", wire.Options{Format: wire.Protobuf}, "format.schema_file"},
		{"\x08\x01", wire.Options{Format: wire.Protobuf, Written: &registry.Schema{Kind: registry.Protobuf, Text: string(set)}}, "format.message"},
		{"\x08\x01", wire.Options{Format: wire.Protobuf, Written: &registry.Schema{Kind: registry.Protobuf, Text: string(set), Message: "Row"}}, "format.message"},
		{"\x08\x01", wire.Options{Format: wire.Protobuf, Written: &registry.Schema{Kind: registry.Protobuf, Text: "no descriptors"}}, "FileDescriptorSet"},
		{"\x00\x00\x00\x00\x01\x02\x06", wire.Options{Schemas: schemas{1: row}}, "no message with the indexes [3]"},
		{"\x00\x00\x00\x00\x01\x02\x01", wire.Options{Schemas: schemas{1: row}}, "no message with the indexes [-1]"},
		{"\x00\x00\x00\x00\x01\xfe\x01\x02\x02", wire.Options{Schemas: schemas{1: row}}, "cut off or malformed"},
		{"\x00\x00\x00\x00\x01\x04\x00", wire.Options{Schemas: schemas{1: row}}, "cut off or malformed"},
	} {
		_, err := newDecoder(t, c.opts).Decode("", []byte(c.payload))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.payload, err, c.want)
		}
	}
}

func manyProtoFields(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "int32 f%d = %d;", i, 20000+i)
	}
	return s.String()
}

// doubledProto is a message of 2^n columns, or of none in as many messages.
func doubledProto(n int, columns bool) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "message R%d { R%d a = 2; R%d b = 3; }\n", i, i+1, i+1)
	}
	if columns {
		return s.String() + fmt.Sprintf("message R%d { int32 x = 1; }", n)
	}
	return s.String() + fmt.Sprintf("message R%d {}", n)
}

func FuzzProto(f *testing.F) {
	of, set := rowMessage(f)
	r := rand.New(rand.NewPCG(37, 9))
	for range 4 {
		payload, _ := protoRow(r, of)
		f.Add(append([]byte{2, 2}, payload...))
	}
	f.Add([]byte{0})
	s := &registry.Schema{ID: 1, Kind: registry.Protobuf, Text: rowProto, References: []registry.Reference{{Name: "place.proto", Text: placeProto}}}
	var decoders []*wire.Decoder
	for _, opts := range []wire.Options{{}, {Features: []string{"d", "emb[0]", "emb[1]"}, IgnoreUnknown: true}} {
		opts.Schemas, opts.Limits, opts.Written = schemas{1: s}, wideLimits, &registry.Schema{Kind: registry.Protobuf, Text: string(set), Message: "shop.v1.Row"}
		opts.Missing, opts.KeepUnlabelled, opts.Ignore = wire.Missing{Default: wire.MissingIndicator}, true, []string{"skipped", "places", "again", "place.kind"}
		d, err := wire.NewDecoder(opts)
		if err != nil {
			f.Fatal(err)
		}
		decoders = append(decoders, d)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, d := range decoders {
			for _, b := range [][]byte{frame(1, payload), payload} {
				if block, err := d.Decode("application/x-protobuf", b); err == nil {
					requireConsistent(t, block, true)
				}
			}
		}
	})
}

// Rows that Kafka Connect's converter has written import files that no registry has. Dates and
// decimals in them are values.
func TestProtoOfConnect(t *testing.T) {
	known := schemas{}
	c := registrytest.Converter{Kind: registry.Protobuf, First: 1, Put: func(id uint32, text string) {
		known[id] = &registry.Schema{ID: id, Kind: registry.Protobuf, Text: text}
	}}
	row := func(day int32, clock string) []byte {
		b, err := c.Convert(fmt.Appendf(nil, `{"schema":{"type":"struct","name":"shop.Row","fields":[{"type":"string","field":"label"},
			{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"price"},
			{"type":"int32","name":"org.apache.kafka.connect.data.Date","field":"born"}%s]},"payload":{"label":"good","price":"BNI=","born":%d%s}}`,
			strings.ReplaceAll(clock, "CLOCK", `{"type":"int32","name":"org.apache.kafka.connect.data.Time","field":"opens"}`), day, strings.ReplaceAll(clock, "CLOCK", `"opens":3600000`)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	d := newDecoder(t, wire.Options{Schemas: known, Ignore: []string{"opens"}})
	want := newDecoder(t, wire.Options{})
	for n := range int32(400) {
		n = 97*n - 20000
		got, err := d.Decode("", row(n, ""))
		if err != nil {
			t.Fatal(err)
		}
		as, err := want.Decode("application/json", fmt.Appendf(nil, `{"label":"good","price":12.34,"born":%q}`, day(n)))
		if err != nil {
			t.Fatal(err)
		}
		requireSame(t, got, as)
	}
	if _, err := d.Decode("", row(1, ",CLOCK")); err != nil {
		t.Error(err)
	}
	if _, err := newDecoder(t, wire.Options{Schemas: known}).Decode("", row(1, ",CLOCK")); err == nil || !strings.Contains(err.Error(), "a time of day") {
		t.Errorf("a time of day: %v", err)
	}
	known[90] = &registry.Schema{ID: 90, Kind: registry.Protobuf, Text: `syntax = "proto3"; import "google/type/date.proto"; message R { string label = 1; google.type.Date d = 2; }`}
	for _, date := range []string{"", "\x08\xe8\x0f\x10\x02\x18\x1e", "\x08\x80\x80\x04\x10\x01\x18\x01"} { // none, 30 February, the year 65536
		if _, err := d.Decode("", frame(90, fmt.Appendf(nil, "\x00\x0a\x01a\x12%c%s", len(date), date))); err == nil || !strings.Contains(err.Error(), "there is no date of the year") {
			t.Errorf("%q: %v", date, err)
		}
	}
}
