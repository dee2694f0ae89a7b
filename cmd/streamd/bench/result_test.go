package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

func exampleResult() Result {
	r := Result{
		Benchmark:  "gram",
		Parameters: []Parameter{{"features", 10}, {"type", "float32"}, {"file", "a b/c"}, {"balanced", true}},
		Samples:    []Sample{{Ops: 2, Rows: 100, Seconds: 1e-6}, {Ops: 4, Rows: 100, Seconds: 4e-6}, {Ops: 1, Rows: 100, Seconds: 2e-6}},
	}
	r.addRows()
	r.addRatio("read_ratio", Sample.nsPerRow, r.Samples, []Sample{{1, 10, 1e-7}, {1, 10, 1e-7}, {1, 10, 1e-7}})
	r.addRatio("gonum_ratio", Sample.nsPerRow, []Sample{{1, 1, 1e-7}, {1, 1, 1e-7}, {1, 1, 1e-7}}, r.Samples)
	r.set("peak_rss_bytes", 12345678)
	return r
}

func TestResultAsJSON(t *testing.T) {
	var out bytes.Buffer
	run, err := NewRun(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Add(exampleResult()); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	// Rounds take 10, 40 and 20 ns per row. Reading takes 10, and Dsyrk 100.
	const want = `{"results":[{"benchmark":"gram","features":10,"type":"float32","file":"a b/c","balanced":true,"rounds":3,` +
		`"ns_per_row":20,"rows_per_second":50000000,"read_ratio":2,"gonum_ratio":5,"peak_rss_bytes":12345678}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestResultAsLines(t *testing.T) {
	for _, each := range []bool{false, true} {
		var out bytes.Buffer
		run, err := NewRun(&out)
		if err != nil {
			t.Fatal(err)
		}
		run.repeats.Each = each
		if err := run.Add(exampleResult()); err != nil {
			t.Fatal(err)
		}
		want := []string{"7 1000 ns/op 20 ns/row 50000000 rows/s 2 read-ratio 5 gonum-ratio 12345678 peak-RSS-bytes"}
		if each {
			want = []string{
				"2 500 ns/op 10 ns/row 100000000 rows/s 1 read-ratio 10 gonum-ratio 12345678 peak-RSS-bytes",
				"4 1000 ns/op 40 ns/row 25000000 rows/s 4 read-ratio 2.5 gonum-ratio 12345678 peak-RSS-bytes",
				"1 2000 ns/op 20 ns/row 50000000 rows/s 2 read-ratio 5 gonum-ratio 12345678 peak-RSS-bytes",
			}
		}
		var got []string
		header := true
		for line := range strings.Lines(out.String()) {
			if header && regexp.MustCompile(`^(goos|goarch|pkg|cpu): \S.*\n$`).MatchString(line) {
				continue
			}
			header = false
			fields := strings.Fields(line)
			name := regexp.MustCompile(`^BenchmarkGram/features=10/type=float32/file=a_b_c/balanced=true(-[0-9]+)?$`)
			if len(fields) < 2 || !name.MatchString(fields[0]) || strings.HasSuffix(fields[0], "true") != (runtime.GOMAXPROCS(0) == 1) {
				t.Fatalf("each %t: %q", each, line)
			}
			got = append(got, strings.Join(fields[1:], " "))
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("each %t\ngot  %q\nwant %q", each, got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 4}, 4}, {[]float64{8, 1, 2, 4}, 3}} {
		if got := median(c.values); got != c.want {
			t.Errorf("%v: %g, want %g", c.values, got, c.want)
		}
	}
}

// The sides take turns. The first turn does not count.
func TestAlternate(t *testing.T) {
	for _, cold := range []bool{false, true} {
		var turns []string
		var steps []float64
		side := func(name string) side {
			return side{name, func(_ context.Context, d time.Duration) (Sample, error) {
				turns = append(turns, name)
				return Sample{Ops: int64(len(turns)), Rows: int64(d), Seconds: 1}, nil
			}}
		}
		run := Run{cold: cold, done: 1, Progress: func(what string, done float64) {
			if !strings.HasPrefix(what, "second ") {
				t.Errorf("progress of %q", what)
			}
			steps = append(steps, done)
		}}
		run.plan(Repeats{Rounds: 2}, 7, 2)
		samples, err := run.alternate(t.Context(), "second", side("a"), side("b"))
		if err != nil {
			t.Fatal(err)
		}
		first, wantTurns, wantStep := int64(3), "ababab", 4.0/6
		if cold {
			first, wantTurns, wantStep = 1, "abab", 0.5+1.0/8
		}
		if got := strings.Join(turns, ""); got != wantTurns {
			t.Errorf("cold %t: the sides ran as %s", cold, got)
		}
		if steps[0] != 0.5 || steps[1] >= wantStep+1e-9 || steps[len(steps)-1] >= 1 {
			t.Errorf("cold %t: progress %v", cold, steps)
		}
		for i := range samples {
			for round, s := range samples[i] {
				if want := first + int64(2*round+i); s.Ops != want || s.Rows != 7 {
					t.Errorf("cold %t: round %d of side %d is %+v, want run %d", cold, round, i, s, want)
				}
			}
		}
	}
}

func TestAlternateFails(t *testing.T) {
	full := errors.New("full")
	bad := side{"disk", func(context.Context, time.Duration) (Sample, error) { return Sample{}, full }}
	run := Run{repeats: Repeats{Rounds: 1}}
	if _, err := run.alternate(t.Context(), "", bad); !errors.Is(err, full) || !strings.Contains(err.Error(), "disk") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	idle := loop("idle", func() (int64, error) { return 1, nil })
	if _, err := run.alternate(ctx, "", idle); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Each work is done at least once, and all of it counts.
func TestLoop(t *testing.T) {
	var done [3]int64
	var work []func() (int64, error)
	for i := range done {
		work = append(work, func() (int64, error) {
			done[i]++
			return int64(i + 1), nil
		})
	}
	s, err := loop("", work...).run(t.Context(), 0)
	if err != nil || done != [3]int64{1, 1, 1} || s.Ops != 3 || s.Rows != 6 || s.Seconds <= 0 {
		t.Errorf("%+v, %v after %v", s, err, done)
	}
	done = [3]int64{}
	s, err = loop("", work...).run(t.Context(), time.Millisecond)
	if err != nil || s.Ops != done[0]+done[1]+done[2] || s.Rows != done[0]+2*done[1]+3*done[2] {
		t.Errorf("%+v, %v after %v", s, err, done)
	}
}
