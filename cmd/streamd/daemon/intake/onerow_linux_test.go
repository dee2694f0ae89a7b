package intake

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"
	"golang.org/x/sys/unix"

	"streamd/cmd/streamd/model"
	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
)

// BenchmarkOneRow takes messages of one row of 10 features, which are gathered to blocks of 10,000.
// worker is the work that spreads over the processors, and loop the work that is done in turn.
func BenchmarkOneRow(b *testing.B) {
	const n, perBatch = 10, 2000
	const distinct = 10_007 // a prime, so that no block has the rows of another one
	var fields, names []string
	for j := range n {
		names = append(names, fmt.Sprintf("x%d", j+1))
		fields = append(fields, fmt.Sprintf(`{"name":"x%d","type":"double"}`, j+1))
	}
	text := `{"type":"record","name":"Row","fields":[{"name":"label","type":"string"},` + strings.Join(fields, ",") + `]}`
	s := avro.MustParse(text)
	r := rand.New(rand.NewPCG(93, 1))
	inAvro, inJSON := make([][]byte, distinct), make([][]byte, distinct)
	for i := range distinct {
		row := map[string]any{"label": []string{"ham", "spam"}[i%2]}
		line := fmt.Appendf(nil, `{"label":%q`, row["label"])
		for _, name := range names {
			x := float64(float32(r.NormFloat64()))
			row[name] = x
			line = fmt.Appendf(line, `,%q:%v`, name, x)
		}
		payload, err := s.Encode(row)
		if err != nil {
			b.Fatal(err)
		}
		inAvro[i], inJSON[i] = registrytest.Frame(1, payload), append(line, '}')
	}
	for _, c := range []struct {
		name   string
		values [][]byte
	}{{"Avro", inAvro}, {"JSON", inJSON}} {
		b.Run(c.name, func(b *testing.B) {
			in := stored(b, nil, map[string]string{"blocks.unit": "offsets", "blocks.offsets": "10000", "format.features": strings.Join(names, ",")}, names...)
			served := &model.Served{}
			in.Served = func(*[]string) *model.Served { return served }
			in = knowing(in, registered{1: {ID: 1, Kind: registry.Avro, Text: text}})
			in.room.Store(1 << 30)
			w := newWorker(in.pool)
			records := make([]kafka.Record, perBatch)
			var worker, loop time.Duration // of this thread: other programs do not count
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			offset := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				for i := range records {
					records[i] = kafka.Record{Offset: offset, Time: time.UnixMilli(offset), Value: c.values[offset%distinct]}
					offset++
				}
				y := newDelivery(kafka.NewBatch(0, records, kafka.Saved{Next: offset}))
				began := threadTime(b)
				for _, x := range y.tasks {
					w.do(b.Context(), x)
					close(x.done)
				}
				done := threadTime(b)
				if err := in.Apply(b.Context(), y); err != nil {
					b.Fatal(err)
				}
				worker, loop = worker+done-began, loop+threadTime(b)-done
				in.Release(y)
			}
			rows := float64(b.N) * perBatch
			if got := in.Report().Rows; float64(got.Read) < rows || got.Rejected > 0 {
				b.Fatalf("the rows are %+v", got)
			}
			b.ReportMetric(float64(worker.Nanoseconds())/rows, "worker-ns/row")
			b.ReportMetric(float64(loop.Nanoseconds())/rows, "loop-ns/row")
		})
	}
}

// threadTime is the processor's time that the thread has taken.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
