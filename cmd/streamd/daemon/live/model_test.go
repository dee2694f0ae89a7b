package live

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// naive is a live set as lists of blocks, and what has happened to them since the last save.
type naive struct {
	keyed       bool
	ledger      *retire.Ledger
	archive     *retire.Ledger // of the archived blocks, as if they were live; nil: none
	summaries   map[string]*incremental.Summary
	selections  map[string]*retire.Selection
	due         map[string]bool
	churn       int64
	left        map[string][]leaving // by id: how it left the live set
	back        map[string]bool      // that it came back
	past        map[receipt.Item]receipt.Kind
	pastRows    map[receipt.Item]int64
	key         *receipt.Key
	before      map[string]block // the live set at the last save
	side        receipt.Side
	moves, told int64
	excluded    int
	out         map[string]incremental.Position // blocks that are withdrawn by the receipts so far
}

type block struct {
	retire.Entry
	item receipt.Item
}

// leaving is how a block has left the live set, and its item then.
type leaving struct {
	kind receipt.Kind
	item receipt.Item
}

func (m *naive) find(id string) (e retire.Entry, ok bool) {
	if e, ok = m.ledger.Find(id); !ok && m.archive != nil {
		e, ok = m.archive.Find(id)
		e.Archived = ok
	}
	return e, ok
}

func (m *naive) chosen(e *retire.Entry) bool {
	var w retire.Withdrawals
	for name, s := range m.selections {
		w.Put(name, s)
	}
	return w.Choose(e)
}

// classesWith counts the classes with those of another summary.
func (m *naive) classesWith(s *incremental.Summary) int {
	all := map[string]bool{}
	for _, label := range s.Classes() {
		all[label] = true
	}
	for e := range m.ledger.Select(&retire.Selection{}) {
		for _, label := range m.summaries[e.ID].Classes() {
			all[label] = true
		}
	}
	delete(all, incremental.Unlabelled)
	return len(all)
}

func (m *naive) item(id string) receipt.Item {
	return m.key.Item(id, receipt.Hash{}, m.summaries[id].Digest())
}

func (m *naive) leaves(id string, kind receipt.Kind) {
	m.left[id] = append(m.left[id], leaving{kind, m.item(id)})
	delete(m.back, id)
	m.moves++
}

func (m *naive) returns(id string) {
	m.back[id] = true
	if all := m.left[id]; len(all) > 0 && all[len(all)-1].item == m.item(id) { // as if it had not left
		m.left[id] = all[:len(all)-1]
	}
	m.moves++
}

// toggles notes that an archived block loses its rows, or has them again; both undo each other.
func (m *naive) toggles(id string, kind receipt.Kind, rows int64) {
	i := m.item(id)
	if _, undone := m.past[i]; undone {
		delete(m.past, i)
		return
	}
	m.past[i], m.pastRows[i] = kind, rows
}

// unplaced notes that the policy lets go of a withdrawn block for good.
func (m *naive) unplaced(e *retire.Entry) {
	i := receipt.Item{Key: m.key.ItemKey(e.ID)}
	m.past[i], m.pastRows[i] = receipt.Purged, e.Rows
}

// gone takes a live block out of the sums.
func (m *naive) gone(e *retire.Entry) {
	if !e.Withdrawn {
		m.churn += e.Rows
	}
	delete(m.due, e.ID)
}

// archived puts a block that the policy has let go into the archive.
func (m *naive) archived(e retire.Entry) {
	due := m.due[e.ID]
	if m.gone(&e); m.archive == nil {
		if e.Withdrawn {
			m.unplaced(&e)
		}
		return
	}
	if e.Withdrawn && due {
		m.due[e.ID] = true
	}
	m.archive.Add(e)
}

func (m *naive) remove(id string) {
	if e, ok := m.ledger.Remove(id); ok {
		m.gone(&e)
	} else if m.archive != nil {
		m.archive.Remove(id)
		delete(m.due, id)
	}
}

func (m *naive) add(e retire.Entry, s *incremental.Summary) (o Outcome) {
	e.Withdrawn = m.chosen(&e)
	former, ok := m.find(e.ID)
	alive := ok && !former.Withdrawn && !former.Archived
	if alive && m.keyed {
		m.leaves(e.ID, receipt.Replaced)
	}
	if alive && !m.keyed && e.Withdrawn {
		m.leaves(e.ID, receipt.Withdrawn)
	} else if alive && !m.keyed && s.Rows() == 0 {
		m.leaves(e.ID, receipt.Lost)
	}
	label := ""
	if alive {
		label = m.summaries[e.ID].Label()
	}
	if ok {
		m.remove(e.ID)
	}
	m.summaries[e.ID] = s
	if o.Replaced = alive; s.Rows() == 0 || e.Withdrawn {
		if o = (Outcome{}); alive {
			o.Retired = 1
		}
	} else {
		m.churn += e.Rows
		o.Added = true
	}
	o.Label = label
	if s.Rows() == 0 {
		return o
	}
	for _, out := range m.ledger.Add(e) {
		if !out.Withdrawn {
			if out.ID != e.ID || alive && !m.keyed {
				m.leaves(out.ID, receipt.Expired)
			}
			o.Retired++
			o.Refused = o.Refused || out.ID == e.ID
		}
		m.archived(out)
	}
	if former.Withdrawn && !e.Withdrawn && !m.keyed {
		if !o.Refused {
			m.returns(e.ID)
		} else if m.archive != nil {
			m.toggles(e.ID, receipt.Returned, e.Rows)
		} else {
			m.unplaced(&e)
		}
	}
	return o
}

// retire retires a block for good.
func (m *naive) retire(id string) {
	if e, ok := m.ledger.Retire(id); ok {
		if !e.Withdrawn {
			m.leaves(id, receipt.Deleted)
		}
		m.gone(&e)
	} else if e, ok := m.archive.Retire(id); ok {
		if !e.Withdrawn {
			m.toggles(id, receipt.Purged, e.Rows)
		}
		delete(m.due, id)
	}
}

func (m *naive) ledgers() (all []*retire.Ledger) {
	all = []*retire.Ledger{m.ledger}
	if m.archive != nil {
		all = append(all, m.archive)
	}
	return all
}

// withdraw puts a selection in force, or takes it back.
func (m *naive) withdraw(name string, s *retire.Selection) (w Withdrawal) {
	if m.selections[name] = s; s == nil {
		delete(m.selections, name)
	}
	for i, in := range m.ledgers() {
		for _, e := range slices.Collect(in.Select(&retire.Selection{})) {
			if !m.chosen(&e) {
				continue
			}
			in.Withdraw(e.ID)
			if i == 1 {
				w.Archived++
				w.ArchivedRows += e.Rows
				m.toggles(e.ID, receipt.Purged, e.Rows)
			} else {
				w.Blocks++
				w.Rows += e.Rows
				m.leaves(e.ID, receipt.Withdrawn)
				m.gone(&e)
			}
		}
		for _, e := range in.SelectWithdrawn(&retire.Selection{}) {
			if delete(m.due, e.ID); !m.chosen(&e) {
				m.due[e.ID] = true
			}
		}
	}
	return w
}

// giveBack makes a due block live again, or gives an archived one its rows again.
func (m *naive) giveBack(e retire.Entry) {
	delete(m.due, e.ID)
	if e.Archived {
		m.archive.Return(e.ID)
		m.toggles(e.ID, receipt.Returned, e.Rows)
		return
	}
	m.ledger.Return(e.ID)
	m.churn += e.Rows
	m.returns(e.ID)
}

// live has the live blocks with their items.
func (m *naive) live() map[string]block {
	all := map[string]block{}
	for e := range m.ledger.Select(&retire.Selection{}) {
		all[e.ID] = block{e, m.item(e.ID)}
	}
	return all
}

func ids(all []retire.Entry) (out []string) {
	for _, e := range all {
		out = append(out, e.ID)
	}
	return out
}

// checkDepartures compares the contents of receipts since the last save with what has happened.
func (m *naive) checkDepartures(t *testing.T, l *Set) {
	t.Helper()
	now, side := m.live(), l.Side()
	var want [2]map[receipt.Item]string // items that have left, and that have come back
	want[0], want[1] = map[receipt.Item]string{}, map[receipt.Item]string{}
	for id, all := range m.left {
		if b, was := m.before[id]; was && len(all) > 0 && now[id].item != b.item {
			want[0][b.item] = id
		}
	}
	for id := range m.back {
		if b, is := now[id]; is && m.before[id].item != b.item {
			want[1][b.item] = id
		}
	}
	var counted int64
	for _, d := range l.TakeDepartures() {
		if d.Kind == receipt.Excluded {
			m.excludes(t, &d, side)
			continue
		}
		if d.Kind.Listed() {
			var items []receipt.Item
			var rows int64
			for i, kind := range m.past {
				if kind == d.Kind {
					items, rows = append(items, i), rows+m.pastRows[i]
					delete(m.past, i)
				}
			}
			slices.SortFunc(items, receipt.Item.Compare)
			if d.Items != receipt.ListHash(items) || d.Rows != rows || d.Blocks != int64(len(items)) || !bytes.Equal(d.Change, receipt.AppendItems(nil, items)) || d.Before != side || d.After != side {
				t.Fatalf("a receipt %v of %d archived blocks of %d rows, want %d of %d", d.Kind, d.Blocks, d.Rows, len(items), rows)
			}
			continue
		}
		counted += d.Blocks + d.Passing
		if d.Before != m.side || d.After != side || d.Moves != l.Moves() {
			t.Fatalf("a receipt of other live sets: %+v", d)
		}
		if d.Blocks == 0 {
			if d.Passing == 0 || d.Change != nil {
				t.Fatalf("a receipt of nothing: %+v", d)
			}
			continue
		}
		c, err := receipt.CheckChange(d.Change)
		if err != nil || c.Before != m.side.Root || c.After != side.Root || int64(len(c.Moved)) != d.Blocks {
			t.Fatalf("the proof of %d blocks: %+v, %v", d.Blocks, c, err)
		}
		back, blocks := 0, m.before
		if d.Kind == receipt.Restored {
			back, blocks = 1, now
		}
		var items []receipt.Item
		var leaf receipt.Leaf
		for _, moved := range c.Moved {
			value := moved.Before
			if back == 1 {
				value = moved.After
			}
			if value == nil {
				t.Fatalf("a receipt %v of a block that was not there", d.Kind)
			}
			i := receipt.Item{Key: moved.Key, Value: *value}
			id, is := want[back][i]
			if delete(want[back], i); !is {
				t.Fatalf("a receipt %v of a block that has not moved, or two", d.Kind)
			}
			if kinds := m.left[id]; back == 0 && len(kinds) == 1 && kinds[0].kind != d.Kind {
				t.Fatalf("block %s has left by %v, and the receipt says %v", id, kinds, d.Kind)
			}
			leaf.Add(blocks[id].Rows, blocks[id].Time)
			items = append(items, i)
			e, placed := m.ledger.Find(id)
			switch {
			case d.Kind == receipt.Restored:
				delete(m.out, id)
			case d.Kind == receipt.Withdrawn && placed && m.item(id) == i:
				m.out[id] = e.Position
			}
		}
		if d.Items != receipt.ListHash(items) || d.Rows != leaf.Rows || !d.Earliest.Equal(leaf.Earliest) || !d.Latest.Equal(leaf.Latest) {
			t.Fatalf("a receipt %v of %d rows, want %d, of %v to %v", d.Kind, d.Rows, leaf.Rows, leaf.Earliest, leaf.Latest)
		}
	}
	if len(want[0])+len(want[1])+len(m.past) > 0 {
		t.Fatalf("%v have left, %v have come back and %d archived blocks have moved, without a receipt", want[0], want[1], len(m.past))
	}
	if counted != m.moves-m.told || l.Moves() != m.moves {
		t.Fatalf("receipts count %d moves of %d, %d of all", counted, m.moves-m.told, l.Moves())
	}
	maps.DeleteFunc(m.out, func(id string, at incremental.Position) bool {
		e, placed := m.ledger.Find(id)
		return !placed || e.Position != at
	})
	out := map[string]incremental.Position{}
	for _, e := range m.ledger.SelectWithdrawn(&retire.Selection{}) {
		out[e.ID] = e.Position
	}
	if !maps.Equal(out, m.out) {
		t.Fatalf("by the receipts so far %v are withdrawn, want %v", m.out, out)
	}
	m.begin(l.Side())
}

// excludes checks a receipt of excluded blocks.
func (m *naive) excludes(t *testing.T, d *Departure, side receipt.Side) {
	t.Helper()
	var items []receipt.Item
	var leaf receipt.Leaf
	for list := d.Change; len(list) > 0; list = list[2*len(receipt.Hash{}):] {
		i := receipt.Item{Key: receipt.Hash(list)}
		items = append(items, i)
		found := false
		for _, e := range m.ledger.SelectWithdrawn(&retire.Selection{}) {
			if m.key.ItemKey(e.ID) == i.Key {
				found = true
				leaf.Add(e.Rows, e.Time)
				m.out[e.ID] = e.Position
				m.excluded++
			}
		}
		if !found {
			t.Fatalf("a receipt excludes a block that is not withdrawn: %x", i)
		}
	}
	if !bytes.Equal(d.Change, receipt.AppendItems(nil, items)) || d.Items != receipt.ListHash(items) || d.Blocks != leaf.Blocks || d.Rows != leaf.Rows || !d.Latest.Equal(leaf.Latest) || d.Before != side || d.After != side {
		t.Fatalf("a receipt of %d excluded blocks: %+v", len(items), d)
	}
}

// begin begins with the present live set.
func (m *naive) begin(side receipt.Side) {
	m.left, m.back, m.past, m.pastRows = map[string][]leaving{}, map[string]bool{}, map[receipt.Item]receipt.Kind{}, map[receipt.Item]int64{}
	m.before, m.side, m.told = m.live(), side, m.moves
}

// A live set is the one of lists of blocks: its sums, its entries, what it answers, and the
// contents of its receipts, whatever comes, goes, is withdrawn or archived, and wherever it is
// saved and opened again.
func TestLiveSetBesideLists(t *testing.T) {
	happened := map[string]int{}
	for seed := range uint64(32) {
		r := rand.New(rand.NewPCG(68, seed))
		cfg := liveConfig(int(3*(seed%2)), []int{0, 1000}[seed/2%2])
		cfg.Limits.Classes = 3
		cfg.Retire.Archive = seed%5 > 0
		m := &naive{keyed: seed%4 == 3, summaries: map[string]*incremental.Summary{}, selections: map[string]*retire.Selection{}, due: map[string]bool{}, out: map[string]incremental.Position{}}
		switch {
		case m.keyed:
			cfg.Blocks.Unit = config.UnitKey
		case seed%3 == 0:
			cfg.Retire.Blocks = 6
		case seed%3 == 1:
			cfg.Retire.Rows = 30
		}
		m.ledger = retire.NewLedger(retire.Policy{Blocks: cfg.Retire.Blocks, Rows: cfg.Retire.Rows})
		if cfg.Retire.Archive {
			m.archive = retire.NewLedger(retire.Policy{})
		}
		dir := t.TempDir()
		var err error
		if m.key, _, _, err = receipt.OpenKey(filepath.Join(dir, "receipts.key"), "t"); err != nil {
			t.Fatal(err)
		}
		var store *snapshot.Store
		var l *Set
		open := func() {
			var contents *snapshot.Contents
			if store, contents, err = snapshot.Open(filepath.Join(dir, "streamd.db"), snapshot.Settings{}); err != nil {
				t.Fatal(err)
			}
			// Folds and policy may be other ones, and a stricter policy retires blocks.
			cfg.Model.Folds = []int{0, 3, 5}[r.IntN(3)]
			if cfg.Retire.Blocks > 0 {
				cfg.Retire.Blocks = 3 + r.IntN(6)
			}
			before, side := m.live(), m.side
			strict := retire.NewLedger(retire.Policy{Blocks: cfg.Retire.Blocks, Rows: cfg.Retire.Rows})
			former := append(slices.Collect(m.ledger.Select(&retire.Selection{})), m.ledger.SelectWithdrawn(&retire.Selection{})...)
			outs, err := strict.Restore(m.ledger.Horizon(), former)
			if err != nil {
				t.Fatal(err)
			}
			m.ledger, m.churn, m.moves = strict, 0, 0
			m.begin(receipt.Side{})
			retired := 0
			for _, out := range outs {
				if !out.Withdrawn {
					m.leaves(out.ID, receipt.Expired)
					retired++
				}
				m.archived(out)
			}
			happened["retired by a start"] += retired
			got := 0
			if l, got, err = Open(store, contents, cfg, roomy(cfg), zerolog.Nop()); err != nil || got != retired {
				t.Fatalf("seed %d: a start retires %d blocks, want %d: %v", seed, got, retired, err)
			}
			if err := l.KeepReceipts(m.key); err != nil {
				t.Fatal(err)
			}
			for name, s := range m.selections {
				if _, err := l.Withdraw(name, s); err != nil {
					t.Fatal(err)
				}
			}
			if w, err := l.FollowWithdrawals(); err != nil || w != (Withdrawal{}) {
				t.Fatal(w, err)
			}
			if !l.HasPlaces() {
				l.Fix([]string{"x1", "x2"})
			}
			if m.before, m.side = before, side; len(former) == 0 {
				m.side = l.Side()
			}
			if r.IntN(2) == 0 { // else an earlier log goes on
				return
			}
			if d := l.Begun(); d.Before != m.side || d.After != m.side || d.Kind != receipt.Begun || d.VRF != m.key.VRF() {
				t.Fatalf("seed %d: the log begins with %+v, want %+v", seed, d, m.side)
			}
		}
		open()
		save := func() {
			m.checkDepartures(t, l)
			c := l.Change()
			c.SavedAt = time.UnixMilli(1)
			if _, err := store.Save(c); err != nil {
				t.Fatal(err)
			}
			l.Saved(&c)
		}
		// A position names one block for good: one that has gone, or is archived, does not grow.
		var newest [10]int
		name := func() string {
			i := r.IntN(10)
			if m.keyed {
				return fmt.Sprint("key:", i)
			}
			id := fmt.Sprint("t/0/", newest[i]+i)
			if e, ok := m.find(id); m.summaries[id] != nil && (!ok || e.Archived) {
				newest[i] += 10
				id = fmt.Sprint("t/0/", newest[i]+i)
			}
			return id
		}
		pick := func(which func(e *retire.Entry) bool) (id string, ok bool) {
			var all []string
			for e := range l.Everything {
				if which(&e) {
					all = append(all, e.ID)
				}
			}
			if len(all) == 0 {
				return "", false
			}
			slices.Sort(all)
			return all[r.IntN(len(all))], true
		}
		alive := func(e *retire.Entry) bool { return !e.Withdrawn && !e.Archived }
		var z Keeper
		randomKept := func() Kept {
			b := &incremental.Block{Classes: []string{"a", "b", "c", "d", incremental.Unlabelled}}
			x, y, weight := []float64{}, []float64{}, 1.0
			if r.IntN(10) == 0 {
				weight = 0
			}
			most := 1 + r.IntN(2)*r.IntN(5)
			for range 1 + r.IntN(8) {
				x, y, b.Codes, b.Weights = append(x, r.Float64()), append(y, r.Float64()), append(b.Codes, int32(r.IntN(most))), append(b.Weights, weight)
			}
			b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
			k, err := z.Keep(t.Context(), b, l.Target())
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		contents := map[string]Kept{}
		for step := range 120 {
			happens := func(what string) { happened[what]++ }
			switch k := r.IntN(30); {
			case k < 12:
				id, kept := name(), randomKept()
				classes := m.classesWith(kept.Summary)
				err := l.Admits(Candidate{Labels: kept.Summary.Classes(), Features: 2, Window: kept.Summary.Window(), Kept: kept})
				if many := new(ClassesError); errors.As(err, &many) != (classes > 3) || err != nil && many.Most != 3 {
					t.Fatalf("seed %d: %d classes: %v", seed, classes, err)
				}
				if err != nil {
					happens("too many classes")
					continue
				}
				e := retire.Entry{ID: id, Position: incremental.Position{Topic: "t", Offset: int64(step)}, Last: int64(step), Time: time.UnixMilli(r.Int64N(200)).UTC(), Rows: kept.Summary.Rows()}
				if r.IntN(2) == 0 {
					e.Header = retire.HashHeader("h", []byte{byte(r.IntN(2))})
				}
				if former, ok := m.find(id); ok && !m.keyed { // it grows
					e.Position = former.Position
				}
				want := m.add(e, kept.Summary)
				contents[id] = kept
				got, err := l.Add(e, kept)
				if err != nil || got != want {
					t.Fatalf("seed %d, step %d: block %s: %+v, want %+v, %v", seed, step, id, got, want, err)
				}
				if want.Refused {
					happens("refused")
				}
				if want.Replaced {
					happens("replaced")
				}
			case k < 14:
				if id, ok := pick(func(*retire.Entry) bool { return true }); ok {
					m.retire(id)
					if err := l.Retire(id); err != nil {
						t.Fatal(err)
					}
				}
			case k == 14:
				if id, ok := pick(alive); ok {
					m.leaves(id, receipt.Lost)
					m.remove(id)
					if err := l.Lose(id); err != nil {
						t.Fatal(err)
					}
				}
			case k < 20:
				which := fmt.Sprint(r.IntN(3))
				var s *retire.Selection
				switch r.IntN(6) {
				case 0:
					s = &retire.Selection{IDs: []string{name(), name()}}
				case 1:
					first := r.Int64N(120)
					s = &retire.Selection{Ranges: []retire.Range{{Topic: "t", First: first, Last: first + r.Int64N(20)}}}
				case 2:
					s = &retire.Selection{From: time.UnixMilli(r.Int64N(200)), Headers: []retire.HeaderHash{retire.HashHeader("h", []byte{0})}}
				case 3:
					s = &retire.Selection{To: time.UnixMilli(r.Int64N(100))} // archived blocks are old
				}
				want := m.withdraw(which, s)
				got, err := l.Withdraw(which, s)
				if err != nil || got != want {
					t.Fatalf("seed %d: a selection withdraws %+v, want %+v: %v", seed, got, want, err)
				}
				happened["withdrawn"] += got.Blocks
				happened["archived withdrawn"] += got.Archived
			case k < 23:
				for _, e := range l.Due() {
					if m.classesWith(m.summaries[e.ID]) > 3 {
						if ok, err := l.GiveBack(e, contents[e.ID]); ok || !errors.As(err, new(*ClassesError)) {
							t.Fatalf("seed %d: a block of too many classes is given back: %v", seed, err)
						}
						continue
					}
					m.giveBack(e)
					if ok, err := l.GiveBack(e, contents[e.ID]); err != nil || !ok {
						t.Fatalf("seed %d: block %s is not given back: %v", seed, e.ID, err)
					}
					happens("given back")
					if ok, err := l.GiveBack(e, contents[e.ID]); ok || err != nil {
						t.Fatalf("seed %d: block %s is given back twice: %v", seed, e.ID, err)
					}
				}
			case k < 25:
				save()
			case k == 25: // blocks leave together, with a receipt of their own
				save()
				var few []string
				for e := range l.Everything {
					if alive(&e) && r.IntN(3) == 0 {
						few = append(few, e.ID)
					}
				}
				if len(few) == 0 {
					continue
				}
				was := l.Side()
				var leaf receipt.Leaf
				var items []receipt.Item
				for _, id := range few {
					e, _ := m.ledger.Get(id)
					leaf.Add(e.Rows, e.Time)
					items = append(items, m.item(id))
				}
				d, err := l.RetireTogether(few, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range few {
					m.retire(id)
				}
				slices.SortFunc(items, receipt.Item.Compare)
				c, err := receipt.CheckChange(d.Change)
				if err != nil || !c.Alone || c.Before != was.Root || c.After != l.Side().Root || d.Before != was || d.After != l.Side() || d.Kind != receipt.Retired || d.Based || d.Moves != l.Moves() ||
					d.Items != receipt.ListHash(items) || d.Rows != leaf.Rows || d.Blocks != leaf.Blocks || !d.Latest.Equal(leaf.Latest) {
					t.Fatalf("seed %d: a receipt of blocks that leave together: %+v, %+v, %v", seed, d, c, err)
				}
				if more := l.TakeDepartures(); more != nil {
					t.Fatalf("seed %d: %d more receipts of blocks that had their own", seed, len(more))
				}
				m.begin(l.Side())
				happens("together")
			case k == 26 && cfg.Retire.Archive:
				save()
				var all []string
				var want []string
				var items []receipt.Item
				for e := range l.Everything {
					if r.IntN(2) > 0 {
						continue
					}
					if all = append(all, e.ID); alive(&e) {
						want = append(want, e.ID)
						continue
					}
					i := m.item(e.ID)
					if e.Withdrawn {
						i.Value = receipt.Hash{}
					}
					items = append(items, i)
					m.retire(e.ID)
				}
				leaves, rest, err := l.RetireOthers(all)
				if err != nil || !slices.Equal(rest, want) || len(leaves) != min(len(items), 1) {
					t.Fatalf("seed %d: the rest is %q, want %q; %d receipts; %v", seed, rest, want, len(leaves), err)
				}
				slices.SortFunc(items, receipt.Item.Compare)
				if len(items) > 0 && (leaves[0].Items != receipt.ListHash(items) || leaves[0].Kind != receipt.Purged) {
					t.Fatalf("seed %d: a receipt of other archived blocks", seed)
				}
				if more := l.TakeDepartures(); more != nil {
					t.Fatalf("seed %d: more receipts of archived blocks", seed)
				}
				m.begin(l.Side())
			case k > 26:
				save()
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				open()
			}
			m.check(t, seed, l, cfg, r)
		}
		happened["excluded"] += m.excluded
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"too many classes", "refused", "replaced", "withdrawn", "archived withdrawn", "excluded", "given back", "together", "retired by a start"} {
		if happened[what] < 5 {
			t.Errorf("%q happened %d times: the histories do not reach what they should", what, happened[what])
		}
	}
}

// check compares everything that the set answers.
func (m *naive) check(t *testing.T, seed uint64, l *Set, cfg *config.Config, r *rand.Rand) {
	t.Helper()
	whole := incremental.NewState([]string{"x1", "x2"})
	var rows, unlabelled int64
	classes := map[string]bool{}
	for e := range m.ledger.Select(&retire.Selection{}) {
		s := m.summaries[e.ID]
		whole.Add(s)
		rows += s.Rows()
		for _, label := range s.Classes() {
			classes[label] = true
		}
		if got, want := l.Item(e.ID), m.item(e.ID); got != want {
			t.Fatalf("seed %d: the item of block %s is %x, not %x", seed, e.ID, got, want)
		}
	}
	unlabelled = whole.Unlabelled().Rows
	delete(classes, incremental.Unlabelled)
	if l.Digest() != DigestOf(whole) || l.Rows() != rows || l.Unlabelled() != unlabelled || l.Churn() != m.churn || l.Parted() != (len(classes) > 1) {
		t.Fatalf("seed %d: %d rows, %d without a label, churn %d, parted %t; want %d, %d, %d, %d classes", seed, l.Rows(), l.Unlabelled(), l.Churn(), l.Parted(), rows, unlabelled, m.churn, len(classes))
	}
	var tree receipt.Tree
	for e := range m.ledger.Select(&retire.Selection{}) {
		tree.Put(m.item(e.ID))
	}
	if l.Side() != (receipt.Side{Digest: whole.Digest(), Root: tree.Root()}) {
		t.Fatalf("seed %d: the tree is another one", seed)
	}
	sum := incremental.NewState([]string{"x1", "x2"})
	if folds := l.Features().PerFold(); len(folds) > 0 {
		if sum.SetSum(folds); DigestOf(sum) != l.Digest() || len(folds) != cfg.Model.Folds {
			t.Fatalf("seed %d: the folds do not add up", seed)
		}
	}
	// The price of the sums goes by these bounds.
	bounds := l.features.sums.shape(0)
	if bounds.Window.Union(whole.Window()) != bounds.Window || bounds.Classes < len(classes) {
		t.Fatalf("seed %d: the sums of %d classes, with numbers in %v, have the bounds %+v", seed, len(classes), whole.Window(), bounds)
	}
	var everything, selected, places []retire.Entry
	withdrawn := 0
	some := &retire.Selection{From: time.UnixMilli(r.Int64N(200))}
	if r.IntN(2) == 0 {
		some.Headers = []retire.HeaderHash{retire.HashHeader("h", []byte{1})}
	}
	without := *some
	without.Headers = []retire.HeaderHash{{}}
	bare := 0
	var first, last retire.Entry
	found := false
	above := retire.Rank{Milliseconds: r.Int64N(150)}
	for _, in := range m.ledgers() {
		everything = slices.AppendSeq(everything, in.Select(&retire.Selection{}))
		everything = append(everything, in.SelectWithdrawn(&retire.Selection{})...)
		selected = slices.AppendSeq(selected, in.Select(some))
		places = append(slices.AppendSeq(places, in.Select(some)), in.SelectWithdrawn(some)...)
		withdrawn += in.Withdrawn()
		for range in.Select(&without) {
			bare++
		}
		for range in.SelectWithdrawn(&without) {
			bare++
		}
		// As daemons ask: some block is above, and then the last one of all counts.
		if page := in.Page(above, math.MaxInt); len(page) > 0 {
			if !found || page[0].Rank().Compare(first.Rank()) < 0 {
				first = page[0]
			}
			if newest := page[len(page)-1]; !found || newest.Rank().Compare(last.Rank()) > 0 {
				last = newest
			}
			found = true
		}
	}
	byRank := func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) }
	slices.SortStableFunc(selected, byRank)
	slices.SortStableFunc(places, byRank)
	archived := 0
	var page []retire.Entry
	if m.archive != nil {
		archived, page = m.archive.Len(), m.archive.Page(above, 3)
	}
	newest, any := m.ledger.Newest()
	isNewest, isAny := l.Newest()
	from, to, ok := l.Span(above)
	if got := ids(slices.Collect(l.Everything)); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(ids(everything)))) || l.HasPlaces() != (len(got) > 0) ||
		!slices.Equal(ids(l.SelectPast(some)), ids(selected)) || !slices.Equal(ids(l.Places(nil).Select(some)), ids(places)) || l.Places(nil).NoHeader(some) != bare ||
		ok != found || from.ID != first.ID || to.ID != last.ID || l.Withdrawn() != withdrawn || l.Archived() != archived || l.Overflowed() != 0 ||
		!slices.Equal(ids(l.ArchivedBlocks(above, 3)), ids(page)) || isAny != any || isNewest.ID != newest.ID || l.Horizon() != m.ledger.Horizon() || l.Blocks() != m.ledger.Len() {
		t.Fatalf("seed %d: the set has %v, chooses %v and %v (%d without a header), spans %s to %s, %t; want %v, %v, %v (%d), %s to %s, %t", seed,
			got, ids(l.SelectPast(some)), ids(l.Places(nil).Select(some)), l.Places(nil).NoHeader(some), from.ID, to.ID, ok, ids(everything), ids(selected), ids(places), bare, first.ID, last.ID, found)
	}
	var live []string
	l.IDs(func(id string) bool { live = append(live, id); return true })
	var backward, chosen []string
	for e := range l.Backward {
		backward = append(backward, e.ID)
	}
	for e := range l.Select(some) {
		chosen = append(chosen, e.ID)
	}
	all := ids(m.ledger.Page(retire.Lowest, math.MaxInt))
	if slices.Reverse(backward); !slices.Equal(live, all) || !slices.Equal(backward, all) || !slices.Equal(ids(l.Page(retire.Lowest, math.MaxInt)), all) || !slices.Equal(chosen, ids(slices.Collect(m.ledger.Select(some)))) {
		t.Fatalf("seed %d: live are %v, %v, and %v are chosen; want %v", seed, live, backward, chosen, all)
	}
	if due := ids(l.Due()); !slices.Equal(slices.Sorted(slices.Values(due)), slices.Sorted(maps.Keys(m.due))) {
		t.Fatalf("seed %d: due are %v, want %v", seed, due, m.due)
	}
	for _, e := range everything {
		got, ok := l.Find(e.ID)
		e, _ = m.find(e.ID)
		if got.ItemKey, e.ItemKey = (receipt.Hash{}), (receipt.Hash{}); !ok || got.ID != e.ID || got.Withdrawn != e.Withdrawn || got.Archived != e.Archived || got.Rows != e.Rows || !got.Time.Equal(e.Time) || got.Header != e.Header || !reflect.DeepEqual(got.Position, e.Position) {
			t.Fatalf("seed %d: block %+v, want %+v", seed, got, e)
		}
	}
	if l.HasSample() != (cfg.Sample.Rows > 0) || l.Lacking() != 0 {
		t.Fatalf("seed %d: a sample: %t, which lacks %d blocks", seed, l.HasSample(), l.Lacking())
	}
	if l.HasSample() {
		in := slices.Sorted(maps.Keys(maps.Collect(func(yield func(string, bool) bool) {
			for id := range l.sample.Blocks() {
				if !yield(id, true) {
					return
				}
			}
		})))
		if want := slices.Sorted(slices.Values(all)); len(l.Wanted()) != 0 || l.Sample(0).View().Block.Rows() != int(rows-unlabelled) || !slices.Equal(in, want) && unlabelled == 0 {
			t.Fatalf("seed %d: the sample has %d rows of %v, want %d of %v", seed, l.Sample(0).View().Block.Rows(), in, rows-unlabelled, want)
		}
	}
}
