package daemon

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/bufbuild/protocompile"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"streamd/cmd/streamd/model"
	"streamd/ingest/registry/registrytest"
	"streamd/ingest/wire"
)

// visit is a row of every kind of values that all formats have.
type visit struct {
	label, city string
	pages       int64
	spent       float64
	member      bool
	since       int32 // days since 1970
	score       *float64
}

func visits(r *rand.Rand, n int) (all []visit) {
	for i := range n {
		v := visit{
			label: []string{"stays", "goes"}[i%2], city: []string{"graz", "wien", "linz", "ulm", "a b"}[r.IntN(5)],
			pages: r.Int64N(1000) - 300, spent: r.NormFloat64(), member: r.IntN(2) == 0, since: r.Int32N(30000) - 5000,
		}
		if r.IntN(3) > 0 {
			x := r.NormFloat64()
			v.score = &x
		}
		all = append(all, v)
	}
	return all
}

func (v visit) day() string {
	return time.Unix(int64(v.since)*24*60*60, 0).UTC().Format(time.DateOnly)
}

func (v visit) asJSON() []byte {
	score := "null"
	if v.score != nil {
		score = fmt.Sprint(*v.score)
	}
	return fmt.Appendf(nil, `{"label":%q,"city":%q,"pages":%d,"spent":%v,"member":%v,"since":%q,"score":%s}`, v.label, v.city, v.pages, v.spent, v.member, v.day(), score)
}

func (v visit) asCSV() []byte {
	score := ""
	if v.score != nil {
		score = fmt.Sprint(*v.score)
	}
	return fmt.Appendf(nil, "label,city,pages,spent,member,since,score\n%s,%s,%d,%v,%v,%s,%s\n", v.label, v.city, v.pages, v.spent, v.member, v.day(), score)
}

func (v visit) asArrow(t *testing.T) []byte {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{
		{Name: "label", Type: arrow.BinaryTypes.String}, {Name: "city", Type: arrow.BinaryTypes.String}, {Name: "pages", Type: arrow.PrimitiveTypes.Int64},
		{Name: "spent", Type: arrow.PrimitiveTypes.Float64}, {Name: "member", Type: arrow.FixedWidthTypes.Boolean}, {Name: "since", Type: arrow.FixedWidthTypes.Date32},
		{Name: "score", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	b.Field(0).(*array.StringBuilder).Append(v.label)
	b.Field(1).(*array.StringBuilder).Append(v.city)
	b.Field(2).(*array.Int64Builder).Append(v.pages)
	b.Field(3).(*array.Float64Builder).Append(v.spent)
	b.Field(4).(*array.BooleanBuilder).Append(v.member)
	b.Field(5).(*array.Date32Builder).Append(arrow.Date32(v.since))
	if v.score == nil {
		b.Field(6).AppendNull()
	} else {
		b.Field(6).(*array.Float64Builder).Append(*v.score)
	}
	record := b.NewRecordBatch()
	defer record.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s))
	if err := w.Write(record); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const visitAvro = `{"type":"record","name":"Visit","fields":[
	{"name":"label","type":{"type":"enum","name":"Label","symbols":["stays","goes"]}},{"name":"city","type":"string"},{"name":"pages","type":"long"},
	{"name":"spent","type":"double"},{"name":"member","type":"boolean"},{"name":"since","type":{"type":"int","logicalType":"date"}},{"name":"score","type":["null","double"]}]}`

func (v visit) asMap() map[string]any {
	var score any
	if v.score != nil {
		score = *v.score
	}
	return map[string]any{"label": v.label, "city": v.city, "pages": v.pages, "spent": v.spent, "member": v.member, "since": v.since, "score": score}
}

// outcomeAvro is the schema of a label that comes alone.
const outcomeAvro = `{"type":"record","name":"Outcome","fields":[{"name":"id","type":"long"},{"name":"label","type":"string"}]}`

const visitProto = `syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
message Visit {
	enum Label { stays = 0; goes = 1; }
	Label label = 1; string city = 2; sint64 pages = 3; double spent = 4; bool member = 5;
	google.protobuf.Timestamp since = 6; optional double score = 7;
}`

// asProto writes the message of visitProto with protowire, and leaves out zeros, as proto3 does.
func (v visit) asProto() (b []byte) {
	if v.label == "goes" {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 1)
	}
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), v.city)
	if v.pages != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), protowire.EncodeZigZag(v.pages))
	}
	b = protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), math.Float64bits(v.spent))
	if v.member {
		b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), 1)
	}
	at := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(int64(v.since)*24*60*60))
	b = protowire.AppendBytes(protowire.AppendTag(b, 6, protowire.BytesType), at)
	if v.score != nil {
		b = protowire.AppendFixed64(protowire.AppendTag(b, 7, protowire.Fixed64Type), math.Float64bits(*v.score))
	}
	return b
}

// visitDescriptors are the descriptors of visitProto, as protoc writes them.
func visitDescriptors(t *testing.T) []byte {
	t.Helper()
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"visit.proto": visitProto}),
	})}
	files, err := c.Compile(t.Context(), "google/protobuf/timestamp.proto", "visit.proto")
	if err != nil {
		t.Fatal(err)
	}
	var all descriptorpb.FileDescriptorSet
	for _, f := range files {
		all.File = append(all.File, protodesc.ToFileDescriptorProto(f))
	}
	set, err := proto.Marshal(&all)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestFormatsHaveOneDigest: the same rows are one model in all formats, framed by a registry or

// visitSchema makes features of every kind.
var visitSchema = map[string]string{"format.schema": `{city: {kind: category, values: [graz, wien, linz], other: true}, pages: number, since: {kind: time, parts: [month]}, score: {kind: number, missing: mean}, member: bool}`, "format.ignore": "spent"}

// visitFormat is a format of records of visits. In one of labels a record has a label alone.
type visitFormat struct {
	name, contentType string
	of                func(visit) []byte
	label             func(label string) []byte // nil: that of the whole visit
	flags             map[string]string
}

// visitFormats are all formats, with a registry that goes with the test.
func visitFormats(t *testing.T) []visitFormat {
	double := &registrytest.Registry{}
	double.Put(3, "JSON", `{"type":"object"}`)
	double.Put(1<<31, "AVRO", visitAvro)
	double.Put(4, "PROTOBUF", visitProto)
	double.Put(5, "AVRO", outcomeAvro)
	server := httptest.NewServer(double)
	t.Cleanup(server.Close)
	schemaFile := filepath.Join(t.TempDir(), "visit.avsc")
	writeFile(t, schemaFile, []byte(visitAvro))
	descriptors := filepath.Join(t.TempDir(), "visit.pb")
	writeFile(t, descriptors, visitDescriptors(t))
	written, outcome := avro.MustParse(visitAvro), avro.MustParse(outcomeAvro)
	encode := func(s *avro.Schema, value map[string]any) []byte {
		b, err := s.Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	encoded := func(v visit) []byte { return encode(written, v.asMap()) }
	labelInJSON := func(label string) []byte {
		return fmt.Appendf(nil, `{"id":"v","label":%q,"time":"2026-03-01T12:00:00Z"}`, label)
	}
	byRegistry, byAvro := map[string]string{"format.registry.url": server.URL}, map[string]string{"format.schema_file": schemaFile}
	byProto := map[string]string{"format.schema_file": descriptors, "format.message": "shop.v1.Visit"}
	return []visitFormat{
		{"JSON", "", visit.asJSON, labelInJSON, byRegistry},
		{"CSV", "text/csv", visit.asCSV, func(label string) []byte { return []byte("label\n" + label + "\n") }, byAvro},
		{"Arrow", wire.Arrow.ContentType(), func(v visit) []byte { return v.asArrow(t) }, nil, byAvro},
		{"framed JSON", "", func(v visit) []byte { return registrytest.Frame(3, v.asJSON()) }, func(label string) []byte { return registrytest.Frame(3, labelInJSON(label)) }, byRegistry},
		{"framed Avro", "", func(v visit) []byte { return registrytest.Frame(1<<31, encoded(v)) }, func(label string) []byte {
			return registrytest.Frame(5, encode(outcome, map[string]any{"id": int64(1), "label": label}))
		}, byRegistry},
		{"bare Avro", "avro/binary", encoded, nil, byAvro},
		{"framed Protobuf", "", func(v visit) []byte { return registrytest.Frame(4, append([]byte{0}, v.asProto()...)) }, nil, byRegistry},
		{"bare Protobuf", wire.Protobuf.ContentType(), visit.asProto, nil, byProto},
		{"single objects of Avro", "application/avro", func(v visit) []byte {
			b, err := written.AppendSingleObject(nil, v.asMap())
			if err != nil {
				t.Fatal(err)
			}
			return b
		}, nil, byAvro},
		{"files of Avro", "", func(v visit) []byte {
			var out bytes.Buffer
			w, err := ocf.NewWriter(&out, written, ocf.WithCodec(ocf.SnappyCodec()))
			if err == nil {
				err = w.Encode(v.asMap())
			}
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}, nil, byRegistry},
	}
}

// not, with a schema of features that has texts, and without.
func TestFormatsHaveOneDigest(t *testing.T) {
	formats, rows := visitFormats(t), visits(rand.New(rand.NewPCG(37, 7)), 40)
	for _, features := range []map[string]string{
		{"format.ignore": "city", "format.missing": "indicator"},
		visitSchema,
	} {
		first := ""
		for _, format := range formats {
			name := topic(t, 1)
			var messages []message
			for _, v := range rows {
				messages = append(messages, message{value: format.of(v), contentType: format.contentType})
			}
			produce(t, name, messages...)
			flags := maps.Clone(format.flags)
			maps.Copy(flags, features)
			d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
			served := d.waitForOffsets(int64(len(rows)))
			if first == "" {
				first = served.Digest
			}
			if served.Digest != first || served.Rows != int64(len(rows)) {
				t.Errorf("%s: %d rows, digest %s, want %s; %+v", format.name, served.Rows, served.Digest, first, d.Status().Problems)
			}
			d.stop()
		}
	}
}

// Labels of a topic of their own are read in every format in which rows are: alone, or as whole
// rows, whose features are passed over.
func TestLabelsHaveEveryFormat(t *testing.T) {
	rows := visits(rand.New(rand.NewPCG(38, 1)), 40)
	digests := map[string]string{}
	change := func(row []byte) []byte {
		return fmt.Appendf(nil, `{"before":null,"after":%s,"op":"c","ts_ms":1767225600000}`, row)
	}
	for _, format := range append(visitFormats(t),
		visitFormat{"rows with labels", "", visit.asJSON, nil, map[string]string{}},
		visitFormat{
			"changes of Debezium", "", func(v visit) []byte { return change(v.asJSON()) },
			func(label string) []byte { return change(fmt.Appendf(nil, `{"id":7,"label":%q}`, label)) }, map[string]string{"format.envelope": "debezium"},
		},
	) {
		flags := maps.Clone(format.flags)
		maps.Copy(flags, visitSchema)
		flags["blocks.unit"] = "key"
		name := topic(t, 1)
		joined := format.name != "rows with labels"
		var messages, labels []message
		for i, v := range rows {
			key := fmt.Append(nil, "visit ", i)
			label := format.of(v)
			if format.label != nil {
				label = format.label(v.label)
			}
			labels = append(labels, message{key: key, value: label, contentType: format.contentType})
			if joined {
				v.label = "goes" // passed over
			}
			messages = append(messages, message{key: key, value: format.of(v), contentType: format.contentType})
		}
		produce(t, name, messages...)
		if joined {
			flags["labels.topic"] = topic(t, 1)
			produce(t, flags["labels.topic"], labels...)
		}
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
		digests[format.name] = d.wait(format.name, func(s *model.Served) bool { return s.Rows == int64(len(rows)) }).Digest
		d.stop()
	}
	for name, digest := range digests {
		if digest != digests["rows with labels"] {
			t.Errorf("%s: digest %s, want %s", name, digest, digests["rows with labels"])
		}
	}
}
