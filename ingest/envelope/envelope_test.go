package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// recorded reads a message of testdata, as it is indented there or as converters write it.
func recorded(t testing.TB, name string, compact bool) *kafka.Record {
	t.Helper()
	read := func(file string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			return nil
		}
		if compact {
			var to bytes.Buffer
			if err := json.Compact(&to, b); err != nil {
				t.Fatal(err)
			}
			return to.Bytes()
		}
		return b
	}
	r := &kafka.Record{Key: read(name + ".key.json"), Value: read(name + ".json")}
	if r.Value == nil {
		t.Fatalf("testdata has no %s", name)
	}
	return r
}

// keyOf is the text of a key that can be read.
func keyOf(t testing.TB, o *Opener, key []byte) string {
	t.Helper()
	text, err := o.Key(key)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func compacted(t testing.TB, b []byte) string {
	t.Helper()
	var to bytes.Buffer
	if err := json.Compact(&to, b); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return to.String()
}

// A recorded message of each kind has the fate, the row and the key that its producer means.
func TestRecorded(t *testing.T) {
	const csv = "label,a\ngood,1.5\nbad,2\n"
	cases := []struct {
		name string
		kind Kind
		fate Fate
		row  string
		key  string
		bad  string
	}{
		{"create", Debezium, Row, `{"id":1,"label":"good","price":12.34,"ratio":-0.100,"born":"2003-10-20","seen":"2019-05-28T08:58:24.863123Z","zoned":"2019-05-28T08:58:24.863Z","opens":{},"photo":{},"active":true,"score":0.5}`, "1", ""},
		{"update", Debezium, Row, `{"id":1,"label":"good","price":-12.34,"ratio":null,"born":"1969-12-31","seen":"1969-12-31T23:59:59.999999Z","zoned":"2019-05-28T08:58:24.863Z","opens":{},"photo":{},"active":false,"score":0.5}`, "1", ""},
		{"delete", Debezium, Retire, "", "1", ""},
		{"read_plain", Debezium, Row, `{"id":1,"label":"good","a":1.5,"b":2}`, "1", ""},
		{"update_toast", Debezium, Row, `{"id":1,"label":"good","a":null,"b":2}`, "1", ""},
		{"create_base64", Debezium, Row, `{"id":1,"label":"good","a":"BNI=","b":2}`, "1", ""},
		{"delete_plain", Debezium, Retire, "", "1", ""},
		{"truncate", Debezium, Truncate, "", "", ""},
		{"message", Debezium, Pass, "", "foo", ""},
		{"heartbeat", Debezium, Pass, "", "dbserver1", ""},
		{"schema_change", Debezium, Row, "", "inventory", "belongs to another topic"},
		{"transaction", Debezium, Row, "", "571:53195832", "belongs to another topic"},
		{"unwrapped", Debezium, Row, `{"id":1,"label":"good","a":1.5,"b":2}`, "1", ""},
		{"unwrapped_deleted", Debezium, Retire, "", "1", ""},
		{"connect", Connect, Row, `{"label":"good","born":"1970-01-02","seen":"1970-01-01T00:00:01.5Z","price":18446744073709551616}`, "carol", ""},
		{"create", Connect, Row, `{"before":null}`, "1", ""},
		{"event", CloudEvents, Row, `{"label":"good","a":1.5,"b":2}`, "", ""},
		{"event_csv", CloudEvents, Row, csv, "", ""},
		{"event_base64", CloudEvents, Row, `{"label":"good","a":1}`, "", ""},
		{"read_plain", Connect, Row, "", "1", "format.envelope: none"},
		{"read_plain", CloudEvents, Row, "", `{"id":1}`, "no specversion"},
	}
	for _, c := range cases {
		for _, compact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s as %s, compact %v", c.name, c.kind, compact), func(t *testing.T) {
				r := recorded(t, c.name, compact)
				o := New(c.kind, Options{Label: "label"})
				for again := range 3 { // the schema is known the second time
					m, err := o.Open(r, "")
					if c.bad != "" {
						if e := (*Error)(nil); !errors.As(err, &e) || !strings.Contains(e.Reason, c.bad) {
							t.Fatalf("got %v, want an error with %q", err, c.bad)
						}
						continue
					}
					if err != nil || m.Fate != c.fate {
						t.Fatalf("got fate %v, %v", m.Fate, err)
					}
					switch {
					case c.name == "create" && c.kind == Connect: // its row is the change
						if !strings.HasPrefix(compacted(t, m.Payload), `{"before":null,"after":{`) {
							t.Errorf("the payload is %.40s", m.Payload)
						}
					case c.row == csv:
						if string(m.Payload) != csv || m.ContentType != "text/csv" {
							t.Errorf("got %q of type %s", m.Payload, m.ContentType)
						}
					case c.fate == Row:
						if got := compacted(t, m.Payload); got != c.row || m.ContentType != "application/json" {
							t.Errorf("time %d: got  %s of %s\nwant %s", again, got, m.ContentType, c.row)
						}
					}
					if got := keyOf(t, o, r.Key); got != c.key {
						t.Errorf("time %d: the key is %q, want %q", again, got, c.key)
					}
				}
			})
		}
	}
}

// What the wire decoder refuses, the envelope explains, and only for columns that are learned from.
func TestReasons(t *testing.T) {
	cases := []struct {
		name    string
		ignore  []string
		missing wire.MissingPolicy
		column  string
		why     string
	}{
		{"create", []string{"id", "photo"}, wire.MissingReject, "opens", "time of day"},
		{"create", []string{"id", "opens"}, wire.MissingReject, "photo", "bytes are no value"},
		{"create", []string{"id", "opens", "photo"}, wire.MissingReject, "", ""},
		{"update_toast", []string{"id"}, wire.MissingReject, "a", "REPLICA IDENTITY FULL"},
		{"update_toast", []string{"id"}, wire.MissingZero, "", ""},
		{"update_toast", []string{"id", "a"}, wire.MissingReject, "", ""},
		{"create_base64", []string{"id"}, wire.MissingReject, "a", "decimal.handling.mode"},
		{"create_base64", []string{"id", "a"}, wire.MissingReject, "", ""},
	}
	for _, c := range cases {
		d, err := wire.NewDecoder(wire.Options{Ignore: c.ignore, Missing: wire.Missing{Default: c.missing}})
		if err != nil {
			t.Fatal(err)
		}
		o := New(Debezium, Options{Label: "label"})
		m, err := o.Open(recorded(t, c.name, true), "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Decode(m.ContentType, m.Payload)
		if c.why == "" {
			if err != nil {
				t.Errorf("%s without %v: %v", c.name, c.ignore, err)
			}
			continue
		}
		bad := (*wire.Error)(nil)
		if !errors.As(err, &bad) || bad.Column != c.column || !strings.Contains(o.Reason(bad.Column), c.why) {
			t.Errorf("%s without %v: %v, and the reason is %q", c.name, c.ignore, err, o.Reason(c.column))
		}
	}
	// A label is never missing.
	o := New(Debezium, Options{Label: "a"})
	m, err := o.Open(recorded(t, "update_toast", true), "")
	if err != nil || string(m.Payload) != `{"id":1,"label":"good","a":{},"b":2}` {
		t.Errorf("got %s, %v", m.Payload, err)
	}
}

func TestKeys(t *testing.T) {
	o := New(Debezium, Options{Label: "label"})
	for _, c := range [][2]string{
		{`{"id":17}`, "17"},
		{` { "id" : 17 } `, "17"},
		{`{"id":"a/b"}`, "a/b"},
		{`{"id":"a\u0022b"}`, `a"b`},
		{`{"id":"\ud800"}`, `"\ud800"`},
		{`{"b":2,"a":"x\"y"}`, `{"a":"x\"y","b":2}`},
		{`{"b": 2, "a": null}`, `{"a":null,"b":2}`},
		{`{"schema":{"type":"struct","fields":[{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"id"}]},"payload":{"id":"BNI="}}`, "12.34"},
		{`{"schema":{"type":"struct","fields":[{"type":"int32","name":"io.debezium.time.Date","field":"d"},{"type":"int32","field":"a"}]},"payload":{"d":1,"a":5}}`, `{"a":5,"d":"1970-01-02"}`},
		{`{"schema":{"type":"int64"},"payload":5}`, "5"},
		{`{"schema":null,"payload":"x"}`, "x"},
		{`"carol"`, "carol"},
		{`carol`, "carol"},
		{`Struct{id=1}`, "Struct{id=1}"},
		{`{}`, "{}"},
		{`{"id":`, `{"id":`},
		{`{"id":1} `, "1"},
		{`{"id":1}x`, `{"id":1}x`},
		{"", ""},
	} {
		for range 2 {
			if got := keyOf(t, o, []byte(c[0])); got != c[1] {
				t.Errorf("the key of %s is %s, want %s", c[0], got, c[1])
			}
		}
	}
	for _, none := range [][]byte{nil, []byte(`{"schema":null,"payload":null}`)} {
		if got, err := o.Key(none); got != nil || err != nil {
			t.Errorf("the key of %q is %q", none, got)
		}
	}
	if got := keyOf(t, New(CloudEvents, Options{}), []byte(`{"id":1}`)); got != `{"id":1}` {
		t.Errorf("a key of an event is %s", got)
	}
}

// Decimals have all digits, whatever their length and scale.
func TestDecimals(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	for i := range 20_000 {
		unscaledBytes := make([]byte, 1+r.IntN(1+i%40))
		for j := range unscaledBytes {
			unscaledBytes[j] = byte(r.Uint32() >> (8 * r.IntN(3))) // some are 0 or 255
		}
		if r.IntN(4) == 0 {
			unscaledBytes[0] = []byte{0, 0x7f, 0x80, 0xff}[r.IntN(4)]
		}
		scale := r.IntN(60) - 20
		want := new(big.Int).SetBytes(unscaledBytes)
		if unscaledBytes[0] >= 0x80 {
			want.Sub(want, new(big.Int).Lsh(big.NewInt(1), uint(8*len(unscaledBytes))))
		}
		exact := new(big.Rat).SetInt(want)
		ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil))
		if scale > 0 {
			exact.Quo(exact, ten)
		} else {
			exact.Mul(exact, ten)
		}
		text, _ := json.Marshal(unscaledBytes) // base64, too
		got, why := decimal(nil, text, &conversion{scale: scale})
		if why != "" || !json.Valid(got) {
			t.Fatalf("%s of scale %d is %s: %s", text, scale, got, why)
		}
		if is, ok := new(big.Rat).SetString(string(got)); !ok || is.Cmp(exact) != 0 {
			t.Fatalf("%s of scale %d is %s, want %s", text, scale, got, exact.RatString())
		}
	}
	for _, bad := range []string{`""`, `"?"`, `{}`, `true`, `"` + strings.Repeat("A", 700) + `"`} {
		if got, why := decimal(nil, []byte(bad), &conversion{}); why == "" {
			t.Errorf("%s is the decimal %s", bad, got)
		}
	}
	if got, why := decimal(nil, []byte(`"`+strings.Repeat("/", 684)+`"`), &conversion{}); why == "" && string(got) != "-1" {
		t.Errorf("513 bytes of ones are %s, %s", got, why)
	}
}

// Times mean the same to package wire as to the one who wrote them.
func TestTimes(t *testing.T) {
	d, err := wire.NewDecoder(wire.Options{Label: "l"})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 2))
	for range 5000 {
		day := r.Int64N(200_000) - 100_000
		micros := r.Int64N(1<<54) - 1<<53
		millis := micros / 1000
		nanos := r.Int64()
		for _, c := range []struct {
			do   func(dst, raw []byte, c *conversion) ([]byte, string)
			n    int64
			unit int
			want float64
		}{
			{days, day, 0, float64(day * 86400)},
			{instant, millis, 3, rat(millis, 1e3)},
			{instant, micros, 6, rat(micros, 1e6)},
			{instant, nanos, 9, rat(nanos, 1e9)},
			{duration, micros, 6, rat(micros, 1e6)},
			{duration, nanos, 9, rat(nanos, 1e9)},
		} {
			got, why := c.do([]byte(`{"l":1,"x":`), fmt.Append(nil, c.n), &conversion{scale: c.unit})
			if why != "" {
				t.Fatalf("%d: %s", c.n, why)
			}
			b, err := d.Decode("application/json", append(got, '}'))
			if err != nil || b.Columns[0].At(0) != c.want {
				t.Fatalf("%s is %v, want %v: %v", got, b.Columns[0].At(0), c.want, err)
			}
		}
	}
	for _, far := range []int64{1 << 62, -1 << 62, 253402300800000} {
		if got, why := instant(nil, fmt.Append(nil, far), &conversion{scale: 3}); why == "" {
			t.Errorf("%d ms are %s", far, got)
		}
	}
}

// rat is the float64 nearest to n/d.
func rat(n, d int64) float64 {
	x, _ := big.NewRat(n, d).Float64()
	return x
}

func TestRefused(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 1000)
	for _, c := range []struct {
		kind  Kind
		value string
		want  string
	}{
		{Debezium, ``, "no object"},
		{Debezium, `[]`, "no object"},
		{Debezium, `{"op":"c","after":{"a":1}} {}`, "behind it"},
		{Debezium, `{"op":"x","after":null,"source":{}}`, "op is"},
		{Debezium, `{"op":"u","after":null,"source":{}}`, "no after image"},
		{Debezium, `{"op":"c","after":"{\"a\":1}","source":{}}`, "MongoDB"},
		{Debezium, `{"op":"c","op":"d","after":{"a":1}}`, "twice"},
		{Debezium, `{"op":"c","\u006fp":"d","after":{"a":1}}`, "twice"},
		{Debezium, `{"op":"c","after":{"a":1]}`, "brackets"},
		{Debezium, `{"op":"c","after":{"a":"x}}`, "closed"},
		{Debezium, `{"op":"c","after":{"a":{} "b":1}}`, "comma"},
		{Debezium, `{"op":"c","after":` + deep, "deeply"},
		{Debezium, `{"schema":7,"payload":{}}`, "schema"},
		{Debezium, `{"schema":{"type":"struct"},"payload":7}`, "neither a change nor a row"},
		{Debezium, `{"schema":{"doc":"` + strings.Repeat("x", 1<<20) + `"},"payload":{}}`, "bytes"},
		{Connect, `{"schema":{},"payload":[1]}`, "no object"},
		{CloudEvents, `{"specversion":"0.3","data":{}}`, "specversion"},
		{CloudEvents, `{"specversion":"1.0"}`, "no data"},
		{CloudEvents, `{"specversion":"1.0","data":{},"data_base64":"AA=="}`, "data_base64"},
		{CloudEvents, `{"specversion":"1.0","data_base64":"?"}`, "base64"},
		{CloudEvents, `{"specversion":"1.0","datacontenttype":"text/csv","data":{}}`, "no text"},
	} {
		_, err := New(c.kind, Options{Label: "label"}).Open(&kafka.Record{Value: []byte(c.value)}, "")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.60s: got %v, want %q", c.kind, c.value, err, c.want)
		}
	}
}

func TestBinaryEvents(t *testing.T) {
	o := New(CloudEvents, Options{Label: "label"})
	ce := kafka.Header{Key: "ce_specversion", Value: []byte("1.0")}
	for _, c := range []struct {
		headers []kafka.Header
		typ     string
		want    string // the type of the payload
		bad     string
	}{
		{[]kafka.Header{ce}, "application/json; charset=utf-8", "application/json", ""},
		{[]kafka.Header{ce}, "application/vnd.order+json", "application/json", ""},
		{[]kafka.Header{ce}, "text/csv", "text/csv", ""},
		{[]kafka.Header{ce}, "", "", ""},
		{nil, "application/json", "", "no event"},
		{nil, "application/cloudevents-batch+json", "", "one in each message"},
		{nil, "application/cloudevents+avro", "", "in JSON"},
		{[]kafka.Header{{Key: "ce_specversion", Value: []byte("2.0")}}, "", "", "ce_specversion"},
	} {
		m, err := o.Open(&kafka.Record{Value: []byte("x"), Headers: c.headers}, c.typ)
		switch {
		case c.bad != "":
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%v of type %s: got %v, want %q", c.headers, c.typ, err, c.bad)
			}
		case err != nil || m.ContentType != c.want || string(m.Payload) != "x":
			t.Errorf("%v of type %s: got %+v, %v", c.headers, c.typ, m, err)
		}
	}
}

// A message that is refused without its envelope is recognised.
func TestDetect(t *testing.T) {
	kinds := map[string]Kind{
		"connect": Connect, "event": CloudEvents, "event_csv": CloudEvents, "event_base64": CloudEvents,
		"heartbeat": None, "schema_change": None, "transaction": None,
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	n := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if strings.HasSuffix(name, ".key") {
			continue
		}
		want, ok := kinds[name]
		if !ok {
			want = Debezium
		}
		if got := Detect(recorded(t, name, true), ""); got != want {
			t.Errorf("%s looks like %s, want %s", name, got, want)
		}
		n++
	}
	if n < 15 {
		t.Errorf("only %d messages", n)
	}
	for _, plain := range []string{`{"label":1,"a":2}`, ``, `[1]`, "a,b\n1,2\n", `{"op":"c"}`} {
		if got := Detect(&kafka.Record{Value: []byte(plain)}, ""); got != None {
			t.Errorf("%s looks like %s", plain, got)
		}
	}
}

// A row that needs nothing is not copied, and nothing is allocated for it.
func TestCostsNothing(t *testing.T) {
	for _, name := range []string{"read_plain", "create"} {
		o, r := New(Debezium, Options{Label: "label"}), recorded(t, name, true)
		open := func() {
			if _, err := o.Open(r, ""); err != nil {
				t.Fatal(err)
			}
		}
		open()
		want := 0.
		if name == "create" {
			want = 4 // names of the columns that are refused
		}
		if got := testing.AllocsPerRun(100, open); got > want {
			t.Errorf("%s: %v allocations for a message", name, got)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, name := range []string{"read_plain", "create", "unwrapped", "connect", "event"} {
		kind := map[string]Kind{"connect": Connect, "event": CloudEvents}[name]
		if kind == None {
			kind = Debezium
		}
		b.Run(name, func(b *testing.B) {
			o, r := New(kind, Options{Label: "label"}), recorded(b, name, true)
			b.SetBytes(int64(len(r.Value)))
			began := time.Now()
			for b.Loop() {
				if _, err := o.Open(r, ""); err != nil {
					b.Fatal(err)
				}
				o.Key(r.Key)
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "rows/s")
		})
	}
}
