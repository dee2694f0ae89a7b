package daemon

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/watching"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental/drift"
	"streamd/ingest/kafka"
)

// until waits until something is so.
func (i *instance) until(what string, is func() bool) {
	i.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			i.t.Fatalf("waiting until %s: status %+v, %+v", what, i.Status(), i.Prequential())
		}
	}
}

// stream makes messages of two classes whose labels are swapped or not.
func stream(seed uint64, messages, rows int, swapped bool) (all []message) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range messages {
		var text strings.Builder
		for i := range rows {
			class := i % 2
			x := 4*float64(class) + r.NormFloat64()
			if swapped {
				class = 1 - class
			}
			fmt.Fprintf(&text, `{"label":"c%d","a":%.3f,"b":%.3f}`+"\n", class, x, r.NormFloat64())
		}
		all = append(all, message{value: []byte(text.String())})
	}
	return all
}

// Labels are swapped in the stream. Both detectors raise an alarm, which is an event. No
// block leaves the live set.
func TestAlarms(t *testing.T) {
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), nil)
	produce(t, name, stream(1, 1, 100, false)...)
	d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
	produce(t, name, stream(2, 30, 100, false)...)
	d.waitForOffsets(31)
	d.until("the sums are compared", func() bool { return d.Prequential().Drift.Sums.Newest != nil })
	before := d.Prequential()
	if s := before.Drift; s.Error.Rises+s.Error.Falls+s.Sums.Rises != 0 || len(s.Alarms) != 0 || s.Sums.Holds || *s.Error.Share > 0.1 || s.Sums.Blocks < drift.LeastNewest {
		t.Errorf("without a change %+v", s)
	}
	var events []httpapi.Event
	d.until("the number of partitions is told", func() bool {
		events, _, _ = d.Events("")
		return slices.ContainsFunc(events, func(e httpapi.Event) bool {
			return e.Type == httpapi.EventPartitions && *e.Partitions == 1
		})
	})

	produce(t, name, stream(3, 12, 100, true)...)
	d.waitForOffsets(43)
	d.until("the error raises an alarm", func() bool { return d.Prequential().Drift.Error.Rises > 0 })
	d.until("the loss raises an alarm", func() bool {
		return slices.ContainsFunc(d.Prequential().Drift.Alarms, func(a model.Alarm) bool { return a.Detector == model.DetectorSums })
	})
	events, _, _ = d.Events(events[len(events)-1].ID)
	seen := map[model.Detector]*model.Alarm{}
	for _, e := range events {
		if e.Type == httpapi.EventAlarm && e.Alarm.Rises() && seen[e.Alarm.Detector] == nil {
			seen[e.Alarm.Detector] = e.Alarm
		}
	}
	a := seen[model.DetectorError]
	if a == nil || a.Before > 0.1 || a.After < 0.3 {
		t.Errorf("alarm %+v", a)
	}
	s := d.Status()
	if a := seen[model.DetectorSums]; a == nil || a.After < 1.1*a.Before {
		t.Errorf("alarm %+v", a)
	}
	if s.LiveRows != 4300 || s.Blocks.Retired != 0 {
		t.Errorf("%d rows are live, %d blocks retired", s.LiveRows, s.Blocks.Retired)
	}
	d.stop()
}

// The losses that are compared are those of the rows, also where missing values count as the mean.
func TestComparedLossesAreThoseOfTheRows(t *testing.T) {
	o := openOffline(t, map[string]string{
		"kafka.topic": "t", "format.features": "x,y", "format.missing": "mean", "model.nu": "1", "model.standardise": "true",
		"snapshot.file": filepath.Join(t.TempDir(), "s.db"),
	}, false)
	type row struct{ x, y, target float64 } // x is NaN where it is missing
	r := rand.New(rand.NewPCG(48, 1))
	const blocks, rows = 40, 50
	var all []row
	var records []kafka.Record
	for block := range blocks {
		text := ""
		for range rows {
			d := row{100 + r.NormFloat64(), r.NormFloat64(), -1}
			if d.x-100+d.y > 0 {
				d.target = 1
			}
			number := fmt.Sprint(d.x)
			if r.IntN(10) == 0 || block >= blocks-drift.LeastNewest && r.IntN(2) == 0 { // the newest blocks lack more
				number, d.x = "null", math.NaN()
			}
			text += fmt.Sprintf(`{"label":%v,"x":%s,"y":%v}`+"\n", d.target, number, d.y)
			all = append(all, d)
		}
		records = append(records, kafka.Record{Offset: int64(block), Value: []byte(text), Time: time.Date(2026, 1, 1, 0, 0, block, 0, time.UTC)})
	}
	o.deliver(0, records, blocks)
	served := o.solved()
	o.watching.Compare(served)
	sums := func() model.SumsDrift { return o.Prequential().Drift.Sums }
	for sums().Newest == nil && sums().Absent == "" {
		(<-o.Calls)()
	}
	got := sums()
	if got.Absent != "" || got.Blocks < drift.LeastNewest || got.Rows != int64(rows*got.Blocks) {
		t.Fatalf("%+v", got)
	}
	mean, count := 0., 0.
	for _, d := range all {
		if !math.IsNaN(d.x) {
			mean, count = mean+d.x, count+1
		}
	}
	mean /= count
	plane := served.Model.Planes[0]
	weight := func(name string) float64 { return plane.W[slices.Index(served.Model.Features, name)] }
	loss := func(rows []row) (sum float64) {
		for _, d := range rows {
			x := d.x
			if math.IsNaN(x) {
				x = mean
			}
			e := weight("x")*x + weight("y")*d.y - plane.Gamma - d.target
			sum += e * e
		}
		return sum / float64(len(rows))
	}
	newest := len(all) - rows*got.Blocks
	for name, x := range map[string][2]float64{"newest": {*got.Newest, loss(all[newest:])}, "rest": {*got.Rest, loss(all[:newest])}} {
		if math.Abs(x[0]-x[1]) > 1e-9 {
			t.Errorf("the loss on the %s is %v, of the rows %v", name, x[0], x[1])
		}
	}
	if !(*got.Newest > 1.2**got.Rest) {
		t.Errorf("the newest blocks do not differ: %v and %v", *got.Newest, *got.Rest)
	}
}

// detectors are what the drift detectors have seen, without the times of alarms.
func (i *instance) detectors() (errors string, report model.Drift) {
	i.t.Helper()
	text, err := loop.Ask(i.t.Context(), i.Loop, i.Intake.Detector)
	if err != nil {
		i.t.Fatal(err)
	}
	report = *i.Prequential().Drift
	report.Sums = model.SumsDrift{} // how often they are compared depends on the clock
	report.Alarms = slices.DeleteFunc(report.Alarms, func(a model.Alarm) bool { return a.Detector == model.DetectorSums })
	for k := range report.Alarms {
		report.Alarms[k].Time = time.Time{}
	}
	return string(text), report
}

// Detectors that are stopped and started between any two blocks around a change have the bits of
// those that go on. After a crash each row counts once, too.
func TestDetectorsOutliveRestarts(t *testing.T) {
	const half, rows = 12, 40
	messages := slices.Concat(stream(5, half, rows, false), stream(6, half, rows, true))
	for unit, flags := range map[string]map[string]string{
		"message": {"sample.rows": "0"},
		"offsets": {"sample.rows": "0", "blocks.unit": "offsets", "blocks.offsets": "5"},
	} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run := func(file string, restarts func(i int) bool) (string, model.Drift, *instance, string) {
				name := topic(t, 1)
				d := start(t, name, filepath.Join(dir, file), flags)
				for i, m := range messages {
					produce(t, name, m)
					d.waitForOffsets(int64(i + 1))
					if restarts(i) {
						d.stop()
						d = start(t, name, filepath.Join(dir, file), flags)
						d.waitForOffsets(int64(i + 1))
						d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
					}
				}
				errors, report := d.detectors()
				return errors, report, d, name
			}
			want, report, d, _ := run("on.db", func(int) bool { return false })
			d.stop()
			if len(report.Alarms) == 0 || report.Error.Rises != 1 {
				t.Fatalf("the change is not found: %+v", report)
			}
			got, again, d, name := run("off.db", func(i int) bool { return i >= half-2 && i < half+3 || i == 2 })
			if got != want || !reflect.DeepEqual(again, report) {
				t.Errorf("with restarts\n%s, %+v, without\n%s, %+v", got, again, want, report)
			}

			// The process ends after half of the further blocks have been saved.
			var copied []byte
			more := stream(7, 6, rows, true)
			for i, m := range more {
				produce(t, name, m)
				d.waitForOffsets(int64(len(messages) + i + 1))
				if i == len(more)/2 {
					if _, err := d.Snapshot(t.Context(), false); err != nil {
						t.Fatal(err)
					}
					err := d.Call(t.Context(), func() (err error) {
						d.Saver.Await()
						copied, err = os.ReadFile(filepath.Join(dir, "off.db"))
						return err
					})
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			all := d.Prequential().Drift.Error
			d.stop()
			if err := os.WriteFile(filepath.Join(dir, "crashed.db"), copied, 0o600); err != nil {
				t.Fatal(err)
			}
			d = start(t, name, filepath.Join(dir, "crashed.db"), flags)
			d.waitForOffsets(int64(len(messages) + len(more)))
			if e := d.Prequential().Drift.Error; e.Rows != all.Rows || e.Rises != all.Rises || e.Falls != all.Falls {
				t.Errorf("after a crash %+v, without %+v", e, all)
			}
			d.stop()
		})
	}
}

// Records that are not of this program's detectors are left alone.
func TestBadDetectors(t *testing.T) {
	for _, record := range []string{`{`, `{"version":2}`, `{"version":1}`, `{"version":1,"error":{"errors":{"delta":0.1}}}`, `{"version":1,"error":{"errors":null}}`} {
		name := topic(t, 1)
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), nil)
		p, err := loop.Ask(t.Context(), d.Loop, func() (*model.Drift, error) {
			return watching.New(d.Loop, nil, []byte(record)).Report(), nil
		})
		if err != nil || p == nil || p.Error.Rows != 0 || len(p.Alarms) != 0 {
			t.Errorf("%s: %+v, %v", record, p, err)
		}
		d.stop()
	}
}
