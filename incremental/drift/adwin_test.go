package drift

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// golden has streams of errors with the alarms of River's detector. testdata/golden.py made
// it, and says how.
//
//go:embed testdata/adwin.json
var golden []byte

// Alarms come at the same values as those of River's detector. A steady stream has none.
func TestAlarmsLikeRivers(t *testing.T) {
	var of struct {
		Streams []struct {
			Name   string
			Rows   int
			Alarms []int
			Errors string
		}
	}
	if err := json.Unmarshal(golden, &of); err != nil {
		t.Fatal(err)
	}
	if len(of.Streams) < 10 {
		t.Fatalf("%d streams", len(of.Streams))
	}
	for _, s := range of.Streams {
		t.Run(s.Name, func(t *testing.T) {
			bits, err := base64.StdEncoding.DecodeString(s.Errors)
			if err != nil || len(bits) != (s.Rows+7)/8 {
				t.Fatalf("%d bytes of errors: %v", len(bits), err)
			}
			a := NewADWIN(0.002)
			var alarms []int
			for i := range s.Rows {
				if c, changed := a.Add(float64(bits[i/8] >> (i % 8) & 1)); changed {
					t.Logf("row %d: %.3f of %d, then %.3f of %d; the change was at row %d", i, c.Before, c.Old, c.After, c.New, i+1-int(c.New))
					alarms = append(alarms, i)
				}
			}
			if !slices.Equal(alarms, s.Alarms) {
				t.Errorf("alarms at %d, River's at %d", alarms, s.Alarms)
			}
		})
	}
}

// The detector is that of the paper's text on lists of values: no bucket is more than its values,
// and no sum is carried over. All numbers of all changes are compared, and of the windows between.
func TestDetectorOnLists(t *testing.T) {
	changes, parts := 0, map[bool]int{}
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(12, seed))
		delta := []float64{0.5, 0.05, 0.002, 0.9}[seed%4]
		a := NewADWIN(delta)
		var buckets [][]float64 // the oldest first
		level, noise := r.Float64(), []float64{0, 0.05, 1}[r.IntN(3)]
		for i := range 2500 {
			if r.IntN(150) == 0 {
				level = r.Float64()
			}
			x := min(1, max(0, level+noise*(r.Float64()-0.5)))
			buckets = append(buckets, []float64{x})
			for size := 1; ; size *= 2 { // the two oldest of too many are merged
				of := slices.IndexFunc(buckets, func(b []float64) bool { return len(b) == size })
				if of < 0 || of+6 > len(buckets) || len(buckets[of+5]) != size {
					break
				}
				buckets = slices.Replace(buckets, of, of+2, slices.Concat(buckets[of], buckets[of+1]))
			}
			var want Change
			most := 1.
			if (i+1)%32 == 0 {
				values := slices.Concat(buckets...)
				n := float64(len(values))
				_, variance := moments(values)
				log := math.Log(2 / (delta / math.Log(n)))
				for k := range buckets {
					old, young := slices.Concat(buckets[:k]...), slices.Concat(buckets[k:]...)
					if len(old) < 5 || len(young) < 5 {
						continue
					}
					n0, n1 := float64(len(old)-4), float64(len(young)-4)
					m := n0 * n1 / (n0 + n1)
					before, _ := moments(old)
					after, _ := moments(young)
					if apart := math.Abs(before-after) / (math.Sqrt(2/m*variance*log) + 2/(3*m)*log); apart > most {
						most, want = apart, Change{before, after, int64(len(old)), int64(len(young))}
					}
				}
			}
			got, changed := a.Add(x)
			near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
			if changed != (most > 1) || got.Old != want.Old || got.New != want.New || !near(got.Before, want.Before) || !near(got.After, want.After) {
				t.Fatalf("seed %d, value %d: %+v, %t, want %+v of %v ε", seed, i, got, changed, want, most)
			}
			if changed {
				changes++
				parts[got.Old < got.New]++
				buckets = nil
			}
			if i%32 > 0 && i%7 > 0 {
				continue
			}
			mean, _ := moments(slices.Concat(buckets...))
			if n, m := a.Window(); n != int64(len(slices.Concat(buckets...))) || n > 0 && !near(m, mean) || n == 0 != math.IsNaN(m) {
				t.Fatalf("seed %d, value %d: a window of %d, mean %v", seed, i, n, m)
			}
		}
	}
	if changes < 200 || parts[true] < 20 || parts[false] < 20 {
		t.Errorf("%d changes, %v", changes, parts)
	}
}

// moments are the mean of values and their variance.
func moments(values []float64) (mean, variance float64) {
	for _, x := range values {
		mean += x / float64(len(values))
	}
	for _, x := range values {
		variance += (x - mean) * (x - mean) / float64(len(values))
	}
	return mean, variance
}

// A window that was saved and read again after any value finds the same changes, and is the same
// in every bit.
func TestWindowIsSaved(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	a, b := NewADWIN(0.002), NewADWIN(0.002)
	changes := 0
	for i := range 20_000 {
		x := r.Float64() * (0.5 + 0.5*float64(i/4000%2))
		c, changed := a.Add(x)
		again, too := b.Add(x)
		if c != again || changed != too {
			t.Fatalf("value %d: %+v and, after it was saved, %+v", i, c, again)
		}
		if changed {
			changes++
		}
		if r.IntN(50) > 0 && !changed {
			continue
		}
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		b = NewADWIN(0.002)
		if err := json.Unmarshal(text, b); err != nil {
			t.Fatal(err)
		}
		if a.ticks != b.ticks || !slices.EqualFunc(a.sizes, b.sizes, slices.Equal) {
			t.Fatalf("after value %d the window is %v, and was %v", i, b, a)
		}
	}
	if changes < 4 {
		t.Errorf("only %d changes", changes)
	}
}

// A window that no ADWIN can have is refused, and changes nothing.
func TestBadWindows(t *testing.T) {
	a := NewADWIN(0.5)
	for range 10 {
		a.Add(1)
	}
	for _, text := range []string{
		`{"delta":0.002,"ticks":1,"buckets":[]}`, `{"delta":0.5,"ticks":32,"buckets":[]}`, `{"delta":0.5,"ticks":-1}`,
		`{"delta":0.5,"buckets":[[]]}`, `{"delta":0.5,"buckets":[[[1,1],[1,1],[1,1],[1,1],[1,1],[1,1]]]}`,
		`{"delta":0.5,"buckets":[[[1.5,1]]]}`, `{"delta":0.5,"buckets":[[[0.5,0.6]]]}`, `{"delta":0.5,"buckets":[[[0,-1]]]}`,
		`{"delta":0.5,"buckets":7}`, `7`, ``,
	} {
		if err := a.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	if n, mean := a.Window(); n != 10 || mean != 1 {
		t.Errorf("%d values of mean %v are left", n, mean)
	}
}

// A window at the border of what an ADWIN can have is read, and says the same when it is written.
func TestWindowsAtTheBorder(t *testing.T) {
	sizes := strings.Repeat(`[[0,0]],`, 62) + `[[9223372036854775808,1]]`
	for text, want := range map[string]string{
		`{"delta":0.5,"ticks":0,"buckets":[]}`:                                              "",
		`{"delta":0.5,"ticks":31,"buckets":[[[1,1]]]}`:                                      "",
		`{"delta":0.5,"ticks":32,"buckets":[[[1,1]]]}`:                                      "32 values since",
		`{"delta":0.5,"ticks":-1,"buckets":[[[1,1]]]}`:                                      "-1 values since",
		`{"delta":0.5,"ticks":0,"buckets":[[[1,1],[1,1],[1,1],[1,1],[0.5,0.25]]]}`:          "",
		`{"delta":0.5,"ticks":0,"buckets":[[[1,1]],[[2,2],[2,2]]]}`:                         "",
		`{"delta":0.5,"ticks":0,"buckets":[[[1,1]],[[2.1,2],[2,2]]]}`:                       "2 values from 0 to 1 cannot have the sum 2.1 and squares 2",
		`{"delta":0.5,"ticks":0,"buckets":[[[1,1]],[[2,2.1],[2,2]]]}`:                       "2 values from 0 to 1 cannot have the sum 2 and squares 2.1",
		`{"delta":0.5,"ticks":0,"buckets":[[[1,1]],[[2,-0.1],[2,2]]]}`:                      "squares -0.1",
		`{"delta":0.5,"ticks":0,"buckets":[[[1,1]],[]]}`:                                    "0 buckets of 2 values, want 1 to 5",
		`{"delta":0.5,"ticks":0,"buckets":[` + strings.Repeat(`[[0,0]],`, 61) + `[[0,0]]]}`: "",
		`{"delta":0.5,"ticks":0,"buckets":[` + strings.Repeat(`[[0,0]],`, 62) + `[[0,0]]]}`: "",
		`{"delta":0.5,"ticks":0,"buckets":[` + strings.Repeat(`[[0,0]],`, 63) + `[[0,0]]]}`: "64 sizes",
		`{"delta":0.5,"ticks":0,"buckets":[` + sizes + `]}`:                                 "sum 9.223372036854776e+18",
	} {
		a := NewADWIN(0.5)
		err := a.UnmarshalJSON([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		} else if again, failed := json.Marshal(a); err == nil && (failed != nil || string(again) != text) {
			t.Errorf("%s was read, and %s written: %v", text, again, failed)
		}
	}
}

// No delta and no value outside of their ranges is taken.
func TestBadValues(t *testing.T) {
	panics := func(do func()) (yes bool) {
		defer func() { yes = recover() != nil }()
		do()
		return false
	}
	for x, good := range map[float64]bool{-1: false, 0: true, 0.5: true, 1: true, 1.5: false, math.Inf(1): false, math.NaN(): false} {
		if panics(func() { NewADWIN(0.5).Add(x) }) == good {
			t.Errorf("value %v: %t", x, good)
		}
		if panics(func() { NewADWIN(x) }) == (x == 0.5) {
			t.Errorf("delta %v", x)
		}
	}
}

// A change is found where it is, with its means.
func TestChangeIsPlaced(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a := NewADWIN(0.002)
	const before = 5000
	for i := range 2 * before {
		p := 0.1
		if i >= before {
			p = 0.4
		}
		x := 0.
		if r.Float64() < p {
			x = 1
		}
		c, changed := a.Add(x)
		if !changed {
			continue
		}
		at := i + 1 - int(c.New)
		if i < before || i > before+200 || at < before-50 || at > before+50 || math.Abs(c.Before-0.1) > 0.02 || math.Abs(c.After-0.4) > 0.15 {
			t.Errorf("after row %d: %+v", i, c)
		}
		if n, _ := a.Window(); n != 0 {
			t.Errorf("%d values are left", n)
		}
		return
	}
	t.Error("there is no alarm")
}

// The window holds the sum of its values in O(log W) buckets, for values that are no errors,
// too.
func TestWindowIsLogarithmic(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	a := NewADWIN(1e-9)
	const values = 1 << 18
	var sum float64
	for i := range values {
		x := r.Float64()
		sum += x
		if _, changed := a.Add(x); changed {
			t.Fatalf("a change after %d equal draws", i+1)
		}
	}
	n, mean := a.Window()
	if n != values || math.Abs(mean-sum/values) > 1e-12 {
		t.Errorf("%d values of mean %v, want %d of %v", n, mean, values, sum/values)
	}
	buckets := 0
	for _, of := range a.sizes {
		buckets += len(of)
	}
	if most := perSize * 17; buckets > most { // 5·(2¹⁷ − 1) > 2¹⁸
		t.Errorf("%d buckets, want %d at most", buckets, most)
	}
}

func BenchmarkADWIN(b *testing.B) {
	a := NewADWIN(0.002)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		a.Add(float64(i % 2))
	}
}
