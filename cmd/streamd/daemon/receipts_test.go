package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// checkReceipts checks the receipts of a retirement of blocks: the one of those that were archived
// or withdrawn, and the one of those that were live.
func (h *logHistory) checkReceipts(t *testing.T, o *offline, done httpapi.Retirement, blocks []retire.Entry) {
	t.Helper()
	key := o.receipts.Key
	if key == nil {
		return
	}
	for i, b := range done.First {
		if b.Proof != hex.EncodeToString(key.ProveItemKey(b.ID)) {
			t.Errorf("the answer has another proof for %s", done.First[i].ID)
		}
	}
	receipts := done.Receipts
	for _, kind := range []receipt.Kind{receipt.Purged, receipt.Retired} {
		var ids []string
		var all receipt.Leaf
		withdrawn := 0
		for _, e := range blocks {
			if (e.Withdrawn || e.Archived) == kind.Listed() {
				ids = append(ids, e.ID)
				all.Add(e.Rows, e.Time)
				if e.Withdrawn {
					withdrawn++
				}
			}
		}
		if len(ids) == 0 {
			continue
		}
		if len(receipts) == 0 {
			t.Fatalf("there is no receipt of kind %v", kind)
		}
		proof, err := o.Receipt(t.Context(), receipts[0])
		if err != nil {
			t.Fatal(err)
		}
		receipts = receipts[1:]
		r, err := receipt.Check(proof, key.Public())
		if err != nil {
			t.Fatalf("the receipt of %s: %v", ids, err)
		}
		l := r.Leaf
		if l.Kind != kind || len(r.Items) != len(ids) || l.Rows != all.Rows || !l.Earliest.Equal(all.Earliest) || !l.Latest.Equal(all.Latest) || l.Principal != "anonymous" {
			t.Errorf("the receipt of %s says %+v", ids, l)
		}
		if got := hex.EncodeToString(l.Before.Digest[:]); got != done.DigestBefore {
			t.Errorf("the receipt has digest %s before, the answer %s", got, done.DigestBefore)
		}
		if sha256.Sum256([]byte(done.Settings)) != l.Settings {
			t.Errorf("the receipt has a hash of other settings than %s", done.Settings)
		}
		if !kind.Listed() && (l.After != o.Live.Side() || hex.EncodeToString(l.After.Digest[:]) != done.DigestAfter) {
			t.Errorf("the receipt ends with %x, live is %x", l.After, o.Live.Side())
		}
		for _, id := range ids {
			if !isAbout(r, key, id) {
				t.Errorf("the receipt does not name %s", id)
			}
		}
		for id := range o.Live.IDs {
			if isAbout(r, key, id) {
				t.Errorf("the receipt names %s, which is live", id)
			}
		}
		for _, i := range r.Items {
			if i.Withdrawn() {
				withdrawn--
			}
		}
		if withdrawn != 0 {
			t.Errorf("the receipt of %s has %x", ids, r.Items)
		}
		o.heads = append(o.heads, r.Checkpoint)
	}
	if len(receipts) > 0 {
		t.Errorf("there are receipts %d, too", receipts)
	}
}

// isAbout reports whether a receipt is about a block, by the proof that a key makes.
func isAbout(r *receipt.Receipt, key *receipt.Key, id string) bool {
	at, err := r.Named(id, key.ProveItemKey(id))
	return err == nil && at == key.ItemKey(id)
}

// withReceipts are flags of a daemon with receipts, whose key is in a folder.
func withReceipts(folder string, more map[string]string) map[string]string {
	flags := map[string]string{"receipts.key_file": filepath.Join(folder, "receipts.key"), "blocks.unit": "key"}
	for k, v := range more {
		flags[k] = v
	}
	return flags
}

// publicKey reads the public half.
func publicKey(t testing.TB, folder string) string {
	t.Helper()
	b, err := os.ReadFile(receipt.PublicFile(filepath.Join(folder, "receipts.key")))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// httpTiles reads hashes of the log from the tiles that a daemon serves.
type httpTiles struct{ *instance }

func (h httpTiles) Height() int { return 8 }

func (h httpTiles) ReadTiles(tiles []tlog.Tile) (data [][]byte, err error) {
	for _, tile := range tiles {
		path := strings.TrimPrefix(tile.Path(), "tile/8/")
		status, body := h.ask(http.MethodGet, "/v1/receipts/tile/"+path)
		if status != http.StatusOK {
			return nil, fmt.Errorf("tile %s: %d", path, status)
		}
		data = append(data, []byte(body))
	}
	return data, nil
}

func (h httpTiles) SaveTiles([]tlog.Tile, [][]byte) {}

// A daemon serves its log of receipts as tiles and proofs. Every way to leave the live set has a
// leaf, and the log continues after a restart, a compaction and with another policy. The
// independent verifier agrees.
func TestLogOfReceipts(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	file, flags := filepath.Join(folder, "streamd.db"), withReceipts(folder, nil)
	produce(t, topic, customers(t)[:6]...)
	d := start(t, topic, file, flags)
	var ids []string
	d.await("six blocks", func() bool { ids = slices.Collect(d.Live.IDs); return len(ids) == 6 })
	slices.Sort(ids)
	if status, body := d.ask(http.MethodGet, "/v1/receipts/checkpoint"); status != http.StatusNotFound {
		t.Fatalf("the checkpoint of an empty log: %d %s", status, body)
	}
	first := d.retire(ids[0])
	if len(first.Receipts) != 1 || first.Receipts[0] != 1 {
		t.Fatalf("the answer is %+v", first)
	}
	public := publicKey(t, folder)
	_, early := d.ask(http.MethodGet, "/v1/receipts/checkpoint")
	produce(t, topic, customers(t)[2], message{key: customers(t)[3].key}) // the one again, and a tombstone
	d.await("four blocks", func() bool { return d.Live.Blocks() == 4 })
	d.compact()
	d.stop()

	d = start(t, topic, file, flags)
	d.await("four blocks", func() bool { return d.Live.Blocks() == 4 })
	last := d.retire(slices.Sorted(d.Live.IDs)[0])
	if len(last.Receipts) != 1 {
		t.Fatalf("the answer is %+v", last)
	}
	_, text := d.ask(http.MethodGet, "/v1/receipts/checkpoint")
	head, err := receipt.OpenCheckpoint([]byte(text), public)
	if err != nil {
		t.Fatal(err)
	}
	old, err := receipt.OpenCheckpoint([]byte(early), public)
	if err != nil {
		t.Fatal(err)
	}
	hashes := tlog.TileHashReader(tlog.Tree{N: head.Size, Hash: head.Root}, httpTiles{d})
	if proof, err := tlog.ProveTree(head.Size, old.Size, hashes); err != nil {
		t.Error(err)
	} else if err := tlog.CheckTree(proof, head.Size, head.Root, old.Size, old.Root); err != nil {
		t.Errorf("the checkpoints are not of one log: %v", err)
	}
	status, bundle := d.ask(http.MethodGet, fmt.Sprintf("/v1/receipts/tile/entries/000.p/%d", head.Size))
	var leaves [][]byte
	for b := []byte(bundle); len(b) > 0; {
		n := int(b[0])<<8 + int(b[1])
		leaves, b = append(leaves, b[2:2+n]), b[2+n:]
	}
	if err := receipt.Audit(slices.Values(leaves), old, head); err != nil || status != http.StatusOK {
		t.Errorf("the leaves: %d, %v", status, err)
	}
	for _, path := range []string{"tile/0/000", "tile/1/000.p/1", "tile/data/000.p/1", "tile/0/000.p/200", "tile/entries/001", "proof/99", "proof/-1"} {
		if status, _ := d.ask(http.MethodGet, "/v1/receipts/"+path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	kinds := map[receipt.Kind]int64{}
	for i := range head.Size {
		_, proof := d.ask(http.MethodGet, fmt.Sprintf("/v1/receipts/proof/%d", i))
		r, err := receipt.Check([]byte(proof), public)
		if err != nil {
			t.Errorf("receipt %d: %v", i, err)
			continue
		}
		if r.Checkpoint.Size != i+1 {
			t.Errorf("receipt %d has the checkpoint of %d: it is another file when the log grows", i, r.Checkpoint.Size)
		}
		kinds[r.Leaf.Kind] += r.Leaf.Blocks
		path := filepath.Join(folder, fmt.Sprintf("%d.tlog-proof", i))
		if err := os.WriteFile(path, []byte(proof), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{path, receipt.PublicFile(flags["receipts.key_file"])}
		if i == first.Receipts[0] {
			args = append(args, "--block", first.First[0].ID+"="+first.First[0].Proof)
		}
		independent(t, true, args...)
		if i == first.Receipts[0] {
			independent(t, false, append(args[:2:2], "--block", last.First[0].ID+"="+last.First[0].Proof)...)
			for at := range proof {
				if at%251 == 0 && proof[at] != '\n' { // a sample: every bit is tried in Go
					bad := []byte(proof)
					bad[at] ^= 1
					if err := os.WriteFile(path, bad, 0o644); err != nil {
						t.Fatal(err)
					}
					independent(t, false, args[:2]...)
				}
			}
		}
	}
	if kinds[receipt.Retired] != 2 || kinds[receipt.Deleted] != 1 || kinds[receipt.Replaced] > 1 {
		t.Errorf("the leaves have %v", kinds)
	}
	d.stop()
	if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
}

// independent runs the verifier that shares no code with this program. It returns what that says.
func independent(t *testing.T, good bool, args ...string) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("python3 is not installed: the independent verifier does not check the receipts")
		return ""
	}
	out, err := exec.Command(python, append([]string{"../../../testdata/receipts/verify.py"}, args...)...).CombinedOutput()
	if (err == nil) != good {
		t.Errorf("the independent verifier says of %s: %v: %s", args, err, out)
	}
	return string(out)
}

// After a kill at any moment of a retirement, all of it has happened, receipt included, or nothing:
// what the file says of a block and its receipt agree.
func TestKillWhileRetiring(t *testing.T) {
	const kills, blocks = 12, 122
	folder := t.TempDir()
	name := topic(t, 1)
	payloads, _ := ndcBlocks(t, blocks)
	var messages []message
	for i, payload := range payloads {
		messages = append(messages, message{key: fmt.Append(nil, i), value: payload, contentType: wire.Arrow.ContentType()})
	}
	produce(t, name, messages...)
	file := filepath.Join(folder, "streamd.db")
	flags := withReceipts(folder, map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name, "http.listen": "127.0.0.1:0",
		"snapshot.file": file, "snapshot.interval": "10ms",
	})
	r := rand.New(rand.NewPCG(21, 1))
	answered := map[string]int64{} // leaves that answers have named, by block
	next := 0
	for kill := range kills {
		p := spawn(t, flags)
		p.until(t, "all records", func() bool {
			_, _, seen, err := p.model()
			return err == nil && seen == blocks
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ; next < blocks-2; next++ { // two stay, so that there is a model
				id := fmt.Sprint("key:", next)
				req, err := http.NewRequest(http.MethodDelete, "http://"+p.addr+"/v1/blocks/"+id, nil)
				if err != nil {
					return
				}
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					return
				}
				var answer httpapi.Retirement
				err = json.NewDecoder(res.Body).Decode(&answer)
				res.Body.Close()
				if res.StatusCode == http.StatusNotFound { // it went before the kill that lost the answer
					continue
				}
				if err != nil || res.StatusCode != http.StatusOK || len(answer.Receipts) != 1 {
					return
				}
				answered[id] = answer.Receipts[0]
			}
		}()
		for range 1 + r.IntN(200) {
			select {
			case <-ended:
			default:
				p.get(t, "/healthz")
			}
		}
		p.kill()
		<-ended

		store, saved, err := snapshot.OpenReadOnly(file)
		if err != nil {
			t.Fatal(err)
		}
		live := map[string]bool{}
		for _, e := range saved.Entries {
			live[e.ID] = true
		}
		key, _, _, err := receipt.OpenKey(flags["receipts.key_file"], name)
		if err != nil {
			t.Fatal(err)
		}
		receipts, keys := map[string]int64{}, map[string]receipt.Hash{}
		for id := range blocks {
			keys[fmt.Sprint("key:", id)] = key.ItemKey(fmt.Sprint("key:", id))
		}
		for i := range saved.Log.Size {
			record, err := store.Receipt(i)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := receipt.DecodeLeaf(record.Leaf)
			if err != nil {
				t.Fatal(err)
			}
			items, _, err := leaf.CheckChange(record.Change)
			if err != nil {
				t.Fatal(err)
			}
			if leaf.Kind == receipt.Begun {
				continue
			}
			for id := range blocks {
				if id := fmt.Sprint("key:", id); items[0].Key == keys[id] {
					if _, twice := receipts[id]; twice {
						t.Errorf("kill %d: %s has two receipts", kill, id)
					}
					receipts[id] = i
				}
			}
		}
		store.Close()
		read := int64(0) // records that the file has seen
		for _, o := range saved.Offsets {
			read += o.Next
		}
		for id := range read {
			id := fmt.Sprint("key:", id)
			leaf, has := receipts[id]
			if has == live[id] {
				t.Errorf("kill %d: block %s: live %v, receipt %v", kill, id, live[id], has)
			}
			if want, is := answered[id]; is && (!has || want != leaf) {
				t.Errorf("kill %d: block %s: the answer named receipt %d, the file has %d (%v)", kill, id, want, leaf, has)
			}
		}
		if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
			t.Fatalf("kill %d: %+v, %v", kill, report, err)
		}
	}
	if len(answered) == 0 {
		t.Error("no retirement was answered")
	}
}

// An older copy of the snapshot is no start for a daemon with receipts.
func TestOlderSnapshotWithReceipts(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	file, flags := filepath.Join(folder, "streamd.db"), withReceipts(folder, nil)
	produce(t, topic, customers(t)[:6]...)
	var older []byte
	for range 2 {
		d := start(t, topic, file, flags)
		d.await("a block", func() bool { return d.Live.Blocks() > 3 })
		d.retire(slices.Sorted(d.Live.IDs)[0])
		d.stop()
		if older == nil {
			var err error
			if older, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(file, older, 0o600); err != nil {
		t.Fatal(err)
	}
	flags["kafka.brokers"], flags["kafka.topic"], flags["snapshot.file"] = cluster(t).Brokers[0], topic, file
	_, err := New(Options{Config: load(t, flags), Log: zerolog.Nop()})
	if fork := (*snapshot.ForkError)(nil); !errors.As(err, &fork) || fork.Size != 2 || fork.Published != 3 {
		t.Errorf("the start: %v", err)
	}
	if err := os.Remove(snapshot.CheckpointPath(file)); err != nil {
		t.Fatal(err)
	}
	start(t, topic, file, flags).stop()
}

// A key signs one log. While a daemon runs, no other one takes its key for another snapshot. Later
// one does, with a warning.
func TestKeyOfTwoSnapshots(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	flags := withReceipts(folder, nil)
	const warning = "a key signs one log"
	var said bytes.Buffer
	open := func(file string) (*Daemon, error) {
		said.Reset()
		given := maps.Clone(flags)
		given["kafka.brokers"], given["kafka.topic"], given["snapshot.file"] = cluster(t).Brokers[0], topic, filepath.Join(folder, file)
		return New(Options{Config: load(t, given), Log: zerolog.New(zerolog.SyncWriter(&said)).Level(zerolog.WarnLevel)})
	}
	end := func(d *Daemon) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	}
	first, err := open("a.db")
	if err != nil || strings.Contains(said.String(), warning) {
		t.Fatalf("the first start: %v, %s", err, &said)
	}
	end(first)
	if err := os.Chmod(flags["receipts.key_file"], 0o400); err != nil {
		t.Fatal(err)
	}
	if first, err = open("a.db"); err != nil {
		t.Fatal(err)
	}
	if _, err := open("b.db"); !errors.Is(err, receipts.ErrKeyInUse) {
		t.Errorf("a second daemon under the key: %v", err)
	}
	end(first)
	second, err := open("b.db")
	if err != nil || !strings.Contains(said.String(), warning) {
		t.Fatalf("another snapshot under the key: %v, %s", err, &said)
	}
	end(second)
	produce(t, topic, customers(t)[:6]...)
	d := start(t, topic, filepath.Join(folder, "a.db"), flags)
	d.await("six blocks", func() bool { return d.Live.Blocks() == 6 })
	d.retire(slices.Sorted(d.Live.IDs)[0])
	d.stop()
	if first, err = open("a.db"); err != nil || strings.Contains(said.String(), warning) {
		t.Fatalf("the log of this snapshot goes on: %v, %s", err, &said)
	}
	end(first)
}

// A caller whose retirement could not be saved at once gets its receipt and the proofs by asking
// again, also after a restart.
func TestReceiptOfARetirementThatWasNotSaved(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	file, flags := filepath.Join(folder, "streamd.db"), withReceipts(folder, nil)
	produce(t, topic, customers(t)[:6]...)
	d := start(t, topic, file, flags)
	d.await("six blocks", func() bool { return d.Live.Blocks() == 6 })
	ids := slices.Sorted(d.Live.IDs)
	d.retire(ids[0])
	d.retire(ids[1])
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	status, body := d.ask(http.MethodDelete, "/v1/blocks/"+ids[2])
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "with receipts, the same request then names them") {
		t.Errorf("without a file: %d %s", status, body)
	}
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	again := func() {
		t.Helper()
		status, body := d.ask(http.MethodDelete, "/v1/blocks/"+ids[2])
		key := d.receipts.Key
		want := fmt.Sprintf("receipts [3] of {\\\"ids\\\":[\\\"%s\\\"]}", ids[2])
		if status != http.StatusNotFound || !strings.Contains(body, want) || !strings.Contains(body, fmt.Sprintf("proof of %s %x", ids[2], key.ProveItemKey(ids[2]))) {
			t.Errorf("the same request again: %d %s, want %s", status, body, want)
		}
		_, proof := d.ask(http.MethodGet, "/v1/receipts/proof/3")
		if r, err := receipt.Check([]byte(proof), publicKey(t, folder)); err != nil || !isAbout(r, key, ids[2]) {
			t.Errorf("its receipt: %v", err)
		}
		if status, body := d.ask(http.MethodDelete, "/v1/blocks/key:other"); status != http.StatusNotFound || strings.Contains(body, "receipts") {
			t.Errorf("a block that never was: %d %s", status, body)
		}
	}
	again()
	d.stop()
	d = start(t, topic, file, flags)
	d.await("three blocks", func() bool { return d.Live.Blocks() == 3 })
	again()
	d.stop()
}

// A daemon is killed (kill -9) at random moments while blocks leave and come back in every way that
// the topics and the policy know: by tombstones, next values, values that cannot be used,
// selections of the control topic, and new blocks. The blocks of the file are always those that
// were added less those that its receipts say have gone.
func TestKillWhileBlocksLeave(t *testing.T) {
	for _, c := range []struct {
		name       string
		partitions int // of one, blocks come in the order of their times, and none is refused
		flags      map[string]string
		kinds      []receipt.Kind // which the log has at the end, whenever the kills come
	}{
		{"keys", 2, map[string]string{"blocks.unit": "key"}, []receipt.Kind{receipt.Deleted, receipt.Replaced}},
		{"expiry", 1, map[string]string{"blocks.unit": "message", "retire.keep": "blocks", "retire.blocks": "40"}, []receipt.Kind{receipt.Expired}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const kills, chunk = 8, 60
			w, folder := newWithdrawals(t, 1), t.TempDir()
			file := filepath.Join(folder, "streamd.db")
			flags := withReceipts(folder, map[string]string{
				"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": w.data, "retire.topic": w.control, "format.csv_header": "absent",
				"http.listen": "127.0.0.1:0", "snapshot.file": file, "snapshot.interval": "10ms",
			})
			maps.Copy(flags, c.flags)
			r := rand.New(rand.NewPCG(21, 3))
			some := func() {
				var messages []message
				for range chunk {
					m := w.next(r.IntN(c.partitions))
					m.time = time.UnixMilli(lawEpoch + int64(len(w.rows[0])))
					m.key = fmt.Appendf(nil, "k%d-%d", m.partition, r.IntN(20))
					if c.name == "keys" && r.IntN(3) == 0 {
						m.value = [][]byte{nil, []byte("?,?,?")}[r.IntN(2)]
					}
					messages = append(messages, m)
				}
				produce(t, w.data, messages[:chunk/2]...)
				selection := fmt.Sprintf(`{"retire":{"keys":["k0-%d","k0-%d","k1-%d"]}}`, r.IntN(20), r.IntN(20), r.IntN(20))
				if c.name == "expiry" {
					at := len(w.rows[0]) - 10
					selection = fmt.Sprintf(`{"retire":{"positions":["TOPIC/0/%d-%d"]}}`, at, at+3)
				}
				w.say("request", selection)
				produce(t, w.data, messages[chunk/2:]...)
				if r.IntN(2) == 0 {
					w.say("request", `{"restore":true}`)
				}
			}
			some()
			kinds := map[receipt.Kind]int64{}
			for kill := range kills {
				p := spawn(t, flags)
				p.until(t, "a model", func() bool {
					_, rows, _, err := p.model()
					return err == nil && rows > 0
				})
				some()
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
				p.kill()
				clear(kinds)
				store, saved, err := snapshot.OpenReadOnly(file)
				if err != nil {
					t.Fatal(err)
				}
				var gone int64
				for i := range saved.Log.Size {
					record, err := store.Receipt(i)
					if err != nil {
						t.Fatal(err)
					}
					l, err := receipt.DecodeLeaf(record.Leaf)
					if err != nil {
						t.Fatal(err)
					}
					if kinds[l.Kind] += l.Blocks + l.Passing; l.Kind != receipt.Restored && !l.Kind.Listed() { // the blocks of listed kinds had gone before
						gone += l.Blocks + l.Passing
					}
				}
				store.Close()
				if live := int64(len(saved.Entries)); live != saved.Counts.BlocksAdded-gone {
					t.Errorf("kill %d: %d blocks are live; %d were added, and the receipts have %v", kill, live, saved.Counts.BlocksAdded, kinds)
				}
				if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
					t.Fatalf("kill %d: %+v, %v", kill, report, err)
				}
			}
			for _, kind := range c.kinds {
				if kinds[kind] == 0 {
					t.Errorf("no block was %v: the receipts have %v", kind, kinds)
				}
			}
		})
	}
}

// A served model names the leaves whose changes it has, under the key of the log: those that are
// saved, and that its sums, and what has been chosen for it, are not older than.
func TestModelsNameTheirReceipts(t *testing.T) {
	for _, calibrated := range []bool{false, true} {
		t.Run(fmt.Sprint("calibrated ", calibrated), func(t *testing.T) {
			flags := withReceipts(t.TempDir(), nil)
			if calibrated {
				maps.Copy(flags, map[string]string{"model.calibration": "platt", "model.folds": "3", "sample.rows": "100"})
			}
			o := openOffline(t, offlineFlags(t, flags), false)
			defer func() { o.Store.Close() }()
			var next int64
			say := func(key, value string) {
				t.Helper()
				r := kafka.Record{Offset: next, Key: []byte(key), Time: time.UnixMilli(lawEpoch + next).UTC()}
				if value != "" {
					r.Value = []byte(value)
				}
				next++
				o.deliver(0, []kafka.Record{r}, next)
			}
			row := func(i int) string { return fmt.Sprintf(`{"label":%d,"x1":%d,"x2":%d,"v":1}`, i%2, i, i*i) }
			names := func(want int64, when string) {
				t.Helper()
				served := o.Front.Served()
				if served.Receipts != want || (served.Signed != nil) != (want > 0) {
					t.Fatalf("%s the model has the changes of %d receipts, want %d", when, served.Receipts, want)
				}
				if want == 0 {
					return
				}
				text, err := served.Signed()
				if err != nil {
					t.Fatal(err)
				}
				head, err := receipt.OpenModel([]byte(text), o.receipts.Key.Public(), served.Fingerprint)
				if err != nil || head.Size != want {
					t.Errorf("%s the signature is under %+v, %v", when, head, err)
				}
			}
			for i := range 12 {
				say(fmt.Sprint("k", i), row(i))
			}
			o.solved()
			names(0, "before the first save")
			o.Saver.Save()
			names(1, "after the first save")

			say("k0", "")
			o.solved()
			names(1, "before its receipt is saved")
			say("k12", row(12))
			o.Saver.Save()
			names(2, "after a save")

			done, err := o.retire(retire.Selector{IDs: []string{"key:k1"}}, false, access.Caller{})
			if err != nil || !slices.Equal(done.Receipts, []int64{2}) {
				t.Fatalf("%+v, %v", done, err)
			}
			names(2, "of the sums before the request")
			o.solved()
			names(3, "of the sums after it")

			say("k2", "")
			o.Saver.Save()
			say("k3", row(4))
			o.Saver.Save()
			names(3, "before a solve")
			o = o.crash(false)
			names(0, "after a restart, before a solve")
			o.solved()
			names(5, "after a restart")

			say("k4", "")
			o.publisher.Solve(time.Now())
			say("k5", "")
			o.Solving.Await()
			o.Saver.Save()
			names(5, "of sums between two departures of one save")
			o.solved()
			names(6, "after both")

			// What a study has chosen by rows that have left is taken over until the next one.
			o.study()
			if _, err := o.retire(retire.Selector{IDs: []string{"key:k6"}}, false, access.Caller{}); err != nil {
				t.Fatal(err)
			}
			o.solved()
			late := int64(7)
			if calibrated {
				late = 6
			}
			names(late, "before the next study")
			// Another one is due before model.refine_interval, although rows come.
			if o.Studies.WhenDue(time.Now().Add(o.Config.Model.RefineInterval - time.Second)); o.Studies.IsUnderWay() != calibrated {
				t.Errorf("another study is under way: %t", !calibrated)
			}
			for o.Studies.IsUnderWay() {
				(<-o.Calls)()
			}
			o.study()
			names(7, "after it")
		})
	}
}

// Archived blocks that are retired on request, by the log or by the control topic have receipts,
// whose items are those of the receipts of their expiry.
func TestReceiptsOfArchivedBlocks(t *testing.T) {
	folder := t.TempDir()
	o := openOffline(t, offlineFlags(t, withReceipts(folder, map[string]string{"blocks.unit": "message", "retire.keep": "blocks", "retire.blocks": "4", "retire.archive": "true"})), false)
	defer func() { o.Store.Close() }()
	fill := func(from, to int64) {
		t.Helper()
		for i := from; i < to; i++ {
			o.deliver(0, []kafka.Record{after(i, time.Duration(i)*time.Millisecond)}, i+1)
		}
		o.solved()
		o.Saver.Save()
	}
	var found []*receipt.Receipt // all of the log
	news := func(want ...receipt.Kind) (more []*receipt.Receipt) {
		t.Helper()
		head, err := o.Store.LogHead()
		if err != nil {
			t.Fatal(err)
		}
		var kinds []receipt.Kind
		for i := int64(len(found)); i < head.Size; i++ {
			proof, err := o.Receipt(t.Context(), i)
			if err != nil {
				t.Fatal(err)
			}
			r, err := receipt.Check(proof, publicKey(t, folder))
			if err != nil {
				t.Fatalf("receipt %d: %v", i, err)
			}
			found, more, kinds = append(found, r), append(more, r), append(kinds, r.Leaf.Kind)
		}
		if !slices.Equal(kinds, want) {
			t.Fatalf("the new receipts are %v, want %v", kinds, want)
		}
		return more
	}
	names := func(r *receipt.Receipt, ids ...string) {
		t.Helper()
		if l := r.Leaf; l.Blocks != int64(len(ids)) || l.Rows != l.Blocks || l.Passing != 0 {
			t.Errorf("the receipt of %v is %+v", ids, l)
		}
		for _, id := range ids {
			if !isAbout(r, o.receipts.Key, id) {
				t.Errorf("the receipt of kind %v does not name %s", r.Leaf.Kind, id)
			}
		}
	}
	fill(0, 4)
	fill(4, 8)
	expired := news(receipt.Begun, receipt.Expired)[1]
	names(expired, "t/0/0", "t/0/1", "t/0/2", "t/0/3")
	purged := func(r *receipt.Receipt, by string, ids ...string) {
		t.Helper()
		names(r, ids...)
		l := r.Leaf
		for _, i := range r.Items {
			if !slices.Contains(expired.Items, i) {
				t.Errorf("the archived block of %v is not the one that expired", ids)
			}
		}
		if l.Principal != by || (by == "") != (l.Request == receipt.Hash{}) || l.Before != l.After || l.Scope[receipt.Archive] != receipt.Done {
			t.Errorf("the leaf is %+v", l)
		}
	}

	// A request for a live and an archived block.
	both := retire.Selector{IDs: []string{"t/0/0", "t/0/5"}}
	done, err := o.retire(both, false, access.Caller{})
	if err != nil || done.Archived != 1 || !slices.Equal(done.Receipts, []int64{2, 3}) {
		t.Fatalf("%+v, %v", done, err)
	}
	some := news(receipt.Purged, receipt.Retired)
	purged(some[0], "anonymous", "t/0/0")
	names(some[1], "t/0/5")
	if some[0].Leaf.Request != some[1].Leaf.Request || some[0].Leaf.After != some[1].Leaf.Before {
		t.Errorf("the leaves of one request are %+v and %+v", some[0].Leaf, some[1].Leaf)
	}
	if done.First[0].ID != "t/0/0" || done.First[0].Proof != "" {
		t.Errorf("the answer lists %+v", done.First)
	}
	if _, err := o.retire(both, false, access.Caller{}); err == nil || !strings.Contains(err.Error(), "receipts [2 3] of ") {
		t.Errorf("the same request again: %v", err)
	}
	o.retireInLoop(both, false, access.Caller{}, func(_ httpapi.Retirement, err error) {
		if !errors.Is(err, httpapi.ErrNotLive) && !errors.Is(err, httpapi.ErrNoneChosen) || strings.Contains(err.Error(), "receipts") {
			t.Errorf("the loop looks for the earlier request: %v", err)
		}
	})

	// Archived blocks alone change no model.
	o = o.crash(false)
	before := o.solved().Fingerprint
	if done, err = o.retire(retire.Selector{IDs: []string{"t/0/1"}}, false, access.Caller{}); err != nil || len(done.Receipts) != 1 || done.DigestBefore != done.DigestAfter {
		t.Fatalf("%+v, %v", done, err)
	}
	purged(news(receipt.Purged)[0], "anonymous", "t/0/1")
	if after := o.Front.Served().Fingerprint; after != before {
		t.Error("another model is served")
	}
	if o.solved(); o.Saver.HasUnsaved() {
		t.Error("something is unsaved")
	}

	// Departures by the log and by the control topic are in the next save.
	if err := o.Live.Retire("t/0/2"); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Live.Withdraw("0/0", &retire.Selection{IDs: []string{"t/0/3"}}); err != nil {
		t.Fatal(err)
	}
	if w, err := o.Live.FollowWithdrawals(); err != nil || w.Archived != 1 {
		t.Fatalf("%+v, %v", w, err)
	}
	o.Saver.Save()
	purged(news(receipt.Purged)[0], "", "t/0/2", "t/0/3")
	if n := o.Live.Archived(); n != 0 {
		t.Errorf("%d blocks are archived", n)
	}
	o.Saver.Save()
	news()
}

// An archived block that the control topic takes out and gives back has a receipt each time, about
// the same contents. What is undone before the next save has none, and after a request none is
// late.
func TestReceiptsOfReturnedBlocks(t *testing.T) {
	h := &logHistory{log: [][]kafka.Record{nil}, r: rand.New(rand.NewPCG(26, 3))}
	h.flags = offlineFlags(t, withReceipts(t.TempDir(), map[string]string{
		"blocks.unit": "message", "retire.keep": "blocks", "retire.blocks": "2", "retire.archive": "true", "retire.topic": "control",
	}))
	o := h.open(t, h.flags, false)
	defer func() { o.Store.Close() }()
	for i := range int64(5) {
		h.log[0] = append(h.log[0], after(i, time.Duration(i)*time.Second))
	}
	o.deliver(0, slices.Clone(h.log[0]), 5)
	o.Saver.Save()
	take := func(ids ...string) { // nil: give all back
		t.Helper()
		c := control.Change{Name: "0/a"}
		if ids != nil {
			c.Selection = &retire.Selection{IDs: ids}
		}
		o.follow([]control.Change{c})
		o.giveBack()
	}
	leaves := int64(2) // the first one, and that of the expiry
	want := func(kinds ...receipt.Kind) (items []receipt.Item) {
		t.Helper()
		head, err := o.Store.LogHead()
		if err != nil {
			t.Fatal(err)
		}
		if head.Size-leaves != int64(len(kinds)) {
			t.Fatalf("%d new receipts, want %v", head.Size-leaves, kinds)
		}
		for _, kind := range kinds {
			proof, err := o.Receipt(t.Context(), leaves)
			if err != nil {
				t.Fatal(err)
			}
			r, err := receipt.Check(proof, o.receipts.Key.Public())
			if err != nil || r.Leaf.Kind != kind || r.Leaf.Before != r.Leaf.After {
				t.Fatalf("receipt %d is %+v, %v, want one of kind %v", leaves, r, err, kind)
			}
			file := filepath.Join(t.TempDir(), "a.tlog-proof")
			if err := os.WriteFile(file, proof, 0o644); err != nil {
				t.Fatal(err)
			}
			independent(t, true, file, receipt.PublicFile(h.flags["receipts.key_file"]))
			items, leaves = r.Items, leaves+1
		}
		return items
	}
	take("t/0/0", "t/0/1")
	o.Saver.Save()
	purged := want(receipt.Purged)
	take()
	o.Saver.Save()
	if returned := want(receipt.Returned); len(returned) != 2 || !slices.Equal(returned, purged) {
		t.Errorf("purged were %x, and returned %x", purged, returned)
	}
	if n := o.Live.Archived(); n != 3 {
		t.Errorf("%d blocks are archived", n)
	}
	take("t/0/2")
	take()
	o.Saver.Save()
	want()
	take("t/0/2")
	o.Saver.Save()
	want(receipt.Purged)
	take()
	if _, err := o.retire(retire.Selector{IDs: []string{"t/0/2"}}, false, access.Caller{}); err != nil {
		t.Fatal(err)
	}
	o.Saver.Save()
	if again := want(receipt.Purged); len(again) != 1 || again[0].Withdrawn() {
		t.Errorf("the request has %x", again)
	}
	o.Store.Close()
	if r := h.replay(t, o); r.Side != r.Saved || r.Side != o.Live.Side() || len(r.Others)+len(r.Unplaced) > 0 {
		t.Errorf("the topic gives %+v", r)
	}
}

// A receipt says that blocks leave a basis later if its points may have rows of theirs, and no
// others.
func TestScopeOfTheBasis(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	produce(t, topic, customers(t)...)
	flags := forgetting("random")
	maps.Copy(flags, withReceipts(folder, nil))
	d := start(t, topic, filepath.Join(folder, "streamd.db"), flags)
	d.settledBasis()
	produce(t, topic, keyed(t, "late", 7, 9, 0))
	d.await("the block after the basis", func() bool { return d.Live.Blocks() == 12 })
	for _, c := range []struct {
		id   string
		want receipt.Status
	}{{"key:late", receipt.Done}, {"key:planted", receipt.Pending}} {
		answer := d.retire(c.id)
		_, proof := d.ask(http.MethodGet, fmt.Sprintf("/v1/receipts/proof/%d", answer.Receipts[0]))
		r, err := receipt.Check([]byte(proof), publicKey(t, folder))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Leaf.Scope[receipt.Spaces]; got != c.want || answer.InBasis != (c.want == receipt.Pending) {
			t.Errorf("%s: spaces %d, want %d; the answer says in basis: %v", c.id, got, c.want, answer.InBasis)
		}
	}
	d.stop()
}

// The hash of the settings differs wherever equal blocks can have other planes.
func TestSettingsOfReceipts(t *testing.T) {
	rules := func(from int) (file string) {
		file = filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "rules: [{when: x >= %d, then: a}]", from), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	same := rules(1)
	seen := map[string]map[string]string{}
	settingsOf := func(flags map[string]string) string {
		all := map[string]string{"kafka.topic": "blocks", "snapshot.file": filepath.Join(t.TempDir(), "state.db")}
		maps.Copy(all, flags)
		o := openOffline(t, all, false)
		defer o.Store.Close()
		return string(o.Learner.Settings(o.Live.Features().Names()).Text())
	}
	for _, flags := range []map[string]string{
		{},
		{"kafka.topic": "others"},
		{"blocks.unit": "offsets"},
		{"format.features": "a,b"},
		{"format.missing": "mean"},
		{"format.weight": "w"},
		{"format.unlabelled": "?"},
		{"blocks.unlabelled": "keep"},
		{"retire.half_life": "1h"},
		{"model.nu": "2"},
		{"sample.rows": "10"},
		{"kernel.function": "gaussian"},
		{"model.knowledge": same},
	} {
		text := settingsOf(flags)
		if other, twice := seen[text]; twice {
			t.Errorf("%v and %v have the same settings %s", flags, other, text)
		}
		seen[text] = flags
		if want := fmt.Sprintf(`"algorithm":%d,`, incremental.Algorithm); !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	// The rules are those of the file, and not its name.
	if err := os.Rename(rules(2), same); err != nil {
		t.Fatal(err)
	}
	if text := settingsOf(map[string]string{"model.knowledge": same}); seen[text] != nil {
		t.Errorf("other rules have the same settings %s", text)
	}
}

// The independent verifier takes the stored receipts of every kind, and none of them
// with a bit changed.
func TestIndependentVerifierOfEveryKind(t *testing.T) {
	const stored = "../../../testdata/receipts/"
	files, err := filepath.Glob(stored + "*.tlog-proof")
	if err != nil || len(files) < 1+int(receipt.Kinds-receipt.Retired) {
		t.Fatalf("%d receipts are stored, %v", len(files), err)
	}
	if text, err := os.ReadFile(stored + "verify.py"); err != nil || bytes.Count(text, []byte("\n")) > 340 {
		t.Errorf("the independent verifier has %d lines, %v", bytes.Count(text, []byte("\n")), err)
	}
	r := rand.New(rand.NewPCG(21, 5))
	for _, file := range files {
		independent(t, true, file, stored+"key.pub")
		proof, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		extra := bytes.IndexByte(proof, '\n') + len("\nextra ") // of the leaf and its proof
		proof[extra+r.IntN(bytes.IndexByte(proof[extra:], '\n'))] ^= 1 << r.IntN(7)
		path := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(path, proof, 0o644); err != nil {
			t.Fatal(err)
		}
		independent(t, false, path, stored+"key.pub")
	}
}

// The independent verifier checks the cosignatures of the witnesses that it is given, all of them.
func TestIndependentVerifierOfWitnesses(t *testing.T) {
	const (
		stored = "../../../testdata/receipts/"
		a      = "a.example+f8c20697+BB76jis6Yn1q36Ep8452H4MOX2W7lS/x9Ni6X+1i68hC"
		b      = "b.example+c77329c8+BLQJPXyI/B2bvFg3F4DxLa8+tiEZDVIwBE9Zx+AMDo3N"
		c      = "c.example+9d13337f+BBM7pHX9iU/TucmMsyzKWT+zRMGWAuqpKk/6C+2Y6UMw"
	)
	for _, name := range []string{"cosigned.tlog-proof"} {
		says := independent(t, true, stored+name, stored+"key.pub", "--witness", a, "--witness", b)
		if says != "" && !strings.Contains(says, `"b.example": 2000000000`) {
			t.Errorf("it says %s", says)
		}
		independent(t, false, stored+name, stored+"key.pub", "--witness", a, "--witness", c)
		independent(t, false, stored+name, stored+"key.pub", "--witness", strings.Replace(a, "BB76", "BB77", 1))
		independent(t, false, stored+name, stored+"key.pub", "--witness", "a.example")
		proof, err := os.ReadFile(stored + name)
		if err != nil {
			t.Fatal(err)
		}
		line := bytes.Index(proof, []byte("— a.example "))
		for _, at := range []int{8, 20, 60} { // in the time, and in the two halves of the signature
			bad := bytes.Clone(proof)
			letter := &bad[line+len("— a.example ")+at]
			*letter = map[bool]byte{true: 'B', false: 'A'}[*letter == 'A']
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			independent(t, false, path, stored+"key.pub", "--witness", a)
			independent(t, true, path, stored+"key.pub", "--witness", b)
		}
	}
}

// A receipt whose parts nest without bound is refused in words.
func TestNestedReceipt(t *testing.T) {
	const stored = "../../../testdata/receipts/"
	proof, err := os.ReadFile(stored + "retired.tlog-proof")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitN(proof, []byte("\n"), 3)
	extra, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(lines[1]), "extra "))
	if err != nil {
		t.Fatal(err)
	}
	leaf, size := binary.Uvarint(extra)
	extra = append(extra[:size+int(leaf)], bytes.Repeat([]byte{12}, 3_000_000)...) // in place of the change
	lines[1] = []byte("extra " + base64.StdEncoding.EncodeToString(extra))
	proof = bytes.Join(lines, []byte("\n"))
	public, err := os.ReadFile(stored + "key.pub")
	if err != nil {
		t.Fatal(err)
	}
	const want = "a part in place of another, below such a part"
	if _, err := receipt.Check(proof, strings.TrimSpace(string(public))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("it is %v, want %s", err, want)
	}
	path := filepath.Join(t.TempDir(), "nested.tlog-proof")
	if err := os.WriteFile(path, proof, 0o644); err != nil {
		t.Fatal(err)
	}
	if says := independent(t, false, path, stored+"key.pub"); says != "" && !strings.Contains(says, want) {
		t.Errorf("the independent verifier says %s, want %s", says, want)
	}
}

// Blocks that came while there were no receipts get the keys of their items at the first start with
// them, and the next save has the keys. A block that comes again keeps its key.
func TestKeysOfEarlierBlocks(t *testing.T) {
	folder := t.TempDir()
	flags := offlineFlags(t, map[string]string{"blocks.unit": "key"})
	o := openOffline(t, flags, false)
	say := func(offset int64, key string) {
		r := after(offset, time.Duration(offset)*time.Second)
		r.Key = []byte(key)
		o.deliver(0, []kafka.Record{r}, offset+1)
	}
	say(0, "a")
	say(1, "b")
	o.Saver.Save()
	o.Store.Close()
	for range 2 {
		o = openOffline(t, withReceipts(folder, flags), false)
		o.unkeyed(o.Live.Page(retire.Lowest, 10))
		o.Saver.Save()
		o.Store.Close()
	}
	o = openOffline(t, withReceipts(folder, flags), false)
	say(2, "a")
	o.unkeyed(o.Live.Page(retire.Lowest, 10))
	o.Saver.Save()
	o.Store.Close()
	store, saved, err := snapshot.OpenReadOnly(o.Config.Snapshot.File)
	if err != nil || len(saved.Entries) != 2 {
		t.Fatal(saved, err)
	}
	defer store.Close()
	o.unkeyed(saved.Entries)
	if report, err := snapshot.Verify(t.Context(), o.Config.Snapshot.File, nil); err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
}
