package sample

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// tester has the methods that testing.TB and rapid.T share.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// live is a live block of the log.
type live struct {
	block   *incremental.Block
	summary *incremental.Summary
}

func newLive(t tester, b *incremental.Block) live {
	t.Helper()
	var z incremental.Summariser
	s, err := z.Summarise(b)
	if err != nil {
		t.Fatal(err)
	}
	return live{b, s}
}

// randomBlock returns m rows of two features in up to three classes. Some columns are
// float64 and some weights are 0.
func randomBlock(r *rand.Rand, m int) *incremental.Block {
	b := &incremental.Block{Classes: []string{"b", "10", "9"}, Codes: make([]int32, m)}
	narrow, wide := make([]float32, m), make([]float64, m)
	common := r.IntN(3)
	for i := range m {
		b.Codes[i] = int32(common)
		if r.IntN(4) == 0 {
			b.Codes[i] = int32(r.IntN(3))
		}
		narrow[i] = float32(r.NormFloat64())
		wide[i] = float64(r.IntN(10))
		if r.IntN(10) == 0 {
			wide[i] = r.Float64()
		}
	}
	b.Columns = []gram.Column{gram.ColumnOf(narrow), gram.ColumnOf(wide)}
	if r.IntN(3) == 0 {
		b.Weights = make([]float64, m)
		for i := range m {
			b.Weights[i] = float64(r.IntN(3))
		}
	}
	return b
}

// withoutLabels takes the label from some rows, and from all of some blocks.
func withoutLabels(r *rand.Rand, b *incremental.Block) *incremental.Block {
	b.Classes = append(b.Classes, incremental.Unlabelled)
	share := r.IntN(5)
	for i := range b.Codes {
		if r.IntN(4) < share {
			b.Codes[i] = 3
		}
	}
	return b
}

// row is a row of a view.
type row struct {
	hash   uint64
	label  string
	weight float64
	x      [2]float64
	fold   int
	place  int // of a row without a label
}

// rowsByLaw returns the sample of a set of blocks, by definition.
func rowsByLaw(set Settings, blocks []live, folds int) []row {
	all := map[string][]row{}
	for _, l := range blocks {
		digest := sha256.Sum256(l.summary.AppendBinary(nil))
		if b, ok := l.labelled(); ok {
			digest = sha256.Sum256(b.summary.AppendBinary(nil))
		}
		z := streamOf(set.Seed, &digest)
		index := uint32(0)
		for at := range 2 * l.block.Rows() { // rows with a label come first
			i := at % l.block.Rows()
			c := l.block.Codes[i]
			if l.block.Weight(i) == 0 || (l.block.Classes[c] == incremental.Unlabelled) != (at >= l.block.Rows()) {
				continue
			}
			level := 0
			for g := uint64(index / 64); level < 63 && z.at(64*g+uint64(level)+1)>>(index%64)&1 == 1; {
				level++
			}
			x := row{hash: z.at(1<<32+uint64(index))<<1>>1>>level | 1<<(63-level), label: l.block.Classes[c], weight: 1, fold: Fold(digest, folds)}
			if l.block.Weights != nil {
				x.weight = l.block.Weights[i]
			}
			x.x = [2]float64{l.block.Columns[0].At(i), l.block.Columns[1].At(i)}
			index++
			stratum := allClasses
			if x.label == incremental.Unlabelled {
				x.place = i
			}
			if set.Balanced || x.label == incremental.Unlabelled {
				stratum = x.label
			}
			all[stratum] = append(all[stratum], x)
		}
	}
	byHash := func(a, b row) int { return cmp.Compare(a.hash, b.hash) }
	var out []row
	strata := len(all)
	if all[incremental.Unlabelled] != nil {
		strata--
	}
	for _, rows := range all {
		slices.SortFunc(rows, byHash)
		quota := max(1, set.Rows/max(1, strata))
		out = append(out, rows[:min(quota, len(rows))]...)
	}
	slices.SortFunc(out, byHash)
	return out
}

// labelled returns the block without its rows without a label. It is not ok if no row of
// weight > 0 is left.
func (l live) labelled() (_ live, ok bool) {
	var z incremental.Summariser
	b := l.block.Labelled()
	s, err := z.Summarise(b)
	return live{b, s}, err == nil && s.Rows() > 0
}

// rows returns all rows of the sample.
func (s *Snapshot) rows() []row {
	out := rowsOf(s.View())
	if s.without.Rows > 0 {
		without := s.Unlabelled()
		for i, x := range rowsOf(&without.View) {
			x.place = without.Places[i].Row
			out = append(out, x)
		}
	}
	return out
}

func rowsOf(v *View) []row {
	out := make([]row, len(v.Block.Codes))
	for i, c := range v.Block.Codes {
		out[i] = row{label: v.Block.Classes[c], weight: 1, fold: int(v.Fold[i])}
		if v.Block.Weights != nil {
			out[i].weight = v.Block.Weights[i]
		}
		out[i].x = [2]float64{v.Block.Columns[0].At(i), v.Block.Columns[1].At(i)}
	}
	return out
}

// world is a sample with a daemon's other data: the log, the ledger, and the parts in the
// snapshot.
type world struct {
	t        tester
	settings Settings
	log      map[string]live
	parts    map[string][]byte // encoded; none for a block of a file in an old format
	sample   *Sample
	taker    Taker
	state    *incremental.State
	rereads  int
}

func newWorld(t tester, s Settings) *world {
	w := &world{t: t, settings: s, log: map[string]live{}, parts: map[string][]byte{}, state: incremental.NewState([]string{"x", "y"})}
	w.sample = New(s, maps.Keys(w.log))
	return w
}

func (w *world) part(id string) *Part {
	b, ok := w.parts[id]
	if !ok {
		return nil
	}
	p, err := DecodePart(b)
	if err != nil {
		w.t.Fatal(err)
	}
	if !bytes.Equal(p.AppendBinary(nil), b) {
		w.t.Fatal("a part changes when it is written and read")
	}
	return p
}

func (w *world) add(id string, l live, levels *Levels) {
	w.log[id] = l
	w.state.Add(l.summary)
	p := w.taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), levels)
	w.parts[id] = p.AppendBinary(nil)
	w.sample.Add(id, p)
}

// save cuts the parts to what the sample holds.
func (w *world) save() {
	for id := range w.parts {
		w.parts[id] = w.part(id).Above(w.sample.Levels()).AppendBinary(nil)
	}
}

func (w *world) remove(id string) {
	w.state.Remove(w.log[id].summary)
	w.sample.Remove(id, w.part(id))
	delete(w.log, id)
	delete(w.parts, id)
}

func (w *world) restart(s Settings) {
	w.settings = s
	w.sample = New(s, maps.Keys(w.log))
	err := w.sample.Restore(func(yield func(string, *Part)) error {
		for id := range w.log {
			yield(id, w.part(id))
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// look offers the parts of up to limit unsure blocks.
func (w *world) look(limit int) int {
	ids := w.sample.Unsure(limit)
	for _, id := range ids {
		w.sample.Offer(id, w.part(id))
	}
	return len(ids)
}

// reread reads some of the wanted blocks from the log again.
func (w *world) reread(limit int) int {
	wanted := w.sample.Wanted()
	wanted = wanted[:min(limit, len(wanted))]
	for _, id := range wanted {
		l := w.log[id]
		p := w.taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), w.sample.Levels())
		w.parts[id] = p.AppendBinary(nil)
		w.sample.Offer(id, p)
	}
	w.rereads += len(wanted)
	return len(wanted)
}

func (w *world) complete() {
	for rounds := 0; w.look(5)+w.reread(5) > 0; rounds++ {
		if rounds > len(w.log) {
			w.t.Fatalf("%d blocks still lack rows", w.sample.Lacking())
		}
	}
	if w.sample.Lacking() > 0 {
		w.t.Fatalf("there is nothing more to read, but %d blocks lack rows", w.sample.Lacking())
	}
}

func (w *world) view() *View { return w.sample.Snapshot(w.state, 3).View() }

// content renders all of a view, to the last bit.
func content(v *View) string {
	b := v.Block
	text := fmt.Sprintln(b.Features, b.Classes, b.Codes, b.Weights, v.Fold, v.Totals, v.Lacking)
	for _, c := range b.Columns {
		x := make([]float64, c.Len())
		c.Copy(x, 0)
		text += fmt.Sprintln(c.Kind(), x)
	}
	return text
}

// check compares the view with the law, and with a new sample of the same blocks under
// other ids.
func (w *world) check() {
	w.t.Helper()
	v := w.view()
	blocks := slices.Collect(maps.Values(w.log))
	want := rowsByLaw(w.settings, blocks, 3)
	got := w.sample.Snapshot(w.state, 3).rows()
	for i := range want {
		want[i].hash = 0
	}
	if len(want) == 0 {
		want = got[:0]
	}
	if !v.Complete() || !slices.Equal(sorted(got), sorted(want)) {
		w.t.Fatalf("complete %v, %d rows\n%v\nwant %d\n%v", v.Complete(), len(got), got, len(want), want)
	}
	fresh, labelled := newWorld(w.t, w.settings), newWorld(w.t, w.settings)
	for i, l := range blocks {
		fresh.add(fmt.Sprint("fresh", i), l, fresh.sample.Levels())
		if b, ok := l.labelled(); ok {
			labelled.add(fmt.Sprint("labelled", i), b, labelled.sample.Levels())
		}
	}
	fresh.complete()
	labelled.complete()
	if content(v) != content(fresh.view()) {
		w.t.Fatal("a sample with a history has another view than one without")
	}
	if content(v) != content(labelled.view()) {
		w.t.Fatal("rows without a label change the sample of those with one")
	}
	w.located()
	if !slices.Equal(v.Totals, w.state.Totals()) {
		w.t.Fatalf("totals %v, want %v", v.Totals, w.state.Totals())
	}
	w.consistent()
}

// located fails unless the rows without a label are where the sample says.
func (w *world) located() {
	if w.state.Unlabelled().Rows == 0 {
		return
	}
	v := w.sample.Snapshot(w.state, 3).Unlabelled()
	for i, at := range v.Places {
		b := w.log[at.Block].block
		if b.Classes[b.Codes[at.Row]] != incremental.Unlabelled || b.Weight(at.Row) == 0 {
			w.t.Fatalf("row %d of block %s has a label, or no weight", at.Row, at.Block)
		}
		for j, c := range v.Block.Columns {
			if c.At(i) != b.Columns[j].At(at.Row) {
				w.t.Fatalf("row %d of block %s is another one", at.Row, at.Block)
			}
		}
	}
}

// consistent fails when a sample's counts are wrong, or when it holds more than most·Rows
// rows although floors could rise.
func (w *world) consistent() {
	w.t.Helper()
	distinct, counted := map[*Part]int{}, map[*Part]int{}
	rows, high := 0, false
	for id, at := range w.sample.kept {
		p := w.sample.held[at].part
		if p.digest != w.log[id].summary.LabelledDigest() {
			w.t.Fatalf("block %s has rows of another", id)
		}
		if distinct[p]++; distinct[p] == 1 {
			rows += count(p.pieces)
		}
	}
	free := 0
	for _, h := range w.sample.held {
		if h == (held{}) {
			free++
			continue
		}
		counted[h.part] = int(h.copies)
	}
	if !maps.Equal(distinct, counted) || rows != w.sample.rows || free != len(w.sample.free) {
		w.t.Fatalf("%d rows are held in %d blocks beside %d free places, counted as %d in %d beside %d",
			rows, len(distinct), free, w.sample.rows, len(counted), len(w.sample.free))
	}
	for p := range distinct {
		for q := range distinct {
			if p != q && p.digest == q.digest && p.equal(q) {
				w.t.Fatal("equal rows are held twice")
			}
		}
	}
	for name, s := range w.sample.strata {
		var counts [levels]int64
		for p, n := range distinct {
			for _, at := range byIndex(p.pieces) {
				r, row := p.row(at)
				if w.settings.stratum(p.labels[r.code(row)]) == name {
					counts[r.level(row)] += int64(n)
				}
			}
		}
		if counts != s.counts {
			w.t.Fatalf("class %q has %v, counted as %v", name, counts, s.counts)
		}
		high = high || highest(&counts, w.sample.quota()) > s.floor
	}
	if high && rows > w.settings.room(w.sample.quota(), w.sample.unlabelled()) {
		w.t.Fatalf("%d rows are held", rows)
	}
}

// sorted orders rows by hash and then by content, because rowsByLaw leaves the order of
// rows of equal hash open.
func sorted(rows []row) []row {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.x[0], b.x[0]), cmp.Compare(a.x[1], b.x[1]), cmp.Compare(a.label, b.label), cmp.Compare(a.weight, b.weight))
	})
	return rows
}

// The view depends only on the live blocks, after adding and removing blocks in any order,
// with restarts, stale levels, blocks without parts and other settings in between.
func TestViewIsAFunctionOfTheLiveSet(t *testing.T) {
	rereads, risen := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		settings := Settings{Rows: 1 + r.IntN(60), Seed: uint64(r.IntN(2)), Balanced: r.IntN(2) == 0}
		w := newWorld(t, settings)
		stale := w.sample.Levels()
		var pool []live
		labels := r.IntN(2) == 0
		for range 30 {
			b := randomBlock(r, r.IntN(80))
			if !labels {
				b = withoutLabels(r, b)
			}
			pool = append(pool, newLive(t, b))
		}
		shrinking := false
		for range 60 + r.IntN(200) {
			if r.IntN(30) == 0 {
				shrinking = !shrinking
			}
			id := fmt.Sprint(r.IntN(60))
			_, isLive := w.log[id]
			switch k := r.IntN(21); {
			case k == 20:
				w.save()
			case k == 0:
				s := w.settings
				if r.IntN(2) == 0 {
					s = Settings{Rows: 1 + r.IntN(60), Seed: uint64(r.IntN(2)), Balanced: r.IntN(2) == 0}
				}
				w.restart(s)
				stale = w.sample.Levels()
			case k == 1:
				stale = w.sample.Levels()
			case k == 2:
				w.look(1 + r.IntN(20))
			case k == 3:
				w.look(1 + r.IntN(20))
				w.reread(1 + r.IntN(20))
			case k == 4 && isLive: // like a block of a file in an old format
				part := w.part(id)
				w.sample.Remove(id, part)
				w.sample.Add(id, nil)
				delete(w.parts, id)
			default:
				if isLive {
					w.remove(id)
				}
				if l := pool[r.IntN(len(pool))]; l.summary.Rows() > 0 && (!shrinking || r.IntN(6) == 0) {
					levels := w.sample.Levels()
					if r.IntN(3) == 0 && stale.settings == w.settings {
						levels = stale
					}
					w.add(id, l, levels)
				}
			}
			if r.IntN(10) == 0 && w.sample.Lacking() == 0 {
				w.check()
			}
			w.unbiased()
		}
		w.complete()
		w.check()
		rereads += w.rereads
		for _, s := range w.sample.strata {
			risen += s.floor
		}
	})
	if rereads < 100 || risen < 100 {
		t.Errorf("%d rereads, %d levels: too few to show anything", rereads, risen)
	}
}

// unbiased fails unless a view has exactly the rows, of blocks with a part, with a hash
// below some bound, up to the quota.
func (w *world) unbiased() {
	if w.sample.Lacking() == 0 {
		return
	}
	snapshot := w.sample.Snapshot(w.state, 3)
	var blocks []live
	for id, l := range w.log {
		if w.sample.lacking[id] != absent {
			blocks = append(blocks, l)
		}
	}
	want := rowsByLaw(w.settings, blocks, 3)
	got := snapshot.rows()
	if len(got) > len(want) {
		w.t.Fatalf("%d rows, more than the %d of a complete sample", len(got), len(want))
	}
	allowed := map[row]int{}
	for _, x := range want {
		if bits.LeadingZeros64(x.hash) < snapshot.limits[w.settings.stratum(x.label)].level {
			continue
		}
		x.hash = 0
		allowed[x]++
	}
	for _, x := range got {
		allowed[x]--
	}
	for x, n := range allowed {
		if n != 0 {
			w.t.Fatalf("row %v: %d too few", x, n)
		}
	}
}

// Hashes are uniform: levels have the frequencies of a fair coin, for every place in a
// group. Blocks and classes are sampled in proportion to their rows, and folds are
// independent of the sample. The bounds are the 99.99 % quantiles of the χ²
// distributions; the seeds are fixed.
func TestHashesAreUniform(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	w := newWorld(t, Settings{Rows: 4000, Seed: 9})
	const blocks, rows = 200, 400
	for b := range blocks {
		block := randomBlock(r, rows)
		block.Weights = nil
		w.add(fmt.Sprint(b), newLive(t, block), w.sample.Levels())
	}
	var counts [12]float64
	var zeros [64]float64 // rows of level 0, by place in their group
	for _, l := range w.log {
		digest := l.summary.Digest()
		z := streamOf(9, &digest)
		for i := range uint32(rows) {
			level := z.level(i)
			if level < len(counts) {
				counts[level]++
			}
			if level == 0 {
				zeros[i%64]++
			}
		}
	}
	chi := 0.0
	for l, n := range counts {
		expected := blocks * rows * math.Exp2(-float64(l+1))
		chi += math.Pow(n-expected, 2) / expected
	}
	if chi > 39.1 { // 12 degrees of freedom
		t.Errorf("levels: χ² = %.1f, counts %v", chi, counts)
	}
	chi = 0
	for place, n := range zeros {
		drawn := float64(blocks * ((rows - place + 63) / 64))
		chi += math.Pow(n-drawn/2, 2) / (drawn / 4)
	}
	if chi > 114 { // 64 degrees of freedom
		t.Errorf("places: χ² = %.1f, %v", chi, zeros)
	}
	v := w.view()
	if v.Block.Rows() != 4000 {
		t.Fatalf("%d rows", v.Block.Rows())
	}
	share := 4000.0 / (blocks * rows)
	chi = 0
	perClass := make([]float64, len(v.Totals))
	for _, c := range v.Block.Codes {
		perClass[c]++
	}
	for c, total := range v.Totals {
		expected := share * float64(total.Rows)
		chi += math.Pow(perClass[c]-expected, 2) / expected
	}
	if chi > 18.4 { // 2 degrees of freedom
		t.Errorf("classes: χ² = %.1f, %v of %v", chi, perClass, v.Totals)
	}
	var perFold, liveRows [3]float64
	for _, f := range v.Fold {
		perFold[f]++
	}
	for _, l := range w.log {
		liveRows[Fold(l.summary.LabelledDigest(), 3)] += rows
	}
	chi = 0
	for f := range perFold {
		expected := share * liveRows[f]
		chi += math.Pow(perFold[f]-expected, 2) / expected
		if liveRows[f] < blocks*rows/5 {
			t.Errorf("fold %d has %v rows", f, liveRows[f])
		}
	}
	if chi > 18.4 {
		t.Errorf("folds: χ² = %.1f, %v of %v", chi, perFold, liveRows)
	}
	perBlock := map[[2]float64]int{}
	for i := range v.Block.Rows() {
		perBlock[[2]float64{v.Block.Columns[0].At(i), v.Block.Columns[1].At(i)}]++
	}
	chi = 0
	for _, l := range w.log {
		n := 0
		for i := range rows {
			n += perBlock[[2]float64{l.block.Columns[0].At(i), l.block.Columns[1].At(i)}]
		}
		expected := share * rows
		chi += math.Pow(float64(n)-expected, 2) / expected
	}
	if chi > 284 { // 199 degrees of freedom
		t.Errorf("blocks: χ² = %.1f", chi)
	}
}

// joined returns the rows of a part as one piece, by index.
func joined(p *Part) rows {
	all := byIndex(p.pieces)
	out := rows{n: uint32(p.n), flags: hasWeights | isWide | p.flags()&hasPlaces}.room(len(all))
	for i, at := range all {
		r, row := p.row(at)
		out.set(i, r.index(row), uint32(r.code(row)), uint8(r.level(row)))
		out.setPlace(i, r.place(row))
		out.setWeight(i, r.weight(row))
		for j := range p.n {
			out.setNumber(i, j, r.at(row, j))
		}
	}
	return out.narrowest()
}

func inOnePiece(p *Part) *Part {
	out := &Part{seed: p.seed, digest: p.digest, n: p.n, labels: p.labels}
	out.classes = append(out.two[:0], p.classes...)
	if len(p.pieces) > 0 {
		out.pieces = append(out.one[:0], joined(p))
	}
	return out
}

// For any floors and any number of rows, Take takes the rows at the floor of their class
// or above, with their hashes.
func TestTake(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	var taker Taker
	for _, m := range []int{1, 2, 63, 64, 65, 127, 128, 129, 1000} {
		for try := range 60 {
			b := randomBlock(r, m)
			if try >= 30 {
				b = withoutLabels(r, b)
			}
			l := newLive(t, b)
			if l.summary.Rows() == 0 {
				continue // no block
			}
			settings := Settings{Rows: 1000, Seed: r.Uint64(), Balanced: r.IntN(2) == 0}
			levels := &Levels{settings: settings, floors: map[string]int{allClasses: r.IntN(14), "9": r.IntN(5), "10": r.IntN(12)}}
			var want, got []row
			unlimited := settings
			unlimited.Rows = math.MaxInt32
			for _, x := range rowsByLaw(unlimited, []live{l}, 1) {
				if bits.LeadingZeros64(x.hash) >= levels.of(x.label) {
					x.fold = 0
					want = append(want, x)
				}
			}
			p := taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), levels)
			z := streamOf(settings.Seed, &p.digest)
			all := joined(p)
			ascending := true
			for i := range all.len() {
				ascending = ascending && (i == 0 || all.index(i-1) < all.index(i))
				x := row{hash: z.hash(all.index(i), all.level(i)), label: p.labels[all.code(i)], weight: all.weight(i)}
				x.x = [2]float64{all.at(i, 0), all.at(i, 1)}
				if x.label == incremental.Unlabelled {
					x.place = int(all.place(i))
				}
				got = append(got, x)
			}
			slices.SortFunc(got, func(a, b row) int { return cmp.Compare(a.hash, b.hash) })
			if !ascending || !slices.Equal(got, want) || p.Rows() != l.summary.Rows() {
				t.Fatalf("%d rows, floors %v: took\n%v\nwant\n%v", m, levels.floors, got, want)
			}
			if again, err := DecodePart(p.AppendBinary(nil)); err != nil || !reflect.DeepEqual(again, inOnePiece(p)) {
				t.Fatalf("decoded as\n%v, %v, want\n%v", again, err, p)
			}
		}
	}
}

// A part cut to higher levels is the part taken at these. Cut to lower levels it is
// unchanged.
func TestAbove(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	var taker Taker
	cut := 0
	for range 300 {
		b := randomBlock(r, 1+r.IntN(300))
		if r.IntN(2) == 0 {
			b = withoutLabels(r, b)
		}
		l := newLive(t, b)
		if l.summary.Rows() == 0 {
			continue
		}
		settings := Settings{Rows: 1000, Balanced: r.IntN(2) == 0}
		lower := &Levels{settings: settings, floors: map[string]int{allClasses: r.IntN(3), "9": r.IntN(3), "10": r.IntN(3)}}
		higher := &Levels{settings: settings, floors: map[string]int{}}
		for label, floor := range lower.floors {
			higher.floors[label] = floor + r.IntN(9)
		}
		take := func(levels *Levels) *Part {
			return taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), levels)
		}
		p := take(lower)
		got, want := p.Above(higher), take(higher)
		if count(want.pieces) == count(p.pieces) {
			if got != p {
				t.Fatal("a part that has no rows below the levels is copied")
			}
			continue
		}
		cut++
		if !reflect.DeepEqual(inOnePiece(got), inOnePiece(want)) {
			t.Fatalf("cut to %v:\n%v\nwant\n%v", higher.floors, got, want)
		}
		if again, err := DecodePart(got.AppendBinary(nil)); err != nil || !reflect.DeepEqual(again, inOnePiece(got)) {
			t.Fatalf("decoded as\n%v, %v, want\n%v", again, err, got)
		}
	}
	if cut < 100 {
		t.Errorf("%d parts were cut", cut)
	}
}

// A floor that rises by one level drops a piece of a large part and leaves the others as
// they are.
func TestPiecesGoWhole(t *testing.T) {
	l := newLive(t, randomBlock(rand.New(rand.NewPCG(19, 20)), 2000))
	levels := func(floor int) *Levels {
		return &Levels{settings: Settings{Rows: 1000}, floors: map[string]int{allClasses: floor}}
	}
	var taker Taker
	p := taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), levels(1))
	if len(p.pieces) != mostPieces {
		t.Fatalf("%d pieces", len(p.pieces))
	}
	for floor := 1; floor <= mostPieces; floor++ {
		want := taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), levels(floor))
		if p = p.Above(levels(floor)); !bytes.Equal(p.AppendBinary(nil), want.AppendBinary(nil)) {
			t.Errorf("floor %d: cut to\n%v\nwant\n%v", floor, p, want)
		}
		less := p.Above(levels(floor + 1))
		same := func(r, s rows) bool { return &r.words[0] == &s.words[0] }
		if len(p.pieces) > 1 && !slices.EqualFunc(less.pieces, p.pieces[1:], same) {
			t.Errorf("floor %d: pieces are copied", floor+1)
		}
	}
	small := newLive(t, randomBlock(rand.New(rand.NewPCG(21, 22)), 2*few-1))
	if p := taker.Take(small.block, small.summary.LabelledDigest(), small.summary.Totals(), levels(0)); len(p.pieces) != 1 {
		t.Errorf("%d rows are in %d pieces", count(p.pieces), len(p.pieces))
	}
}

// The encoding of parts does not change, because snapshots outlive releases and equal live
// sets have equal encodings. The digest is of f029285, when parts had one piece.
func TestEncodingStays(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	h := sha256.New()
	var taker Taker
	for i := range 200 {
		l := newLive(t, randomBlock(r, 1+r.IntN(1000)))
		settings := Settings{Rows: 200, Seed: r.Uint64(), Balanced: i%2 == 0}
		levels := func() *Levels {
			return &Levels{settings: settings, floors: map[string]int{allClasses: r.IntN(5), "9": r.IntN(5), "10": r.IntN(5)}}
		}
		p := taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), levels())
		h.Write(p.AppendBinary(nil))
		h.Write(p.Above(levels()).AppendBinary(nil))
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != "4116e1f2b86443b2d4f19d47a64a44e1a6fbe52add981edb0a9010725c41023a" {
		t.Errorf("SHA-256 %s", got)
	}
}

// Copies of a block share memory, and each counts in the sample.
func TestCopiesShareRows(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	w := newWorld(t, Settings{Rows: 100})
	one, other := newLive(t, randomBlock(r, 1)), newLive(t, randomBlock(r, 1))
	for i := range 1000 {
		w.add(fmt.Sprint("one", i), one, w.sample.Levels())
		w.add(fmt.Sprint("other", i), other, w.sample.Levels())
	}
	w.complete()
	w.check()
	if w.sample.rows > 2 {
		t.Errorf("%d rows in memory", w.sample.rows)
	}
	for i := range 990 {
		w.remove(fmt.Sprint("one", i))
		w.remove(fmt.Sprint("other", i))
	}
	w.complete()
	w.check()
	if n := w.view().Block.Rows(); n != 20 {
		t.Errorf("%d rows", n)
	}
}

// A balanced sample has equally many rows of each class, whatever their shares of the
// stream.
func TestBalanced(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	w := newWorld(t, Settings{Rows: 300, Balanced: true})
	for b := range 100 {
		m := 200
		block := &incremental.Block{Classes: []string{"rare", "common"}, Codes: make([]int32, m)}
		x, y := make([]float32, m), make([]float32, m)
		for i := range m {
			if r.IntN(50) > 0 {
				block.Codes[i] = 1
			}
			x[i], y[i] = r.Float32(), r.Float32()
		}
		block.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
		w.add(fmt.Sprint(b), newLive(t, block), w.sample.Levels())
	}
	w.check()
	perClass := [2]int{}
	for _, c := range w.view().Block.Codes {
		perClass[c]++
	}
	if perClass != [2]int{150, 150} {
		t.Errorf("%v rows", perClass)
	}
}

// While the number of live rows stays the same, no block is read again, however long the
// stream. Retiring half of the rows makes the sample read blocks again once.
func TestRereadsAreRare(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	w := newWorld(t, Settings{Rows: 100})
	next, oldest := 0, 0
	for range 2000 {
		w.add(fmt.Sprint(next), newLive(t, randomBlock(r, 20)), w.sample.Levels())
		next++
		if len(w.log) > 100 {
			w.remove(fmt.Sprint(oldest))
			oldest++
		}
		w.complete()
	}
	w.check()
	if w.rereads > 0 {
		t.Errorf("%d blocks were read again", w.rereads)
	}
	for range 75 {
		w.remove(fmt.Sprint(oldest))
		oldest++
		w.complete()
	}
	w.check()
	if w.rereads == 0 || w.rereads > 100 {
		t.Errorf("%d blocks were read again", w.rereads)
	}
}

// The part of a single block that is larger than the sample is cut like that of a block in
// a long stream.
func TestLargeFirstBlock(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, balanced := range []bool{false, true} {
		w := newWorld(t, Settings{Rows: 50, Balanced: balanced})
		w.add("a", newLive(t, randomBlock(r, 20_000)), w.sample.Levels())
		if p := w.part("a"); count(p.pieces) > most*50 || p.Rows() < 10_000 {
			t.Errorf("%d rows are kept of %d", count(p.pieces), p.Rows())
		}
		w.complete()
		w.check()
		if w.rereads > 0 {
			t.Error("it was read again")
		}
	}
}

// Rows of weight 0 have no effect.
func TestWeightZeroIsAsIfAbsent(t *testing.T) {
	columns := func(x ...float32) []gram.Column { return []gram.Column{gram.ColumnOf(x), gram.ColumnOf(x)} }
	a := newWorld(t, Settings{Rows: 10})
	a.add("a", newLive(t, &incremental.Block{Columns: columns(1, 9, 2, 3), Classes: []string{"z", "p", "q"}, Codes: []int32{2, 0, 1, 2}, Weights: []float64{1, 0, 2, 1}}), a.sample.Levels())
	b := newWorld(t, Settings{Rows: 10})
	b.add("b", newLive(t, &incremental.Block{Columns: columns(1, 2, 3), Classes: []string{"p", "q"}, Codes: []int32{1, 0, 1}, Weights: []float64{1, 2, 1}}), b.sample.Levels())
	if content(a.view()) != content(b.view()) {
		t.Error("a row of weight 0 leaves a trace")
	}
}

// Blocks that differ only in the sign of zeros have equal parts.
func TestMinusZeroIsZero(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 61))
	levels := New(Settings{Rows: 50, Seed: 1}, func(func(string) bool) {}).Levels()
	for range 20 {
		signed, plain := make([]float64, 90), make([]float64, 90)
		narrow := make([]float32, 90)
		for i := range signed {
			signed[i] = float64(r.IntN(3)-1) * float64(r.IntN(2)) // −1·0 is −0
			plain[i], narrow[i] = signed[i]+0, float32(signed[i])
		}
		codes := make([]int32, 90)
		part := func(columns ...gram.Column) []byte {
			l := newLive(t, &incremental.Block{Classes: []string{"a"}, Codes: codes, Columns: columns})
			var taker Taker
			return taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), levels).AppendBinary(nil)
		}
		want := part(gram.ColumnOf(plain), gram.ColumnOf(plain))
		for _, columns := range [][]gram.Column{
			{gram.ColumnOf(signed), gram.ColumnOf(signed)},
			{gram.ColumnOf(narrow), gram.ColumnOf(narrow)},
			{gram.ColumnOf(narrow), gram.ColumnOf(plain)},
		} {
			if !bytes.Equal(part(columns...), want) {
				t.Fatal("the sign of a zero shows in the part")
			}
		}
	}
}

// The numbers of a part are encoded without zeros where that is shorter, and as they are otherwise.
func TestZerosAreLeftOut(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	left := 0
	for range 500 {
		m, n := 1+r.IntN(40), 1+r.IntN(40)
		wide, share := r.IntN(2) == 0, 20+r.IntN(14)
		b := &incremental.Block{Classes: []string{"a"}, Codes: make([]int32, m)}
		others := 0
		for j := range n {
			x := make([]float64, m)
			for i := range x {
				if r.IntN(32) < share {
					x[i] = float64(1 + r.IntN(9))
					others++
				}
			}
			if wide && j == 0 {
				if x[0] == 0 {
					others++
				}
				x[0] = 0.1
			}
			b.Columns = append(b.Columns, gram.ColumnOf(x))
		}
		l := newLive(t, b)
		var taker Taker
		levels := &Levels{settings: Settings{Rows: 1000}}
		p := taker.Take(l.block, l.summary.LabelledDigest(), l.summary.Totals(), levels)
		got := p.AppendBinary(nil)
		number := 4
		if wide {
			number = 8
		}
		dense := number * m * n
		want := dense
		if without := m*((n+7)/8) + number*others; without < dense {
			want = without
			left++
		}
		const head = 8 + sha256.Size + 1 + 1 + 1 + 2 + 1 + 1 // up to the number of rows
		if size := len(got) - head - 1 - 2*m; size != want {
			t.Fatalf("%d rows of %d numbers, %d not 0, take %d bytes, want %d", m, n, others, size, want)
		}
		again, err := DecodePart(got)
		if err != nil || !reflect.DeepEqual(again, inOnePiece(p)) {
			t.Fatalf("decoded as\n%v, %v, want\n%v", again, err, p)
		}
		if classes, bytes, ok := Peek(got); !ok || classes != 1 || bytes != again.Bytes() {
			t.Fatalf("a peek says %d classes, %d bytes, %v; the rows take %d", classes, bytes, ok, again.Bytes())
		}
		for end := range got {
			Peek(got[:end]) // does not panic
		}
	}
	if left < 200 || left > 450 {
		t.Errorf("%d of 500 parts are without zeros", left)
	}
}

func FuzzDecodePart(f *testing.F) {
	r := rand.New(rand.NewPCG(11, 12))
	for m := range 6 {
		w := newWorld(f, Settings{Rows: 3, Seed: 5})
		w.add("a", newLive(f, randomBlock(r, 1+7*m)), w.sample.Levels())
		f.Add(w.parts["a"])
		w.add("b", newLive(f, withoutLabels(r, randomBlock(r, 10+7*m))), w.sample.Levels())
		f.Add(w.parts["b"])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePart(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.AppendBinary(nil), b) {
			t.Errorf("%x came back as %x", b, p.AppendBinary(nil))
		}
		// A decoded part is safe to use.
		s := New(Settings{Rows: 2, Seed: p.seed}, func(yield func(string) bool) { yield("a") })
		s.Add("a", p)
		s.Remove("a", p)
		if len(s.strata) > 0 || len(s.kept) > 0 || len(s.same) > 0 || s.rows != 0 {
			t.Error("something is left of it")
		}
	})
}

// weightedView is the view with weights of blocks, by id.
func (w *world) weightedView(weights map[string]float64) *View {
	var parts []*incremental.State
	var scaled []uint64
	for id, l := range w.log {
		if weights[id] > 0 {
			one := incremental.NewState(w.state.Features())
			one.Add(l.summary)
			parts, scaled = append(parts, one), append(scaled, uint64(weights[id]*16))
		}
	}
	sum := incremental.WeightedSum(w.state.Features(), parts, scaled, 4)
	return w.sample.Weighted(w.state, 3, sum, func(id string) float64 { return weights[id] }).View()
}

// Rows of a weighted view are those of the view with the weight of their block, without those of
// weight 0, in whatever order the blocks came and under whatever ids.
func TestWeightedView(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(19, seed))
		settings := Settings{Rows: 20 + r.IntN(200), Balanced: r.IntN(2) == 0}
		var blocks []live
		var weights []float64
		copies := seed%2 == 0 // blocks of equal content and different weights
		for range 30 {
			l := newLive(t, randomBlock(r, 1+r.IntN(20)))
			for range 1 + r.IntN(4) {
				blocks, weights = append(blocks, l), append(weights, []float64{0, 1.0 / 16, 0.25, 1}[r.IntN(4)])
				if !copies {
					break
				}
			}
		}
		view := func(order []int) *View {
			w, of := newWorld(t, settings), map[string]float64{}
			for place, i := range order {
				id := fmt.Sprint(place)
				w.add(id, blocks[i], w.sample.Levels())
				of[id] = weights[i]
			}
			w.complete()
			return w.weightedView(of)
		}
		got := view(r.Perm(len(blocks)))
		if content(got) != content(view(r.Perm(len(blocks)))) {
			t.Fatalf("seed %d: the order of the blocks shows", seed)
		}
		if copies {
			continue
		}
		weightOf := map[[2]float64]float64{} // by the numbers of a row, which hardly repeat
		for i, l := range blocks {
			for row := range l.block.Rows() {
				weightOf[[2]float64{l.block.Columns[0].At(row), l.block.Columns[1].At(row)}] = weights[i]
			}
		}
		var want []row
		for _, x := range rowsByLaw(settings, blocks, 3) {
			if x.weight *= weightOf[x.x]; x.weight > 0 && x.label != incremental.Unlabelled {
				x.hash, x.place = 0, 0
				want = append(want, x)
			}
		}
		if rows := rowsOf(got); !slices.Equal(sorted(rows), sorted(want)) {
			t.Fatalf("seed %d: rows\n%v\nwant\n%v", seed, rows, want)
		}
	}
}

// Where a sample has only some of the copies of a row, it has those that weigh most.
func TestHeaviestCopies(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 0))
	w, weights, one := newWorld(t, Settings{Rows: 3}), map[string]float64{}, newLive(t, &incremental.Block{
		Classes: []string{"a"}, Codes: []int32{0}, Columns: []gram.Column{gram.ColumnOf([]float64{1}), gram.ColumnOf([]float64{2})},
	})
	for _, i := range r.Perm(8) {
		id := fmt.Sprint(i)
		w.add(id, one, w.sample.Levels())
		weights[id] = float64(i) / 8
	}
	w.complete()
	v := w.weightedView(weights)
	if !slices.Equal(v.Block.Weights, []float64{7.0 / 8, 6.0 / 8, 5.0 / 8}) {
		t.Errorf("weights %v", v.Block.Weights)
	}
}

// A part that has all rows of a block gives the block back: its summary has the same bits.
func TestWholeParts(t *testing.T) {
	whole, lacking := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(94, seed))
		b := randomBlock(r, 1+r.IntN(60))
		if r.IntN(3) == 0 {
			b.Classes[r.IntN(len(b.Classes))] = incremental.Unlabelled
		}
		l := newLive(t, b)
		if l.summary.Rows() == 0 {
			continue
		}
		s := New(Settings{Rows: []int{2, 10_000}[r.IntN(2)]}, func(func(string) bool) {})
		var taker Taker
		p := taker.Take(b, l.summary.LabelledDigest(), l.summary.Totals(), s.Levels())
		again, err := DecodePart(p.AppendBinary(nil))
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, rows := range p.pieces {
			kept += rows.len()
		}
		for _, p := range []*Part{p, again} {
			b := p.Whole()
			if (b != nil) != (int64(kept) == l.summary.Rows()) {
				t.Fatalf("seed %d: %d of %d rows give %v", seed, kept, l.summary.Rows(), b)
			}
			if b == nil {
				lacking++
				continue
			}
			whole++
			if got := newLive(t, b).summary.Digest(); got != l.summary.Digest() {
				t.Errorf("seed %d: %d rows have the digest %x, want %x", seed, kept, got, l.summary.Digest())
			}
		}
	}
	if whole < 100 || lacking < 20 {
		t.Errorf("%d whole parts and %d others are too few", whole, lacking)
	}
}
