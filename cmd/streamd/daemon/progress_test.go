package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/incremental/prequential"
)

// driftingRows are messages of rows whose classes move, some without a label, over two partitions.
func driftingRows(r *rand.Rand, n int, key bool) (all []message) {
	labels := []string{"ham", "spam", "eggs"}
	for i := range n {
		m := message{partition: r.IntN(2)}
		if key {
			k := r.IntN(40)
			m.key, m.partition = fmt.Append(nil, "k", k), k%2
		}
		var rows strings.Builder
		for range 1 + r.IntN(4) {
			c := r.IntN(min(3, 2+i/40))
			fmt.Fprintf(&rows, `{"label":%q,"a":%v,"b":%v}`+"\n", labels[c], float64(c)+r.NormFloat64(), float64(c*i)/100+r.NormFloat64())
		}
		m.value = []byte(rows.String())
		all = append(all, m)
	}
	return all
}

// The progressive figures are those of a loop over the messages of each partition, with planes of
// the sums of the blocks before. They have the same bits at full speed and with pauses, restarts
// and crashes between, and with any number of workers.
func TestProgressiveIsAFunctionOfTheLog(t *testing.T) {
	const every = 7
	for what, flags := range map[string]map[string]string{
		"message": {},
		"offsets": {"blocks.unit": "offsets", "blocks.offsets": "3"},
		"key":     {"blocks.unit": "key"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			messages := driftingRows(rand.New(rand.NewPCG(41, uint64(len(what)))), 160, what == "key")
			rows := int64(0)
			for _, m := range messages {
				rows += int64(strings.Count(string(m.value), "\n"))
			}
			flags = maps.Clone(flags)
			flags["drift.every"] = fmt.Sprint(every)
			flags["format.features"] = "a,b"
			var first *model.Progressive
			for _, way := range []string{"fast", "slow", "restarts", "crashes"} {
				name, file := topic(t, 2), filepath.Join(t.TempDir(), "streamd.db")
				flags := maps.Clone(flags)
				flags["workers"] = map[string]string{"fast": "4", "slow": "1", "restarts": "2", "crashes": "3"}[way]
				var d *instance
				if way != "crashes" {
					d = start(t, name, file, flags)
				}
				random := rand.New(rand.NewPCG(3, uint64(len(what))))
				for from := 0; from < len(messages); from += 20 {
					produce(t, name, messages[from:from+20]...)
					switch way {
					case "slow":
						d.until("a model", func() bool { s, _ := d.Served(); return s.Model != nil })
						time.Sleep(20 * time.Millisecond)
					case "restarts":
						d.stop()
						d = start(t, name, file, flags)
					case "crashes":
						child := maps.Clone(flags)
						maps.Copy(child, map[string]string{
							"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name, "snapshot.file": file,
							"http.listen": "127.0.0.1:0", "snapshot.interval": "10ms", "format.default": "json", "log.level": "error",
						})
						p := spawn(t, child)
						time.Sleep(time.Duration(random.IntN(80)) * time.Millisecond)
						p.kill()
					}
				}
				if d == nil {
					d = start(t, name, file, flags)
				}
				d.until("all rows", func() bool { return d.Status().Rows.Read == rows })
				d.until("a model", func() bool {
					s, _ := d.Served()
					return s.Model != nil && len(s.Model.Classes) == 3 && d.Prequential().Progressive.Figures != nil
				})
				d.until("the blocks are judged", func() bool {
					p := d.Prequential().Progressive
					return what == "offsets" || p.Waited+int64(p.Figures.Weight) == rows
				})
				var p model.Prequential
				_, body := d.ask(http.MethodGet, "/v1/prequential")
				if err := json.Unmarshal([]byte(body), &p); err != nil {
					t.Fatal(err)
				}
				got := p.Progressive
				if first == nil {
					first = got
				}
				if !reflect.DeepEqual(got, first) {
					t.Errorf("%s: %+v, %+v; and before %+v, %+v", way, got, got.Figures, first, first.Figures)
				}
				d.stop()
			}
			if what == "message" {
				if want := progressively(t, messages, every); !reflect.DeepEqual(first.Figures, want) || first.Solves == 0 {
					t.Errorf("%+v, not %+v", first.Figures, want)
				}
			}
		})
	}
}

// progressively judges the blocks of each partition in their order, and adds the counts.
func progressively(t *testing.T, messages []message, every int) *model.Stretch {
	t.Helper()
	var all prequential.Tally
	for partition := range 2 {
		p, sums := prequential.NewProgressive(every), incremental.NewState([]string{"a", "b"})
		var z incremental.Summariser
		for _, m := range messages {
			if m.partition != partition {
				continue
			}
			b := &incremental.Block{Features: sums.Features()}
			var columns [2][]float64
			for line := range strings.Lines(string(m.value)) {
				var row struct {
					Label string
					A, B  float64
				}
				if err := json.Unmarshal([]byte(line), &row); err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(b.Classes, row.Label) {
					b.Classes = append(b.Classes, row.Label)
				}
				b.Codes = append(b.Codes, int32(slices.Index(b.Classes, row.Label)))
				columns[0], columns[1] = append(columns[0], row.A), append(columns[1], row.B)
			}
			for _, x := range columns {
				b.Columns = append(b.Columns, gram.ColumnOf(x))
			}
			p.Judge(b, "")
			s, err := z.Summarise(b)
			if err != nil {
				t.Fatal(err)
			}
			if sums.Add(s); p.Add() {
				m, err := sums.Moments().Solve(incremental.Options{Nu: 1})
				if err != nil {
					t.Fatal(err)
				}
				p.Cut(m)
			}
		}
		all.Merge(p.Tally())
	}
	labels := all.Labels()
	return model.NewStretch(decision.Value, labels, all.Figures(labels))
}

// Planes that were made of a retired block judge nothing any more, and neither they nor its class
// are in the snapshot. The next cut has planes without the block.
func TestProgressiveForgets(t *testing.T) {
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"drift.every": "2", "format.features": "a,b"}
	d := start(t, name, file, flags)
	row := func(label string, a, b float64) message {
		return message{value: fmt.Appendf(nil, `{"label":%q,"a":%v,"b":%v}`+"\n", label, a, b)}
	}
	produce(t, name, row("ham", 0, 1), row("spam", 1, 0), row("planted", 7, 7), row("ham", 0, 2), row("spam", 1, 1), row("ham", 0, 1))
	read := func(n int64) *model.Progressive {
		d.until("the rows are judged", func() bool { return d.Status().Rows.Read == n })
		d.until("the model has their classes", func() bool { s, _ := d.Served(); return s.Model != nil && s.Rows == n })
		return d.Prequential().Progressive
	}
	if p := read(6); p.Solves != 3 || p.Waited != 2 || p.Figures == nil || len(p.Figures.Classes) != 3 {
		t.Fatalf("%+v, %+v", p, p.Figures)
	}
	d.retire(name + "/0/2")
	d.until("the class is gone", func() bool { s, _ := d.Served(); return s.Model != nil && len(s.Model.Classes) == 2 })
	produce(t, name, row("spam", 2, 0))
	d.until("the row waits", func() bool { return d.Prequential().Progressive.Waited == 3 })
	produce(t, name, row("ham", 0, 3), row("spam", 3, 0))
	d.until("the next cut", func() bool { p := d.Prequential().Progressive; return p.Solves == 4 && p.Waited == 4 })
	if p := d.Prequential().Progressive; slices.ContainsFunc(p.Figures.Classes, func(c model.ClassAnswers) bool { return c.Class == "planted" }) {
		t.Errorf("%+v", p.Figures)
	}
	d.stop()
	before := d.Prequential().Progressive
	d = start(t, name, file, flags)
	record, err := d.Intake.Progress()
	if err != nil || strings.Contains(string(record), "planted") {
		t.Errorf("%s, %v", record, err)
	}
	d.until("a model", func() bool { s, _ := d.Served(); return s.Model != nil })
	if got := d.Prequential().Progressive; !reflect.DeepEqual(got, before) {
		t.Errorf("after a restart %+v, %+v, not %+v, %+v", got, got.Figures, before, before.Figures)
	}
	d.stop()
}
