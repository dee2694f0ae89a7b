package memory

import (
	"math"
	"runtime/debug"
	"testing"

	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
)

// roomy is a budget that is large enough for every test.
func roomy(cfg *config.Config) *Budget { return New(cfg, 8<<30) }

func load(t *testing.T, flags map[string]string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// More of anything never costs less. At every limit that the configuration allows, the
// fixed parts leave room.
func TestPricesGrow(t *testing.T) {
	cfg := load(t, map[string]string{"kafka.topic": "none", "blocks.unit": "offsets"})
	for limit := int64(128 << 20); limit < 1<<42; limit *= 2 {
		if m := New(cfg, limit); m.Room() < float64(limit)/12 {
			t.Errorf("of %s there is room for %s", Size(float64(limit)), Size(m.Room()))
		}
	}
	m := roomy(cfg)
	least := Shape{Features: 10, Classes: 2}
	base := m.Price([]Shape{least}, 10)
	for _, more := range [][]Shape{
		{{Features: 11, Classes: 2}}, {{Features: 10, Classes: 3}}, {least, least},
		{{Features: 10, Classes: 2, Window: widest()}},
	} {
		if price := m.Price(more, 10); price <= base {
			t.Errorf("%+v costs %v, less than %v", more, price, base)
		}
	}
	if m.Price([]Shape{least}, 11) <= base {
		t.Error("a block costs nothing")
	}
	last := base
	for _, flags := range []map[string]string{
		{"blocks.unlabelled": "keep"},
		{"blocks.unlabelled": "keep", "model.refine": "hinge"},
		{"blocks.unlabelled": "keep", "model.refine": "unlabelled"},
	} {
		flags["kafka.topic"], flags["blocks.unit"] = "none", "offsets"
		price := roomy(load(t, flags)).Price([]Shape{least}, 10)
		if price <= last {
			t.Errorf("%v costs %v, no more than %v", flags, price, last)
		}
		last = price
	}
	huge := m.Price([]Shape{{Features: math.MaxInt32, Classes: math.MaxInt32}}, math.MaxInt)
	if !(huge > 1e30) {
		t.Errorf("what cannot be costs %v", huge)
	}
}

// widest is the window of the widest sums.
func widest() exact.Window {
	b := &incremental.Block{Classes: []string{"a"}, Codes: []int32{0, 0}, Columns: []gram.Column{gram.ColumnOf([]float64{0x1p-149, 0x1p127})}}
	return b.Window()
}

// The limit comes from the configuration, GOMEMLIMIT, or a quarter of the machine's memory.
// The runtime gets the lower one of the first two.
func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	limitOf := func(memory string) int64 {
		limit, err := Limit(load(t, map[string]string{"kafka.topic": "none", "limits.memory": memory}))
		if err != nil {
			t.Fatal(err)
		}
		New(load(t, map[string]string{"kafka.topic": "none"}), limit).TellRuntime()
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

// Predictions have a share of small limits, too.
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
		if m := New(cfg, limit); m.Predict != want.predict || m.Body != want.body {
			t.Errorf("of %s predictions have %s, and a body %s", Size(float64(limit)), Size(float64(m.Predict)), Size(float64(m.Body)))
		}
	}
}
