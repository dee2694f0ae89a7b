package sample

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
)

func benchBlock(m, n int) *incremental.Block {
	r := rand.New(rand.NewPCG(1, 2))
	b := &incremental.Block{Classes: []string{"-1", "1"}, Codes: make([]int32, m)}
	for i := range b.Codes {
		b.Codes[i] = int32(r.IntN(2))
	}
	for range n {
		x := make([]float32, m)
		for i := range x {
			x[i] = r.Float32()
		}
		b.Columns = append(b.Columns, gram.ColumnOf(x))
	}
	return b
}

func totalsOf(b *incremental.Block) []incremental.ClassTotal {
	var z incremental.Summariser
	s, err := z.Summarise(b)
	if err != nil {
		panic(err)
	}
	return s.Totals()
}

// deep returns a sample of 50,000 rows after a stream of that many blocks of 10,000 rows.
func deep(n, blocks int) *Sample {
	b := benchBlock(10_000, n)
	s := New(Settings{Rows: 50_000}, func(func(string) bool) {})
	totals := totalsOf(b)
	var t Taker
	for i := range blocks {
		s.Add(fmt.Sprint(i), t.Take(b, [32]byte{byte(i), byte(i >> 8)}, totals, s.Levels()))
	}
	return s
}

// BenchmarkTake measures a worker's additional work per block by the present floor, which
// is about log2(live rows / 2·Rows). All rows above the floor are copied.
func BenchmarkTake(b *testing.B) {
	for _, c := range []struct{ n, floor int }{{10, 0}, {10, 3}, {10, 8}, {10, 12}, {784, 0}, {784, 8}} {
		b.Run(fmt.Sprintf("n=%d/floor=%d", c.n, c.floor), func(b *testing.B) {
			block := benchBlock(10_000, c.n)
			totals := totalsOf(block)
			levels := &Levels{settings: Settings{Rows: 50_000}, floors: map[string]int{allClasses: c.floor}}
			var t Taker
			for i := 0; b.Loop(); i++ {
				t.Take(block, [32]byte{byte(i), byte(i >> 8)}, totals, levels)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/row")
		})
	}
}

// BenchmarkStream measures the additional work of a worker (take), the loop (add) and a
// save (save), per row of a stream of 40 million rows. Blocks are in the caches as after
// being summarised.
func BenchmarkStream(b *testing.B) {
	const blocks, rows, betweenSaves = 2000, 20_000, 400
	var distinct [4]*incremental.Block
	for i := range distinct {
		distinct[i] = benchBlock(rows, 10)
	}
	var z incremental.Summariser
	var take, add, save time.Duration
	b.ReportAllocs()
	for b.Loop() {
		s := New(Settings{Rows: 50_000}, func(func(string) bool) {})
		var t Taker
		var unsaved []*Part
		for i := range blocks {
			block := distinct[i%len(distinct)]
			summary, err := z.Summarise(block)
			if err != nil {
				b.Fatal(err)
			}
			id, totals := fmt.Sprint(i), summary.Totals()
			began := time.Now()
			p := t.Take(block, [32]byte{byte(i), byte(i >> 8)}, totals, s.Levels())
			taken := time.Now()
			s.Add(id, p)
			take += taken.Sub(began)
			added := time.Now()
			add += added.Sub(taken)
			if unsaved = append(unsaved, p); len(unsaved) == betweenSaves {
				for _, p := range unsaved {
					p.Above(s.Levels()).AppendBinary(nil)
				}
				save += time.Since(added)
				unsaved = nil
			}
		}
	}
	perRow := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(b.N) / (blocks * rows) }
	b.ReportMetric(perRow(take), "take-ns/row")
	b.ReportMetric(perRow(add), "add-ns/row")
	b.ReportMetric(perRow(save), "save-ns/row")
}

// BenchmarkManyBlocks is a stream of blocks with two or three rows each in the final
// sample. It measures the additional work of a worker (take) and the loop (add) per
// block, with garbage collection, and the sample's memory per block without ids.
func BenchmarkManyBlocks(b *testing.B) {
	const blocks, rows = 50_000, 1200
	r := rand.New(rand.NewPCG(1, 2))
	var distinct [4]*incremental.Block
	for i := range distinct {
		distinct[i] = benchBlock(rows, 10)
	}
	totals := totalsOf(distinct[0])
	ids, digests := make([]string, blocks), make([][32]byte, blocks)
	for i := range ids {
		ids[i] = fmt.Sprintf("points/0/%d", i*rows)
		binary.LittleEndian.PutUint64(digests[i][:], r.Uint64())
	}
	var take, add time.Duration
	var held *Sample
	memory := func() (m runtime.MemStats) {
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m
	}
	before := memory()
	for b.Loop() {
		held = New(Settings{Rows: 50_000}, func(func(string) bool) {})
		var t Taker
		for i, id := range ids {
			began := time.Now()
			p := t.Take(distinct[i%len(distinct)], digests[i], totals, held.Levels())
			taken := time.Now()
			held.Add(id, p)
			take, add = take+taken.Sub(began), add+time.Since(taken)
		}
	}
	after := memory()
	perBlock := func(sum float64, name string) { b.ReportMetric(sum/blocks, name+"/block") }
	perBlock(float64(take.Nanoseconds())/float64(b.N), "take-ns")
	perBlock(float64(add.Nanoseconds())/float64(b.N), "add-ns")
	perBlock(float64(after.Mallocs-before.Mallocs)/float64(b.N), "objects")
	perBlock(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N), "B")
	perBlock(float64(after.HeapObjects-before.HeapObjects), "live-objects")
	perBlock(float64(after.HeapAlloc-before.HeapAlloc), "live-B")
	runtime.KeepAlive(held)
}

// BenchmarkAdd measures the loop's additional work per added and per retired block.
func BenchmarkAdd(b *testing.B) {
	s := deep(10, 3000)
	block := benchBlock(10_000, 10)
	totals := totalsOf(block)
	var t Taker
	var parts []*Part
	for i := range 1000 {
		parts = append(parts, t.Take(block, [32]byte{byte(i), byte(i >> 8), 1}, totals, s.Levels()))
	}
	for i := 0; b.Loop(); i++ {
		p := parts[i%len(parts)]
		s.Add("a", p)
		s.Remove("a", p)
		s.Unsure(1)
	}
}

// smallState returns a state of few rows, for snapshots of deep(10, …).
func smallState(b *testing.B) *incremental.State {
	var z incremental.Summariser
	summary, err := z.Summarise(benchBlock(100, 10))
	if err != nil {
		b.Fatal(err)
	}
	state := incremental.NewState(make([]string, 10))
	state.Add(summary)
	return state
}

func BenchmarkSnapshot(b *testing.B) {
	s, state := deep(10, 3000), smallState(b)
	for b.Loop() {
		s.Snapshot(state, 5)
	}
}

func BenchmarkView(b *testing.B) {
	s, state := deep(10, 3000), smallState(b)
	for b.Loop() {
		if v := s.Snapshot(state, 5).View(); v.Block.Rows() != 50_000 {
			b.Fatal(v.Block.Rows())
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	block := benchBlock(10_000, 10)
	totals := totalsOf(block)
	var t Taker
	p := t.Take(block, [32]byte{1}, totals, deep(10, 3000).Levels())
	size := 0
	for b.Loop() {
		size = len(p.AppendBinary(nil))
	}
	b.ReportMetric(float64(size), "bytes")
}

// BenchmarkRestore restores the parts of a long stream.
func BenchmarkRestore(b *testing.B) {
	block := benchBlock(1000, 10)
	totals := totalsOf(block)
	var t Taker
	const blocks = 20_000
	s := New(Settings{Rows: 50_000}, func(func(string) bool) {})
	encoded := make([][]byte, blocks)
	size := 0
	for i := range encoded {
		p := t.Take(block, [32]byte{byte(i), byte(i >> 8), 2}, totals, s.Levels())
		s.Add(fmt.Sprint(i), p)
		encoded[i] = p.AppendBinary(nil)
		size += len(encoded[i])
	}
	ids := func(yield func(string) bool) {
		for i := range blocks {
			if !yield(fmt.Sprint(i)) {
				return
			}
		}
	}
	for b.Loop() {
		r := New(Settings{Rows: 50_000}, ids)
		err := r.Restore(func(yield func(string, *Part)) error {
			for i, e := range encoded {
				p, err := DecodePart(e)
				if err != nil {
					return err
				}
				yield(fmt.Sprint(i), p)
			}
			return nil
		})
		if err != nil || r.Lacking() > 0 {
			b.Fatal(err, r.Lacking())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
	b.ReportMetric(float64(size)/blocks, "bytes/block")
}
