package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// asked calls f beside the loop, and plays the loop meanwhile.
func asked[T any](o *offline, f func(context.Context) (T, error)) T {
	o.t.Helper()
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer)
	go func() {
		value, err := f(context.Background())
		done <- answer{value, err}
	}()
	for {
		select {
		case call := <-o.Calls:
			call()
		case a := <-done:
			if a.err != nil {
				o.t.Fatal(a.err)
			}
			return a.value
		}
	}
}

// turned is a daemon with ten days of rows of two classes, whose means turn by 9 degrees a day,
// and the rows of each day.
func turned(t *testing.T, flags map[string]string) (o *offline, days [][][3]float64) {
	t.Helper()
	all := map[string]string{
		"kafka.topic": "t", "format.features": "x1,x2", "model.folds": "0", "sample.rows": "0", "model.nu": "1", "retire.max_future": "500h",
		"snapshot.file": filepath.Join(t.TempDir(), "s.db"),
	}
	for name, value := range flags {
		all[name] = value
	}
	o = openOffline(t, all, false)
	r := rand.New(rand.NewPCG(45, 1))
	var records []kafka.Record
	for day := range 10 {
		var rows [][3]float64
		sin, cos := math.Sincos(float64(day) * 9 * math.Pi / 180)
		text := ""
		for range 2000 {
			side := float64(2*r.IntN(2) - 1)
			x := [3]float64{math.Round(100 * (3*side*cos + r.NormFloat64())), math.Round(100 * (3*side*sin + r.NormFloat64())), side}
			rows = append(rows, x)
			text += fmt.Sprintf(`{"label":%v,"x1":%v,"x2":%v}`+"\n", x[2], x[0], x[1])
		}
		days = append(days, rows)
		records = append(records, kafka.Record{Offset: int64(day), Value: []byte(text), Time: time.Date(2026, 1, 1+day, 12, 0, 0, 0, time.UTC)})
	}
	o.deliver(0, records, int64(len(records)))
	return o, days
}

// The losses are those of the rows, and the angle is that of the normals. The rows on the right
// side are within the bounds, and near the estimate, since the rows of a class are normal on each
// day.
func TestComparisonIsThatOfTheRows(t *testing.T) {
	o, days := turned(t, map[string]string{"model.standardise": "false", "model.balanced": "false"})
	noon := func(day int) *time.Time { return new(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)) }
	windows := [2]model.Window{{From: noon(1), To: noon(3)}, {From: noon(9)}}
	rows := [2][][3]float64{append(append([][3]float64{}, days[0]...), days[1]...), append(append([][3]float64{}, days[8]...), days[9]...)}
	var planes [2]model.PlaneJSON
	for i, w := range windows {
		s, err := o.window(w, 0, func() {})
		if err != nil {
			t.Fatal(err)
		}
		planes[i] = model.NewPlanesJSON(s.Model.Planes)[0]
	}
	c := asked(o, func(ctx context.Context) (*model.Comparison, error) { return o.Compare(ctx, windows[0], windows[1], 0) })
	if len(c.Planes) != 1 || c.Planes[0].Class != "1" || c.Scaled || c.A.Blocks != 2 || c.B.Rows != 4000 {
		t.Fatalf("%+v", c)
	}
	p := c.Planes[0]
	loss := func(plane model.PlaneJSON, rows [][3]float64) (sum float64) {
		for _, x := range rows {
			e := plane.W[0]*x[0] + plane.W[1]*x[1] - plane.Gamma - x[2]
			sum += e * e
		}
		return sum / float64(len(rows))
	}
	for name, x := range map[string][2]float64{
		"a on a": {*p.AOnA, loss(planes[0], rows[0])}, "a on b": {*p.AOnB, loss(planes[0], rows[1])},
		"b on a": {*p.BOnA, loss(planes[1], rows[0])}, "b on b": {*p.BOnB, loss(planes[1], rows[1])},
	} {
		if math.Abs(x[0]-x[1]) > 1e-12*(1+x[1]) {
			t.Errorf("%s: the loss is %v, of the rows %v", name, x[0], x[1])
		}
	}
	count := func(plane model.PlaneJSON, rows [][3]float64) (all, balanced float64) {
		right, of := map[bool]float64{}, map[bool]float64{}
		for _, x := range rows {
			of[x[2] > 0]++
			if (plane.W[0]*x[0]+plane.W[1]*x[1] >= plane.Gamma) == (x[2] > 0) {
				right[x[2] > 0]++
			}
		}
		return (right[true] + right[false]) / float64(len(rows)), (right[true]/of[true] + right[false]/of[false]) / 2
	}
	for i, of := range []struct {
		plane, rows   int
		all, balanced *model.Correctness
	}{
		{0, 0, p.Correctness.AOnA, p.BalancedCorrectness.AOnA}, {0, 1, p.Correctness.AOnB, p.BalancedCorrectness.AOnB},
		{1, 0, p.Correctness.BOnA, p.BalancedCorrectness.BOnA}, {1, 1, p.Correctness.BOnB, p.BalancedCorrectness.BOnB},
	} {
		all, balanced := count(planes[of.plane], rows[of.rows])
		for _, x := range []struct {
			counted float64
			*model.Correctness
		}{{all, of.all}, {balanced, of.balanced}} {
			sampling := math.Sqrt(x.Estimate * (1 - x.Estimate) / 4000)
			if !(x.AtLeast <= x.counted && x.counted <= x.AtMost && x.AtMost-x.AtLeast < 0.6) || math.Abs(x.Estimate-x.counted) > 4*sampling+0.001 {
				t.Errorf("correctness %d is %v, counted %v", i, *x.Correctness, x.counted)
			}
		}
	}
	if !(*p.AOnA < *p.BOnA && *p.BOnB < *p.AOnB) {
		t.Errorf("a plane of other rows is better: %+v", p)
	}
	u, v := planes[0].W, planes[1].W
	want := (math.Atan2(v[1], v[0]) - math.Atan2(u[1], u[0])) * 180 / math.Pi
	if math.Abs(*p.Angle-want) > 1e-9 || want < 60 {
		t.Errorf("the angle is %v, want %v", *p.Angle, want)
	}
}

// Days turn away from the first and towards the last. Each step has the planes of its window.
func TestStepsAreWindows(t *testing.T) {
	o, _ := turned(t, map[string]string{"model.standardise": "true"})
	const day = 24 * time.Hour
	for _, length := range []time.Duration{day, 3 * day} {
		s := asked(o, func(ctx context.Context) (*model.Steps, error) {
			return o.Steps(ctx, httpapi.StepsQuery{Step: day, Window: length})
		})
		if len(s.Steps) != 10 || !s.Scaled || !s.To.Equal(time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC)) || !s.From.Equal(s.Steps[0].From) {
			t.Fatalf("%d steps from %s to %s, scaled %t", len(s.Steps), s.From, s.To, s.Scaled)
		}
		for i, step := range s.Steps {
			if step.To.Sub(step.From) != length || step.Blocks != min(i+1, int(length/day)) || step.ClassRows[0]+step.ClassRows[1] != step.Rows {
				t.Errorf("step %d: %+v", i, step)
			}
			alone, err := o.window(model.Window{From: &step.From, To: &step.To}, s.Options.Nu, func() {})
			if err != nil {
				t.Fatal(err)
			}
			own := model.NewPlanesJSON(alone.Model.Planes)[0]
			if got := step.Planes[0]; got.W[0] != own.W[0] || got.W[1] != own.W[1] || got.Gamma != own.Gamma || step.Digest != alone.Digest {
				t.Errorf("step %d has the plane %+v, its window %+v", i, got, own)
			}
			if i > 0 {
				before, now := s.Steps[i-1].Planes[0], step.Planes[0]
				if *now.ToFirst < *before.ToFirst || *now.ToLast > *before.ToLast {
					t.Errorf("step %d does not turn: %v after %v to the first, %v after %v to the last", i, *now.ToFirst, *before.ToFirst, *now.ToLast, *before.ToLast)
				}
			}
		}
		if first := s.Steps[0].Planes[0]; *first.ToFirst != 0 || *s.Steps[9].Planes[0].ToLast != 0 || *first.ToLast < 45 {
			t.Errorf("the ends: %+v", first)
		}
	}
	// From and to cut the windows, and each step says what is left of its own.
	from, to := time.Date(2026, 1, 3, 6, 0, 0, 0, time.UTC), time.Date(2026, 1, 5, 18, 0, 0, 0, time.UTC)
	for _, length := range []time.Duration{day, 3 * day, day / 4} {
		s := asked(o, func(ctx context.Context) (*model.Steps, error) {
			return o.Steps(ctx, httpapi.StepsQuery{Step: day, Window: length, From: &from, To: &to})
		})
		if len(s.Steps) != 3 || s.From.Before(from) || !s.To.Equal(to) || !s.From.Equal(s.Steps[0].From) || !s.To.Equal(s.Steps[2].To) {
			t.Fatalf("%d steps from %s to %s", len(s.Steps), s.From, s.To)
		}
		for i, step := range s.Steps {
			if step.From.Before(from) || step.To.After(to) || step.To.Sub(step.From) > length {
				t.Errorf("step %d of %s is from %s to %s", i, length, step.From, step.To)
			}
			if alone, err := o.window(model.Window{From: &step.From, To: &step.To}, s.Options.Nu, func() {}); errors.Is(err, httpapi.ErrNoWindow) {
				if step.Blocks != 0 {
					t.Errorf("step %d of %s: %d blocks, its window has none", i, length, step.Blocks)
				}
			} else if err != nil || alone.Digest != step.Digest {
				t.Errorf("step %d of %s: digest %s, its window %v, %v", i, length, step.Digest, alone, err)
			}
		}
	}
	done := make(chan error)
	go func() {
		_, err := o.Steps(context.Background(), httpapi.StepsQuery{Step: time.Minute, Window: time.Minute})
		done <- err
	}()
	for {
		select {
		case call := <-o.Calls:
			call()
			continue
		case err := <-done:
			if err == nil {
				t.Error("many steps are taken")
			}
		}
		return
	}
}

// With more classes than two, the correctness is that of each plane against the rest, and the
// answer says that it is not that of labels.
func TestComparisonOfSeveralPlanes(t *testing.T) {
	o := openOffline(t, map[string]string{
		"kafka.topic": "t", "format.features": "x1,x2", "model.folds": "0", "sample.rows": "0", "model.nu": "1", "model.balanced": "false",
		"snapshot.file": filepath.Join(t.TempDir(), "s.db"),
	}, false)
	r := rand.New(rand.NewPCG(46, 1))
	var rows [][3]float64
	text := ""
	for i := range 900 {
		label := i % 3
		x := [3]float64{r.ExpFloat64() + 3*float64(label), r.ExpFloat64() * float64(1+label), float64(label)}
		rows = append(rows, x)
		text += fmt.Sprintf(`{"label":%v,"x1":%v,"x2":%v}`+"\n", x[2], x[0], x[1])
	}
	o.deliver(0, []kafka.Record{{Value: []byte(text), Time: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}}, 1)
	w := model.Window{From: new(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	served, err := o.window(w, 0, func() {})
	if err != nil {
		t.Fatal(err)
	}
	c := asked(o, func(ctx context.Context) (*model.Comparison, error) { return o.Compare(ctx, w, model.Window{}, 0) })
	if len(c.Planes) != 3 || !strings.HasPrefix(c.Lacks[len(c.Lacks)-1], "correctness of labels: ") {
		t.Fatalf("%+v", c)
	}
	for i, plane := range model.NewPlanesJSON(served.Model.Planes) {
		right := 0.
		for _, x := range rows {
			if (plane.W[0]*x[0]+plane.W[1]*x[1] >= plane.Gamma) == (fmt.Sprint(x[2]) == plane.Class) {
				right++
			}
		}
		right /= float64(len(rows))
		if got := c.Planes[i].Correctness.AOnB; c.Planes[i].Class != plane.Class || !(0 < got.AtLeast && got.AtLeast <= right && right <= got.AtMost) || *got != *c.Planes[i].Correctness.BOnA {
			t.Errorf("plane %s: %+v, counted %v", plane.Class, *got, right)
		}
	}
}

// Two days have the same boundary about the mean of x, which moves from -3 to 3. Missing values
// count as the mean, so their column has another weight on each day. The plane does not turn.
func TestAnglesDoNotMeasureMeans(t *testing.T) {
	for _, standardise := range []string{"true", "false"} {
		o := openOffline(t, map[string]string{
			"kafka.topic": "t", "format.features": "x,y", "format.missing": "mean", "model.folds": "0", "sample.rows": "0", "model.nu": "1",
			"model.standardise": standardise, "retire.max_future": "500h", "snapshot.file": filepath.Join(t.TempDir(), "s.db"),
		}, false)
		var records []kafka.Record
		for day := range 2 {
			r := rand.New(rand.NewPCG(47, 1)) // the same rows but for the mean
			mean, text := float64(6*day-3), ""
			for i := range 2000 {
				x, y, label := r.NormFloat64(), r.NormFloat64(), 0
				if x+y > 0 {
					label = 1
				}
				number := fmt.Sprint(mean + x)
				if i%10 == 0 {
					number = "null"
				}
				text += fmt.Sprintf(`{"label":%d,"x":%s,"y":%v}`+"\n", label, number, y)
			}
			records = append(records, kafka.Record{Offset: int64(day), Value: []byte(text), Time: time.Date(2026, 1, 1+day, 12, 0, 0, 0, time.UTC)})
		}
		o.deliver(0, records, 2)
		midnight := new(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
		c := asked(o, func(ctx context.Context) (*model.Comparison, error) {
			return o.Compare(ctx, model.Window{To: midnight}, model.Window{From: midnight}, 0)
		})
		s := asked(o, func(ctx context.Context) (*model.Steps, error) {
			return o.Steps(ctx, httpapi.StepsQuery{Step: 24 * time.Hour, Window: 24 * time.Hour})
		})
		if len(s.Steps) != 2 || len(s.Steps[0].Planes[0].W) != 2 || len(s.Features) != 2 || c.Scaled != (standardise == "true") {
			t.Fatalf("%+v, %+v", c, s)
		}
		for name, angle := range map[string]*float64{
			"compare": c.Planes[0].Angle, "to the last": s.Steps[0].Planes[0].ToLast, "to the first": s.Steps[1].Planes[0].ToFirst,
		} {
			if *angle > 1 {
				t.Errorf("standardise %s, %s: the plane turns by %v degrees", standardise, name, *angle)
			}
		}
	}
}

// A window of one class has the planes of the rules alone, with the same columns in angles as the
// planes of rows.
func TestAnglesToThePlanesOfRules(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := []byte("rules: [{when: x <= -1 and y <= 0, then: 0, within: [-4, 4]}, {when: x + y >= 2, then: 1, within: [-4, 4]}]")
	if err := os.WriteFile(rules, text, 0o600); err != nil {
		t.Fatal(err)
	}
	o := openOffline(t, map[string]string{
		"kafka.topic": "t", "format.features": "x,y", "format.missing": "mean", "model.folds": "0", "sample.rows": "0", "model.nu": "1",
		"model.knowledge": rules, "retire.max_future": "500h", "snapshot.file": filepath.Join(t.TempDir(), "s.db"),
	}, false)
	o.deliver(0, []kafka.Record{
		{Value: []byte(`{"label":1,"x":2,"y":1}`), Time: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)},
		{Offset: 1, Value: []byte(`{"label":0,"x":-2,"y":1}` + "\n" + `{"label":1,"x":null,"y":2}` + "\n" + `{"label":1,"x":3,"y":2}`), Time: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)},
	}, 2)
	midnight := new(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	c := asked(o, func(ctx context.Context) (*model.Comparison, error) {
		return o.Compare(ctx, model.Window{To: midnight}, model.Window{From: midnight}, 0)
	})
	s := asked(o, func(ctx context.Context) (*model.Steps, error) {
		return o.Steps(ctx, httpapi.StepsQuery{Step: 24 * time.Hour, Window: 24 * time.Hour})
	})
	if len(c.Planes) != 1 || c.Planes[0].Angle == nil || len(s.Steps) != 2 || len(s.Steps[0].Planes) != 1 || s.Steps[0].Planes[0].ToLast == nil {
		t.Errorf("%+v, %+v", c, s)
	}
}

// stepsOf asks for steps of a daemon with a block of two rows at each of some times.
func stepsOf(t *testing.T, q httpapi.StepsQuery, times ...time.Time) (s *model.Steps, err error) {
	t.Helper()
	o := openOffline(t, map[string]string{
		"kafka.topic": "t", "format.features": "x1,x2", "model.folds": "0", "sample.rows": "0", "model.nu": "1", "snapshot.file": filepath.Join(t.TempDir(), "s.db"),
	}, false)
	var records []kafka.Record
	for i, at := range times {
		records = append(records, kafka.Record{Offset: int64(i), Value: []byte(`{"label":0,"x1":1,"x2":2}` + "\n" + `{"label":1,"x1":3,"x2":5}`), Time: at})
	}
	o.deliver(0, records, int64(len(records)))
	o.play(func() { s, err = o.Steps(context.Background(), q) }, func() {})
	return s, err
}

// The count of windows is not bounded by the 292 years of a time.Duration.
func TestManyLongSteps(t *testing.T) {
	const days = 24 * time.Hour
	late, early := time.Date(9990, 1, 1, 12, 0, 0, 0, time.UTC), time.Date(2, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []time.Duration{268 * days, 9000 * days, 9500 * days, 106751 * days} {
		want := int(late.UnixMilli()/step.Milliseconds()-early.UnixMilli()/step.Milliseconds()) + 2 // early is before 1970
		s, err := stepsOf(t, httpapi.StepsQuery{Step: step, Window: step}, late, early)
		if want > httpapi.MaxSteps {
			if !errors.Is(err, httpapi.ErrManySteps) || !strings.Contains(err.Error(), fmt.Sprintf(": %d from 0002-01-01T12:00:00Z to 9990-", want)) {
				t.Errorf("steps of %v: %v, want %d refused", step, err, want)
			}
			continue
		}
		if err != nil || len(s.Steps) != want || s.Steps[0].Blocks != 1 || s.Steps[want-1].Blocks != 1 {
			t.Errorf("steps of %v: %+v, %v, want %d", step, s, err, want)
		}
	}
}

// The first and the last window may reach beyond the years that an answer can write. Their ends are
// then the ends of these years, and they have all their blocks.
func TestStepsAtTheEndsOfTime(t *testing.T) {
	const day = 24 * time.Hour
	for _, length := range []time.Duration{day, 3 * day} {
		for name, x := range map[string][]time.Time{
			"the last noon":        {time.Date(9999, 12, 31, 12, 0, 0, 0, time.UTC)},
			"the last millisecond": {time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)},
			"the last days":        {time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 30, 23, 0, 0, 0, time.UTC)},
			"the first noon":       {time.Date(1, 1, 1, 12, 0, 0, 0, time.UTC)},
			"the first moment":     {time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)},
		} {
			s, err := stepsOf(t, httpapi.StepsQuery{Step: day, Window: length}, x...)
			if err != nil || len(s.Steps) != len(x) {
				t.Errorf("%s, windows of %v: %+v, %v", name, length, s, err)
				continue
			}
			if _, err := json.Marshal(s); err != nil {
				t.Errorf("%s, windows of %v: %v", name, length, err)
			}
			for i, step := range s.Steps {
				if step.Blocks == 0 || step.Problem != "" || !step.From.Before(step.To) || !retire.ValidTime(step.From) || !retire.ValidTime(step.To) {
					t.Errorf("%s, windows of %v: step %d is %+v", name, length, i, step)
				}
			}
		}
	}
}

// Both windows have the same options, whatever is chosen between their sums.
func TestComparisonIsOfOneTuning(t *testing.T) {
	o, _ := turned(t, nil)
	noon := new(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))
	var c *model.Comparison
	var err error
	calls := 0
	o.play(func() { c, err = o.Compare(context.Background(), model.Window{To: noon}, model.Window{From: noon}, 0) }, func() {
		calls++
		o.Learner.Options.Nu++
		o.Learner.Options.Balanced = !o.Learner.Options.Balanced
		o.Learner.Options.Standardise = !o.Learner.Options.Standardise
	})
	if err != nil || calls < 4 || !reflect.DeepEqual(c.A.Options, c.B.Options) {
		t.Fatalf("after %d calls of the loop: %+v, %v", calls, c, err)
	}
}

// Planes of windows are in the coordinates of the basis in use, and with an archive in the
// features.
func TestComparisonNamesItsBasis(t *testing.T) {
	for _, archive := range []string{"false", "true"} {
		name := topic(t, 1)
		produce(t, name, boardBlocks(t, 57, 4, 200)...)
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
			"kernel.function": "gaussian(gamma=0.0005)", "kernel.basis": "5", "kernel.rows": "0", "model.folds": "0", "retire.archive": archive,
		})
		d.waitForOffsets(4)
		want := d.reduced().BasisID()
		if archive == "true" {
			want = ""
		}
		c, err := d.Compare(t.Context(), model.Window{}, model.Window{}, 0)
		if err != nil || c.BasisID != want {
			t.Errorf("archive %s: %+v, %v, want basis %q", archive, c, err, want)
		}
		s, err := d.Steps(t.Context(), httpapi.StepsQuery{Step: 24 * time.Hour, Window: 24 * time.Hour})
		if err != nil || s.BasisID != want || len(s.Features) != map[string]int{"false": 5, "true": 2}[archive] {
			t.Errorf("archive %s: %+v, %v, want basis %q", archive, s, err, want)
		}
		d.stop()
	}
}
