package daemon

import (
	"bytes"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/ingest/kafka"
	"streamd/ingest/registry/registrytest"
	"streamd/ingest/wire"
)

// TestKindsOfMessages: of the kinds of messages that topics with keys have, each is learned from,
// or is refused with the key of the configuration, or the setting of the connector, that learns
// from it.
func TestKindsOfMessages(t *testing.T) {
	const fields = `[{"name":"label","type":"string"},{"name":"x","type":"double"}]`
	row := `{"type":"record","name":"Value","fields":` + fields + `}`
	change := `{"type":"record","name":"Envelope","fields":[{"name":"before","type":["null",` + row + `]},{"name":"after","type":["null","Value"]},
		{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"connector","type":"string"}]}},{"name":"op","type":"string"}]}`
	unwrapped := `{"type":"record","name":"Value","fields":` + strings.TrimSuffix(fields, "]") + `,{"name":"__deleted","type":"string"}]}`
	double := &registrytest.Registry{}
	double.Put(1, "JSON", `{}`)
	double.Put(2, "AVRO", row)
	double.Put(3, "PROTOBUF", `syntax = "proto3"; message Value { string label = 1; double x = 2; }`)
	double.Put(4, "AVRO", change)
	double.Put(5, "AVRO", unwrapped)
	double.Put(6, "PROTOBUF", `syntax = "proto3"; message Envelope { Value after = 1; Source source = 2; string op = 3; }
		message Value { string label = 1; double x = 2; } message Source { string connector = 1; }`)
	server := httptest.NewServer(double)
	defer server.Close()
	avsc := filepath.Join(t.TempDir(), "row.avsc")
	writeFile(t, avsc, []byte(row))

	flat := []byte(`{"label":"a","x":0.5}`)
	encode := func(schema string, v map[string]any) []byte {
		b, err := avro.MustParse(schema).Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := map[string]any{"label": "a", "x": 0.5}
	var file bytes.Buffer
	w, err := ocf.NewWriter(&file, avro.MustParse(row))
	if err == nil {
		err = w.Encode(one)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	bare := encode(row, one)
	proto := []byte("\x0a\x01a\x11\x00\x00\x00\x00\x00\x00\xe0\x3f")
	debezium := `{"before":null,"after":{"label":"a","x":0.5},"source":{"connector":"postgresql"},"op":"c"}`
	debeziumWithSchema := `{"schema":{"type":"struct","fields":[{"type":"struct","fields":[{"type":"string","field":"label"},{"type":"double","field":"x"}],"field":"after"}]},"payload":` + debezium + `}`
	connect := `{"schema":{"type":"struct","fields":[{"type":"string","field":"label"},{"type":"double","field":"x"}]},"payload":{"label":"a","x":0.5}}`
	event := `{"specversion":"1.0","type":"t","source":"s","id":"1","datacontenttype":"application/json","data":{"label":"a","x":0.5}}`
	nested := `{"label":"a","inner":{"x":0.5}}`
	registryAt := map[string]string{"format.registry.url": server.URL}
	binary := []kafka.Header{{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_type", Value: []byte("t")}, {Key: "ce_source", Value: []byte("s")}, {Key: "ce_id", Value: []byte("1")}}
	refused := map[string]string{} // no setting learns from it
	for _, c := range []struct {
		name, contentType string
		value             []byte
		headers           []kafka.Header
		says              string            // what the refusal without settings names; empty: it is learned from
		with              map[string]string // that learn from it; refused: nothing does
	}{
		{"flat JSON", "", flat, nil, "", nil},
		{"nested JSON", "", []byte(nested), nil, `column "inner"`, map[string]string{"format.schema": `{x: {kind: number, from: inner.x}}`}},
		{"Debezium", "", []byte(debezium), nil, "format.envelope: debezium", map[string]string{"format.envelope": "debezium"}},
		{"Debezium with a schema", "", []byte(debeziumWithSchema), nil, "format.envelope: debezium", map[string]string{"format.envelope": "debezium"}},
		{"Connect's JSON converter", "", []byte(connect), nil, "format.envelope: connect", map[string]string{"format.envelope": "connect"}},
		{"unwrapped with __deleted", "", []byte(`{"label":"a","x":0.5,"__deleted":"false"}`), nil, "format.envelope: debezium", map[string]string{"format.envelope": "debezium"}},
		{"framed JSON", "", registrytest.Frame(1, flat), nil, "format.registry.url", registryAt},
		{"framed Avro", "", registrytest.Frame(2, bare), nil, "format.registry.url", registryAt},
		{"framed Protobuf", "", registrytest.Frame(3, append([]byte{0}, proto...)), nil, "format.registry.url", registryAt},
		{"an Avro container", "", file.Bytes(), nil, "", nil},
		{"bare Avro", "avro/binary", bare, nil, "format.schema_file", map[string]string{"format.schema_file": avsc}},
		{"bare Protobuf", "application/x-protobuf", proto, nil, "format.schema_file", refused},
		{"a structured event", "application/cloudevents+json", []byte(event), nil, "format.envelope: cloudevents", map[string]string{"format.envelope": "cloudevents"}},
		{"a binary event of framed Avro", "application/avro", registrytest.Frame(2, bare), binary, "format.registry.url", map[string]string{"format.registry.url": server.URL, "format.envelope": "cloudevents"}},
		{"Debezium in Avro", "", registrytest.Frame(4, encode(change, map[string]any{"before": nil, "after": one, "source": map[string]any{"connector": "postgresql"}, "op": "c"})), nil, "format.registry.url",
			map[string]string{"format.registry.url": server.URL, "format.envelope": "debezium"}},
		{"Debezium in Protobuf", "", registrytest.Frame(6, slices.Concat([]byte("\x00\x0a\x0c"), proto, []byte("\x12\x04\x0a\x02pg\x1a\x01c"))), nil, "format.registry.url",
			map[string]string{"format.registry.url": server.URL, "format.envelope": "debezium"}},
		{"unwrapped in Avro with __deleted, as changes", "", registrytest.Frame(5, encode(unwrapped, map[string]any{"label": "a", "x": 0.5, "__deleted": "false"})), nil, "format.registry.url",
			map[string]string{"format.registry.url": server.URL, "format.envelope": "debezium"}},
		{"framed Avro of Connect", "", registrytest.Frame(2, bare), nil, "format.registry.url", map[string]string{"format.registry.url": server.URL, "format.envelope": "connect"}},
		{"unwrapped in Avro with __deleted", "", registrytest.Frame(5, encode(unwrapped, map[string]any{"label": "a", "x": 0.5, "__deleted": "false"})), nil, "format.registry.url",
			map[string]string{"format.registry.url": server.URL, "format.ignore": "__deleted"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			record := &kafka.Record{Key: []byte("k"), Value: c.value, Headers: c.headers, Time: time.UnixMilli(1)}
			if c.contentType != "" {
				record.Headers = append(record.Headers, kafka.Header{Key: "content-type", Value: []byte(c.contentType)})
			}
			decode := func(flags map[string]string) error {
				given := map[string]string{"kafka.topic": "t", "blocks.unit": "key"}
				for k, v := range flags {
					given[k] = v
				}
				cfg := load(t, given)
				asked, err := settings.Registry(cfg.Format.Registry, zerolog.Nop())
				if err != nil {
					t.Fatal(err)
				}
				options, err := settings.Decoding(cfg, memory.New(cfg, 1<<30), asked)
				if err != nil {
					t.Fatal(err)
				}
				d, err := intake.NewDecoder(cfg, options, nil, 0)
				if err != nil {
					t.Fatal(err)
				}
				b, err := d.Decode(record)
				if err == nil && (b.Rows() != 1 || len(b.Columns) != 1 || b.Columns[0].At(0) != 0.5 || b.Classes[0] != "a") {
					t.Errorf("the block is %+v", b)
				}
				return err
			}
			err := decode(nil)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("without settings: %v, want %q", err, c.says)
			}
			if len(c.with) == 0 {
				return
			}
			if err := decode(c.with); err != nil {
				t.Errorf("with %v: %v", c.with, err)
			}
		})
	}

	// What is refused with a registry says which settings learn from it.
	avroChange := registrytest.Frame(4, encode(change, map[string]any{"before": nil, "after": one, "source": map[string]any{"connector": "postgresql"}, "op": "c"}))
	protoChange := registrytest.Frame(6, append([]byte{0}, "\x0a\x05\x0a\x03\x0a\x01a\x12\x04\x0a\x02pg\x1a\x01c"...))
	for _, c := range []struct {
		envelope string
		value    []byte
		want     string
	}{
		{"none", avroChange, "set format.envelope: debezium and blocks.unit: key"},
		{"none", protoChange, "set format.envelope: debezium and blocks.unit: key"},
	} {
		cfg := load(t, map[string]string{"kafka.topic": "t", "blocks.unit": "key", "format.registry.url": server.URL, "format.envelope": c.envelope})
		asked, err := settings.Registry(cfg.Format.Registry, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		d, err := intake.NewDecoder(cfg, wire.Options{Format: wire.JSON, Schemas: asked}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Decode(&kafka.Record{Key: []byte("k"), Value: c.value, Time: time.UnixMilli(1)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("format.envelope: %s: %v, want %s", c.envelope, err, c.want)
		}
	}
}
