package daemon

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
)

// roomy is memory that is enough for every test.
func roomy(cfg *config.Config) *memory { return newMemory(cfg, 8<<30) }

// heap returns the bytes in use. It collects until they stay the same: what earlier
// tests have left in pools and finalisers goes only after several collections.
func heap() float64 {
	var m runtime.MemStats
	var last uint64
	for range 100 {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if m.HeapAlloc <= last && last-m.HeapAlloc < 4<<10 {
			break
		}
		last = m.HeapAlloc
		time.Sleep(time.Millisecond)
	}
	return float64(m.HeapAlloc)
}

// Sums and a block's summary take no more than their price, and not much less, for
// numbers of any magnitude.
func TestPriceIsWhatSumsTake(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 53))
	const n, classes = 150, 7
	for name, number := range map[string]func() float64{
		"ordinary": r.NormFloat64,
		"whole":    func() float64 { return float64(r.IntN(100)) },
		"extreme":  func() float64 { return math.Ldexp(r.NormFloat64(), r.IntN(200)-100) },
	} {
		for _, folds := range []int{0, 5} {
			t.Run(fmt.Sprintf("%s, %d folds", name, folds), func(t *testing.T) {
				empty := heap()
				s := newSums(incremental.DefaultFeatures(n), folds)
				var z incremental.Summariser
				var summary *incremental.Summary
				for range 20 {
					b := &incremental.Block{}
					for c := range classes {
						b.Classes, b.Codes = append(b.Classes, fmt.Sprint(c)), append(b.Codes, int32(c))
					}
					for range n {
						column := make([]float64, classes)
						for i := range column {
							column[i] = number()
						}
						b.Columns = append(b.Columns, gram.ColumnOf(column))
					}
					var err error
					if summary, err = z.Summarise(b); err != nil {
						t.Fatal(err)
					}
					s.of(summary.Digest()).Add(summary)
					s.window = s.window.Union(summary.Window())
				}
				s.total()
				bound := shape{features: n, classes: classes}.summary()
				if got := float64(summary.Bytes()); got > 1.02*bound || got < 0.9*bound {
					t.Errorf("a summary takes %s, priced at %s", size(got), size(bound))
				}
				z, summary = incremental.Summariser{}, nil
				took := heap() - empty
				bounded := s.window
				s.measure()
				if s.most != classes || bounded.Union(s.window) != bounded {
					t.Errorf("%d classes in window %v, %d and %v were expected", s.most, s.window, classes, bounded)
				}
				price := shape{n, classes, bounded}.sum()
				if folds > 0 {
					price *= float64(folds + 1)
				}
				if took > 1.05*price || took < price/2.5 {
					t.Errorf("sums take %s, priced at %s", size(took), size(price))
				}
				runtime.KeepAlive(s)
			})
		}
	}
}

// More of anything never costs less, and the fixed parts leave room at any limit that
// the configuration allows.
func TestPricesGrow(t *testing.T) {
	cfg := load(t, map[string]string{"kafka.topic": "none", "blocks.unit": "offsets"})
	for limit := int64(128 << 20); limit < 1<<42; limit *= 2 {
		if m := newMemory(cfg, limit); m.room() < float64(limit)/12 {
			t.Errorf("of %s there is room for %s", size(float64(limit)), size(m.room()))
		}
	}
	m := roomy(cfg)
	least := shape{features: 10, classes: 2}
	base := m.price([]shape{least}, 10)
	for _, more := range [][]shape{
		{{features: 11, classes: 2}}, {{features: 10, classes: 3}}, {least, least},
		{{features: 10, classes: 2, window: widest()}},
	} {
		if price := m.price(more, 10); price <= base {
			t.Errorf("%+v costs %v, less than %v", more, price, base)
		}
	}
	if m.price([]shape{least}, 11) <= base {
		t.Error("a block costs nothing")
	}
	huge := m.price([]shape{{features: math.MaxInt32, classes: math.MaxInt32}}, math.MaxInt)
	if !(huge > 1e30) {
		t.Errorf("what cannot be costs %v", huge)
	}
}

// widest is the window of the widest sums.
func widest() exact.Window {
	b := &incremental.Block{Classes: []string{"a"}, Codes: []int32{0, 0}, Columns: []gram.Column{gram.ColumnOf([]float64{0x1p-149, 0x1p127})}}
	return b.Window()
}

// The limit is that of the configuration, or GOMEMLIMIT, or a quarter of what there is;
// the runtime is told the lower one of the first two.
func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	limitOf := func(memory string) int64 {
		limit, err := memoryLimit(load(t, map[string]string{"kafka.topic": "none", "limits.memory": memory}))
		if err != nil {
			t.Fatal(err)
		}
		newMemory(load(t, map[string]string{"kafka.topic": "none"}), limit).tellRuntime()
		return limit
	}
	t.Setenv("GOMEMLIMIT", "")
	if limit := limitOf("0"); limit < 128<<20 {
		t.Errorf("a quarter of the machine is %d bytes", limit)
	}
	if limit := limitOf("1GiB"); limit != 1<<30 || debug.SetMemoryLimit(-1) >= 1<<30 || debug.SetMemoryLimit(-1) < 7<<27 {
		t.Errorf("the limit is %d, the runtime's %d", limit, debug.SetMemoryLimit(-1))
	}
	t.Setenv("GOMEMLIMIT", "700MiB") // as the runtime has read it at the start
	debug.SetMemoryLimit(700 << 20)
	if limit := limitOf("0"); limit != 700<<20 {
		t.Errorf("GOMEMLIMIT makes the limit %d", limit)
	}
	debug.SetMemoryLimit(700 << 20)
	if limit := limitOf("1GiB"); limit != 1<<30 || debug.SetMemoryLimit(-1) != 700<<20 {
		t.Errorf("the limit is %d, the runtime's %d", limit, debug.SetMemoryLimit(-1))
	}
}

// Predictions have a share of small limits, too, and none has rows beyond it.
func TestPredictionsHaveAShare(t *testing.T) {
	cfg := load(t, map[string]string{"kafka.topic": "none"})
	for limit, want := range map[int64]struct {
		predict int64
		body    int
	}{
		128 << 20: {4 << 20, 1 << 20},
		2 << 30:   {64 << 20, 16 << 20},
		64 << 30:  {httpapi.Memory, 16 << 20},
	} {
		if m := newMemory(cfg, limit); m.predict != want.predict || m.body != want.body {
			t.Errorf("of %s predictions have %s, and a body %s", size(float64(limit)), size(float64(m.predict)), size(float64(m.body)))
		}
	}
}
