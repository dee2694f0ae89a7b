package daemon

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/bbolt"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// putLog gives a snapshot the log of receipts of another one.
func putLog(t *testing.T, file, other string) {
	t.Helper()
	open := func(path string) *bbolt.DB {
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	from, to := open(other), open(file)
	err := from.View(func(of *bbolt.Tx) error {
		return to.Update(func(tx *bbolt.Tx) error {
			for _, name := range [][]byte{[]byte("receipts"), []byte("log hashes"), []byte("log")} {
				b, err := tx.CreateBucket(name)
				if err == nil {
					err = of.Bucket(name).ForEach(b.Put)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err := errors.Join(err, from.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
}

// A snapshot that still has a block is found not to be what its receipts left, also when further
// blocks have come since, without the private key and without the block's name.
func TestSnapshotThatKeepsARetiredBlock(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	honest, flags := filepath.Join(folder, "streamd.db"), withReceipts(folder, nil)
	produce(t, topic, customers(t)[:6]...)
	d := start(t, topic, honest, flags)
	d.await("six blocks", func() bool { return d.Live.Blocks() == 6 })
	id := slices.Sorted(d.Live.IDs)[0]
	d.retire(id)
	_, proof := d.ask(http.MethodGet, "/v1/receipts/proof/1")
	key := d.receipts.Key
	r, err := receipt.Check([]byte(proof), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	d.stop()
	for since := range 2 {
		if since > 0 {
			produce(t, topic, customers(t)[6])
			d := start(t, topic, honest, flags)
			d.await("six blocks", func() bool { return d.Live.Blocks() == 6 })
			d.stop()
		}
		report, err := audit.Snapshot(honest, r, key.Public(), nil, nil)
		if err != nil || !report.Proved || report.Since != since || report.Blocks != 5+since {
			t.Errorf("%d blocks later: %+v, %v", since, report, err)
		}
		dishonest := filepath.Join(folder, fmt.Sprintf("dishonest%d.db", since))
		d := start(t, topic, dishonest, map[string]string{"blocks.unit": "key"})
		d.await("all blocks", func() bool { return d.Live.Blocks() == 6+since })
		d.stop()
		putLog(t, dishonest, honest)
		named := map[string]receipt.Hash{id: key.ItemKey(id)}
		for _, c := range []struct {
			key   *receipt.Key
			named map[string]receipt.Hash
			want  string
		}{
			{nil, nil, "its blocks that had come by receipt 1 add up to the digest "},
			{nil, named, "the block " + id + " of the receipt is live in it"},
			{key, nil, "the block " + id + " of the receipt is live in it"},
		} {
			report, err := audit.Snapshot(dishonest, r, key.Public(), c.key, c.named)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d blocks later: %+v, %v, want %s", since, report, err, c.want)
			}
		}
	}
}

// dishonest is a daemon that signs what it likes. Its files, its log and its answers are its own.
type dishonest struct {
	*offline
	*logHistory
	folder string
}

// startDishonest starts a daemon that has learned six blocks, and has them in a file. It has that
// many rows in its sample, and further flags, each with its value.
func startDishonest(t *testing.T, unit string, rows int, further ...string) *dishonest {
	t.Helper()
	folder := t.TempDir()
	own := map[string]string{"blocks.unit": unit, "sample.rows": strconv.Itoa(rows)}
	for pair := range slices.Chunk(further, 2) {
		own[pair[0]] = pair[1]
	}
	flags := offlineFlags(t, withReceipts(folder, own))
	h := &logHistory{r: rand.New(rand.NewPCG(71, 1)), flags: flags, log: make([][]kafka.Record, 1)}
	o := openOffline(t, flags, false)
	for i := range int64(6) {
		r := after(i, time.Duration(i)*time.Second)
		if unit == "key" {
			r.Key = fmt.Append(nil, "k", i)
		}
		h.log[0] = append(h.log[0], r)
	}
	o.deliver(0, slices.Clone(h.log[0]), 6)
	if got := o.Live.Blocks() + o.Live.Archived(); got != 6 {
		t.Fatalf("%d blocks are live or archived", got)
	}
	return &dishonest{o, h, folder}
}

// items are those of the live blocks, without some.
func (d *dishonest) items(without ...receipt.Item) (items []receipt.Item) {
	for id := range d.Live.IDs {
		if i := d.Live.Item(id); !slices.Contains(without, i) {
			items = append(items, i)
		}
	}
	return items
}

// claim signs that an item has left the set of the live blocks and some others, and changes
// nothing. It returns the receipt, which passes by itself.
func (d *dishonest) claim(t *testing.T, gone receipt.Item, others ...receipt.Item) (*receipt.Receipt, string) {
	t.Helper()
	var tree receipt.Tree
	tree.Fill(append(d.items(), others...))
	since, side := tree.Mark(), d.Live.Side()
	left := &live.Departure{Leaf: receipt.Leaf{Kind: receipt.Retired, Items: receipt.ListHash([]receipt.Item{gone})}}
	left.Add(1, time.UnixMilli(lawEpoch))
	left.Before = receipt.Side{Digest: side.Digest, Root: tree.Root()}
	tree.Remove(gone.Key)
	left.After = receipt.Side{Digest: side.Digest, Root: tree.Root()}
	left.Change = tree.Prove(since, []receipt.Hash{gone.Key})
	p := d.receipts.Add(left, "anonymous")
	d.Saver.Save()
	proof, err := d.Receipt(t.Context(), p.Index)
	if err != nil {
		t.Fatal(err)
	}
	r, err := receipt.Check(proof, d.receipts.Key.Public())
	if err != nil {
		t.Fatalf("the claim does not pass by itself: %v", err)
	}
	path := filepath.Join(d.folder, fmt.Sprintf("%d.tlog-proof", p.Index))
	if err := os.WriteFile(path, proof, 0o644); err != nil {
		t.Fatal(err)
	}
	return r, path
}

// A daemon that keeps a block puts a decoy into its tree, with any contents or the block's own, and
// takes that out. No proof makes it the block's.
func TestDecoy(t *testing.T) {
	for unit, id := range map[string]string{"key": "key:k0", "message": "t/0/0"} {
		d := startDishonest(t, unit, 0)
		key, true0 := d.receipts.Key, d.Live.Item(id)
		for name, decoy := range map[string]receipt.Item{
			"a decoy": {Key: receipt.Hash{1}, Value: receipt.Hash{2}}, "a decoy with true contents": {Key: receipt.Hash{3}, Value: true0.Value},
			"another block's place": {Key: key.ItemKey("key:nobody"), Value: true0.Value},
		} {
			r, path := d.claim(t, decoy, decoy)
			for _, proof := range [][]byte{nil, key.ProveItemKey(id), key.ProveItemKey("key:nobody"), make([]byte, receipt.VRFProofSize)} {
				if _, err := r.Named(id, proof); err == nil {
					t.Errorf("%s passes for %s by the proof %x", name, id, proof)
				}
				if named := id; proof != nil || unit == "message" {
					if proof != nil {
						named += fmt.Sprintf("=%x", proof)
					}
					independent(t, false, path, receipt.PublicFile(d.offline.flags["receipts.key_file"]), "--block", named)
				}
			}
			d.Store.Close()
			if rep := d.logHistory.replay(t, d.offline); len(rep.Foreign) == 0 || rep.Parted < 0 {
				t.Errorf("%s: the topic gives %+v", name, rep)
			}
			d = startDishonest(t, unit, 0)
			key = d.receipts.Key
		}
		d.Store.Close()
	}
}

// A daemon that takes the block's own item out of the tree, and keeps the block, is found by a copy
// of its snapshot: by the id of a position, by a named key, or by the private key.
func TestBlockThatStays(t *testing.T) {
	for unit, id := range map[string]string{"key": "key:k0", "message": "t/0/0"} {
		d := startDishonest(t, unit, 0)
		key := d.receipts.Key
		r, _ := d.claim(t, d.Live.Item(id))
		d.Store.Close()
		named, err := r.Named(id, key.ProveItemKey(id))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			key   *receipt.Key
			named map[string]receipt.Hash
		}{{nil, map[string]receipt.Hash{id: named}}, {key, nil}, {key, map[string]receipt.Hash{id: named}}, {nil, nil}} {
			want := "the block " + id + " of the receipt is live in it"
			if unit == "key" && c.key == nil && c.named == nil {
				continue // nobody knows the id
			}
			if report, err := audit.Snapshot(d.Config.Snapshot.File, r, key.Public(), c.key, c.named); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v, %v, want %s", id, report, err, want)
			}
		}
	}
}

// A daemon that keeps the summary of a block in its archive, or the place of a withdrawn one, and
// signs that it is gone from there, is found by a copy of its snapshot: by the id of a position or
// by the private key. Blocks that the control topic takes out keep their places.
func TestBlockThatStaysInTheArchive(t *testing.T) {
	const id = "t/0/0"
	for name, c := range map[string]struct {
		withdrawn bool
		kind      receipt.Kind
		by        string
		back      receipt.Kind // of a later receipt; 0: there is none
		want      string
	}{
		"archived":                          {false, receipt.Purged, "anonymous", 0, "the block " + id + " of the receipt is archived in it"},
		"archived, by the log":              {false, receipt.Purged, "", 0, "the block " + id + " of the receipt is archived in it"},
		"archived, excluded":                {false, receipt.Excluded, "", 0, "the block " + id + " of the receipt is archived in it"},
		"archived, and returned":            {false, receipt.Purged, "", receipt.Returned, ""},
		"archived, and returned on request": {false, receipt.Purged, "anonymous", receipt.Returned, "the block " + id + " of the receipt is archived in it"},
		"withdrawn":                         {true, receipt.Purged, "anonymous", 0, "the block " + id + " of the receipt has its place among the withdrawn ones"},
		"withdrawn by the control topic":    {true, receipt.Purged, "", 0, ""},
		"withdrawn as it came":              {true, receipt.Excluded, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDishonest(t, "message", 0, "retire.keep", "blocks", "retire.blocks", "4", "retire.archive", "true")
			key := d.receipts.Key
			items := []receipt.Item{{Key: key.ItemKey(id), Value: receipt.Hash{1}}}
			d.Saver.Save() // the block expires
			if n := d.Live.Archived(); n != 2 {
				t.Fatalf("%d blocks are archived", n)
			}
			if c.withdrawn {
				if _, err := d.Live.Withdraw("0/0", &retire.Selection{IDs: []string{id}}); err != nil {
					t.Fatal(err)
				}
				if w, err := d.Live.FollowWithdrawals(); err != nil || w.Archived != 1 {
					t.Fatalf("%+v, %v", w, err)
				}
			}
			index := int64(0)
			for _, kind := range []receipt.Kind{c.kind, c.back} {
				if kind == 0 {
					continue
				}
				side, by := d.Live.Side(), c.by
				left := &live.Departure{
					Leaf:   receipt.Leaf{Kind: kind, Before: side, After: side, Items: receipt.ListHash(items)},
					Change: receipt.AppendItems(nil, items),
				}
				if left.Add(1, time.UnixMilli(lawEpoch)); kind == receipt.Returned {
					by = ""
				}
				p := d.receipts.Add(left, by)
				d.Saver.Save()
				if kind == c.kind {
					index = p.Index
				}
			}
			proof, err := d.Receipt(t.Context(), index)
			if err != nil {
				t.Fatal(err)
			}
			r, err := receipt.Check(proof, key.Public())
			if err != nil || r.Leaf.Kind != c.kind {
				t.Fatalf("the claim does not pass by itself: %v", err)
			}
			d.Store.Close()
			named, err := r.Named(id, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, by := range []struct {
				key   *receipt.Key
				named map[string]receipt.Hash
			}{{nil, map[string]receipt.Hash{id: named}}, {key, nil}, {nil, nil}} {
				report, err := audit.Snapshot(d.Config.Snapshot.File, r, key.Public(), by.key, by.named)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%+v, %v, want %q", report, err, c.want)
				}
			}
		})
	}
}

// A daemon that keeps the rows of a block in its sums under another id is found by the topic: it
// does not give that block, and gives another live set before the receipt.
func TestBlockThatStaysInTheSums(t *testing.T) {
	d := startDishonest(t, "key", 0)
	hidden := after(0, 0)
	hidden.Key, hidden.Offset = []byte("hidden"), 6
	d.offline.deliver(0, []kafka.Record{hidden}, 7) // the topic has no such record
	done, err := d.offline.retire(retire.Selector{IDs: []string{"key:k0"}}, false, access.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	proof, err := d.Receipt(t.Context(), done.Receipts[0])
	if err != nil {
		t.Fatal(err)
	}
	r, err := receipt.Check(proof, d.receipts.Key.Public())
	if err != nil || !isAbout(r, d.receipts.Key, "key:k0") {
		t.Fatal(err)
	}
	d.offline.Saver.Save()
	d.Store.Close()
	h := d.logHistory
	store, saved, err := snapshot.OpenReadOnly(d.Config.Snapshot.File)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	flags := maps.Clone(h.flags)
	flags["snapshot.file"] = filepath.Join(t.TempDir(), "unused.db")
	// What it says of the record at that offset is one that makes no block.
	other := after(6, 0)
	other.Key, other.Value = []byte("hidden"), nil
	h.log[0] = append(h.log[0], other)
	rep, err := replayTopic(t.Context(), Options{Config: load(t, flags), Log: zerolog.Nop()}, func(*Daemon) (topicReader, error) { return pastTopic{h}, nil },
		store, saved, d.receipts.Key, func(int64, int64) {})
	if err != nil || !slices.Equal(rep.Others, []string{"key:hidden"}) || rep.Parted != done.Receipts[0] || rep.Side == rep.Saved {
		t.Errorf("the topic gives %+v, %v", rep, err)
	}
}

// restorePart gives a snapshot the part of a block from an earlier copy.
func restorePart(t *testing.T, file string, before []byte, id string) {
	t.Helper()
	former := filepath.Join(t.TempDir(), "former.db")
	if err := os.WriteFile(former, before, 0o600); err != nil {
		t.Fatal(err)
	}
	from, err := bbolt.Open(former, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := []byte("parts")
	err = from.View(func(of *bbolt.Tx) error {
		return to.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket(parts).Put([]byte(id), of.Bucket(parts).Get([]byte(id)))
		})
	})
	if err := errors.Join(err, from.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
}

// A daemon that keeps the rows of a block in its sample, from which it refines, calibrates and
// decides, is found by a copy of its snapshot without any key or name: under the block's own id,
// under the id of another live block, and under that and the digest of the other block, while the
// sample has all of its rows.
func TestBlockThatStaysInTheSample(t *testing.T) {
	for name, want := range map[string]string{
		"nothing stays": "", "its own id": "there are 6 parts, 5 were saved",
		"another's id":     "under the block key:k1 it has rows of the sample of another one",
		"another's digest": "the sums of the block key:k1 are not those of its rows in the sample",
	} {
		t.Run(name, func(t *testing.T) {
			d := startDishonest(t, "key", 100)
			d.Saver.Save()
			kept, err := d.Store.Part("key:k0")
			if err != nil || kept == nil || kept.Whole() == nil {
				t.Fatalf("the part is %v, %v", kept, err)
			}
			other, err := d.Store.Summary(snapshot.Features, "key:k1")
			if err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(d.Config.Snapshot.File)
			if err != nil {
				t.Fatal(err)
			}
			done, err := d.offline.retire(retire.Selector{IDs: []string{"key:k0"}}, false, access.Caller{})
			if err != nil {
				t.Fatal(err)
			}
			switch name {
			case "another's id":
				d.Live.Offer("key:k1", kept)
			case "another's digest":
				b := kept.Whole()
				b.Classes = other.Classes()
				var taker sample.Taker
				d.Live.Offer("key:k1", taker.Take(b, other.LabelledDigest(), other.Totals(), sample.New(sample.Settings{Rows: 100}, d.Live.IDs).Levels()))
			}
			d.offline.Saver.Save()
			proof, err := d.Receipt(t.Context(), done.Receipts[0])
			if err != nil {
				t.Fatal(err)
			}
			r, err := receipt.Check(proof, d.receipts.Key.Public())
			if err != nil {
				t.Fatalf("the receipt does not pass by itself: %v", err)
			}
			d.Store.Close()
			file := d.Config.Snapshot.File
			if name == "its own id" {
				restorePart(t, file, before, "key:k0")
			}
			report, err := audit.Snapshot(file, r, d.receipts.Key.Public(), nil, nil)
			if want == "" {
				if err != nil || !report.Proved {
					t.Errorf("%+v, %v", report, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v, %v, want %s", report, err, want)
			}
		})
	}
}

// A daemon whose first leaf names another key of the items, or that shows two logs, is found by
// whoever has the public key.
func TestDishonestLog(t *testing.T) {
	d := startDishonest(t, "key", 0)
	public := d.receipts.Key.Public()
	d.receipts.Pending[0].VRF[0] ^= 1
	r, _ := d.claim(t, d.Live.Item("key:k0")) // the leaf of a later receipt passes
	if proof, err := d.Receipt(t.Context(), 0); err != nil {
		t.Fatal(err)
	} else if _, err := receipt.Check(proof, public); err == nil || !strings.Contains(err.Error(), "the owner has changed it") {
		t.Errorf("the first leaf: %v", err)
	}
	d.Store.Close()
	if _, err := audit.Snapshot(d.Config.Snapshot.File, r, public, nil, nil); err == nil || !strings.Contains(err.Error(), "the owner has changed it") {
		t.Errorf("the snapshot: %v", err)
	}
	if o, err := newDaemon(Options{Config: load(t, d.offline.flags), Log: zerolog.Nop()}); err != nil {
		t.Fatal(err)
	} else if err := o.restore(Options{Config: o.Config}); err == nil || !strings.Contains(err.Error(), "does not name the key of the items") {
		t.Errorf("an honest daemon goes on with it: %v", err)
	}

	// Two logs under one key: one for who asked, one in the snapshot.
	forked := startDishonest(t, "key", 0)
	r, _ = forked.claim(t, forked.Live.Item("key:k0"))
	forked.Store.Close()
	flags := maps.Clone(forked.offline.flags)
	flags["snapshot.file"] = filepath.Join(t.TempDir(), "other.db")
	o := openOffline(t, flags, false)
	o.deliver(0, slices.Clone(forked.log[0]), 6)
	if _, err := o.retire(retire.Selector{IDs: []string{"key:k1"}}, false, access.Caller{}); err != nil {
		t.Fatal(err)
	}
	o.Store.Close()
	if _, err := audit.Snapshot(flags["snapshot.file"], r, forked.receipts.Key.Public(), nil, nil); err == nil || !strings.Contains(err.Error(), "are not those of the checkpoint") {
		t.Errorf("a forked log: %v", err)
	}
}

// A daemon with a control topic that says of a block what is not so is found at the cut, though its
// last live set is that of the topic.
func TestDishonestWithAControlTopic(t *testing.T) {
	// swap puts the rows of a block into the sums, in place of those of another one.
	swap := func(c *controlled, in, out *incremental.Summary) {
		c.Live.Features().Total().Add(in)
		c.Live.Features().Total().Remove(out)
	}
	summaries := func(c *controlled) (all []*incremental.Summary) {
		c.come("", "", "")
		c.Saver.Save()
		for _, id := range []string{"t/0/0", "t/0/1", "t/0/2"} {
			s, err := c.Store.Summary(snapshot.Features, id)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		return all
	}
	dropExcluded := func(c *controlled) {
		c.receipts.AddDepartures()
		before := len(c.receipts.Pending)
		c.receipts.Pending = slices.DeleteFunc(c.receipts.Pending, func(p *receipts.Leaf) bool { return p.Kind == receipt.Excluded })
		if len(c.receipts.Pending) == before {
			t.Fatal("nothing was excluded")
		}
	}
	for name, of := range map[string]struct {
		// do returns the receipt of the cut.
		do   func(c *controlled) int64
		want func(r *Replayed, cut int64) bool
	}{
		"it keeps a withdrawn block in the sums": {func(c *controlled) int64 {
			all := summaries(c)
			swap(c, all[1], all[2])
			c.say("a", "t/0/1")
			cut := c.ask("t/0/0") - 1
			swap(c, all[2], all[1]) // before anybody has a copy
			c.come("")
			return cut
		}, func(r *Replayed, cut int64) bool { return r.Parted == cut }},
		"it keeps a block that was withdrawn as it came": {func(c *controlled) int64 {
			all := summaries(c)
			c.say("a", "t/0/3")
			swap(c, all[1], all[2])
			c.come("", "")
			cut := c.ask("t/0/0") - 1
			swap(c, all[2], all[1])
			c.come("")
			return cut
		}, func(r *Replayed, cut int64) bool { return r.Parted == cut }},
		"it excludes a block that the topic does not have": {func(c *controlled) int64 {
			c.come("", "", "")
			side := c.Live.Side()
			items := []receipt.Item{{Key: c.receipts.Key.ItemKey("t/0/1000")}}
			p := c.receipts.Add(&live.Departure{
				Leaf:   receipt.Leaf{Kind: receipt.Excluded, Blocks: 1, Rows: 1, Before: side, After: side, Items: receipt.ListHash(items)},
				Change: receipt.AppendItems(nil, items),
			}, "")
			c.Saver.Save()
			return p.Index
		}, func(r *Replayed, cut int64) bool { return slices.Equal(r.Foreign, []int64{cut}) && r.Parted < 0 }},
		"it leaves a block out that it does not say is withdrawn": {func(c *controlled) int64 {
			c.say("a", "t/0/1")
			c.come("", "", "")
			dropExcluded(c)
			return c.ask("t/0/0")
		}, func(r *Replayed, cut int64) bool {
			return r.Parted == cut && slices.Equal(r.Untold, []string{"t/0/1"})
		}},
		"it leaves a block out last, and does not say that it is withdrawn": {func(c *controlled) int64 {
			c.say("a", "t/0/1")
			c.come("", "", "")
			dropExcluded(c)
			return 0
		}, func(r *Replayed, cut int64) bool { return r.Parted < 0 && slices.Equal(r.Untold, []string{"t/0/1"}) }},
		"it says that a withdrawn block is live again": {func(c *controlled) int64 {
			all := summaries(c)
			c.say("a", "t/0/1")
			cut := c.ask("t/0/0") + 1
			c.say("a")
			swap(c, all[2], all[1])
			c.come("")
			c.Saver.Save()
			swap(c, all[1], all[2])
			c.come("")
			return cut
		}, func(r *Replayed, cut int64) bool { return r.Parted == cut }},
	} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, nil)
			cut := of.do(c)
			if r := c.ends(); r.Side != r.Saved || !of.want(r, cut) {
				t.Errorf("the cut is receipt %d, and the topic gives %+v", cut, r)
			}
		})
	}
}
