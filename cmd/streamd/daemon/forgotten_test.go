package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
	"streamd/snapshot"
)

// The planted customer. Nothing else in the test has its key, its label, or a number
// near one of its own.
const (
	plantedKey   = "customer/Ωmega 4711"
	plantedLabel = "plánted-label"
	plantedX     = 765432109.25 // and a few eighths more: float32 rounds it
	plantedY     = -0.00087654321987
)

// plantedRows is the planted customer's message.
func plantedRows(t testing.TB) message {
	b := &incremental.Block{Classes: []string{plantedLabel}, Codes: make([]int32, 6)}
	var x, y []float64
	for i := range b.Codes {
		x, y = append(x, plantedX+float64(i)/8), append(y, plantedY*(1+float64(i)*1e-12))
	}
	b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	value, err := wire.Encode(nil, wire.Arrow, b)
	if err != nil {
		t.Fatal(err)
	}
	return message{key: []byte(plantedKey), value: value, contentType: wire.Arrow.ContentType()}
}

// trace is a form in which something of the customer may appear.
type trace struct {
	of, form string
	bytes    []byte
}

// traces lists all forms of the planted values.
func traces() (all []trace) {
	text := func(of, s string) {
		sum := sha256.Sum256([]byte(s))
		escaped, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		for form, b := range map[string]string{
			"raw":             s,
			"escaped path":    url.PathEscape(s),
			"escaped query":   url.QueryEscape(s),
			"JSON":            strings.Trim(string(escaped), `"`),
			"ASCII JSON":      strings.Trim(strconv.QuoteToASCII(s), `"`),
			"HTML":            html.EscapeString(s),
			"base64":          strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(s)), "="),
			"base64 of a URL": strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(s)), "="),
			"hex":             hex.EncodeToString([]byte(s)),
			"SHA-256":         string(sum[:]),
			"SHA-256 in hex":  hex.EncodeToString(sum[:]),
			"reversed":        reversed(s),
		} {
			all = append(all, trace{of, form, []byte(b)})
		}
	}
	text("key", plantedKey)
	text("label", plantedLabel)
	const x32, y32 = float32(plantedX), float32(plantedY)
	for of, x := range map[string]float64{
		"x": plantedX, "y": plantedY, "x²": plantedX * plantedX, "y²": plantedY * plantedY, "xy": plantedX * plantedY,
		"x of the sample": float64(x32), "y of the sample": float64(y32),
	} {
		// All of the customer's numbers, their means and their medians begin with the same
		// digits and bits. Fewer digits would be found by chance in /metrics.
		digits := strings.Replace(strconv.FormatFloat(math.Abs(x), 'e', 16, 64), ".", "", 1)[:8]
		wide := binary.BigEndian.AppendUint64(nil, math.Float64bits(x))[:5]
		narrow := binary.BigEndian.AppendUint32(nil, math.Float32bits(float32(x)))
		for form, b := range map[string]string{
			"digits":                      digits,
			"digits after a point":        digits[:1] + "." + digits[1:],
			"float64, little endian":      reversed(string(wide)),
			"float64, big endian":         string(wide),
			"float32, little endian":      reversed(string(narrow)),
			"float32, big endian":         string(narrow),
			"float64, hex":                hex.EncodeToString(wide),
			"float64, base64":             base64.StdEncoding.EncodeToString(wide)[:6],
			"float64, its bits in digits": strconv.FormatUint(math.Float64bits(x), 10)[:8],
		} {
			all = append(all, trace{of, form, []byte(b)})
		}
	}
	return all
}

func reversed(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

// found returns the traces in each of the places.
func found(places map[string][]byte) map[string]bool {
	out := map[string]bool{}
	for place, b := range places {
		for _, c := range traces() {
			if bytes.Contains(b, c.bytes) {
				out[fmt.Sprintf("%s of the %s in %s", c.form, c.of, place)] = true
			}
		}
	}
	return out
}

// answers returns the daemon's answers to GET on every path of its API document.
func (i *instance) answers() map[string][]byte {
	i.t.Helper()
	_, body := i.ask(http.MethodGet, "/v1/openapi.json")
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(body), &document); err != nil || len(document.Paths) < 10 {
		i.t.Fatalf("%d paths, %v", len(document.Paths), err)
	}
	out := map[string][]byte{}
	for path, methods := range document.Paths {
		if _, ok := methods["get"]; !ok || strings.Contains(path, "{") {
			continue
		}
		if path == "/v1/events" {
			out[path] = i.pastEvents()
		} else if status, body := i.ask(http.MethodGet, path); status < 500 || path == "/readyz" {
			out[path] = []byte(body)
		}
	}
	return out
}

// pastEvents returns the events up to the newest, which the stream begins with.
func (i *instance) pastEvents() []byte {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), 300*time.Millisecond)
	defer cancel()
	_, body, err := i.askWithin(ctx, http.MethodGet, "/v1/events")
	if !errors.Is(err, context.DeadlineExceeded) {
		i.t.Fatalf("the stream of events has ended: %v", err)
	}
	return []byte(body)
}

// files returns the contents of a folder's files.
func files(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = b
	}
	return out
}

// Nothing of a retired customer is left in any answer, in its receipt, in the log and, after
// compaction, in the snapshot's folder: no number, label or key, in any form. It makes no difference what
// coordinates the planes are in and how the customer was retired.
func TestNothingIsLeftOfTheForgotten(t *testing.T) {
	for name, flags := range map[string]map[string]string{
		"features":   {"model.standardise": "true"},
		"refined":    {"model.standardise": "true", "model.refine": "full", "model.nu": "auto"},
		"random":     {"kernel.function": "gaussian(gamma=0.0005)", "kernel.reduce": "random"},
		"stratified": {"kernel.function": "gaussian(gamma=0.0005)", "kernel.reduce": "stratified", "model.nu": "auto"},
		"kmeans":     {"kernel.function": "gaussian", "kernel.reduce": "kmeans", "model.standardise": "true"},
		"kmedian":    {"kernel.function": "gaussian(gamma=0.0005)", "kernel.reduce": "kmedian"},
		"cs":         {"kernel.function": "gaussian(gamma=0.0005)", "kernel.reduce": "cs"},
	} {
		for _, how := range []string{"DELETE", "tombstone"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				flags := copied(flags)
				flags["blocks.unit"], flags["kernel.basis"], flags["kernel.rows"] = "key", "96", "96"
				topic := topic(t, 1)
				folder := t.TempDir()
				file := filepath.Join(folder, "streamd.db")
				flags["receipts.key_file"] = filepath.Join(folder, "receipts.key")
				messages := customers(t)[:10]
				produce(t, topic, append(messages, plantedRows(t))...)
				d, log := logging(t, topic, file, flags)
				settled := func(rows int64) {
					t.Helper()
					s := d.wait("a model of the live rows", func(s *model.Served) bool { return s.Model != nil && s.Rows == rows })
					if flags["kernel.function"] != "" {
						s = d.settledBasis()
					}
					d.inEpoch(s, flags)
				}
				settled(96)
				if _, err := d.Snapshot(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				before := found(files(t, folder))
				answers := found(d.answers())
				for _, c := range []string{
					"base64 of the key in /v1/blocks", "raw of the label in /v1/model",
				} {
					if !answers[c] {
						t.Errorf("the search does not find the %s before the retirement", c)
					}
				}
				for _, c := range []string{"escaped path of the key", "raw of the label", "float64, little endian of the x"} {
					if !before[c+" in streamd.db"] {
						t.Errorf("the search does not find the %s in the file before the retirement", c)
					}
				}
				if flags["kernel.reduce"] == "random" && !answers["digits of the x in /v1/model"] {
					t.Error("the search does not find the point before the retirement")
				}

				if how == "DELETE" {
					d.retire("key:" + url.PathEscape(plantedKey))
				} else {
					produce(t, topic, message{key: []byte(plantedKey)})
				}
				settled(90)
				for trace := range found(d.answers()) {
					t.Errorf("answers: %s", trace)
				}
				d.compact()
				receipts := map[string][]byte{}
				for _, path := range []string{"proof/0", "checkpoint", "tile/0/000.p/1", "tile/entries/000.p/1"} {
					status, body := d.ask(http.MethodGet, "/v1/receipts/"+path)
					if status != http.StatusOK {
						t.Errorf("receipts: %s: %d", path, status)
					}
					receipts[path] = []byte(body)
				}
				for trace := range found(receipts) {
					t.Errorf("receipts: %s", trace)
				}
				for trace := range found(files(t, folder)) {
					t.Errorf("files: %s", trace)
				}
				d.stop()
				for trace := range found(map[string][]byte{"the log": log.Bytes()}) {
					t.Error(trace)
				}
				d = start(t, topic, file, flags)
				settled(90)
				for trace := range found(d.answers()) {
					t.Errorf("answers after a restart: %s", trace)
				}
				d.stop()
			})
		}
	}
}

// A basis that was in use during a compaction holds rows of a retired block. It leaves the
// file without a request after it is replaced, also after a restart.
func TestStaleBasisLeavesTheFile(t *testing.T) {
	flags := map[string]string{
		"kernel.function": "gaussian(gamma=0.0005)", "kernel.reduce": "random", "kernel.basis": "96", "kernel.rows": "96",
		"blocks.unit": "key", "snapshot.scrub": "0",
	}
	topic := topic(t, 1)
	folder := t.TempDir()
	file := filepath.Join(folder, "streamd.db")
	produce(t, topic, append(customers(t)[:10], plantedRows(t))...)
	d := start(t, topic, file, flags)
	d.settledBasis()
	release := d.holdReading()
	receipt := d.retire("key:" + url.PathEscape(plantedKey))
	if !strings.Contains(fmt.Sprint(receipt.Remains), "points of a basis") {
		t.Errorf("it remains in %q", receipt.Remains)
	}
	d.compact()
	if f := found(files(t, folder)); !f["float64, little endian of the x in streamd.db"] {
		t.Errorf("the basis in use is not in the file, which has %v", f)
	}
	release()
	d.settledBasis()
	d.stop()
	if found, err := snapshot.FindRemains(file); err != nil || found.Uncompacted.IsZero() {
		t.Errorf("the file does not know that the basis has left it: %+v, %v", found, err)
	}
	flags["snapshot.scrub"] = "1ms"
	d = start(t, topic, file, flags)
	d.await("a compaction", func() bool { return d.live.Uncompacted().IsZero() && d.saver.state == idle })
	d.stop()
	for trace := range found(files(t, folder)) {
		t.Errorf("files: %s", trace)
	}
}
