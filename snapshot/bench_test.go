package snapshot

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"streamd/incremental"
)

// fill saves blocks to a file, a thousand at a time, and returns the state.
func fill(t *testing.B, s *Store, r *rand.Rand, from, blocks, features int, state *incremental.State) (bytes, fileBytes int64) {
	t.Helper()
	c := changeTo(state, nil)
	for i := range blocks {
		b := randomBlock(r, fmt.Sprintf("orders/%d/%d", r.IntN(4), from+i), 2, features)
		state.Add(b.Summary)
		c.put(b)
		if len(c.Put) == 1000 || i == blocks-1 {
			info, err := s.Save(c)
			if err != nil {
				t.Fatal(err)
			}
			bytes += info.Bytes
			fileBytes = info.FileBytes
			c = changeTo(state, nil)
		}
	}
	return bytes, fileBytes
}

// BenchmarkSave saves a new block to a file of a thousand. The bytes are those of the
// written pages.
func BenchmarkSave(b *testing.B) {
	for _, size := range []struct{ features, live, blocks int }{{10, 1000, 100}, {10, 1000, 5000}, {10, 1000, 0}, {100, 1000, 100}, {500, 20, 1}} {
		b.Run(fmt.Sprintf("n=%d/blocks=%d", size.features, size.blocks), func(b *testing.B) {
			r := rand.New(rand.NewPCG(8, 1))
			s, _ := mustOpen(b, filepath.Join(b.TempDir(), "streamd.db"))
			state := incremental.NewState(incremental.DefaultFeatures(size.features))
			fill(b, s, r, 0, size.live, size.features, state)
			b.ReportAllocs()
			b.ResetTimer()
			var bytes, fileBytes, records int64
			at := size.live
			for b.Loop() {
				b.StopTimer()
				c := changeTo(state, nil)
				for range size.blocks {
					one := randomBlock(r, fmt.Sprintf("orders/%d/%d", r.IntN(4), at), 2, size.features)
					state.Add(one.Summary)
					c.put(one)
					at++
				}
				records++
				c.Counts.AppliedRecords = records
				c.Offsets = []Offset{{Topic: "orders", Partition: 1, Next: records}}
				b.StartTimer()
				info, err := s.Save(c)
				if err != nil {
					b.Fatal(err)
				}
				bytes, fileBytes = bytes+info.Bytes, info.FileBytes
			}
			b.ReportMetric(float64(bytes)/float64(b.N), "written/op")
			b.ReportMetric(float64(fileBytes)/float64(at), "filebytes/block")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "streamd.db")
	s, _ := mustOpen(b, path)
	const blocks = 50_000
	_, fileBytes := fill(b, s, rand.New(rand.NewPCG(9, 1)), 0, blocks, 10, incremental.NewState(incremental.DefaultFeatures(10)))
	s.Close()
	b.Run("blocks=50000", func(b *testing.B) {
		for b.Loop() {
			s, c, err := Open(path, settings)
			if err != nil || len(c.Entries) != blocks {
				b.Fatal(len(c.Entries), err)
			}
			s.Close()
		}
		b.ReportMetric(float64(fileBytes)/blocks, "filebytes/block")
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if r, err := Verify(b.Context(), path, nil); err != nil || !r.OK {
				b.Fatalf("%+v, %v", r, err)
			}
		}
	})
}
