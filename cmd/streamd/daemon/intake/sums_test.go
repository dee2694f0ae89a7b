package intake

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
)

// BenchmarkSums takes blocks of 10 features and 2 classes that come as sums, until they are live.
// No block comes twice. Each has the rows for the sample that a stage before the daemon would give
// it.
func BenchmarkSums(b *testing.B) {
	names := strings.Split("x1,x2,x3,x4,x5,x6,x7,x8,x9,x10", ",")
	in := stored(b, nil, map[string]string{"format.features": strings.Join(names, ",")}, names...)
	in.room.Store(1 << 30)
	values := sumsRecords(b, b.N)
	applyAll(b, in, func(i int64) kafka.Record {
		return kafka.Record{
			Offset: i, Time: time.UnixMilli(i), Value: values[i],
			Headers: []kafka.Header{{Key: "content-type", Value: []byte(summary.ContentType)}},
		}
	})
	if got := in.Report(); got.Records.Applied != int64(b.N) || in.Live.Blocks() != b.N {
		b.Fatalf("%d blocks are live: %+v", in.Live.Blocks(), got.Records)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}

// sumsRecords are blocks of 100 rows each, of which every thousandth has the same rows.
func sumsRecords(t testing.TB, n int) (values [][]byte) {
	r := rand.New(rand.NewPCG(71, 71))
	var m summary.Maker
	levels := sample.New(sample.Settings{Rows: 1, Seed: 1}, nil).Levels()
	made := make([]summary.Block, min(n, 1000))
	for i := range made {
		rows := &incremental.Block{Classes: []string{"-1", "1"}}
		for range 10 {
			x := make([]float32, 100)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			rows.Columns = append(rows.Columns, gram.ColumnOf(x))
		}
		for i := range 100 {
			rows.Codes = append(rows.Codes, int32(i%2))
		}
		if err := m.Make(context.Background(), &made[i], rows, levels); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		b := made[i%len(made)]
		b.Position = incremental.Position{Topic: "rows", Offset: int64(i)}
		b.ID, b.Last, b.Time = b.Position.String(), int64(i), time.UnixMilli(int64(i)).UTC()
		value, err := b.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return values
}

// Blocks that come as sums are counted with their rows, and a block that comes again as a
// repetition.
func TestSumsAreCounted(t *testing.T) {
	names := strings.Split("x1,x2,x3,x4,x5,x6,x7,x8,x9,x10", ",")
	in := stored(t, nil, map[string]string{"format.features": strings.Join(names, ",")}, names...)
	var records []kafka.Record
	for i, value := range sumsRecords(t, 3) {
		records = append(records, kafka.Record{Value: value, Headers: []kafka.Header{{Key: "content-type", Value: []byte(summary.ContentType)}}, Time: time.UnixMilli(int64(i))})
	}
	if err := feed(t, in, true, append(records, records[2])...); err != nil {
		t.Fatal(err)
	}
	if got, want := in.record.answer(nil, 0).Sums, (model.Sums{Blocks: 3, Rows: 300, Repeated: 1}); got == nil || *got != want {
		t.Errorf("the sums are %+v, want %+v", got, want)
	}
}
