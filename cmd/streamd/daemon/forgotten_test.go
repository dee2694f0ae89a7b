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
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
	"streamd/retire"
	"streamd/snapshot"
)

// The planted customer. Nothing else in the test has its key, its label, its header, or a
// number near one of its own.
const (
	plantedKey    = "customer/Ωmega 4711"
	plantedLabel  = "plánted-label"
	plantedHeader = "tënant of 4711"
	plantedX      = 765432109.25 // and a few eighths more: float32 rounds it
	plantedY      = -0.00087654321987
)

var plantedTime = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)

// plantedBlock is the planted customer's rows.
func plantedBlock() *incremental.Block {
	b := &incremental.Block{Classes: []string{plantedLabel}, Codes: make([]int32, 6)}
	var x, y []float64
	for i := range b.Codes {
		x, y = append(x, plantedX+float64(i)/8), append(y, plantedY*(1+float64(i)*1e-12))
	}
	b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	return b
}

// plantedRows is the planted customer's message.
func plantedRows(t testing.TB) message {
	value, err := wire.Encode(nil, wire.Arrow, plantedBlock())
	if err != nil {
		t.Fatal(err)
	}
	return message{
		key: []byte(plantedKey), value: value, contentType: wire.Arrow.ContentType(), time: plantedTime,
		headers: []kafka.Header{{Key: lawHeader, Value: []byte(plantedHeader)}},
	}
}

// trace is a form in which something of the customer may appear.
type trace struct {
	of, form string
	bytes    []byte
}

// traces are all forms of the planted values.
var traces = sync.OnceValue(func() (all []trace) {
	hash := func(of string, b []byte) {
		all = append(all, trace{of, "raw", b}, trace{of, "hex", []byte(hex.EncodeToString(b))}, trace{of, "base64", []byte(base64.RawStdEncoding.EncodeToString(b))})
	}
	header := retire.HashHeader(lawHeader, []byte(plantedHeader))
	hash("hash of the header", header[:])
	var z incremental.Summariser
	summary, err := z.Summarise(plantedBlock())
	if err != nil {
		panic(err)
	}
	digest := summary.Digest()
	hash("digest of the summary", digest[:])
	alone := incremental.NewState(incremental.DefaultFeatures(2))
	alone.Add(summary)
	for of, encoded := range map[string][]byte{"summary": summary.AppendBinary(nil), "exact sums": alone.AppendBinary(nil)} {
		const width = 8
		for at := 0; at+width <= len(encoded); at++ {
			part := encoded[at : at+width]
			if different := slices.Compact(slices.Sorted(slices.Values(part))); len(different) >= width-1 && !bytes.Contains([]byte(plantedLabel), part) {
				all = append(all, trace{of, fmt.Sprint("bytes from ", at), part})
			}
		}
	}
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
	text("header", plantedHeader)
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
})

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

// askedFor are further paths, whose answers have parts that are not there without parameters.
var askedFor = []string{
	"/v1/model?to=2100-01-01T00:00:00Z", "/v1/model?to=2100-01-01T00:00:00Z&nu=7", "/v1/windows?step=8760h&from=2001-01-01T00:00:00Z&to=2024-01-01T00:00:00Z",
	"/v1/compare?a=2001-01-01T00:00:00Z,2002-01-01T00:00:00Z&b=2002-01-01T00:00:00Z,2100-01-01T00:00:00Z", "/v1/blocks?limit=1000", "/v1/label-requests?count=100", "/?weights=own",
}

// answers returns the daemon's answers to GET on every path of its API document, and to some with
// parameters.
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
	for _, path := range askedFor {
		status, body := i.ask(http.MethodGet, path)
		if status != http.StatusOK && status != http.StatusNotFound && status != http.StatusServiceUnavailable {
			i.t.Errorf("%s: %d %s", path, status, body)
		}
		out[path] = []byte(body)
	}
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

// ways are the ways in which the planted customer's block leaves the live set.
var ways = map[string]func(d *instance, topic string){
	"DELETE":      func(d *instance, _ string) { d.retire("key:" + url.PathEscape(plantedKey)) },
	"tombstone":   func(d *instance, topic string) { produce(d.t, topic, message{key: []byte(plantedKey)}) },
	"replacement": func(d *instance, topic string) { produce(d.t, topic, keyed(d.t, plantedKey, 7, 9, 0)) },
	"bad value": func(d *instance, topic string) {
		produce(d.t, topic, message{key: []byte(plantedKey), value: []byte("?")})
	},
	"key":    func(d *instance, _ string) { d.choose(retire.Selector{Keys: []string{plantedKey}}) },
	"header": func(d *instance, _ string) { d.choose(retire.Selector{Headers: []string{plantedHeader}}) },
	"positions": func(d *instance, topic string) {
		d.choose(retire.Selector{Positions: []retire.Range{{Topic: topic, First: 10, Last: 10}}})
	},
	"event time": func(d *instance, _ string) {
		to := plantedTime.Add(time.Second)
		d.choose(retire.Selector{From: &plantedTime, To: &to})
	},
	"ids": func(d *instance, _ string) {
		d.choose(retire.Selector{IDs: []string{"key:none", "key:" + url.PathEscape(plantedKey)}})
	},
	"control topic": func(d *instance, topic string) {
		value, err := json.Marshal(map[string]any{"retire": retire.Selector{Keys: []string{plantedKey}}})
		if err != nil {
			d.t.Fatal(err)
		}
		produce(d.t, topic+".control", message{key: []byte("request"), value: value})
	},
	"expiry": func(d *instance, topic string) { produce(d.t, topic, keyed(d.t, "another", 7, 9, 0)) },
}

// choose retires the block that a selector chooses.
func (i *instance) choose(s retire.Selector) {
	i.t.Helper()
	if r, err := i.Retire(i.t.Context(), s, httpapi.RetireOptions{}); err != nil || r.Blocks != 1 {
		i.t.Fatalf("%+v: %+v, %v", s, r, err)
	}
}

// Nothing of a retired customer is left in any answer, in its receipt, in the log and, after
// compaction, in the snapshot's folder: no number, label, key, header, sum or digest, in any form.
// It makes no difference what coordinates the planes are in and how the customer was retired.
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
		for how, leaves := range ways {
			if name != "features" && how != "DELETE" && how != "tombstone" {
				continue // the ways differ in what they do to the ledger
			}
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				flags := copied(flags)
				flags["blocks.unit"] = "key"
				if flags["kernel.function"] != "" {
					flags["kernel.basis"], flags["kernel.rows"] = "96", "96"
				}
				flags["retire.header"] = lawHeader
				topic := topic(t, 1)
				folder := t.TempDir()
				file := filepath.Join(folder, "streamd.db")
				flags["receipts.key_file"] = filepath.Join(folder, "receipts.key")
				left := int64(90) // rows
				switch how {
				case "expiry":
					flags["blocks.unit"], flags["retire.keep"], flags["retire.blocks"] = "message", "blocks", "11"
					left = 99
				case "replacement":
					left = 99
				case "control topic":
					flags["retire.topic"] = controlTopic(t, topic)
				}
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
				inAnswers := []string{"raw of the label in /v1/model"}
				inFile := []string{"raw of the label", "float64, little endian of the x", "raw of the hash of the header"}
				if how != "expiry" {
					inAnswers, inFile = append(inAnswers, "base64 of the key in /v1/blocks"), append(inFile, "escaped path of the key")
				}
				for _, c := range inAnswers {
					if !answers[c] {
						t.Errorf("the search does not find the %s before the retirement", c)
					}
				}
				for _, c := range inFile {
					if !before[c+" in streamd.db"] {
						t.Errorf("the search does not find the %s in the file before the retirement", c)
					}
				}
				for _, c := range []string{"summary", "exact sums"} {
					if !slices.ContainsFunc(slices.Collect(maps.Keys(before)), func(s string) bool { return strings.HasSuffix(s, " of the "+c+" in streamd.db") }) {
						t.Errorf("the search does not find the %s in the file before the retirement", c)
					}
				}
				if flags["kernel.reduce"] == "random" && !answers["digits of the x in /v1/model"] {
					t.Error("the search does not find the point before the retirement")
				}

				leaves(d, topic)
				settled(left)
				expected := func(trace string) bool {
					switch how {
					case "replacement": // the key is live
						return strings.Contains(trace, " of the key in ")
					case "control topic": // a block that may come back keeps its name, until the log lets it go
						for _, file := range []string{"streamd.db", "/v1/snapshot"} {
							if strings.HasSuffix(trace, " of the key in "+file) || trace == "raw of the hash of the header in "+file {
								return true
							}
						}
					}
					return false
				}
				none := func(where string, places map[string][]byte) {
					t.Helper()
					for trace := range found(places) {
						if !expected(trace) {
							t.Errorf("%s: %s", where, trace)
						}
					}
				}
				none("answers", d.answers())
				d.compact()
				receipts := map[string][]byte{}
				for _, path := range []string{"proof/0", "checkpoint", "tile/0/000.p/1", "tile/entries/000.p/1"} {
					status, body := d.ask(http.MethodGet, "/v1/receipts/"+path)
					if status != http.StatusOK {
						t.Errorf("receipts: %s: %d", path, status)
					}
					receipts[path] = []byte(body)
				}
				none("receipts", receipts)
				none("files", files(t, folder))
				d.stop()
				none("the log", map[string][]byte{"it": log.Bytes()})
				d = start(t, topic, file, flags)
				settled(left)
				none("answers after a restart", d.answers())
				d.stop()
			})
		}
	}
}

// The log says that a class is never found, and does not name it: its rows may be retired.
func TestTheLogNamesNoLabel(t *testing.T) {
	topic := topic(t, 1)
	for block := range 9 { // others, since the same content is in the same fold
		var rows strings.Builder
		rows.WriteString("label,x,y\n")
		for i := range 100 {
			label := []string{"a", "b"}[i%2]
			if i%10 == 9 {
				label = plantedLabel
			}
			fmt.Fprintf(&rows, "%s,%d,%d\n", label, i%2*10+i%7, i%5+block)
		}
		produce(t, topic, message{value: []byte(rows.String()), contentType: wire.CSV.ContentType()})
	}
	d, log := logging(t, topic, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"model.folds": "3"})
	s := d.wait("figures on held-out rows", func(s *model.Served) bool { return s.Quality != nil && len(s.Quality.Warned()) > 0 })
	if !slices.Contains(s.Quality.Warned(), plantedLabel) {
		t.Errorf("warned of %q", s.Quality.Warned())
	}
	d.stop()
	if text := log.String(); !strings.Contains(text, "never or seldom found") || strings.Contains(text, plantedLabel) {
		t.Errorf("the log is\n%s", text)
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
	d.await("a compaction", func() bool { return d.Live.Uncompacted().IsZero() && d.Saver.IsIdle() })
	d.stop()
	for trace := range found(files(t, folder)) {
		t.Errorf("files: %s", trace)
	}
}
