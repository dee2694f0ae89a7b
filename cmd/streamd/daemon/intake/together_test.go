package intake

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"streamd/ingest/kafka"
)

// Records of one row each make the same blocks and counts, whether they are decoded together or one
// by one, by workers or by the loop, and whatever stands between them.
func TestRecordsTogetherAreRecordsAlone(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(44, seed))
		schema := "{c: {kind: category, values: [a, b], other: true, missing: own}, x: number"
		for i := range 30 { // so that rows take more memory than their records
			schema += fmt.Sprintf(", z%d: {kind: number, missing: zero}", i)
		}
		schema += "}"
		flags := map[string]string{
			"blocks.unit": "offsets", "blocks.offsets": "50", "dead_letters.policy": "skip", "format.weight": "w", "format.schema": schema,
		}
		faults := r.IntN(3) // per hundred
		records := make([]kafka.Record, 300+r.IntN(300))
		for i := range records {
			x := fmt.Sprint(r.NormFloat64())
			if faults > 0 && r.IntN(200) == 0 {
				x = "1e300" // it can be decoded, and not summed
			}
			value := fmt.Sprintf(`{"label":"%c","w":1,"x":%s,"c":"%c"}`, 'p'+rune(r.IntN(3)), x, 'a'+rune(r.IntN(4)))
			switch at := r.IntN(100); {
			case at < faults:
				value = value[:len(value)-1]
			case at < 2*faults:
				value += "\n" + value
			case at < 3*faults:
				value = `{"label":"p","w":0,"x":1,"c":"a"}`
			}
			records[i] = kafka.Record{Offset: int64(i), Time: time.UnixMilli(int64(i)), Value: []byte(value)}
			switch at := r.IntN(300); {
			case faults == 0:
			case at == 0:
				records[i].Value = nil
			case at == 1:
				records[i].OmittedHeaders = 1
			case at == 2:
				records[i].Time = time.UnixMilli(math.MaxInt64)
			}
		}
		var want Report
		var digest []byte
		for round, most := range []int{1, 40, len(records)} {
			for _, room := range []int64{1 << 30, 100_000, 0} {
				in := idle(t, flags)
				in.Live.Fix(in.Config.Format.Schema.Columns())
				in.Decoding.Schema = in.Config.Format.Schema
				in = New(in.Settings)
				w := newWorker(in.pool)
				for list := range slices.Chunk(slices.Clone(records), most) {
					y := newDelivery(kafka.NewBatch(0, list, kafka.Saved{Next: list[len(list)-1].Offset + 1}))
					for _, x := range y.tasks {
						in.room.Store(room) // the loop grants more
						w.do(t.Context(), x)
						close(x.done)
						if hand := in.inHand.Load(); hand > room {
							t.Errorf("seed %d: %d bytes are in hand, more than %d", seed, hand, room)
						}
					}
					if err := in.Apply(t.Context(), y); err != nil {
						t.Fatal(err)
					}
					in.Release(y)
				}
				if _, err := in.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				balances(t, in)
				if left := in.inHand.Load(); left != 0 {
					t.Errorf("seed %d: %d bytes stay in hand", seed, left)
				}
				got, of := in.Report(), in.Live.Features().Total().Digest()
				got.Latest = Refusing{} // it has the time
				if round == 0 && room == 1<<30 {
					want, digest = got, of[:]
					continue
				}
				if !reflect.DeepEqual(got, want) || !bytes.Equal(of[:], digest) {
					t.Fatalf("seed %d, %d records at a time, room for %d bytes:\n%+v, not\n%+v", seed, most, room, got, want)
				}
			}
		}
	}
}

// While the features are free each record has its own, also one behind a record that is refused.
func TestRowsOfFreeFeaturesStandAlone(t *testing.T) {
	in := idle(t, map[string]string{"blocks.unit": "offsets", "dead_letters.policy": "skip"})
	in.Live.Fix([]string{"x"})
	y := newDelivery(kafka.NewBatch(0, []kafka.Record{
		{Offset: 0, Value: []byte(`{"label":"a","x":1,"y":2,"z":3}`)},
		{Offset: 1, Value: []byte(`{"label":"a","x":1}`)},
	}, kafka.Saved{Next: 2}))
	newWorker(in.pool).do(t.Context(), y.tasks[0])
	close(y.tasks[0].done)
	in.Live.Fix(nil)
	in.Budget.Gathered = 8*(3+2) - 1 // the first row takes more
	if err := in.Apply(t.Context(), y); err != nil {
		t.Fatal(err)
	}
	if r := in.Report(); r.Records.Rejected != 1 || r.Rows.Pending != 1 {
		t.Errorf("%+v, %+v", r.Records, r.Rows)
	}
	if _, err := in.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := *in.Live.Target().Features; !slices.Equal(names, []string{"x"}) {
		t.Errorf("the features are %q", names)
	}
}
