package daemon

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
	"streamd/retire/receipt"
)

// Blocks that came as changes of a table are read from the log again as they were: with another
// seed the sample needs all their rows, and the live set is then that of a daemon that has had the
// seed from the beginning. Where messages are framed, the registry is away at first, and with it
// the schema of the keys of tombstones: nothing is lost.
func TestChangesAreReadAgain(t *testing.T) {
	for name, kind := range map[string]string{"JSON": "", "Avro": "AVRO", "Protobuf": "PROTOBUF", "JSON Schema": "JSON"} {
		t.Run(name, func(t *testing.T) { changesAreReadAgain(t, kind) })
	}
}

// changesAreReadAgain frames the messages for schemas of a kind; empty: for none.
func changesAreReadAgain(t *testing.T, kind string) {
	framed := kind != ""
	double := &registrytest.Registry{}
	server := httptest.NewServer(double)
	defer server.Close()
	var messages []message
	say := func(id int, op string, x float64) {
		images := fmt.Sprintf(`"before":null,"after":{"id":%d,"label":"%d","x":%v}`, id, id%2, x)
		if op == "d" {
			images = fmt.Sprintf(`"before":{"id":%d},"after":null`, id)
		}
		messages = append(messages, message{
			key:   fmt.Appendf(nil, `{"id":%d}`, id),
			value: fmt.Appendf(nil, `{%s,"source":{"table":"t"},"op":%q,"ts_ms":1}`, images, op),
		})
	}
	for id := range 40 {
		say(id, "c", float64(id))
	}
	for id := range 10 {
		say(id, "u", 0.5)
		say(id+10, "d", 0)
		messages = append(messages, message{key: fmt.Appendf(nil, `{"id":%d}`, id+10)})
	}
	if framed {
		converter := &registrytest.Converter{First: 1, Put: func(id uint32, schema string) { double.Put(id, kind, schema) }}
		switch kind {
		case "PROTOBUF":
			converter.Kind = registry.Protobuf
		case "JSON":
			converter.Kind = registry.JSON
		}
		for i := range messages {
			for _, part := range []*[]byte{&messages[i].key, &messages[i].value} {
				if b, err := converter.Convert(*part); err == nil {
					*part = b
				} else if *part != nil {
					t.Fatal(err)
				}
			}
		}
		messages = append([]message{{key: messages[0].key}}, messages...) // a key's schema comes first
		double.Away.Store(true)
	}
	name, folder := topic(t, 1), t.TempDir()
	produce(t, name, messages...)
	flags := func(seed string) map[string]string {
		all := map[string]string{"format.envelope": "debezium", "format.ignore": "id", "sample.seed": seed, "dead_letters.policy": "stop"}
		if framed {
			all["format.registry.url"] = server.URL
		}
		return withReceipts(folder, all)
	}
	d := start(t, name, filepath.Join(folder, "a.db"), flags("1"))
	if framed {
		d.until("it waits for the registry", func() bool { return d.find(httpapi.ProblemRegistry) != nil })
		double.Away.Store(false)
	}
	d.waitForOffsets(int64(len(messages)))
	d.stop()
	side := func(file string) (s receipt.Side) {
		d := start(t, name, filepath.Join(folder, file), flags("2"))
		d.waitForOffsets(int64(len(messages)))
		d.await("the rows of the sample", func() bool { s = d.Live.Side(); return d.Live.Lacking() == 0 })
		if n := d.Live.Blocks(); n != 30 {
			t.Errorf("%d blocks are live", n)
		}
		// A key as it is in the topic is no id, and the answer says which is meant.
		if status, body := d.ask(http.MethodDelete, "/v1/blocks/%7B%22id%22%3A35%7D"); status != http.StatusNotFound || !strings.Contains(body, "key:35") {
			t.Errorf("the answer is %d %s", status, body)
		}
		d.stop()
		return s
	}
	if again, fresh := side("a.db"), side("b.db"); again != fresh {
		t.Errorf("read again, the live set is %x, and %x", again, fresh)
	}
}
