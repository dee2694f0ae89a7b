//go:build unix

package daemon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// BenchmarkSmallBlocks delivers blocks of 100 rows to a daemon by its default settings: as fast as
// it takes them, and 10,000 a second. It measures the processor time of the process, with solves,
// studies and saves, but without fetching.
func BenchmarkSmallBlocks(b *testing.B) {
	const partitions, together = 4, 10
	payload, at := smallBlock(b)
	headers := []kafka.Header{{Key: "content-type", Value: []byte(wire.Arrow.ContentType())}}
	for _, rate := range []float64{math.Inf(1), 10_000} {
		b.Run(fmt.Sprintf("rate=%v", rate), func(b *testing.B) {
			d := start(b, topic(b, partitions), filepath.Join(b.TempDir(), "streamd.db"), map[string]string{"snapshot.interval": "1s"})
			d.until("an assignment", func() bool { return d.partitions() == partitions })
			next := [partitions]int64{}
			before, began, blocks := processorTime(b), time.Now(), int64(0)
			for b.Loop() {
				p := int(blocks) / together % partitions
				records := make([]kafka.Record, together)
				for i := range records {
					value := slices.Clone(payload)
					binary.LittleEndian.PutUint32(value[at:], math.Float32bits(float32(blocks)/(1<<24)))
					records[i] = kafka.Record{Offset: next[p], Time: time.UnixMilli(1e12 + blocks/together), Value: value, Headers: headers}
					next[p]++
					blocks++
				}
				y := kafka.NewBatch(p, records, kafka.Saved{Next: next[p], Last: kafka.FingerprintOf(&records[together-1])})
				if err := d.Deliver(b.Context(), y); err != nil {
					b.Fatal(err)
				}
				time.Sleep(time.Duration(float64(blocks)/rate*1e9) - time.Since(began))
			}
			d.waitForOffsets(blocks)
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(blocks), "cpu-µs/block")
			d.stop()
		})
	}
}

// smallBlock encodes a block of 100 rows. Its first number, at an offset of the payload, may be
// replaced.
func smallBlock(t testing.TB) (payload []byte, at int) {
	const rows, features = 100, 10
	const first = float32(1.2345678e-7)
	r := rand.New(rand.NewPCG(1, 1))
	block := &incremental.Block{Classes: []string{"-1", "1"}, Codes: make([]int32, rows)}
	for j := range features {
		column := make([]float32, rows)
		for i := range column {
			column[i] = float32(r.NormFloat64())
			if j == 0 && column[i]+float32(r.NormFloat64()) > 0 {
				block.Codes[i] = 1
			}
		}
		if j == 0 {
			column[0] = first
		}
		block.Columns = append(block.Columns, gram.ColumnOf(column))
	}
	payload, err := wire.Encode(nil, wire.Arrow, block)
	if err != nil {
		t.Fatal(err)
	}
	if at = bytes.Index(payload, binary.LittleEndian.AppendUint32(nil, math.Float32bits(first))); at < 0 {
		t.Fatal("the payload lacks its first number")
	}
	return payload, at
}

// processorTime is what this process has used.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
