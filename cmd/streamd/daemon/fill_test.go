package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/ingest/wire"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// view returns the row sample of the live blocks, open ones included.
func (i *instance) view(ctx context.Context) *sample.View {
	i.t.Helper()
	s, err := loop.Ask(ctx, i.Loop, func() (*sample.Snapshot, error) {
		if err := i.Flush(); err != nil {
			return nil, err
		}
		return i.Live.Sample(i.Live.Features().Folds()), nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return s.View()
}

// sampleText prints everything in a view, to the last bit.
func sampleText(v *sample.View) string {
	b := v.Block
	text := fmt.Sprintln(b.Features, b.Classes, b.Codes, b.Weights, v.Fold, v.Totals, v.Lacking)
	for _, c := range b.Columns {
		x := make([]float64, c.Len())
		c.Copy(x, 0)
		text += fmt.Sprintln(c.Kind(), x)
	}
	return text
}

// rowsAndFolds waits until the sample has all its rows. It returns the view, and the
// digests of the view and of each fold.
func (i *instance) rowsAndFolds() (view *sample.View, digests []string) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), patience)
	defer cancel()
	for {
		if view = i.view(ctx); view.Complete() {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			i.t.Fatalf("%d blocks still lack rows", view.Lacking)
		}
	}
	digests = append(digests, fmt.Sprintf("%x", sha256.Sum256([]byte(sampleText(view)))))
	folds, err := loop.Ask(ctx, i.Loop, func() (out []string, _ error) {
		for _, s := range i.Live.Features().PerFold() {
			out = append(out, live.DigestOf(s))
		}
		return out, nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return view, append(digests, folds...)
}

// undisturbed returns the digests of a daemon that has read these messages only.
func undisturbed(t *testing.T, flags map[string]string, messages ...message) string {
	t.Helper()
	name := topic(t, 1)
	produce(t, name, messages...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	d.waitForOffsets(int64(len(messages)))
	_, digests := d.rowsAndFolds()
	d.stop()
	return fmt.Sprint(digests)
}

// The sample and the folds are those of the live blocks, bit for bit: after restarts in the
// middle, after so many retirements that rows had to be read from the log again, and after
// a start with another number of rows and another seed.
func TestSampleIsAFunctionOfTheLiveSet(t *testing.T) {
	const blocks, staying = 80, 12
	payloads, _ := ndcBlocks(t, blocks)
	contentType := wire.Arrow.ContentType()
	stay := func() (out []message) {
		for i := range staying {
			out = append(out, message{value: payloads[i*blocks/staying], contentType: contentType})
		}
		return out
	}()
	stays := map[int]bool{}
	for i := range staying {
		stays[i*blocks/staying] = true
	}
	for _, flags := range []map[string]string{
		{"sample.rows": "150"},
		{"sample.rows": "100", "sample.balanced": "true", "model.folds": "3"},
		{"sample.rows": "1000000", "sample.seed": "-4"}, // all live rows
	} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			want := undisturbed(t, flags, stay...)

			r := rand.New(rand.NewPCG(31, 1))
			name := topic(t, 3)
			file := filepath.Join(t.TempDir(), "streamd.db")
			var messages []message
			var gone []string
			var next [3]int64
			for _, b := range r.Perm(blocks) {
				p := r.IntN(3)
				messages = append(messages, message{partition: p, value: payloads[b], contentType: contentType})
				if !stays[b] {
					gone = append(gone, incremental.Position{Topic: name, Partition: p, Offset: next[p]}.String())
				}
				next[p]++
			}
			produce(t, name, messages[:blocks/2]...)
			// The first half runs without a sample and folds, like a file of an earlier
			// version.
			d := start(t, name, file, map[string]string{"sample.rows": "0", "model.folds": "0"})
			d.waitForOffsets(blocks / 2)
			d.stop()
			other := maps.Clone(flags)
			other["sample.seed"] = "77"
			d = start(t, name, file, other)
			d.rowsAndFolds()
			d.stop()
			d = start(t, name, file, flags)
			produce(t, name, messages[blocks/2:]...)
			d.waitForOffsets(blocks)
			for i, id := range gone {
				d.retire(id)
				if i == len(gone)/2 {
					d.rowsAndFolds()
					d.stop()
					d = start(t, name, file, flags)
				}
			}
			_, digests := d.rowsAndFolds()
			if got := fmt.Sprint(digests); got != want {
				t.Errorf("sample and folds\n%s, want\n%s", got, want)
			}
			d.stop()
			d = start(t, name, file, flags)
			_, digests = d.rowsAndFolds()
			if got := fmt.Sprint(digests); got != want {
				t.Errorf("after a restart: sample and folds\n%s, want\n%s", got, want)
			}
			d.stop()
			if !d.filling.IsIdle() {
				t.Error("rows were wanted from the log after a mere restart")
			}
		})
	}
}

// A growing block's rows enter the sample as they come, also after a restart in the middle
// of the block. They leave when it is retired.
func TestSampleOfGrowingBlocks(t *testing.T) {
	flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "64", "sample.rows": "90"}
	r := rand.New(rand.NewPCG(33, 1))
	var messages []message
	for range 400 {
		messages = append(messages, message{value: jsonRow(r.IntN(2), r.IntN(1000), r.IntN(1000))})
	}
	want := undisturbed(t, flags, messages...)
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	for _, until := range []int{100, 150, 333, 400} {
		from := map[int]int{100: 0, 150: 100, 333: 150, 400: 333}[until]
		produce(t, name, messages[from:until]...)
		d := start(t, name, file, flags)
		d.waitForOffsets(int64(until))
		view, digests := d.rowsAndFolds()
		if view.Block.Rows() != 90 {
			t.Errorf("%d rows after %d", view.Block.Rows(), until)
		}
		if got := fmt.Sprint(digests); until == 400 && got != want {
			t.Errorf("sample and folds\n%s, want\n%s", got, want)
		}
		d.stop()
	}
}

// Rows that the log no longer has are missing in the sample. The sample says so and does
// not request them again and again. The other blocks make a sample all the same.
func TestSampleOfBlocksThatTheLogHasForgotten(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	r := rand.New(rand.NewPCG(34, 1))
	var messages []message
	for range 60 {
		messages = append(messages, message{value: jsonRow(r.IntN(2), r.IntN(1000), r.IntN(1000))})
	}
	produce(t, name, messages...)
	d := start(t, name, file, map[string]string{"sample.rows": "0"})
	d.waitForOffsets(60)
	d.stop()
	deleteRecords(t, name, 25)
	d = start(t, name, file, map[string]string{"sample.rows": "20"})
	d.waitForOffsets(60)
	var view *sample.View
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if view = d.view(t.Context()); view.Lacking == 25 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d blocks lack rows", view.Lacking)
		}
	}
	if view.Block.Rows() != 20 || view.Complete() {
		t.Errorf("%d rows, complete %v", view.Block.Rows(), view.Complete())
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		unread, err := loop.Ask(t.Context(), d.Loop, func() (int, error) { return len(d.filling.Unread), nil })
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d blocks could not be read: %v", unread, err)
		}
		if unread == 25 {
			break
		}
	}
	// After its retirement such a block counts as lacking rows no more.
	for i := range 25 {
		d.retire(incremental.Position{Topic: name, Offset: int64(i)}.String())
	}
	again, _ := d.rowsAndFolds()
	if sampleText(again) == sampleText(view) || again.Block.Rows() != 20 {
		t.Errorf("%d rows", again.Block.Rows())
	}
	d.stop()
}

// Where the log no longer has rows that the sample needs, choices made from rows can be others than
// those of a daemon that never saw the retired blocks. Model, quality, page, metrics and receipt
// say so, until the blocks without rows are retired, too.
func TestSampleThatLacksRowsIsToldOf(t *testing.T) {
	const blocks, rows, gone, staying = 30, 20, 4, 10
	name, folder := topic(t, 1), t.TempDir()
	r := rand.New(rand.NewPCG(35, 1))
	var messages []message
	for range blocks {
		text := "x1,x2,label\n"
		for range rows {
			label := r.IntN(2)
			text += fmt.Sprintf("%v,%v,%d\n", float64(label)+r.NormFloat64(), r.NormFloat64(), label)
		}
		messages = append(messages, message{value: []byte(text), contentType: "text/csv"})
	}
	produce(t, name, messages...)
	flags := withReceipts(folder, map[string]string{"blocks.unit": "message", "sample.rows": "100", "model.refine": "line", "model.refine_interval": "50ms"})
	d := start(t, name, filepath.Join(folder, "streamd.db"), flags)
	d.waitForOffsetsRead(blocks)
	var sampled func() model.Sampled
	sampled = func() model.Sampled {
		t.Helper()
		var answer httpapi.ModelAnswer
		var quality model.Quality
		before, _ := d.Served()
		for path, into := range map[string]any{"/v1/model": &answer, "/v1/quality": &quality} {
			if status, body := d.ask("GET", path); status != 200 || json.Unmarshal([]byte(body), into) != nil {
				t.Fatalf("%s: %d: %s", path, status, body)
			}
		}
		if now, _ := d.Served(); now != before {
			return sampled()
		}
		if answer.Sample == nil || quality.Sample == nil || *answer.Sample != *quality.Sample || answer.Refinement.Complete != answer.Sample.Complete {
			t.Fatalf("the sample is %+v in the model, whose refinement has %v, and %+v in its quality", answer.Sample, answer.Refinement.Complete, quality.Sample)
		}
		return *answer.Sample
	}
	// told says whether the page, the metrics and the status have the problem.
	told := func() bool {
		t.Helper()
		_, metrics := d.ask("GET", "/metrics")
		_, page := d.ask("GET", "/")
		const text = "live blocks, and the log does not return all of them"
		inMetrics := strings.Contains(metrics, `streamd_problems{kind="sample",level="warning"} 1`)
		if onPage, inStatus := strings.Contains(page, text), strings.Contains(d.problems(), text); onPage != inMetrics || inStatus != inMetrics {
			t.Fatalf("the problem is on the page: %v, in the status: %v, in the metrics: %v", onPage, inStatus, inMetrics)
		}
		return inMetrics
	}
	d.settled()
	if got := sampled(); !got.Complete || got.Lacking != 0 || told() {
		t.Fatalf("%+v while the log has all rows; %s", got, d.problems())
	}
	deleteRecords(t, name, gone)
	retire := func(offset int) *receipt.Leaf {
		t.Helper()
		d.retire(incremental.Position{Topic: name, Offset: int64(offset)}.String())
		head, err := d.Store.LogHead()
		for i := head.Size - 1; i >= 0 && err == nil; i-- {
			var record receipt.Record
			if record, err = d.Store.Receipt(i); err != nil {
				break
			}
			var l *receipt.Leaf
			if l, err = receipt.DecodeLeaf(record.Leaf); err == nil && l.Kind == receipt.Retired {
				return l
			}
		}
		t.Fatalf("there is no receipt: %v", err)
		panic("unreachable")
	}
	if l := retire(gone); l.Scope[receipt.Sample] != receipt.Done || l.Lacking != 0 {
		t.Errorf("the sample of the first receipt is %v, with %d blocks", l.Scope.Names(), l.Lacking)
	}
	for i := gone + 1; i < gone+blocks-staying; i++ {
		retire(i)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if got := sampled(); got.Lacking == gone && told() {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%+v; %s", got, d.problems())
		}
	}
	if l := retire(blocks - 1); l.Scope[receipt.Sample] != receipt.Partial || l.Lacking != gone {
		t.Errorf("the sample of a receipt is %v, with %d blocks, while it lacks rows of %d", l.Scope.Names(), l.Lacking, gone)
	}
	for i := range gone {
		retire(i)
	}
	d.settled()
	if got := sampled(); !got.Complete || got.Lacking != 0 || told() {
		t.Errorf("%+v without the blocks that lacked rows; %s", got, d.problems())
	}
	d.stop()
}

// The log may return a block with other rows than were summarised. The block is refused,
// even if the number of rows is the same.
func TestSampleRefusesOtherRows(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	store, _, err := snapshot.Open(file, snapshot.Settings{Topic: name, Unit: "message"})
	if err != nil {
		t.Fatal(err)
	}
	state := stateOf(t, []int{1, 5, 6}, []int{0, 3, 4})
	change := snapshot.Change{Spaces: []snapshot.SpaceChange{{State: state}}, Offsets: []snapshot.Offset{{Topic: name, Next: 2}}}
	for i, row := range [][]float64{{1, 5, 6}, {0, 3, 4}} {
		var c rowsOf
		c.add(row)
		var z incremental.Summariser
		s, err := z.Summarise(c.block())
		if err != nil {
			t.Fatal(err)
		}
		at := incremental.Position{Topic: name, Offset: int64(i)}
		change.Put = append(change.Put, snapshot.Block{Entry: retire.Entry{
			ID: at.String(), Position: at, Last: int64(i), Time: time.UnixMilli(1_700_000_000_000), Rows: 1,
		}})
		change.Spaces[0].Put = append(change.Spaces[0].Put, snapshot.Summary{ID: at.String(), Summary: s})
	}
	if _, err := store.Save(change); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	produce(t, name, message{value: jsonRow(1, 5, 6)}, message{value: jsonRow(0, 3, 5)})
	d := start(t, name, file, nil)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		unread, err := loop.Ask(t.Context(), d.Loop, func() (int, error) { return len(d.filling.Unread), nil })
		if err != nil || time.Now().After(end) {
			t.Fatalf("it is not refused: %v", err)
		}
		if unread == 1 {
			break
		}
	}
	view := d.view(t.Context())
	if view.Lacking != 1 || view.Block.Rows() != 1 || view.Block.Columns[1].At(0) != 6 {
		t.Errorf("%d blocks lack rows, and there are %d", view.Lacking, view.Block.Rows())
	}
	d.stop()
}
