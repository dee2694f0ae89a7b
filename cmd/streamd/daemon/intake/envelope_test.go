package intake

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
	"streamd/retire/receipt"
)

// feed has an intake take records, in workers or in the loop.
func feed(t testing.TB, in *Intake, inWorker bool, records ...kafka.Record) error {
	t.Helper()
	next := in.partition(0).at.Next
	for i := range records {
		records[i].Offset = max(next, 0) + int64(i)
	}
	end := max(next, 0) + int64(len(records))
	y := newDelivery(kafka.NewBatch(0, records, kafka.Saved{Next: end}))
	in.room.Store(1 << 30)
	w := newWorker(in.pool)
	for _, x := range y.tasks {
		if inWorker {
			w.do(t.Context(), x)
		}
		close(x.done)
	}
	err := in.Apply(t.Context(), y)
	for waiting, _ := in.Waiting(); waiting != nil && err == nil; waiting, _ = in.Waiting() {
		if err = in.Live.Settle(); err == nil {
			err = in.Continue(t.Context())
		}
	}
	if err == nil {
		err = in.Live.Settle()
	}
	in.Release(y)
	return err
}

// tableRow is a row of a table: a decimal of two digits, a time in microseconds, and a number.
type tableRow struct {
	label  string
	cents  int64
	micros int64
	score  float64
}

// asRow writes a row as a producer does that knows what streamd reads.
func (r tableRow) asRow() string {
	at := time.UnixMicro(r.micros).UTC().Format("2006-01-02T15:04:05.999999Z")
	return fmt.Sprintf(`{"label":%q,"a":%d.%02d,"b":%q,"c":%v}`, r.label, r.cents/100, r.cents%100, at, r.score)
}

// tableColumns are those of tableRow. TIMES is the type of its times.
const tableColumns = `[{"type":"int32","optional":false,"field":"id"},{"type":"string","field":"label"},` +
	`{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"},"field":"a"},` +
	`{"type":"int64","name":"TIMES","version":1,"field":"b"},{"type":"double","field":"c"}]`

// image writes a row as Debezium does: for a schema, or without one and with
// decimal.handling.mode=string. Fields of marks come last.
func (r tableRow) image(id int, typed, millis bool, marks string) string {
	a, b := fmt.Sprintf(`"%d.%02d"`, r.cents/100, r.cents%100), fmt.Sprintf("%q", time.UnixMicro(r.micros).UTC().Format(time.RFC3339Nano))
	if typed {
		unscaled := []byte{byte(r.cents >> 24), byte(r.cents >> 16), byte(r.cents >> 8), byte(r.cents)}
		a, b = fmt.Sprintf("%q", base64.StdEncoding.EncodeToString(unscaled)), fmt.Sprint(r.micros)
		if millis {
			b = fmt.Sprint(r.micros / 1000)
		}
	}
	return fmt.Sprintf(`{"id":%d,"label":%q,"a":%s,"b":%s,"c":%v%s}`, id, r.label, a, b, r.score, marks)
}

// dialect is a way in which a connector writes changes.
type dialect struct {
	typed, unwrapped bool
	by               *registrytest.Converter // nil: in JSON
}

// registered are the schemas of a registry that is always there.
type registered map[uint32]*registry.Schema

func (s registered) Get(id uint32) (*registry.Schema, error) {
	if found := s[id]; found != nil {
		return found, nil
	}
	return nil, &registry.BadIDError{ID: id, Reason: "the schema registry does not know it"}
}

// converter frames messages for a kind of schemas, which are registered.
func (s registered) converter(kind registry.Kind) *registrytest.Converter {
	return &registrytest.Converter{Kind: kind, First: 1, Put: func(id uint32, text string) { s[id] = &registry.Schema{ID: id, Kind: kind, Text: text} }}
}

// millis reports whether times are those of Kafka Connect, in milliseconds: Protobuf has no name of
// Debezium's.
func (d dialect) millis() bool { return d.by != nil && d.by.Kind == registry.Protobuf }

// columns is the schema of a row.
func (d dialect) columns() string {
	times := "io.debezium.time.MicroTimestamp"
	if d.millis() {
		times = "org.apache.kafka.connect.data.Timestamp"
	}
	return strings.Replace(tableColumns, "TIMES", times, 1)
}

// written is a message as the converter writes it.
func (d dialect) written(message []byte) []byte {
	if d.by == nil {
		return message
	}
	b, err := d.by.Convert(message)
	if err != nil {
		panic(err)
	}
	return b
}

func (d dialect) key(id int) []byte { return d.written(d.keyText(id)) }

func (d dialect) keyText(id int) []byte {
	if d.typed {
		return fmt.Appendf(nil, `{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"Key"},"payload":{"id":%d}}`, id)
	}
	return fmt.Appendf(nil, `{"id":%d}`, id)
}

// value is a change of a row.
func (d dialect) value(op string, id int, before, after *tableRow) []byte {
	return d.written(d.valueText(op, id, before, after))
}

func (d dialect) valueText(op string, id int, before, after *tableRow) []byte {
	if d.unwrapped {
		row := after
		if row == nil {
			row = before
		}
		payload := row.image(id, d.typed, d.millis(), fmt.Sprintf(`,"__op":%q,"__deleted":"%v"`, op, after == nil))
		if !d.typed {
			return []byte(payload)
		}
		return fmt.Appendf(nil, `{"schema":{"type":"struct","fields":%s,"optional":false,"name":"Value"},"payload":%s}`, d.columns(), payload)
	}
	image := func(r *tableRow) string {
		if r == nil {
			return "null"
		}
		return r.image(id, d.typed, d.millis(), "")
	}
	payload := fmt.Sprintf(`{"before":%s,"after":%s,"source":{"connector":"postgresql","table":"t","lsn":1},"op":%q,"ts_ms":1}`, image(before), image(after), op)
	if !d.typed {
		return []byte(payload)
	}
	struct1 := func(field string) string {
		return fmt.Sprintf(`{"type":"struct","fields":%s,"optional":true,"name":"Value","field":%q}`, d.columns(), field)
	}
	return fmt.Appendf(nil, `{"schema":{"type":"struct","fields":[%s,%s],"optional":false,"name":"Envelope"},"payload":%s}`, struct1("before"), struct1("after"), payload)
}

// A table whose changes come in envelopes gives the model of a topic that has only its rows and
// tombstones, bit for bit, and that of the table as it is in the end. Each deletion has a receipt.
func TestChangesAreATable(t *testing.T) {
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(37, seed))
		said := dialect{typed: seed%2 == 0, unwrapped: seed%4 >= 2}
		schemas := registered{}
		if kind := registry.Kind(seed / 4); kind > 0 { // its least value is 1
			said.by = schemas.converter(kind)
		}
		key := newReceiptKey(t)
		flags := func(more map[string]string) map[string]string {
			all := map[string]string{"blocks.unit": "key", "format.features": "a,b,c", "format.unknown": "ignore", "dead_letters.policy": "stop", "sample.rows": "0"}
			maps.Copy(all, more)
			return all
		}
		fixed := []string{"a", "b", "c"}
		wrapped := ignoring(stored(t, key, flags(map[string]string{"format.envelope": "debezium", "format.truncate": "retire"}), fixed...))
		wrapped = knowing(wrapped, schemas)
		plain := ignoring(stored(t, key, flags(nil), fixed...))
		table := map[int]tableRow{}
		deletions, operations, receipts := 0, 0, int64(0)
		give := func(in *Intake, records ...kafka.Record) {
			t.Helper()
			if err := feed(t, in, r.IntN(2) == 0, records...); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		at := time.UnixMilli(1)
		tombstone := func(k []byte) kafka.Record { return kafka.Record{Key: k, Time: at} }
		plainKey := func(id int) []byte { return fmt.Append(nil, id) }
		remove := func(id int) {
			row := table[id]
			delete(table, id)
			give(wrapped, kafka.Record{Key: said.key(id), Value: said.value("d", id, &row, nil), Time: at}, tombstone(said.key(id)))
			give(plain, tombstone(plainKey(id)))
		}
		put := func(op string, id int, row tableRow) {
			before, had := table[id]
			table[id] = row
			was := &before
			if !had {
				was = nil
			}
			give(wrapped, kafka.Record{Key: said.key(id), Value: said.value(op, id, was, &row), Time: at})
			give(plain, kafka.Record{Key: plainKey(id), Value: []byte(row.asRow()), Time: at})
		}
		for range 150 {
			row := tableRow{[]string{"good", "bad"}[r.IntN(2)], r.Int64N(10_000_000), 1000 * r.Int64N(1<<40), r.NormFloat64()}
			id, had := r.IntN(30), false
			if _, had = table[id]; had && r.IntN(2) == 0 {
				id = 100 + r.IntN(1000)
				_, had = table[id]
			}
			operations++
			switch {
			case !had:
				put([]string{"c", "r"}[r.IntN(2)], id, row)
			case r.IntN(3) == 0:
				remove(id)
				deletions++
			case r.IntN(4) == 0: // another primary key
				moved := table[id]
				remove(id)
				deletions++
				other := 2000 + r.IntN(1000)
				put("c", other, moved)
			case r.IntN(25) == 0 && !said.unwrapped:
				deletions += len(table)
				for _, id := range slices.Sorted(maps.Keys(table)) {
					give(plain, tombstone(plainKey(id)))
				}
				clear(table)
				give(wrapped, kafka.Record{Value: said.written([]byte(`{"before":null,"after":null,"source":{"connector":"postgresql","table":"t"},"op":"t","ts_ms":1}`)), Time: at})
			case r.IntN(8) == 0:
				logical, heartbeat := `{"op":"m","source":{"connector":"postgresql"},"message":{"prefix":"p","content":""}}`, `{"ts_ms":1}`
				give(wrapped, kafka.Record{Key: said.written([]byte(`{"prefix":"p"}`)), Value: said.written([]byte(logical)), Time: at},
					kafka.Record{Key: said.written([]byte(`{"serverName":"s"}`)), Value: said.written([]byte(heartbeat)), Time: at})
			default:
				put("u", id, row)
			}
			for _, d := range wrapped.Live.TakeDepartures() { // as each save does
				if d.Kind == receipt.Deleted {
					receipts += d.Blocks
				}
			}
			if a, b := wrapped.Live.Side(), plain.Live.Side(); a != b {
				t.Fatalf("seed %d, operation %d: the live sets are %x and %x", seed, operations, a.Digest, b.Digest)
			}
		}
		if deletions < 10 || wrapped.Report().Counts.BlocksRetired != int64(deletions) {
			t.Errorf("seed %d: %d blocks are retired by %d deletions", seed, wrapped.Report().Counts.BlocksRetired, deletions)
		}
		final := ignoring(stored(t, key, flags(nil), fixed...))
		for _, id := range slices.Sorted(maps.Keys(table)) {
			give(final, kafka.Record{Key: plainKey(id), Value: []byte(table[id].asRow()), Time: at})
		}
		if a, b := wrapped.Live.Side(), final.Live.Side(); a != b || len(table) == 0 {
			t.Errorf("seed %d: %d rows of the table have another live set than their history", seed, len(table))
		}
		balances(t, wrapped)
		c := wrapped.Report().Counts
		if c.Tombstones > int64(deletions) {
			t.Errorf("seed %d: %d tombstones count, of %d deletions", seed, c.Tombstones, deletions)
		}
		if receipts != int64(deletions) {
			t.Errorf("seed %d: %d receipts of %d deletions", seed, receipts, deletions)
		}
	}
}

// ignoring makes the decoding ignore columns that are no features, as that of the daemon.
func ignoring(in *Intake) *Intake {
	s := in.Settings
	s.Decoding.IgnoreUnknown = s.Config.Format.IgnoresUnknown()
	s.Decoding.Ignore = s.Config.Format.Ignore
	s.Partitions = func() int { return 1 }
	return New(s)
}

// knowing makes the decoding know the schemas of a registry.
func knowing(in *Intake, schemas registered) *Intake {
	s := in.Settings
	s.Decoding.Schemas = schemas
	return New(s)
}

func newReceiptKey(t testing.TB) *receipt.Key {
	t.Helper()
	_, key := keyed(t, true)
	return key
}

// balances checks that all records and rows that were read have a fate.
func balances(t testing.TB, in *Intake) {
	t.Helper()
	r := in.Report()
	if n := r.Records; n.Read != n.Applied+n.Tombstones+n.Rejected+n.Pending {
		t.Errorf("the records do not add up: %+v", n)
	}
	if n := r.Rows; n.Read != n.Summarised+n.ZeroWeight+n.Rejected+n.Pending {
		t.Errorf("the rows do not add up: %+v", n)
	}
}

// Each deletion has a receipt of one block, whose id a user can type. The null value behind it has
// none.
func TestReceiptOfDeletion(t *testing.T) {
	key := newReceiptKey(t)
	in := ignoring(stored(t, key, map[string]string{"blocks.unit": "key", "format.envelope": "debezium", "format.features": "a,b,c"}, "a", "b", "c"))
	said := dialect{typed: true}
	row := tableRow{"good", 1234, 5, 1}
	if err := feed(t, in, true, kafka.Record{Key: said.key(7), Value: said.value("c", 7, nil, &row), Time: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	if _, ok := in.Live.Find("key:7"); !ok {
		t.Fatalf("the blocks are %v", slices.Collect(in.Live.Everything))
	}
	in.Live.TakeDepartures()
	// The key of the other dialect is the same.
	if err := feed(t, in, true, kafka.Record{Key: []byte(`{"id": 7}`), Value: said.value("d", 7, &row, nil), Time: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	left := in.Live.TakeDepartures()
	if len(left) != 1 || left[0].Kind != receipt.Deleted || left[0].Blocks != 1 {
		t.Fatalf("the receipts are %+v", left)
	}
	moves := in.Live.Moves()
	if err := feed(t, in, true, kafka.Record{Key: said.key(7), Time: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	if again := in.Live.TakeDepartures(); len(again) != 0 || moves != 1 || in.Live.Moves() != 1 {
		t.Errorf("the tombstone has receipts %+v; %d moves, then %d", again, moves, in.Live.Moves())
	}
	if c := in.Report().Counts; c.BlocksRetired != 1 || c.Tombstones != 1 || c.AppliedRecords != 2 {
		t.Errorf("the counts are %+v", c)
	}
	balances(t, in)
}

// letters keeps dead letters.
type lettersKept struct{ all []kafka.Letter }

func (l *lettersKept) Write(_ context.Context, _ int, more []kafka.Letter) error {
	for _, letter := range more {
		r := *letter.Record // the batch is released
		letter.Record = &r
		l.all = append(l.all, letter)
	}
	return nil
}

// What cannot be used goes to the dead letters as it came, retires what it would have replaced, and
// says what to set.
func TestRefusedEnvelopes(t *testing.T) {
	said := dialect{}
	good := tableRow{"good", 100, 5, 1}
	change := string(said.value("u", 7, nil, &good))
	connect := `{"schema":{"type":"struct","fields":[{"type":"string","field":"label"}]},"payload":{"label":"x","a":1,"b":2,"c":3}}`
	event := `{"specversion":"1.0","type":"t","source":"s","id":"1","data":{"label":"x","a":1,"b":2,"c":3}}`
	for _, c := range []struct {
		name, envelope string
		key, value     string
		class, want    string
		settles        string
	}{
		{"no primary key", "debezium", "", change, kindKey, "no primary key", ""},
		{"a change as it is", "none", "k", change, kindFormat, "format.envelope: debezium", "format.envelope: debezium"},
		{"a deletion as it is", "none", "k", string(said.value("d", 7, &good, nil)), kindFormat, "format.envelope: debezium", "format.envelope: debezium"},
		{"a truncation as it is", "none", "k", `{"source":{},"op":"t"}`, kindFormat, "format.envelope: debezium", ""},
		{"an unwrapped row as it is", "none", "k", `{"label":"x","a":1,"b":2,"c":3,"__deleted":"false"}`, kindFormat, "format.envelope: debezium", "format.envelope: debezium"},
		{"connect as it is", "none", "k", connect, kindFormat, "format.envelope: connect", "format.envelope: connect"},
		{"an event as it is", "none", "k", event, kindFormat, "format.envelope: cloudevents", "format.envelope: cloudevents"},
		{"connect in place of debezium", "connect", "k", `{"schema":{},"payload":` + change + `}`, kindFormat, "format.envelope: debezium", ""},
		{"an event in place of connect", "connect", "k", event, kindFormat, "format.envelope: cloudevents", ""},
		{"a schema change", "debezium", "k", `{"source":{},"ddl":"ALTER"}`, kindFormat, "another topic", ""},
		{"an unavailable value", "debezium", `{"id":7}`, strings.Replace(change, `"1.00"`, `"__debezium-unavailable-value"`, 1), kindFormat, `column "a": its value is large`, ""},
		{"a decimal without a schema", "debezium", `{"id":7}`, strings.Replace(change, `"1.00"`, `"ZA=="`, 1), kindFormat, `column "a": "ZA==" is no number: if it is a decimal in base64, set decimal.handling.mode`, ""},
		{"framed for a registry", "none", "k", "\x00\x00\x00\x00\x07abc", kindFormat, "schema registry", ""},
		{"a truncation that is rejected", "debezium", "", `{"source":{},"op":"t"}`, kindFormat, "truncated", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			flags := map[string]string{"blocks.unit": "key", "format.envelope": c.envelope, "format.features": "a,b,c"}
			if c.envelope == "debezium" {
				flags["format.truncate"] = "reject"
			}
			in := ignoring(stored(t, nil, flags, "a", "b", "c"))
			kept := &lettersKept{}
			in.Letters = kept
			var key []byte
			if c.key != "" {
				key = []byte(c.key)
				before := good.asRow()
				switch c.envelope {
				case "debezium":
					before = change
				case "connect":
					before = connect
				}
				if err := feed(t, in, false, kafka.Record{Key: key, Value: []byte(before), Time: time.UnixMilli(1)}); err != nil || in.Live.Blocks() != 1 {
					t.Fatalf("%d blocks are live, %v", in.Live.Blocks(), err)
				}
			}
			r := kafka.Record{Key: key, Value: []byte(c.value), Time: time.UnixMilli(1)}
			for _, inWorker := range []bool{false, true} {
				kept.all = nil
				if err := feed(t, in, inWorker, r); err != nil {
					t.Fatal(err)
				}
				if len(kept.all) != 1 || kept.all[0].Reason.Class != c.class || !strings.Contains(kept.all[0].Reason.Message, c.want) {
					t.Fatalf("the letters are %+v, want %q", kept.all, c.want)
				}
				if string(kept.all[0].Record.Value) != c.value || string(kept.all[0].Record.Key) != c.key {
					t.Errorf("the letter is not the record as it came")
				}
				latest := in.Report().Latest
				if !strings.Contains(latest.Action(in.Config.DeadLetters), c.settles) {
					t.Errorf("the page says %q", latest.Action(in.Config.DeadLetters))
				}
			}
			if in.Live.Blocks() != 0 {
				t.Errorf("the former value of the key is live")
			}
			balances(t, in)
		})
	}
}

// A record whose key cannot be read is a dead letter with the reason: another id would make it a
// block that the key does not name later.
func TestFramedKeysThatCannotBeRead(t *testing.T) {
	good := tableRow{"good", 100, 5, 1}
	for _, c := range []struct {
		schemas registered
		want    string
	}{
		{nil, "the key is framed for a schema registry (schema id 7): say where that is (format.registry.url)"},
		{registered{}, "schema id 7: the schema registry does not know it"},
		{registered{7: {ID: 7, Kind: registry.Avro, Text: `"string"`}}, "as Avro of schema id 7: the data ends"},
	} {
		in := ignoring(stored(t, nil, map[string]string{"blocks.unit": "key", "format.envelope": "debezium", "format.features": "a,b,c"}, "a", "b", "c"))
		if c.schemas != nil {
			in = knowing(in, c.schemas)
		}
		kept := &lettersKept{}
		in.Letters = kept
		for _, value := range [][]byte{dialect{}.value("u", 7, nil, &good), nil} {
			kept.all = nil
			if err := feed(t, in, true, kafka.Record{Key: []byte("\x00\x00\x00\x00\x07\x7f"), Value: value, Time: time.UnixMilli(1)}); err != nil {
				t.Fatal(err)
			}
			if len(kept.all) != 1 || kept.all[0].Reason.Class != kindKey || !strings.Contains(kept.all[0].Reason.Message, c.want) || in.Live.Blocks() != 0 {
				t.Errorf("%d blocks are live, and the letters are %+v, want %q", in.Live.Blocks(), kept.all, c.want)
			}
		}
		balances(t, in)
	}
}

// A TRUNCATE ends the daemon, unless the key allows it and the topic has one partition.
func TestTruncateStops(t *testing.T) {
	said, row := dialect{}, tableRow{"good", 100, 5, 1}
	for _, c := range []struct {
		policy     string
		partitions int
		want       string
	}{
		{"stop", 1, "format.truncate is stop"},
		{"retire", 2, "has 2 partitions"},
		{"retire", 1, ""},
	} {
		in := ignoring(stored(t, nil, map[string]string{"blocks.unit": "key", "format.envelope": "debezium", "format.truncate": c.policy, "format.features": "a,b,c"}, "a", "b", "c"))
		in.Partitions = func() int { return c.partitions }
		in.Live.DepartAtOnce(3)
		var records []kafka.Record
		for id := range 10 {
			records = append(records, kafka.Record{Key: said.key(id), Value: said.value("c", id, nil, &row), Time: time.UnixMilli(1)})
		}
		records = append(records, kafka.Record{Value: []byte(`{"source":{},"op":"t"}`), Time: time.UnixMilli(1)})
		records = append(records, kafka.Record{Key: said.key(99), Value: said.value("c", 99, nil, &row), Time: time.UnixMilli(1)})
		err := feed(t, in, true, records...)
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) || in.Live.Blocks() != 10 {
				t.Errorf("%+v: got %v, and %d blocks are live", c, err, in.Live.Blocks())
			}
		case err != nil || in.Live.Blocks() != 1 || in.Report().Counts.BlocksRetired != 10:
			t.Errorf("%+v: got %v, and %d blocks are live", c, err, in.Live.Blocks())
		}
	}
}

// Blocks of other units come in the envelopes of Connect and CloudEvents, too, and are read again
// as they were.
func TestEnvelopesOfOtherUnits(t *testing.T) {
	row := `{"label":"x","a":1,"b":2}`
	connect := `{"schema":{"type":"struct","fields":[{"type":"string","field":"label"},{"type":"double","field":"a"},{"type":"double","field":"b"}]},"payload":` + row + `}`
	event := `{"specversion":"1.0","type":"t","source":"s","id":"1","datacontenttype":"application/json","data":` + row + `}`
	binary := kafka.Record{Value: []byte(row), Headers: []kafka.Header{{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "content-type", Value: []byte("application/json")}}, Time: time.UnixMilli(1)}
	want := ""
	for _, unit := range []string{"message", "offsets", "time"} {
		for _, c := range []struct {
			kind   string
			record kafka.Record
		}{
			{"none", kafka.Record{Value: []byte(row), Time: time.UnixMilli(1)}},
			{"connect", kafka.Record{Value: []byte(connect), Time: time.UnixMilli(1)}},
			{"cloudevents", kafka.Record{Value: []byte(event), Time: time.UnixMilli(1)}},
			{"cloudevents", binary},
		} {
			in := stored(t, nil, map[string]string{"blocks.unit": unit, "format.envelope": c.kind})
			if err := feed(t, in, false, c.record, c.record, c.record); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := in.Live.Digest(); want == "" {
				want = got
			} else if got != want || in.Live.Rows() != 3 {
				t.Errorf("%s of unit %s: the digest is %s of %d rows, want %s", c.kind, unit, got, in.Live.Rows(), want)
			}
			d, err := NewDecoder(in.Config, in.Decoding, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := d.Decode(&c.record); err != nil || b.Rows() != 1 {
				t.Errorf("%s is read again as %+v, %v", c.kind, b, err)
			}
			balances(t, in)
		}
	}
	// A null payload is no row, and has no key to retire.
	in := stored(t, nil, map[string]string{"format.envelope": "connect", "dead_letters.policy": "skip"})
	if err := feed(t, in, false, kafka.Record{Value: []byte(`{"schema":{"type":"struct"},"payload":null}`), Time: time.UnixMilli(1)}); err != nil || in.Report().Latest.Meaning != kinds[kindNull].meaning {
		t.Errorf("got %v, %+v", err, in.Report().Latest)
	}
}

// stageWriter keeps what a stage writes.
type stageWriter struct{ all []kafka.Record }

func (w *stageWriter) Write(_ context.Context, key, value []byte, headers []kafka.Header, at time.Time) error {
	w.all = append(w.all, kafka.Record{Key: slices.Clone(key), Value: slices.Clone(value), Headers: slices.Clone(headers), Time: at})
	return nil
}

// A stage takes the same envelopes: the daemon behind it has the live set of one that reads the
// changes themselves.
func TestStageTakesEnvelopes(t *testing.T) {
	for name, schemas := range map[string]registered{"JSON": nil, "Avro": {}} {
		t.Run(name, func(t *testing.T) { stageTakesEnvelopes(t, schemas) })
	}
}

// stageTakesEnvelopes does so with messages in Avro, if there are schemas.
func stageTakesEnvelopes(t *testing.T, schemas registered) {
	r := rand.New(rand.NewPCG(37, 99))
	key := newReceiptKey(t)
	flags := map[string]string{"blocks.unit": "key", "format.envelope": "debezium", "format.truncate": "retire", "format.features": "a,b,c", "dead_letters.policy": "skip", "sample.rows": "0"}
	direct := ignoring(stored(t, key, flags, "a", "b", "c"))
	behind := ignoring(stored(t, key, flags, "a", "b", "c"))
	said := dialect{typed: true}
	if schemas != nil {
		said.by = schemas.converter(registry.Avro)
		direct, behind = knowing(direct, schemas), knowing(behind, schemas)
	}
	var records []kafka.Record
	for range 300 {
		id, row := r.IntN(20), tableRow{[]string{"good", "bad"}[r.IntN(2)], r.Int64N(1000), r.Int64N(1000), 1}
		rec := kafka.Record{Key: said.key(id), Time: time.UnixMilli(1)}
		switch r.IntN(30) {
		case 0:
			rec = kafka.Record{Value: []byte(`{"source":{},"op":"t"}`), Time: time.UnixMilli(1)}
		case 1:
			rec.Value = []byte(`{"op":"m","source":{}}`)
		case 2:
			rec.Value = []byte(`{"op":"c","after":{"id":`)
		case 3, 4, 5:
		case 6, 7, 8:
			rec.Value = said.value("d", id, &row, nil)
		default:
			rec.Value = said.value("u", id, nil, &row)
		}
		records = append(records, rec)
	}
	for i := range records {
		records[i].Offset = int64(i)
	}
	s := behind.Settings
	g := NewStage(s, 0)
	to := &stageWriter{}
	if err := g.Summing(0, kafka.Saved{}, direct.partition(0).clock, to).Take(t.Context(), kafka.NewBatch(0, slices.Clone(records), kafka.Saved{Next: int64(len(records))})); err != nil {
		t.Fatal(err)
	}
	if err := feed(t, direct, true, records...); err != nil {
		t.Fatal(err)
	}
	if err := feed(t, behind, true, to.all...); err != nil {
		t.Fatal(err)
	}
	if a, b := direct.Live.Side(), behind.Live.Side(); a != b || direct.Live.Blocks() == 0 {
		t.Errorf("behind the stage are %d blocks, and %d in front: %x, %x", behind.Live.Blocks(), direct.Live.Blocks(), a, b)
	}
	if n := g.Counts().Blocks.Load(); n == 0 && schemas == nil { // rows in Avro are smaller than their sums
		t.Error("nothing was summed")
	}
	balances(t, behind)
	balances(t, direct)
}
