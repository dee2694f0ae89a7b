package daemon

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/kafka"
	"streamd/retire"
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
	var key *receipt.Key
	if path := flags["receipts.key_file"]; path != "" {
		if key, _, _, err = receipt.OpenKey(path, ""); err != nil {
			t.Fatal(err)
		}
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

// A retirement on request makes room under the policy, and ends a block that is still growing. So
// it decides about later blocks, and the replay retires the block at the same place. That needs the
// log's key.
func TestReplayOfRoom(t *testing.T) {
	rows := func(milliseconds ...int64) (all []message) {
		for i, ms := range milliseconds {
			all = append(all, message{value: fmt.Appendf(nil, `{"label":%d,"x":%d}`, i%2, ms), contentType: "application/json", time: time.UnixMilli(lawEpoch + ms)})
		}
		return all
	}
	in := func(partition int, all []message) []message {
		for i := range all {
			all[i].partition = partition
		}
		return all
	}
	for name, c := range map[string]struct {
		flags         map[string]string
		before, after []message
		retired       string   // what comes after the topic
		live          []string // likewise
	}{
		"blocks": {
			map[string]string{"retire.keep": "blocks", "retire.blocks": "5"},
			rows(0, 1, 2, 3, 4), rows(5), "/0/2", []string{"/0/0", "/0/1", "/0/3", "/0/4", "/0/5"},
		},
		"rows": {
			map[string]string{"retire.keep": "rows", "retire.rows": "2"},
			rows(0, 1), rows(2), "/0/1", []string{"/0/0", "/0/2"},
		},
		"age": { // the first record has a clock that is wrong
			map[string]string{"retire.keep": "age", "retire.age": "30s"},
			rows(3_600_000), rows(0, 1000), "/0/0", []string{"/0/1", "/0/2"},
		},
		"a growing block": {
			map[string]string{"blocks.unit": "offsets", "blocks.offsets": "4"},
			rows(0, 1), rows(2, 3, 4), "/0/0", []string{"/0/2", "/0/4"},
		},
		"a growing block of the archive": { // would be live if it had gone on
			map[string]string{"blocks.unit": "offsets", "blocks.offsets": "4", "retire.keep": "blocks", "retire.blocks": "1", "retire.archive": "true"},
			slices.Concat(in(1, rows(100)), rows(0, 1)), rows(200), "/0/0", []string{"/0/2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			name, folder := topic(t, 2), t.TempDir()
			file := filepath.Join(folder, "streamd.db")
			flags := withReceipts(folder, map[string]string{"blocks.unit": "message"})
			maps.Copy(flags, c.flags)
			d := start(t, name, file, flags)
			read := int64(0)
			for _, m := range c.before { // one by one, so that their order is this one in all partitions
				produce(t, name, m)
				read++
				d.waitForOffsetsRead(read)
			}
			d.retire(name + c.retired)
			produce(t, name, c.after...)
			d.waitForOffsetsRead(read + int64(len(c.after)))
			d.stop()
			var live []string
			for _, id := range slices.Sorted(d.live.IDs) {
				live = append(live, strings.TrimPrefix(id, name))
			}
			if !slices.Equal(live, c.live) {
				t.Fatalf("live are %s, want %s", live, c.live)
			}
			r, _, err := replay(t, name, file, flags)
			if err != nil {
				t.Fatal(err)
			}
			if r.Side != r.Saved || r.Side != d.live.Side() || len(r.Others)+len(r.Gone)+len(r.Unplaced)+len(r.Foreign) > 0 || r.Parted >= 0 || r.Blocks != len(live) {
				t.Errorf("the topic gives %+v", r)
			}
			if archived := flags["retire.archive"] != ""; !archived && (len(r.Left) != 1 || r.Left[0].Entry.ID != name+c.retired || r.Left[0].Kind != receipt.Retired) ||
				archived && (len(r.Left) != 0) {
				t.Errorf("left out are %+v", r.Left)
			}

			delete(flags, "receipts.key_file")
			if r, _, err = replay(t, name, file, flags); err != nil {
				t.Fatal(err)
			}
			if r.Side.Digest == r.Saved.Digest || len(r.Unplaced) != 1 || r.Unplaced[0].Receipt != 1 && flags["retire.archive"] == "" {
				t.Errorf("without the key the topic gives %+v", r)
			}
		})
	}
}

// A request makes room under the policy, also one for a withdrawn block, whose place it frees. Both
// leave a receipt, at whose offsets the replay takes the blocks out.
func TestReplayOfFreedPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		free func(o *offline) error
		kind receipt.Kind
		left []string
	}{
		"a request for live blocks": {func(o *offline) error {
			_, err := o.retire(httpapi.Selector{IDs: []string{"t/0/0", "t/0/1"}}, false, access.Caller{})
			return err
		}, receipt.Retired, []string{"t/0/0", "t/0/1"}},
		"a request for a withdrawn block": {func(o *offline) error {
			o.follow([]control.Change{{Name: "0/a", Selection: &retire.Selection{IDs: []string{"t/0/2"}}}})
			o.saver.save()
			_, err := o.retire(httpapi.Selector{IDs: []string{"t/0/2"}}, false, access.Caller{})
			return err
		}, receipt.Purged, []string{"t/0/2"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &logHistory{log: [][]kafka.Record{nil}, r: rand.New(rand.NewPCG(26, 2))}
			h.flags = offlineFlags(t, withReceipts(t.TempDir(), map[string]string{
				"blocks.unit": "message", "retire.keep": "blocks", "retire.blocks": "5", "retire.topic": "control",
			}))
			o := h.open(t, h.flags, false)
			for i := range int64(5) {
				h.log[0] = append(h.log[0], after(i, time.Duration(10+i)*time.Second))
			}
			o.deliver(0, slices.Clone(h.log[0]), 5)
			if err := c.free(o); err != nil {
				t.Fatal(err)
			}
			late := after(5, 0)
			h.log[0] = append(h.log[0], late)
			o.deliver(0, []kafka.Record{late}, 6)
			if _, live := o.live.Get("t/0/5"); !live {
				t.Fatalf("the late block has no room beside %v", o.ids())
			}
			o.saver.save()
			head, err := o.store.LogHead()
			if err != nil {
				t.Fatal(err)
			}
			proof, err := o.Receipt(t.Context(), head.Size-1)
			if err != nil {
				t.Fatal(err)
			}
			o.store.Close()
			h.auditSnapshot(t, o, proof)
			r := h.replay(t, o)
			if r.Side != r.Saved || r.Side != o.live.Side() || len(r.Others)+len(r.Unplaced) > 0 {
				t.Errorf("the topic gives %+v", r)
			}
			var left []string
			for _, each := range r.Left {
				left = append(left, each.Entry.ID)
				if each.Kind != c.kind {
					t.Errorf("left out is %+v", each)
				}
			}
			if !slices.Equal(left, c.left) {
				t.Errorf("left out are %v, want %v", left, c.left)
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

// A receipt from before its topic was deleted and made again says nothing about the blocks of the
// new one, even if they have the same ids and rows.
func TestReplayOfATopicThatWasMadeAgain(t *testing.T) {
	h := &logHistory{log: [][]kafka.Record{nil}, flags: offlineFlags(t, withReceipts(t.TempDir(), map[string]string{"blocks.unit": "message", "retire.keep": "blocks", "retire.blocks": "5"}))}
	o := openOffline(t, h.flags, false)
	for i := range int64(7) {
		h.log[0] = append(h.log[0], after(i, time.Duration(i)*time.Millisecond))
	}
	o.deliver(0, slices.Clone(h.log[0]), 7)
	if _, err := o.retire(httpapi.Selector{IDs: []string{"t/0/4"}}, false, access.Caller{}); err != nil {
		t.Fatal(err)
	}
	if err := o.intake.Jump(t.Context(), &kafka.GapError{Partition: 0, Reset: true}, 0); err != nil {
		t.Fatal(err)
	}
	h.log[0] = h.log[0][:6]
	o.deliver(0, slices.Clone(h.log[0]), 6)
	o.saver.save()
	o.store.Close()
	if r := h.replay(t, o); r.Side != r.Saved || r.Blocks != 5 || len(r.Left) > 0 || len(r.Unplaced) != 1 || r.Unplaced[0].Receipt != 1 || len(r.Foreign) > 0 || r.Parted >= 0 {
		t.Errorf("the topic gives %+v", r)
	}
}

// Rows that come again after their retirement have the digest of an earlier receipt, in another
// block. The snapshot is then that of no receipt, and nothing is wrong.
func TestSnapshotOfRowsThatCameAgain(t *testing.T) {
	h := &logHistory{r: rand.New(rand.NewPCG(26, 1))}
	o := openOffline(t, offlineFlags(t, withReceipts(t.TempDir(), map[string]string{"blocks.unit": "message"})), false)
	again := after(0, 0)
	o.deliver(0, []kafka.Record{after(0, 0), after(1, time.Second)}, 2)
	for _, id := range []string{"t/0/1", "t/0/0"} {
		if _, err := o.retire(httpapi.Selector{IDs: []string{id}}, false, access.Caller{}); err != nil {
			t.Fatal(err)
		}
	}
	proof, err := o.Receipt(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	again.Offset = 2
	o.deliver(0, []kafka.Record{again}, 3)
	o.saver.save()
	o.store.Close()
	h.auditSnapshot(t, o, proof)
}

// pastTopic is the log of a history as a topic.
type pastTopic struct{ *logHistory }

func (p pastTopic) Close() {}

func (p pastTopic) Log(context.Context) (log []kafka.Range, err error) {
	for partition, all := range p.log {
		if len(all) > 0 {
			log = append(log, kafka.Range{Partition: partition, From: all[0].Offset, To: p.end(partition)})
		}
	}
	return log, nil
}

func (p pastTopic) Read(ctx context.Context, ranges []kafka.Range, deliver func(context.Context, *kafka.Batch) error) ([]kafka.Lost, error) {
	for _, r := range ranges {
		for _, b := range batches(r.Partition, between(p.log[r.Partition], r.From, r.To), r.To) {
			if err := deliver(ctx, b); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// replay replays the log of a history up to the snapshot of a daemon that has ended.
func (h *logHistory) replay(t *testing.T, o *offline) *Replayed {
	t.Helper()
	store, saved, err := snapshot.OpenReadOnly(o.cfg.Snapshot.File)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	flags := maps.Clone(h.flags)
	flags["snapshot.file"] = filepath.Join(t.TempDir(), "unused.db")
	r, err := replayTopic(t.Context(), Options{Config: load(t, flags), Log: zerolog.Nop()}, func(*Daemon) (topicReader, error) { return pastTopic{h}, nil },
		store, saved, o.receipts.key, func(int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	if r.Blocks != len(saved.Entries) {
		t.Errorf("the topic gives %d blocks, the snapshot has %v", r.Blocks, saved.Entries)
	}
	return r
}

// checkReplay replays the log of a history, with the same outcome as the daemon that has ended. The
// replay does not read the control topic, so it leaves withdrawn blocks out at the end.
func (h *logHistory) checkReplay(t *testing.T, o *offline) {
	t.Helper()
	r := h.replay(t, o)
	if r.Side != r.Saved || r.Side != o.live.Side() || r.Rows != o.live.Rows() || len(r.Others)+len(r.Unplaced)+len(r.Foreign) > 0 || r.Parted >= 0 {
		t.Errorf("the topic gives %+v, live are %s", r, o.ids())
	}
	for _, left := range r.Left {
		if left.Kind == 0 && !left.Withdrawn {
			t.Errorf("nothing says how %+v has left", left)
		}
	}
}
