package drift

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
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
