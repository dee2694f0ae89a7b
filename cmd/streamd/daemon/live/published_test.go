package live

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/kernels"
)

// somePublished is a published basis of two features, scaled or not.
func somePublished(t testing.TB, scaled bool) *Published {
	t.Helper()
	kernel, err := kernels.Gaussian(0.5)
	if err != nil {
		t.Fatal(err)
	}
	m, err := kernels.NewMap(kernel, 2, []float64{1, 2, 3, 4, 5, 6})
	if err == nil && scaled {
		m, err = m.Scaled([]float64{1, 2}, []float64{3, 4})
	}
	if err != nil {
		t.Fatal(err)
	}
	c := newCoordinates(1, m, &model.Reduction{}, config.RegulariserIdentity)
	return &Published{
		Topic: "orders", Features: []string{"x", "y"}, Map: m, Stale: SourceReplaced,
		Reduction: &model.Reduction{Basis: c.ID, Kernel: m.Kernel().String(), Points: 3, Method: "random", MadeAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)},
		Sources:   []Source{{0, 0}, {0, 1}, {0, 1 << 40}, {3, 7}},
	}
}

func limits(features, rows int) *config.Config {
	c := &config.Config{}
	c.Limits.Features, c.Sample.Rows = features, rows
	return c
}

func TestPublished(t *testing.T) {
	for _, scaled := range []bool{false, true} {
		want := somePublished(t, scaled)
		b := want.AppendBinary(nil)
		got, err := DecodePublished(b, limits(2, 1))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
		for n := range b {
			if p, err := DecodePublished(b[:n], limits(2, 1)); err == nil && bytes.Equal(p.AppendBinary(nil), b) {
				t.Errorf("%d of %d bytes are the basis", n, len(b))
			}
		}
		for seed := range uint64(5000) {
			r := rand.New(rand.NewPCG(seed, 1))
			changed := bytes.Clone(b)
			for range 1 + r.IntN(4) {
				changed[r.IntN(len(b))] = byte(r.IntN(256))
			}
			if p, err := DecodePublished(changed, limits(2, 1)); err == nil && !bytes.Equal(p.AppendBinary(nil), changed) {
				t.Fatalf("seed %d: %+v has other bytes", seed, p)
			}
		}
		for _, c := range []*config.Config{limits(1, 1), limits(2, 0)} {
			if _, err := DecodePublished(b, c); err == nil {
				t.Errorf("limits of %d features and %d rows are passed", c.Limits.Features, c.Sample.Rows)
			}
		}
	}
}

// What is decoded has the bytes that it was decoded from.
func FuzzPublished(f *testing.F) {
	f.Add(somePublished(f, false).AppendBinary(nil))
	f.Add(somePublished(f, true).AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePublished(b, limits(100, 100))
		if err == nil && !bytes.Equal(p.AppendBinary(nil), b) {
			t.Errorf("%+v has other bytes", p)
		}
	})
}

// A source of a published basis that has been read, and is not there, was replaced where a key
// names it. Else the policy may have let it go; without one it was retired, and the basis with it.
func TestSourcesThatAreNotThere(t *testing.T) {
	p := somePublished(t, false)
	p.Stale = Fresh
	for _, c := range []struct {
		unit    config.Unit
		blocks  int // that the policy keeps
		applied int64
		want    Staleness
	}{
		{config.UnitMessage, 0, 0, Fresh}, {config.UnitMessage, 0, 1, SourceRetired},
		{config.UnitMessage, 9, 1, Fresh}, {config.UnitKey, 0, 1, SourceReplaced},
	} {
		cfg := liveConfig(0, 0)
		cfg.Blocks.Unit, cfg.Retire.Blocks = c.unit, c.blocks
		l := New(nil, cfg, roomy(cfg))
		l.Fix(p.Features)
		l.BeginPublished(p, config.RegulariserIdentity, []model.Offset{{Topic: p.Topic, Partition: 0, Next: c.applied}})
		if from := l.Next().from; from.stale != c.want || len(from.awaited) != len(p.Sources)-int(c.applied) {
			t.Errorf("%+v: the sources are %d, and %d are awaited", c, from.stale, len(from.awaited))
		}
	}
}
