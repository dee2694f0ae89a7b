package intake

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
)

// BenchmarkSums takes blocks of 10 features and 2 classes that come as sums, until they are live.
// Each has the rows for the sample that a stage before the daemon would give it.
func BenchmarkSums(b *testing.B) {
	in := idle(b, map[string]string{"format.features": "x1,x2,x3,x4,x5,x6,x7,x8,x9,x10"})
	in.room.Store(1 << 30)
	values := sumsRecords(b, min(b.N, 1<<16)) // more come again
	applyAll(b, in, func(i int64) kafka.Record {
		return kafka.Record{
			Offset: i, Time: time.UnixMilli(i), Value: values[i%int64(len(values))],
			Headers: []kafka.Header{{Key: "content-type", Value: []byte(summary.ContentType)}},
		}
	})
	if got := in.Report(); got.Records.Applied != int64(b.N) || got.Records.Rejected > 0 {
		b.Fatalf("%+v", got.Records)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}

// sumsRecords are blocks of 100 rows each.
func sumsRecords(t testing.TB, n int) (values [][]byte) {
	r := rand.New(rand.NewPCG(71, 71))
	var m summary.Maker
	levels := sample.New(sample.Settings{Rows: 1, Seed: 1}, nil).Levels()
	for i := range n {
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
		at := incremental.Position{Topic: "rows", Offset: int64(i)}
		b := &summary.Block{ID: at.String(), Position: at, Last: at.Offset, Time: time.UnixMilli(int64(i)).UTC()}
		if err := m.Make(context.Background(), b, rows, levels); err != nil {
			t.Fatal(err)
		}
		value, err := b.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return values
}
