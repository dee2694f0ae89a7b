package intake

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"

	"github.com/rs/zerolog"
)

// stored is an intake whose live set is that of a new file, as the daemon's is, with receipts or
// without a key.
func stored(t testing.TB, key *receipt.Key, flags map[string]string, features ...string) *Intake {
	t.Helper()
	in := idle(t, flags)
	store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	l, _, err := live.Open(store, contents, in.Config, in.Budget, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if key != nil {
		if err := l.KeepReceipts(key); err != nil {
			t.Fatal(err)
		}
	}
	l.Fix(features)
	s := in.Settings
	s.Live = l
	return New(s)
}

// keyed is an intake of blocks that message keys name, with receipts or without.
func keyed(t testing.TB, receipts bool) (*Intake, *receipt.Key) {
	t.Helper()
	private, err := receipt.GenerateKey(rand.Reader, "test")
	if err != nil {
		t.Fatal(err)
	}
	key, err := receipt.ParseKey(private)
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{"blocks.unit": "key", "format.features": "a,b,c"}
	if !receipts {
		return stored(t, nil, flags, "a", "b", "c"), key
	}
	return stored(t, key, flags, "a", "b", "c"), key
}

func keyedRecord(offset int64, key string) kafka.Record {
	return kafka.Record{Offset: offset, Key: []byte(key), Time: time.UnixMilli(offset), Value: fmt.Appendf(nil, `{"label":%d,"a":%d,"b":1,"c":2}`, offset%2, offset)}
}

// A worker computes the key of the item of a block that is new, and only then. Whoever computes it,
// the live set has the same item.
func TestWorkersComputeItemKeys(t *testing.T) {
	in, key := keyed(t, true)
	w := newWorker(in.pool)
	in.room.Store(1 << 20)
	apply := func(offset int64, id string, byWorker bool) receipt.Hash {
		t.Helper()
		x := &task{records: []kafka.Record{keyedRecord(offset, id)}, done: make(chan struct{})}
		if byWorker {
			w.do(t.Context(), x)
			if len(x.results) != 1 || x.results[0].bad != nil {
				t.Fatalf("the worker gives %+v", x.results)
			}
		}
		var computed receipt.Hash
		if byWorker {
			computed = x.results[0].itemKey
		}
		if _, err := in.applyNext(t.Context(), in.partition(0), x, 0); err != nil {
			t.Fatal(err)
		}
		if item := in.Live.Item("key:" + id); item.Key != key.ItemKey("key:"+id) {
			t.Errorf("block %s has an item of the key %x", id, item.Key)
		}
		return computed
	}
	if got := apply(0, "x", true); got != key.ItemKey("key:x") {
		t.Errorf("the worker computes the key %x of a new block", got)
	}
	if got := apply(1, "x", true); got != (receipt.Hash{}) {
		t.Errorf("the worker computes the key %x of a block that is there", got)
	}
	apply(2, "y", false)
	if got := apply(3, "y", true); got != (receipt.Hash{}) {
		t.Errorf("the worker computes the key %x of a block that the loop has added", got)
	}
	if got := in.Live.Blocks(); got != 2 {
		t.Errorf("%d blocks are live", got)
	}
	for _, without := range []bool{true, false} {
		in, _ := keyed(t, !without)
		if got := in.Live.Target().ItemKey("t/0/7"); got != (receipt.Hash{}) {
			t.Errorf("a position names the block, and the worker computes the key %x", got)
		}
		if got := in.Live.Target().ItemKey("key:z"); (got == receipt.Hash{}) != without {
			t.Errorf("without receipts: %v, and the worker computes the key %x", without, got)
		}
	}
}

// BenchmarkNewKeys takes blocks of a row that new message keys name, with receipts and without.
func BenchmarkNewKeys(b *testing.B) {
	for _, receipts := range []bool{false, true} {
		b.Run(fmt.Sprintf("receipts=%v", receipts), func(b *testing.B) {
			in, _ := keyed(b, receipts)
			in.room.Store(1 << 30)
			applyAll(b, in, func(i int64) kafka.Record { return keyedRecord(i, fmt.Sprint("customer-", i)) })
			if got := in.Live.Blocks(); got != b.N {
				b.Fatalf("%d blocks are live, of %d", got, b.N)
			}
		})
	}
}

// applyAll has the intake take b.N records, with two workers.
func applyAll(b *testing.B, in *Intake, record func(i int64) kafka.Record) {
	b.Helper()
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() { in.Work(b.Context()) })
	}
	const batch = 4096
	b.ResetTimer()
	go func() {
		for from := 0; from < b.N; from += batch {
			var records []kafka.Record
			for i := from; i < min(from+batch, b.N); i++ {
				records = append(records, record(int64(i)))
			}
			if err := in.Deliver(b.Context(), kafka.NewBatch(0, records, kafka.Saved{Next: int64(from + len(records))})); err != nil {
				panic(err)
			}
		}
		in.Close()
	}()
	for y := range in.Deliveries() {
		if err := in.Apply(b.Context(), y); err != nil {
			b.Fatal(err)
		}
	}
	workers.Wait()
}

// A worker computes the key of the item of a block that comes as sums, also of a single row.
func TestWorkersComputeItemKeysOfSums(t *testing.T) {
	in, key := keyed(t, true)
	in.room.Store(1 << 20)
	b := summary.Block{ID: retire.KeyID("x"), Position: incremental.Position{Topic: "rows"}, Time: time.UnixMilli(1).UTC()}
	row := &incremental.Block{Features: []string{"a", "b", "c"}, Classes: []string{"1"}, Codes: []int32{0}}
	for range 3 {
		row.Columns = append(row.Columns, gram.ColumnOf([]float64{2}))
	}
	if err := new(summary.Maker).Make(t.Context(), &b, row, nil); err != nil {
		t.Fatal(err)
	}
	value, err := b.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := kafka.Record{Key: []byte("x"), Value: value, Headers: []kafka.Header{{Key: "content-type", Value: []byte(summary.ContentType)}}, Time: time.UnixMilli(1)}
	z := newWorker(in.pool).process(t.Context(), &task{}, &r)
	if z.bad != nil || z.itemKey != key.ItemKey(b.ID) {
		t.Errorf("the worker computes the key %x: %v, %v", z.itemKey, z.bad, z.fatal)
	}
}
