package intake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// idle is an intake without workers.
func idle(t testing.TB, flags map[string]string) *Intake {
	t.Helper()
	given := map[string]string{"kafka.topic": "t"}
	maps.Copy(given, flags)
	cfg, err := config.Load(config.Sources{Flags: given})
	if err != nil {
		t.Fatal(err)
	}
	budget := memory.New(cfg, 8<<30)
	limits := wire.Limits{Bytes: budget.Message, Numbers: budget.Largest, Rows: cfg.Limits.Rows, Features: cfg.Limits.Features, Classes: cfg.Limits.Classes}
	return New(Settings{
		Config: cfg, Log: zerolog.Nop(), Sampled: zerolog.Nop(), Live: live.New(nil, cfg, budget), Budget: budget,
		Decoding: wire.Options{
			Format: wire.JSON, Label: cfg.Format.Label, Weight: cfg.Format.Weight, Limits: limits,
			IgnoreUnknown: cfg.Format.Unknown == config.UnknownIgnore,
		},
		Served:  func(*[]string) *model.Served { return &model.Served{} },
		HasRoom: func(int64) bool { return true },
		Logged:  func(id string) string { return id },
		Freed:   func() {},
	})
}

// The log says once that a message's first line was taken for a header, or for a row, by a guess,
// and which key decides. A line that leaves no doubt is not mentioned.
func TestDoubtfulHeaderIsLogged(t *testing.T) {
	for _, c := range []struct {
		csv, header string
		logged      bool
	}{
		{"0,1,2\n1,5,6\n", "", true}, {"label,u,v\n1,5,6\n", "", false}, {"0,1.5,2\n1,5,6\n", "", false},
		{"species,1,2\na,5,6\n", "", true}, {"species,1,2\na,5,6\n", "absent", false}, {"0,1,2\n1,5,6\n", "absent", false},
	} {
		flags := map[string]string{}
		if c.header != "" {
			flags["format.csv_header"] = c.header
		}
		in := idle(t, flags)
		var log bytes.Buffer
		in.Log = zerolog.New(&log)
		in.Decoding.Format = wire.CSV
		if c.header != "" {
			in.Decoding.Header = wire.HeaderAbsent
		}
		in.room.Store(1 << 20)
		for offset := range int64(3) {
			record := kafka.Record{Offset: 7 + offset, Value: []byte(c.csv)}
			if z := newWorker(in.pool).process(t.Context(), &task{partition: 4}, &record); z.bad != nil || z.fatal != nil {
				t.Fatal(z.bad, z.fatal)
			}
		}
		text := log.String()
		if got := strings.Count(text, "may mean something else"); got > 1 || (got == 1) != c.logged {
			t.Errorf("%q with header %q: log %s", c.csv, c.header, text)
		}
		if c.logged && (!strings.Contains(text, `"partition":4,"offset":7`) || !strings.Contains(text, "csv_header")) {
			t.Errorf("log %s", text)
		}
	}
}

// A label that is a number but no column's makes no header of a message's first line: the message
// is refused, and the reason names what settles it.
func TestLabelThatIsANumber(t *testing.T) {
	for label, csv := range map[string]string{"0": "0,1,2\n1,5,6\n", "-1": "-1,0.5,2\n1,5,6\n", "1.0": "+1,1.0,2\n-1,5,6\n"} {
		in := idle(t, map[string]string{"format.label": label})
		in.Decoding.Format = wire.CSV
		in.room.Store(1 << 20)
		z := newWorker(in.pool).process(t.Context(), &task{}, &kafka.Record{Value: []byte(csv)})
		if z.fatal != nil || z.bad == nil || !strings.Contains(z.bad.Error(), "counted from 1") || !strings.Contains(z.bad.Error(), "csv_header") {
			t.Errorf("label %s: %v, %v", label, z.bad, z.fatal)
		}
	}
}

// A block that is abandoned because the daemon stops is neither rejected nor counted. It is
// read again.
func TestWorkersGiveUpAtTheEnd(t *testing.T) {
	const n = 64
	in := idle(t, map[string]string{"dead_letters.policy": "stop"})
	in.room.Store(1 << 20)
	in.Live.Fix(incremental.DefaultFeatures(n))
	ended, end := context.WithCancelCause(t.Context())
	reason := errors.New("stopping takes too long")
	end(reason)
	record := kafka.Record{Value: []byte(`{"label":1,"features":[0` + strings.Repeat(",1", n-1) + `]}`)}
	w := newWorker(in.pool)
	if z := w.process(ended, &task{}, &record); z.bad != nil || z.fatal != reason {
		t.Errorf("rejected: %v; fatal: %v", z.bad, z.fatal)
	}
	if z := w.process(t.Context(), &task{}, &record); z.bad != nil || z.fatal != nil || z.Summary.Rows() != 1 {
		t.Errorf("afterwards: %+v", z)
	}
}

// A topic full of unusable records does not fill the log. The first one gets a line, and
// a later line counts the others.
func TestRejectionsInTheLog(t *testing.T) {
	var log bytes.Buffer
	var r refusals
	to, policy := zerolog.New(&log), config.DeadLetters{Policy: config.DeadLettersQueue}
	now := time.Unix(1_700_000_000, 0)
	for i := range 1000 {
		r.note(to, policy, now.Add(time.Duration(i)*time.Millisecond), "orders/0/7", 1, errors.New("bad"))
	}
	r.note(to, policy, now.Add(time.Second), "orders/0/10 to 19", 10, unusablef(kindBatch, "too large"))
	r.tell(to, policy, now.Add(refusalPause-1))
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "orders/0/7") || !strings.Contains(log.String(), "bad") {
		t.Errorf("the log says %s", &log)
	}
	log.Reset()
	r.tell(to, policy, now.Add(refusalPause))
	r.tell(to, policy, now.Add(2*refusalPause))
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "the last 1010 records since 22:13 UTC were refused and sent to the dead letters: too large") || !strings.Contains(log.String(), `"more":1009`) || !strings.Contains(log.String(), `"level":"warn"`) {
		t.Errorf("then the log says %s", &log)
	}
	if !r.row.Since.Equal(now) || !r.row.Last.Equal(now.Add(time.Second)) {
		t.Errorf("refused from %v to %v", r.row.Since, r.row.Last)
	}
	log.Reset()
	r.row.InARow = 0 // a good one
	for i := range 5 {
		r.note(to, policy, now.Add(2*refusalPause+time.Duration(i)), "orders/0/8", 1, unusablef(kindBatch, "too large"))
		r.row.InARow = 0
	}
	r.tell(to, policy, now.Add(4*refusalPause))
	if text := log.String(); !strings.Contains(text, `"message":"and 4 more sent to the dead letters"`) {
		t.Errorf("between good ones the log says %s", text)
	}
	log.Reset()
	for i := range 4 { // the first has a line, and a good one comes behind it
		r.note(to, policy, now.Add(6*refusalPause+time.Duration(i)), "orders/0/9", 1, unusablef(kindBatch, "too large"))
		if i == 0 {
			r.row.InARow = 0
		}
	}
	r.tell(to, policy, now.Add(8*refusalPause))
	if text := log.String(); !strings.Contains(text, `"message":"and 3 more sent to the dead letters"`) {
		t.Errorf("after a good one the log says %s", text)
	}
	if got := r.byKind; got[kindOther] != 1000 || got[kindBatch] != 19 || len(got) != 2 {
		t.Errorf("counted %v", got)
	}
}

// A dead letter of a key's value says that it has retired the former block, where there was one.
func TestLettersNameTheFormerBlock(t *testing.T) {
	in := idle(t, map[string]string{"blocks.unit": "key", "dead_letters.policy": "dlq"})
	in.own.features = in.Live.Target().Features
	apply := func(offset int64, key, value string) (letter string) {
		t.Helper()
		in.own.letters = in.own.letters[:0]
		x := &task{records: []kafka.Record{{Offset: offset, Key: []byte(key), Value: []byte(value), Time: time.UnixMilli(1)}}, done: make(chan struct{})}
		if _, err := in.applyNext(t.Context(), in.partition(0), x, 0); err != nil {
			t.Fatal(err)
		}
		for _, l := range in.own.letters {
			letter = l.Reason.Message
		}
		return letter
	}
	apply(0, "a", `{"label":"x","f":1}`)
	if got := apply(1, "a", "bad"); !strings.Contains(got, "the former block key:a is retired") {
		t.Errorf("of a live key the dead letter says %q", got)
	}
	for offset, key := range []string{2: "a", 3: "NEW"} {
		if key == "" {
			continue
		}
		if got := apply(int64(offset), key, "bad"); got == "" || strings.Contains(got, "former") {
			t.Errorf("of the key %s, which is not live, the dead letter says %q", key, got)
		}
	}
}

// Blocks of a few rows with many features have summaries a thousand times as large as their
// messages. Workers make no more of them than there is room for. The loop makes the rest.
func TestWorkersStopWhereThereIsNoRoom(t *testing.T) {
	const n, records = 200, 300
	in := idle(t, map[string]string{"sample.rows": "0"})
	in.Live.Fix(incremental.DefaultFeatures(n))
	in.room.Store(1 << 20)
	b := &kafka.Batch{Position: kafka.Saved{Next: records}}
	for i := range int64(records) {
		value := fmt.Appendf(nil, `{"label":%d,"features":[0`, i%2)
		for j := range int64(n - 1) {
			value = fmt.Appendf(value, ",%d", i*j%10)
		}
		b.Records = append(b.Records, kafka.Record{Offset: i, Value: append(value, "]}"...)})
	}
	y := newDelivery(b)
	var took int64
	for _, task := range y.tasks {
		newWorker(in.pool).do(t.Context(), task)
		close(task.done)
		for _, z := range task.results {
			if z.bad != nil {
				t.Fatal(z.bad)
			}
			took += 4 * n * n
		}
	}
	if took < 3<<18 || took > 1<<20 {
		t.Errorf("%d bytes of summaries in a mebibyte", took)
	}
	if err := in.Apply(t.Context(), y); err != nil {
		t.Fatal(err)
	}
	if left := in.inHand.Load(); in.Live.Blocks() != records || left != 0 {
		t.Errorf("%d blocks are live, and %d bytes are pending when all is applied", in.Live.Blocks(), left)
	}
}

// Rows that are gathered take eight bytes a number, with a weight and a code for each row, beside
// their payload.
func TestGatheredRowsNeedRoom(t *testing.T) {
	in := idle(t, map[string]string{"blocks.unit": "offsets", "blocks.offsets": "100"})
	b := &incremental.Block{Classes: []string{"a"}, Codes: make([]int32, 10), Columns: []gram.Column{gram.ColumnOf(make([]float64, 10)), gram.ColumnOf(make([]float64, 10))}}
	const want, payload = 8 * 10 * 4, 100
	for _, room := range []int64{want - payload, want - payload - 1} {
		in.room.Store(room)
		var z result
		err := newWorker(in.pool).takeRoom(b, &z, payload)
		if enough := room == want-payload; enough != (err == nil) || enough && (z.inHand != want-payload || in.inHand.Load() != room) {
			t.Errorf("of %d bytes %d are taken: %v", room, z.inHand, err)
		}
		in.inHand.Store(0)
	}
}

// A record that cannot be used for several reasons is refused for one of them, whatever its format,
// the unit, and whoever decodes it. First comes that its payload cannot be decoded, then a row that
// cannot be summed, and only then the classes that there are already.
func TestOneReason(t *testing.T) {
	const stands = 12345.5 // for a number that an encoder refuses
	type row struct {
		label string
		x     float64
	}
	features := incremental.DefaultFeatures(2)
	encode := func(f wire.Format, rows []row) []byte {
		b := &incremental.Block{Features: features}
		var x, y []float64
		for _, r := range rows {
			code := slices.Index(b.Classes, r.label)
			if code < 0 {
				code = len(b.Classes)
				b.Classes = append(b.Classes, r.label)
			}
			value := r.x
			if !(math.Abs(value) < 1e30) {
				value = stands
			}
			x, y, b.Codes = append(x, value), append(y, 1), append(b.Codes, int32(code))
		}
		b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
		payload, err := wire.Encode(nil, f, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if math.Abs(r.x) < 1e30 {
				continue
			}
			was, is := fmt.Append(nil, stands), fmt.Append(nil, r.x)
			if f == wire.Arrow {
				was, is = binary.LittleEndian.AppendUint64(nil, math.Float64bits(stands)), binary.LittleEndian.AppendUint64(nil, math.Float64bits(r.x))
			}
			if n := bytes.Count(payload, was); n != 1 {
				t.Fatalf("%v has the number %d times: %q", f, n, payload)
			}
			payload = bytes.Replace(payload, was, is, 1)
		}
		return payload
	}
	refused := 0
	for _, unit := range []string{"message", "key", "offsets", "time"} {
		for _, f := range []wire.Format{wire.Arrow, wire.JSON, wire.CSV, wire.LIBSVM} {
			for name, c := range map[string]struct {
				rows []row
				want string
			}{
				"good":                               {[]row{{"0", 1}, {"2", 2}}, ""},
				"a bad row":                          {[]row{{"0", 1}, {"1", 1e300}}, kindRow},
				"too many classes":                   {[]row{{"2", 1}, {"3", 2}}, kindClasses},
				"a bad row before too many classes":  {[]row{{"0", 1e300}, {"2", 2}, {"3", 3}}, kindRow},
				"a bad row among too many classes":   {[]row{{"2", 1}, {"3", 1e300}}, kindRow},
				"a bad row after too many classes":   {[]row{{"2", 1}, {"3", 2}, {"0", 1e300}}, kindRow},
				"no number, and too many classes":    {[]row{{"2", 1}, {"3", 2}, {"0", math.NaN()}}, kindFormat},
				"more classes than a block may have": {[]row{{"2", 1}, {"3", 2}, {"4", 1}, {"5", 1e300}, {"6", 1}}, kindFormat},
			} {
				var reasons []string
				for _, who := range []string{"a worker", "the loop"} {
					in := idle(t, map[string]string{"blocks.unit": unit, "limits.classes": "3", "dead_letters.policy": "dlq", "sample.rows": "0"})
					in.Live.Fix(features)
					in.room.Store(1 << 20)
					w := newWorker(in.pool)
					for offset, value := range [][]byte{encode(f, []row{{"0", 1}, {"1", 2}}), encode(f, c.rows)} {
						x := &task{records: []kafka.Record{{
							Offset: int64(offset), Key: []byte{'a' + byte(offset)}, Value: value, Time: time.UnixMilli(1),
							Headers: []kafka.Header{{Key: "content-type", Value: []byte(f.ContentType())}},
						}}, done: make(chan struct{})}
						if who == "a worker" {
							if w.do(t.Context(), x); len(x.results) != 1 {
								t.Fatalf("%s leaves the record to the loop", who)
							}
						}
						if _, err := in.applyNext(t.Context(), in.partition(0), x, 0); err != nil {
							t.Fatal(err)
						}
					}
					reason := ""
					for _, l := range in.own.letters {
						reason += l.Reason.Class + ": " + l.Reason.Message
					}
					want := c.want
					if f == wire.Arrow && want == kindFormat && len(c.rows) == 3 {
						want = kindRow // a float64 is a NaN, and can be decoded
					}
					if class, _, _ := strings.Cut(reason, ":"); class != want {
						t.Errorf("%s, unit %s, %v, by %s: %q, want %s", name, unit, f, who, reason, want)
					}
					reasons = append(reasons, reason)
				}
				if reasons[0] != reasons[1] {
					t.Errorf("%s, unit %s, %v: %q", name, unit, f, reasons)
				}
				if reasons[0] != "" {
					refused++
				}
			}
		}
	}
	if refused != 4*4*7 {
		t.Errorf("%d were refused", refused)
	}
}
