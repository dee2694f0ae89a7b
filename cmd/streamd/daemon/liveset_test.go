package daemon

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/retire"
	"streamd/snapshot"
)

// What the loop does for a block that comes and one that goes, and what a worker
// does for it, with and without a sample and folds. Rows in the sample are as few
// as in a long stream.
func BenchmarkBlock(b *testing.B) {
	const rows, n = 10_000, 10
	r := rand.New(rand.NewPCG(35, 1))
	block := &incremental.Block{Classes: []string{"-1", "1"}, Codes: make([]int32, rows)}
	for i := range block.Codes {
		block.Codes[i] = int32(r.IntN(2))
	}
	for range n {
		x := make([]float32, rows)
		for i := range x {
			x[i] = r.Float32()
		}
		block.Columns = append(block.Columns, gram.ColumnOf(x))
	}
	var z incremental.Summariser
	s, err := z.Summarise(block)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("worker/summarise", func(b *testing.B) {
		for b.Loop() {
			if _, err := z.Summarise(block); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("worker/digest", func(b *testing.B) {
		for b.Loop() {
			s.Digest()
		}
	})
	for _, c := range []struct{ folds, rows int }{{0, 0}, {0, 50_000}, {5, 50_000}} {
		b.Run(fmt.Sprintf("loop/folds=%d/sample=%d", c.folds, c.rows), func(b *testing.B) {
			store, contents, err := snapshot.Open(filepath.Join(b.TempDir(), "streamd.db"), snapshot.Settings{})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			contents.State = incremental.NewState(nil)
			l, _, err := newLiveSet(store, contents, liveOptions{maxClasses: 2, folds: c.folds, sample: sample.Settings{Rows: c.rows}})
			if err != nil {
				b.Fatal(err)
			}
			l.fix(make([]string, n))
			var t sample.Taker
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				var p *sample.Part
				if l.sample != nil {
					p = t.Take(block, [32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, s.Totals(), l.sample.Levels())
				}
				b.StartTimer()
				if _, err := l.add(retire.Entry{ID: fmt.Sprint(i), Time: time.UnixMilli(int64(i)), Rows: rows}, s, p, nil); err != nil {
					b.Fatal(err)
				}
				if i >= 2000 {
					if _, err := l.remove(fmt.Sprint(i - 2000)); err != nil {
						b.Fatal(err)
					}
				}
				if l.sample != nil {
					if err := l.look(lookTime); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
