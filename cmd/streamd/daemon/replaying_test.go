package daemon

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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
			ids := slices.Sorted(d.Live.IDs)
			var gone []string
			for _, id := range []string{ids[0], ids[len(ids)-1]} {
				gone = append(gone, d.retire(id).First[0].ID)
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
			if r.Side.Digest != d.Live.Side().Digest {
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
			for _, id := range slices.Sorted(d.Live.IDs) {
				live = append(live, strings.TrimPrefix(id, name))
			}
			if !slices.Equal(live, c.live) {
				t.Fatalf("live are %s, want %s", live, c.live)
			}
			r, _, err := replay(t, name, file, flags)
			if err != nil {
				t.Fatal(err)
			}
			if r.Side != r.Saved || r.Side != d.Live.Side() || len(r.Others)+len(r.Gone)+len(r.Unplaced)+len(r.Foreign) > 0 || r.Parted >= 0 || r.Blocks != len(live) {
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
			_, err := o.retire(retire.Selector{IDs: []string{"t/0/0", "t/0/1"}}, false, access.Caller{})
			return err
		}, receipt.Retired, []string{"t/0/0", "t/0/1"}},
		"a request for a withdrawn block": {func(o *offline) error {
			o.follow([]control.Change{{Name: "0/a", Selection: &retire.Selection{IDs: []string{"t/0/2"}}}})
			o.Saver.Save()
			_, err := o.retire(retire.Selector{IDs: []string{"t/0/2"}}, false, access.Caller{})
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
			if _, live := o.Live.Get("t/0/5"); !live {
				t.Fatalf("the late block has no room beside %v", o.ids())
			}
			o.Saver.Save()
			head, err := o.Store.LogHead()
			if err != nil {
				t.Fatal(err)
			}
			proof, err := o.Receipt(t.Context(), head.Size-1)
			if err != nil {
				t.Fatal(err)
			}
			o.Store.Close()
			h.auditSnapshot(t, o, proof)
			r := h.replay(t, o)
			if r.Side != r.Saved || r.Side != o.Live.Side() || len(r.Others)+len(r.Unplaced) > 0 {
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
	if _, err := d.Retire(t.Context(), retire.Selector{IDs: []string{id(0)}}, httpapi.RetireOptions{Here: true}); err != nil {
		t.Fatal(err)
	}
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
	if _, err := o.retire(retire.Selector{IDs: []string{"t/0/4"}}, false, access.Caller{}); err != nil {
		t.Fatal(err)
	}
	o.Live.DepartAtOnce(0) // the former blocks leave in slices
	o.jump(&kafka.GapError{Partition: 0, Reset: true}, 0)
	h.log[0] = h.log[0][:6]
	o.deliver(0, slices.Clone(h.log[0]), 6)
	o.Saver.Save()
	o.Store.Close()
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
		if _, err := o.retire(retire.Selector{IDs: []string{id}}, false, access.Caller{}); err != nil {
			t.Fatal(err)
		}
	}
	proof, err := o.Receipt(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	again.Offset = 2
	o.deliver(0, []kafka.Record{again}, 3)
	o.Saver.Save()
	o.Store.Close()
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
	store, saved, err := snapshot.OpenReadOnly(o.Config.Snapshot.File)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	flags := maps.Clone(h.flags)
	flags["snapshot.file"] = filepath.Join(t.TempDir(), "unused.db")
	r, err := replayTopic(t.Context(), Options{Config: load(t, flags), Log: zerolog.Nop()}, func(*Daemon) (topicReader, error) { return pastTopic{h}, nil },
		store, saved, o.receipts.Key, func(int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	if r.Blocks != len(saved.Entries) {
		t.Errorf("the topic gives %d blocks, the snapshot has %v", r.Blocks, saved.Entries)
	}
	return r
}

// replayedCuts counts the live sets that were compared in histories with a control topic.
var replayedCuts atomic.Int64

// checkReplay replays the log of a history, with the same outcome as the daemon that has ended. The
// replay does not read the control topic: the receipts say what that has moved.
func (h *logHistory) checkReplay(t *testing.T, o *offline) {
	t.Helper()
	r := h.replay(t, o)
	if r.Side != r.Saved || r.Side != o.Live.Side() || r.Rows != o.Live.Rows() || len(r.Others)+len(r.Unplaced)+len(r.Foreign)+len(r.Untold) > 0 || r.Parted >= 0 {
		t.Errorf("the topic gives other live sets: others %v, unplaced %v, foreign %v, parted %d, untold %v; %v, live are %s", r.Others, r.Unplaced, r.Foreign, r.Parted, r.Untold, r, o.ids())
	}
	if h.flags["retire.topic"] != "" {
		replayedCuts.Add(int64(r.Compared))
	}
	for _, left := range r.Left {
		if left.Kind == 0 && !left.Withdrawn {
			t.Errorf("nothing says how %+v has left", left)
		}
	}
}

// controlled is a daemon with a control topic, whose log and control topic the test writes.
type controlled struct {
	*logHistory
	*offline
	t *testing.T
}

func startControlled(t *testing.T, more map[string]string) *controlled {
	t.Helper()
	flags := withReceipts(t.TempDir(), map[string]string{"blocks.unit": "message", "retire.topic": "control", "model.folds": "0"})
	maps.Copy(flags, more)
	h := &logHistory{log: make([][]kafka.Record, 1), flags: offlineFlags(t, flags), r: rand.New(rand.NewPCG(33, 7))}
	return &controlled{h, h.open(t, h.flags, false), t}
}

// come delivers records, each a millisecond after the one before. A key of "" is none.
func (c *controlled) come(keys ...string) {
	for _, key := range keys {
		offset := int64(len(c.log[0]))
		r := after(offset, time.Duration(offset)*time.Millisecond)
		if key != "" {
			r.Key = []byte(key)
		}
		c.log[0] = append(c.log[0], r)
	}
	c.deliver(0, between(c.log[0], c.at[0], int64(len(c.log[0]))), int64(len(c.log[0])))
	c.FlushRuns()
}

// say writes a record of the control topic, which the daemon takes. Without ids it takes the name's
// selection back, and what that had withdrawn is given back.
func (c *controlled) say(name string, ids ...string) {
	change := control.Change{Name: name}
	if len(ids) > 0 {
		change.Selection = &retire.Selection{IDs: ids}
	}
	c.logHistory.control = append(c.logHistory.control, change)
	c.follow([]control.Change{change})
	c.giveBack()
}

func (c *controlled) ask(id string) int64 {
	c.t.Helper()
	done, err := c.offline.retire(retire.Selector{IDs: []string{id}}, false, access.Caller{})
	if err != nil {
		c.t.Fatal(err)
	}
	return done.Receipts[len(done.Receipts)-1]
}

func (c *controlled) again() { c.offline = c.restart(c.t, c.offline) }

// ends saves, and replays the topic.
func (c *controlled) ends() *Replayed {
	c.t.Helper()
	c.Saver.Save()
	if err := c.Store.Close(); err != nil {
		c.t.Fatal(err)
	}
	return c.replay(c.t, c.offline)
}

// leaves are the numbers of the log's leaves of a kind.
func (c *controlled) leaves(kind receipt.Kind) (numbers []int64) {
	c.t.Helper()
	head, err := c.Store.LogHead()
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range head.Size {
		text, err := c.Store.Leaf(i)
		if err != nil {
			c.t.Fatal(err)
		}
		leaf, err := receipt.DecodeLeaf(text)
		if err != nil {
			c.t.Fatal(err)
		}
		if leaf.Kind == kind {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// The live sets of an honest daemon with a control topic are those of its topic and its receipts,
// at every cut, whatever the control topic takes out and gives back, and when.
func TestReplayWithAControlTopic(t *testing.T) {
	for name, of := range map[string]struct {
		flags    map[string]string
		do       func(c *controlled)
		compared int
		excluded int // leaves
	}{
		"withdrawn after it was saved": {nil, func(c *controlled) {
			c.come("", "", "")
			c.Saver.Save()
			c.say("a", "t/0/1")
			c.ask("t/0/0")
		}, 2, 0},
		"withdrawn before it came": {nil, func(c *controlled) {
			c.say("a", "t/0/1")
			c.come("", "", "")
			c.ask("t/0/0")
		}, 2, 1},
		"withdrawn between two receipts": {nil, func(c *controlled) {
			c.come("", "", "")
			c.say("a", "t/0/1")
			c.ask("t/0/0")
			c.come("", "")
			c.ask("t/0/3")
		}, 3, 1},
		"given back": {nil, func(c *controlled) {
			c.say("a", "t/0/1", "t/0/2")
			c.come("", "", "", "")
			c.Saver.Save()
			c.say("a", "t/0/2")
			c.ask("t/0/0")
			c.say("a")
			c.again()
			c.ask("t/0/3")
		}, 4, 1}, // the crash has lost what was given back last, and the start gives it back again
		"given back before a receipt": {nil, func(c *controlled) {
			c.say("a", "t/0/1")
			c.come("", "", "")
			c.say("a")
			c.ask("t/0/0")
		}, 2, 0},
		"taken out again": {nil, func(c *controlled) {
			c.come("", "", "")
			c.Saver.Save()
			for range 3 {
				c.say("a", "t/0/1")
				c.Saver.Save()
				c.say("a")
				c.Saver.Save()
			}
			c.ask("t/0/1")
		}, 7, 0},
		"retired on request": {nil, func(c *controlled) {
			c.say("a", "t/0/1")
			c.come("", "", "")
			c.ask("t/0/1") // frees its place
			c.ask("t/0/2")
		}, 3, 1},
		"evicted": {map[string]string{"retire.keep": "blocks", "retire.blocks": "3"}, func(c *controlled) {
			c.say("a", "t/0/1", "t/0/2")
			c.come("", "", "")
			c.ask("t/0/0")
			c.come("", "", "", "")
			c.ask("t/0/5")
			c.come("")
			c.Saver.Save()
		}, 4, 1}, // also where the withdrawn blocks expire
		"archived": {map[string]string{"retire.keep": "blocks", "retire.blocks": "3", "retire.archive": "true"}, func(c *controlled) {
			c.say("a", "t/0/1", "t/0/2")
			c.come("", "", "", "", "")
			c.ask("t/0/3")
			c.say("a")
			c.ask("t/0/1")
			c.come("")
			c.ask("t/0/4")
		}, 5, 1},
		"a block that grows": {map[string]string{"blocks.unit": "offsets", "blocks.offsets": "4"}, func(c *controlled) {
			c.come("", "")
			c.Saver.Save()
			c.come("")
			c.say("a", "t/0/0")
			c.Saver.Save()
			c.come("", "", "")
			c.again()
			c.come("")
			c.ask("t/0/4")
			c.say("a")
			c.Saver.Save()
		}, 3, 1}, // no receipt has it with its third row
		"a key whose values come and go": {map[string]string{"blocks.unit": "key"}, func(c *controlled) {
			c.come("k", "l", "m")
			c.Saver.Save()
			c.say("a", "key:k") // the value that a receipt has
			c.Saver.Save()
			c.come("k", "k") // further ones, as they come
			c.ask("key:l")
			c.say("a")
			c.come("k")
			c.Saver.Save()
			c.say("a", "key:k")
			c.come("l")
			c.ask("key:m")
		}, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, of.flags)
			of.do(c)
			c.Saver.Save()
			if n := len(c.leaves(receipt.Excluded)); n != of.excluded {
				t.Errorf("%d leaves say which blocks are excluded, want %d", n, of.excluded)
			}
			r := c.ends()
			if r.Side != r.Saved || len(r.Others)+len(r.Unplaced)+len(r.Foreign)+len(r.Untold)+len(r.Gone) > 0 || r.Parted >= 0 || r.Compared != of.compared {
				t.Errorf("%d live sets were compared, want %d: %+v", r.Compared, of.compared, r)
			}
		})
	}
}

// A withdrawn block that the policy lets go of is not withdrawn any more. An open run among them is
// live when it grows and has room again, and the replay counts it as live, also where it does not
// see the run leave: it reads one partition after the other.
func TestReplayOfAnOpenRunThatComesBackTooOld(t *testing.T) {
	for name, of := range map[string]struct {
		flags map[string]string
		do    func(comes func(partition, second int), save, back func())
		asked string
	}{
		"expired while it was withdrawn": {map[string]string{"retire.keep": "age", "retire.age": "30s"}, func(comes func(partition, second int), _, back func()) {
			back()
			comes(1, 60)
			comes(0, 11)
			comes(0, 59)
		}, "t/1/0"},
		"expired, with a save": {map[string]string{"retire.keep": "age", "retire.age": "30s"}, func(comes func(partition, second int), save, back func()) {
			back()
			comes(1, 60)
			save()
			comes(0, 59)
			save()
		}, "t/1/0"},
		"as it comes back": {map[string]string{"retire.keep": "rows", "retire.rows": "4"}, func(comes func(partition, second int), _, back func()) {
			comes(1, 21)
			comes(1, 22)
			back()
			comes(0, 11)
			comes(0, 59)
		}, "t/0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "8"}
			maps.Copy(flags, of.flags)
			c := startControlled(t, flags)
			c.logHistory.log = append(c.logHistory.log, nil)
			comes := func(partition, second int) {
				offset := int64(len(c.log[partition]))
				r := after(offset, time.Duration(second)*time.Second)
				c.log[partition] = append(c.log[partition], r)
				c.deliver(partition, []kafka.Record{r}, offset+1)
				c.FlushRuns()
			}
			comes(0, 10)
			comes(1, 20)
			c.Saver.Save()
			c.say("a", "t/0/0")
			c.Saver.Save()
			of.do(comes, func() { c.Saver.Save() }, func() { // and nobody has read it again
				change := control.Change{Name: "a"}
				c.logHistory.control = append(c.logHistory.control, change)
				c.follow([]control.Change{change})
			})
			if e, live := c.Live.Get("t/0/0"); !live || e.Rows < 2 {
				t.Fatalf("the run is not let in: %+v", e)
			}
			c.ask(of.asked)
			var proofs [][]byte
			for _, number := range slices.Concat(c.leaves(receipt.Withdrawn), c.leaves(receipt.Purged)) {
				proof, err := c.Receipt(t.Context(), number)
				if err != nil {
					t.Fatal(err)
				}
				proofs = append(proofs, proof)
			}
			if len(proofs) != 2 {
				t.Errorf("%d receipts are about the run", len(proofs))
			}
			r := c.ends()
			if r.Side != r.Saved || r.Parted >= 0 || len(r.Others)+len(r.Unplaced)+len(r.Foreign)+len(r.Untold) > 0 {
				t.Errorf("the topic gives %+v", r)
			}
			for _, proof := range proofs {
				c.auditSnapshot(t, c.offline, proof)
			}
		})
	}
}

// A compacted topic has the last values of keys. What the live sets on the way were is not known
// any more, and nothing is wrong: the replay says which it did not compare.
func TestReplayOfACompactedTopic(t *testing.T) {
	c := startControlled(t, map[string]string{"blocks.unit": "key"})
	c.come("k", "l", "m", "n")
	c.say("a", "key:m")
	first := c.ask("key:l") - 1 // of the control topic
	c.come("k", "m")
	c.Saver.Save()
	c.come("k", "o")
	last := c.ask("key:n")
	if r := c.ends(); r.Side != r.Saved || r.Compared != 4 || len(r.Unplaced) > 0 {
		t.Errorf("before it is compacted, the topic gives %+v", r)
	}
	c.log[0] = slices.DeleteFunc(c.log[0], func(r kafka.Record) bool {
		return slices.ContainsFunc(c.log[0], func(later kafka.Record) bool {
			return later.Offset > r.Offset && string(later.Key) == string(r.Key)
		})
	})
	r := c.replay(t, c.offline)
	if r.Side != r.Saved || len(r.Foreign)+len(r.Untold)+len(r.Others) > 0 || r.Parted >= 0 || len(r.Unplaced) == 0 || r.Unplaced[0].Receipt != first {
		t.Errorf("the topic gives %+v", r)
	}
	for _, u := range r.Unplaced {
		if u.Receipt >= last || !strings.Contains(u.Why, "compaction") {
			t.Errorf("not compared is %+v", u)
		}
	}
	// Of other units no offset is missing for that reason.
	d := startControlled(t, nil)
	d.come("", "", "")
	cut := d.ask("t/0/0")
	d.come("")
	d.ask("t/0/1")
	d.Saver.Save()
	d.log[0] = slices.Delete(d.log[0], 1, 2)
	if r := d.ends(); r.Parted != cut {
		t.Errorf("a topic of messages that lacks one gives %+v", r)
	}
}

// A log that begins when blocks are withdrawn already says which.
func TestLogThatBeginsWithWithdrawnBlocks(t *testing.T) {
	c := startControlled(t, map[string]string{"receipts.key_file": ""})
	c.say("a", "t/0/1", "t/0/4")
	c.come("", "", "")
	c.Saver.Save()
	c.logHistory.flags["receipts.key_file"] = filepath.Join(t.TempDir(), "receipts.key")
	c.offline.flags = c.logHistory.flags
	c.again()
	c.come("", "", "")
	c.ask("t/0/0")
	if n := len(c.leaves(receipt.Excluded)); n != 1 {
		t.Errorf("%d leaves say which blocks are excluded", n)
	}
	if r := c.ends(); r.Side != r.Saved || len(r.Unplaced)+len(r.Foreign)+len(r.Untold) > 0 || r.Parted >= 0 || r.Compared != 2 {
		t.Errorf("the topic gives %+v", r)
	}
}
