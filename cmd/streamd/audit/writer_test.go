package audit_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// writer writes a snapshot as a daemon does, out of blocks that a test gives. What the file says
// is the test's to change.
type writer struct {
	*testing.T
	path    string
	learner *learning.Learner
	store   *snapshot.Store
	set     *live.Set
	keeper  live.Keeper
	blocks  []*incremental.Block
	next    int64        // offset of the next block
	key     *receipt.Key // nil: without receipts
	pending []live.Departure
	proofs  []*receipt.Receipt // of the leaves of the saved log

	settings func(s *learning.Settings) // changes what the file says of them; nil: nothing
	change   func(c *snapshot.Change)   // changes what is saved; nil: nothing
}

const written = "t/0/" // begins the ids of a writer's blocks

// newWriter begins a snapshot by a configuration with some flags. With a key it has receipts.
func newWriter(t *testing.T, key *receipt.Key, flags ...string) *writer {
	t.Helper()
	given := map[string]string{"kafka.topic": "t", "format.features": "a,b", "blocks.unit": "message", "sample.rows": "0", "model.folds": "0"}
	for i := 0; i < len(flags); i += 2 {
		given[flags[i]] = flags[i+1]
	}
	cfg, err := config.Load(config.Sources{Flags: given})
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{T: t, path: filepath.Join(t.TempDir(), "streamd.db"), key: key}
	if w.learner, err = learning.New(cfg, 1<<20, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	var saved *snapshot.Contents
	if w.store, saved, err = snapshot.Open(w.path, snapshot.Settings{Topic: "t", Unit: "message"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.store.Close() }) // of a test that ends before it saves
	if w.set, _, err = live.Open(w.store, saved, cfg, memory.New(cfg, 8<<30), zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	if key == nil {
		return w
	}
	if err := w.set.KeepReceipts(key); err != nil {
		t.Fatal(err)
	}
	w.receipt(*w.set.Begun())
	return w
}

// fix fixes the features, as the first block does.
func (w *writer) fix() { w.set.Fix([]string{"a", "b"}) }

// add adds a block of two classes, drawn by its offset, of which one has that share of the rows. It
// returns the block's id.
func (w *writer) add(rows int, share float64) string {
	w.Helper()
	r := rand.New(rand.NewPCG(94, uint64(w.next)))
	b := &incremental.Block{Classes: []string{"no", "yes"}}
	columns := [2][]float64{}
	for range rows {
		code := int32(0)
		if r.Float64() < share {
			code = 1
		}
		b.Codes = append(b.Codes, code)
		for j := range columns {
			columns[j] = append(columns[j], r.NormFloat64()+float64(code)*float64(j+1))
		}
	}
	b.Columns = []gram.Column{gram.ColumnOf(columns[0]), gram.ColumnOf(columns[1])}
	k, err := w.keeper.Keep(context.Background(), b, w.set.Target())
	if err != nil {
		w.Fatal(err)
	}
	at := incremental.Position{Topic: "t", Offset: w.next}
	e := retire.Entry{ID: at.String(), Position: at, Last: w.next, Time: time.UnixMilli(1_700_000_000_000 + 1000*w.next), Rows: k.Summary.Rows()}
	if _, err := w.set.Add(e, k); err != nil {
		w.Fatal(err)
	}
	w.blocks = append(w.blocks, b)
	w.next++
	return e.ID
}

// retire retires a block on request.
func (w *writer) retire(id string) {
	w.Helper()
	left, err := w.set.RetireTogether([]string{id}, nil)
	if err != nil {
		w.Fatal(err)
	}
	if left != nil {
		w.receipt(*left)
	}
}

// summary is that of a live block.
func (w *writer) summary(id string) *incremental.Summary {
	w.Helper()
	e, _ := w.set.Get(id)
	s, err := w.set.Summary(e, nil)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// swap puts a summary into the sums of the file, in place of another one of as many rows.
func (w *writer) swap(in, out *incremental.Summary) {
	w.change = func(c *snapshot.Change) {
		state := c.Spaces[0].State.Clone()
		state.Remove(out)
		state.Add(in)
		c.Spaces[0].State = state
	}
}

// receipt makes the receipt of blocks that leave.
func (w *writer) receipt(left live.Departure) {
	left.Topic, left.Settings = "t", sha256.Sum256(w.learner.Settings(w.set.Features().Names()).Text())
	left.Offsets = []receipt.Next{{Partition: 0, Offset: w.next}}
	w.pending = append(w.pending, left)
}

// save saves everything, and closes the file. Each leaf of the log passes by itself.
func (w *writer) save() {
	w.Helper()
	c, now := w.set.Change(), time.UnixMilli(1_700_000_000_000)
	c.SavedAt = now
	c.Offsets = []snapshot.Offset{{Topic: "t", Next: w.next}}
	c.Learning = w.learner.Saved(learning.Lists{})
	if w.settings != nil {
		s, err := learning.Read(c.Learning)
		if err != nil {
			w.Fatal(err)
		}
		w.settings(&s)
		c.Learning = s.Text()
	}
	var records []receipt.Record
	for i := range w.pending {
		w.pending[i].Durable = now
		records = append(records, receipt.Record{Leaf: w.pending[i].AppendBinary(nil), Change: w.pending[i].Change})
	}
	if w.key != nil {
		var err error
		if c.Receipts, err = w.key.Grow(0, w.store, records); err != nil {
			w.Fatal(err)
		}
	}
	if w.change != nil {
		w.change(&c)
	}
	prepared, err := w.store.Prepare(c)
	if err == nil {
		_, err = prepared.Save()
	}
	if err != nil {
		w.Fatal(err)
	}
	for i, record := range records {
		proof, err := w.key.Prove(int64(i), record, w.store)
		if err != nil {
			w.Fatal(err)
		}
		r, err := receipt.Check(proof, w.key.Public())
		if err != nil {
			w.Fatal(err)
		}
		w.proofs = append(w.proofs, r)
	}
	if err := w.store.Close(); err != nil {
		w.Fatal(err)
	}
}

// serve makes the model of the live blocks, as the daemon serves it. Planes are refined on the rows
// of all blocks where the settings have them refined on those of the log.
func (w *writer) serve() *audit.Served {
	w.Helper()
	var weighted *live.Weighted
	for w.learner.Fades() && weighted == nil {
		var err error
		if weighted, err = w.set.Weigh(time.Minute); err != nil {
			w.Fatal(err)
		}
	}
	s := w.learner.Begin(w.set, weighted)
	if memory.Studies(w.learner.Config) {
		of := w.learner.Study(w.set, weighted, s)
		if w.learner.Config.Model.Rows == config.RowsLog {
			of.Rows = logRows(w.blocks)
		}
		if of.Make(context.Background()); of.Failed != nil {
			w.Fatal(of.Failed)
		}
	} else {
		sums := learning.Sums(w.set, weighted)
		learning.Solve(context.Background(), s, sums.Moments(), w.learner.OptionsIn(w.set, nil), w.set.Features().Names(), sums.Labels())
	}
	if s.Model == nil {
		w.Fatal(s.Problem)
	}
	return &audit.Served{
		Identity: s.Identity(), Figures: s.Figures(), Fingerprint: s.Identity().Fingerprint(), Receipts: int64(len(w.pending)),
		Sample: s.Sample, Tuning: s.Tuning,
	}
}

// logRows are the rows of a log that has all blocks.
type logRows []*incremental.Block

func (l logRows) Pass(_ context.Context, visit func(*incremental.Block) error) error {
	for _, b := range l {
		if err := visit(b); err != nil {
			return err
		}
	}
	return nil
}

func (l logRows) Whole() bool { return true }

// testKey is a key for a log.
func testKey(t *testing.T) *receipt.Key {
	t.Helper()
	private, err := receipt.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{95}, 32)), "streamd/t")
	if err != nil {
		t.Fatal(err)
	}
	key, err := receipt.ParseKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
