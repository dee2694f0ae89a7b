package retire

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"streamd/incremental"
)

func TestMultipliers(t *testing.T) {
	last := uint64(math.MaxUint64)
	for d := range uint64(MostHalvings*StepsPerHalving + 1) {
		m, halvings, ok := Multiplier(d)
		want := math.Exp2(-float64(d) / StepsPerHalving)
		if got := math.Ldexp(float64(m), -WeightBits-halvings); !ok || math.Abs(got-want) > want*0x1p-16 || got != Weight(d) {
			t.Errorf("step %d weighs %g, want %g", d, got, want)
		}
		if whole := m << (MostHalvings - halvings); whole >= last {
			t.Errorf("step %d weighs no less than the one before", d)
		} else {
			last = whole
		}
	}
	if _, _, ok := Multiplier(MostHalvings*StepsPerHalving + 1); ok || Weight(math.MaxUint64) != 0 {
		t.Error("weights do not end")
	}
}

func TestStep(t *testing.T) {
	for _, position := range []int64{math.MinInt64, math.MinInt64 + 1, -17, -1, 0, 1, 7, 1_700_000_000_123, math.MaxInt64} {
		for _, halfLife := range []int64{StepsPerHalving, 9, 1000, 86_400_000, 1 << 53} {
			want := new(big.Int).Mul(big.NewInt(position), big.NewInt(StepsPerHalving))
			if want.Div(want, big.NewInt(halfLife)); want.Cmp(big.NewInt((HalfLife{Rows: halfLife}).Step(position))) != 0 {
				t.Errorf("step(%d, %d) = %d, want %d", position, halfLife, (HalfLife{Rows: halfLife}).Step(position), want)
			}
		}
	}
}

func TestOrigin(t *testing.T) {
	for _, c := range []struct{ oldest, newest, want int64 }{
		{5, 5, 5}, {5, 6, 6}, {5, 9, 8}, {8, 9, 9}, {7, 8, 8}, {8, 15, 12}, {0, 1000, 512}, {-1, 0, 0}, {-5, 5, 0}, {-7, -2, -4}, {math.MinInt64, math.MaxInt64, 0},
	} {
		if got := origin(c.oldest, c.newest); got != c.want {
			t.Errorf("origin(%d, %d) = %d, want %d", c.oldest, c.newest, got, c.want)
		}
	}
}

// steps lists the steps of a ledger by id.
func steps(l *Ledger, h HalfLife) (newest int64, of map[string]int64) {
	end, of := l.End(h), map[string]int64{}
	for e, age := range l.Ages(h) {
		of[e.ID] = h.Step(end - age)
	}
	return h.Step(end), of
}

var halfLives = []HalfLife{{Rows: 1}, {Rows: 40}, {Rows: 1000}, {Time: 8 * time.Millisecond}, {Time: 7 * time.Second}, {Time: time.Hour}}

// A step differs from that of the exact age by less than one.
func TestStepsAgainstAges(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(3, seed))
		l := NewLedger(Policy{})
		all := randomEntries(r, 1+r.IntN(60))
		for i := range all {
			if r.IntN(10) == 0 {
				all[i].Time = all[i].Time.Add(-time.Duration(r.IntN(1<<20)) * time.Hour)
			}
			l.Add(all[i])
		}
		last, _ := l.Newest()
		for _, h := range halfLives {
			newest, of := steps(l, h)
			for _, e := range all {
				age := big.NewInt(last.Time.UnixMilli() - e.Time.UnixMilli())
				half := h.Time.Milliseconds()
				if half == 0 {
					age.SetInt64(0)
					for _, o := range all {
						if o.Time.After(e.Time) {
							age.Add(age, big.NewInt(o.Rows))
						}
					}
					half = h.Rows
				}
				exact, _ := new(big.Rat).SetFrac(age.Mul(age, big.NewInt(StepsPerHalving)), big.NewInt(half)).Float64()
				if d := float64(newest - of[e.ID]); math.Abs(d-exact) >= 1 {
					t.Fatalf("seed %d, %+v: %s is %g steps old, want %g", seed, h, e.ID, d, exact)
				}
			}
		}
	}
}

// A stream that adds a block at one end and lets one go at the other moves few of the others.
func TestStepsRest(t *testing.T) {
	const window, length = 300, 3000
	l, h := NewLedger(Policy{Blocks: window}), HalfLife{Rows: 500}
	r := rand.New(rand.NewPCG(4, 0))
	at, moved := epoch, 0
	_, last := steps(l, h)
	for i := range length {
		at = at.Add(time.Duration(1+r.IntN(100)) * time.Millisecond)
		p := incremental.Position{Topic: "t", Offset: int64(i)}
		l.Add(Entry{ID: fmt.Sprint(i), Position: p, Time: at, Rows: int64(1 + r.IntN(20))})
		_, now := steps(l, h)
		for id, step := range now {
			if was, ok := last[id]; ok && was != step {
				moved++
			}
		}
		last = now
	}
	if mean := float64(moved) / length; mean > 4 {
		t.Errorf("each block moves %.1f others", mean)
	}
}
