package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// replay replays the topic of a snapshot that no daemon uses.
func replay(t *testing.T, name, file string, flags map[string]string) (*Replayed, *receipt.Key, error) {
	t.Helper()
	given := map[string]string{"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name, "snapshot.file": filepath.Join(t.TempDir(), "unused.db")}
	for k, v := range flags {
		given[k] = v
	}
	store, saved, err := snapshot.OpenReadOnly(file)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	key, _, _, err := receipt.OpenKey(flags["receipts.key_file"], "")
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	r, err := Replay(t.Context(), Options{Config: load(t, given), Log: zerolog.Nop()}, store, saved, key, func(n, of int64) {
		if n < last || n > of {
			t.Errorf("progress from %d to %d of %d", last, n, of)
		}
		last = n
	})
	return r, key, err
}

// The topic gives the state of the snapshot again, whatever the unit and the policy, without
// the blocks that were retired, and not a record beyond its offsets.
func TestReplay(t *testing.T) {
	for unit, more := range map[string]map[string]string{
		"message": {"retire.keep": "rows", "retire.rows": "160"},
		"key":     {},
		"offsets": {"blocks.offsets": "7", "retire.keep": "blocks", "retire.blocks": "4"},
		"time":    {"blocks.period": "4s", "retire.keep": "age", "retire.age": "30s"},
	} {
		t.Run(unit, func(t *testing.T) {
			name, folder := topic(t, 1), t.TempDir()
			file := filepath.Join(folder, "streamd.db")
			flags := withReceipts(folder, more)
			flags["blocks.unit"], flags["sample.rows"], flags["model.folds"] = unit, "50", "3"
			var messages []message
			for i := range 40 {
				m := keyed(t, fmt.Sprintf("k%d", i%11), uint64(i), 5, 0)
				m.time = time.UnixMilli(1_700_000_000_000 + 1000*int64(i))
				messages = append(messages, m)
			}
			if unit == "key" {
				messages[30].value = nil
			}
			messages[17].value = []byte("refused")
			produce(t, name, messages[:33]...)
			d := start(t, name, file, flags)
			d.waitForOffsetsRead(33)
			ids := slices.Sorted(d.live.IDs)
			var gone []string
			for _, id := range []string{ids[0], ids[len(ids)-1]} {
				gone = append(gone, d.retire(id).Block.ID)
			}
			d.stop()
			produce(t, name, messages[33:]...) // beyond the cut

			r, key, err := replay(t, name, file, flags)
			if err != nil {
				t.Fatal(err)
			}
			if r.Side != r.Saved || r.Side.Root == receipt.EmptyRoot || len(r.Others)+len(r.Gone) > 0 || r.Read != 33 {
				t.Errorf("the topic gives %+v", r)
			}
			if r.Side.Digest != d.live.Side().Digest {
				t.Error("it is not the digest that the daemon had")
			}
			var left []string
			for _, x := range r.Left {
				left = append(left, x.Entry.ID)
				if x.Withdrawn || x.Item.Key != key.ItemKey(x.Entry.ID) {
					t.Errorf("left out is %+v", x)
				}
			}
			slices.Sort(gone)
			if !slices.Equal(left, gone) {
				t.Errorf("left out are %s, and retired were %s", left, gone)
			}

			// Another policy or another unit gives another state.
			other := map[string]string{}
			for k, v := range flags {
				other[k] = v
			}
			switch unit {
			case "message":
				other["retire.rows"] = "60"
			case "offsets":
				other["retire.blocks"] = "1"
			case "time":
				other["retire.age"] = "9s"
			default:
				other["blocks.unit"] = "message"
				if _, _, err := replay(t, name, file, other); err == nil {
					t.Error("another unit passes")
				}
				return
			}
			if r, _, err = replay(t, name, file, other); err != nil || r.Side == r.Saved || len(r.Others) == 0 {
				t.Errorf("another policy gives %+v, %v", r, err)
			}
		})
	}
}

// Records that the log has no more are named, with the blocks that lack them; blocks that the
// control topic withdraws are known.
func TestReplayWithoutRecords(t *testing.T) {
	name, folder := topic(t, 1), t.TempDir()
	control := controlTopic(t, name)
	file := filepath.Join(folder, "streamd.db")
	flags := withReceipts(folder, map[string]string{"blocks.unit": "message", "retire.topic": control})
	payloads, _ := ndcBlocks(t, 6)
	for _, payload := range payloads {
		produce(t, name, message{value: payload, contentType: "application/vnd.apache.arrow.stream"})
	}
	id := func(offset int) string { return fmt.Sprintf("%s/0/%d", name, offset) }
	produce(t, control, message{key: []byte("r1"), value: fmt.Appendf(nil, `{"retire":{"ids":[%q]}}`, id(3))})
	d := start(t, name, file, flags)
	d.waitForOffsetsRead(6)
	d.until("a withdrawn block", func() bool { return d.Status().Withdrawn == 1 })
	d.retire(id(0))
	d.stop()
	r, _, err := replay(t, name, file, flags)
	if err != nil {
		t.Fatal(err)
	}
	if r.Side != r.Saved || len(r.Left) != 2 || r.Left[0].Entry.ID != id(0) || r.Left[0].Withdrawn || r.Left[1].Entry.ID != id(3) || !r.Left[1].Withdrawn {
		t.Errorf("the topic gives %+v", r)
	}
	deleteRecords(t, name, 2)
	if r, _, err = replay(t, name, file, flags); err != nil {
		t.Fatal(err)
	}
	if r.Side == r.Saved || !slices.Equal(r.Others, []string{id(1)}) || len(r.Left) != 1 || !slices.Equal(r.Gone, []kafka.Range{{From: 0, To: 2}}) {
		t.Errorf("the topic without two records gives %+v", r)
	}
	flags["kafka.topic"], flags["retire.topic"] = control, ""
	if _, _, err := replay(t, name, file, flags); err == nil {
		t.Errorf("another topic: %v", err)
	}
}
