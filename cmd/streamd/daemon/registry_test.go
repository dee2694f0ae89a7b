package daemon

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/kafka"
	"streamd/ingest/registry/registrytest"
)

// While the registry is away, messages of known schemas are learned, and those of another partition
// wait for theirs: nothing becomes a dead letter, page and probe say so, and all is learned when it
// is back. An id that it does not know is refused with the reason. The registry wants a password
// and TLS.
func TestRegistryThatIsAway(t *testing.T) {
	double := &registrytest.Registry{Username: "streamd", Password: "pa55"}
	double.Put(7, "JSON", `{"type":"object"}`)
	server := httptest.NewTLSServer(double)
	defer server.Close()
	dir := t.TempDir()
	ca, secret := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "password")
	writeFile(t, ca, certificatePEM(server.Certificate().Raw))
	writeFile(t, secret, []byte("pa55\n"))
	name, file := topic(t, 2), filepath.Join(dir, "streamd.db")
	flags := map[string]string{
		"format.registry.url": server.URL, "format.registry.username": "streamd", "format.registry.password_file": secret,
		"format.registry.tls.ca_file": ca, "format.features": "x",
	}
	framed := func(partition int, id uint32, label string) message {
		return message{partition: partition, value: registrytest.Frame(id, fmt.Appendf(nil, `{"label":%q,"x":%d}`, label, partition))}
	}
	produce(t, name, framed(0, 7, "a"), framed(0, 7, "b"), framed(0, 7, "a"))
	d, _ := logging(t, name, file, flags)
	d.waitForOffsets(3)
	d.until("it is ready", func() bool { return d.Status().NotReady == "" })

	double.Away.Store(true)
	produce(t, name, framed(1, 8, "a"), framed(1, 8, "b"), framed(0, 7, "b"), framed(0, 7, "b"))
	d.waitForOffsets(5) // those whose schema is known
	d.until("the problem", func() bool { return d.find(httpapi.ProblemRegistry) != nil })
	if p := d.find(httpapi.ProblemRegistry); p.Level() != httpapi.LevelFailure || !strings.Contains(p.Text, "503") || !strings.Contains(p.Action, "format.registry.url") {
		t.Errorf("the problem is %+v", p)
	}
	if status, body := d.ask(http.MethodGet, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "schema registry") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if _, page := d.ask(http.MethodGet, "/"); !strings.Contains(page, "schema registry does not answer") {
		t.Error("the page does not say it")
	}
	if s := d.Status(); s.Records.Rejected != 0 || s.Rows.Summarised != 5 {
		t.Errorf("while it is away: %+v, %+v", s.Records, s.Rows)
	}
	double.Put(8, "JSON", `true`)
	double.Away.Store(false)
	d.waitForOffsets(7)
	d.until("it is ready again", func() bool { return d.Status().NotReady == "" })
	if s := d.Status(); s.Records.Rejected != 0 || s.Rows.Summarised != 7 || d.find(httpapi.ProblemRegistry) != nil {
		t.Errorf("afterwards: %+v, %+v", s.Records, s.Rows)
	}

	produce(t, name, framed(0, 9, "a"), framed(0, 7, "b"))
	d.waitForOffsets(9)
	var why string
	collect := &collector{next: map[int]int64{}, take: func(r *kafka.Record) {
		for _, h := range r.Headers {
			if h.Key == "__connect.errors.exception.message" {
				why = string(h.Value)
			}
		}
	}}
	collect.run(t, name+".dlq", func() bool { return why != "" })
	if want := "the payload is framed with schema id 9: the schema registry does not know it"; why != want {
		t.Errorf("the reason is %q, want %q", why, want)
	}
	d.stop()
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// A daemon that stops while the registry is away stops, and the next one reads what was waiting.
func TestRegistryAwayAtTheStart(t *testing.T) {
	double := &registrytest.Registry{}
	double.Put(7, "JSON", `{}`)
	double.Away.Store(true)
	server := httptest.NewServer(double)
	defer server.Close()
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"format.registry.url": server.URL}
	for i := range 10 {
		produce(t, name, message{value: registrytest.Frame(7, fmt.Appendf(nil, `{"label":"%d","x":%d}`, i%2, i))})
	}
	d, _ := logging(t, name, file, flags)
	d.until("it waits", func() bool { return d.find(httpapi.ProblemRegistry) != nil })
	d.stop()
	double.Away.Store(false)
	d = start(t, name, file, flags)
	d.waitForOffsets(10)
	if s := d.Status(); s.Records.Rejected != 0 || s.Rows.Summarised != 10 {
		t.Errorf("%+v, %+v", s.Records, s.Rows)
	}
	d.stop()
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
