package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/bases"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/kernels"
	"streamd/kernels/reduce"
	"streamd/retire"
	"streamd/snapshot"
)

// pruned asks for a part of the basis in use while the log cannot be read, and waits for planes in
// its coordinates.
func (i *instance) pruned(how reduce.Pruning, points int) *model.Served {
	i.t.Helper()
	release := i.holdReading()
	if err := i.Prune(i.t.Context(), how, points); err != nil {
		i.t.Fatal(err)
	}
	a := i.waitForEpoch("the end of a pruning", func(a *httpapi.EpochAnswer) bool { return a.Reducing == nil && a.Rebuild == nil })
	release()
	if a.Problem != "" || a.InUse.Pruned == 0 || a.InUse.Method != string(how) {
		i.t.Fatalf("it is not pruned: %+v", a)
	}
	return i.wait("planes in its coordinates", func(s *model.Served) bool { return s.Model != nil && s.BasisID() == a.InUse.Basis })
}

// beganWith makes a daemon of the live blocks use a basis, and read the log for it.
func (i *instance) beganWith(m *kernels.Map) *model.Served {
	i.t.Helper()
	i.waitForEpoch("planes in the features", func(a *httpapi.EpochAnswer) bool { return a.Reducing == nil && a.InUse == nil })
	made := &model.Reduction{Method: "given", MadeAt: time.Now().UTC()}
	learning.Describe(made, m)
	if err := i.Call(i.t.Context(), func() error {
		i.Live.Choose()
		i.Bases.UseBasis(&bases.Reduction{}, m, made, nil)
		return nil
	}); err != nil {
		i.t.Fatal(err)
	}
	i.waitForEpoch("the end of a rebuild", func(a *httpapi.EpochAnswer) bool { return a.InUse != nil && a.Rebuild == nil })
	return i.wait("planes in its coordinates", func(s *model.Served) bool { return s.Model != nil && s.BasisID() == made.Basis })
}

// spaceInUse is everything that a file has of the space in use, apart from its number and report.
func spaceInUse(t *testing.T, file string) (all [][]byte) {
	t.Helper()
	store, contents, err := snapshot.OpenReadOnly(file)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := contents.Space(contents.InUse)
	if len(contents.Spaces) != 2 || len(s.Missing) > 0 {
		t.Fatalf("%d spaces, and %d missing blocks", len(contents.Spaces), len(s.Missing))
	}
	all = append(all, s.Basis, s.State.AppendBinary(nil))
	for _, f := range s.Folds {
		all = append(all, f.AppendBinary(nil))
	}
	summaries := 0
	err = store.Summaries(s.Number, func(e retire.Entry, s *incremental.Summary) error {
		summaries++
		all = append(all, s.AppendBinary([]byte(e.ID)))
		return nil
	})
	if err != nil || summaries != len(contents.Entries) || summaries == 0 {
		t.Fatalf("%d summaries of %d blocks: %v", summaries, len(contents.Entries), err)
	}
	return all
}

// A basis that is pruned is, bit for bit, the one of a daemon that began with the points that stay:
// planes, sums, folds and every block's summary, also in the file. No row is read. After
// retirements and another reduction and pruning it is that of a daemon that has only seen what is
// left, in another order and other partitions.
func TestPruning(t *testing.T) {
	const blocks = 24
	_, all := weightedBlocks(t, blocks)
	for name, c := range map[string]struct {
		how   reduce.Pruning
		flags map[string]string
	}{
		"lda":           {reduce.PruneLDA, map[string]string{"kernel.reduce": "random", "model.nu": "auto"}},
		"lda, balanced": {reduce.PruneLDA, map[string]string{"kernel.reduce": "kmeans", "model.balanced": "true", "kernel.regulariser": "kernel", "model.folds": "0"}},
		"lda of eigen":  {reduce.PruneLDA, map[string]string{"kernel.reduce": "eigen(points=60)"}},
		"fisher":        {reduce.PruneFisher, map[string]string{"kernel.reduce": "lda", "kernel.regulariser": "kernel", "model.refine": "full"}},
		"cholesky":      {reduce.PruneCholesky, map[string]string{"kernel.reduce": "stratified", "model.standardise": "true"}},
		"eigen":         {reduce.PruneEigen, map[string]string{"kernel.reduce": "eigen(points=60)", "model.standardise": "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(91, 1))
			flags := map[string]string{
				"kernel.function": "gaussian(gamma=0.001)", "kernel.basis": "20", "kernel.rows": "0", "sample.rows": "600",
				"format.weight": "weight", "blocks.unlabelled": "keep",
			}
			maps.Copy(flags, c.flags)
			var messages, stay []message
			var gone, late []string
			var next [3]int64
			name := topic(t, 3)
			for k, b := range r.Perm(blocks) {
				m, _ := withoutLabels(t, rand.New(rand.NewPCG(92, uint64(b))), all[b])
				m.partition = r.IntN(3)
				messages = append(messages, m)
				id := incremental.Position{Topic: name, Partition: m.partition, Offset: next[m.partition]}.String()
				if k >= blocks-4 {
					late = append(late, id)
				}
				if k%3 == 0 {
					gone = append(gone, id)
				} else {
					stay = append(stay, message{value: m.value, contentType: m.contentType})
				}
				next[m.partition]++
			}
			produce(t, name, messages[:blocks-4]...)
			file := filepath.Join(t.TempDir(), "streamd.db")
			d := start(t, name, file, flags)
			d.waitForOffsets(blocks - 4)
			whole := d.reduced()
			part := d.inEpoch(d.pruned(c.how, 6), flags)
			if part.Basis.Map.Size() != 6 || part.Digest == whole.Digest || part.Basis.Map.In(whole.Basis.Map) == nil {
				t.Fatalf("%d coordinates of %d", part.Basis.Map.Size(), whole.Basis.Map.Size())
			}
			if in := d.epoch().InUse; in.Pruned != whole.Basis.Map.Size() || in.Rows == 0 || in.Live != part.Rows {
				t.Errorf("the report is %+v", in)
			}
			d.checkEpoch()
			d.stop()
			kept := spaceInUse(t, file)

			// It survives a restart, and new blocks come into its coordinates.
			produce(t, name, messages[blocks-4:]...)
			d = start(t, name, file, flags)
			d.waitForOffsets(blocks)
			if again := d.epoch().InUse; again.Pruned == 0 || again.Basis != part.BasisID() {
				t.Errorf("after a restart it is %+v", again)
			}
			d.checkEpoch()

			// After retirements, the daemon chooses a whole basis again.
			for _, id := range gone {
				d.retire(id)
			}
			d.reduced()
			got := d.inEpoch(d.pruned(c.how, 5), flags)
			d.stop()

			file = filepath.Join(t.TempDir(), "streamd.db")
			u := start(t, name, file, flags)
			u.waitForOffsets(blocks)
			for _, id := range late { // the pruned daemon had not seen them
				u.retire(id)
			}
			want := u.inEpoch(u.beganWith(part.Basis.Map), flags)
			u.stop()
			if comparable(part) != comparable(want) {
				t.Errorf("served\n%.400s\nwant\n%.400s", comparable(part), comparable(want))
			}
			if beside := spaceInUse(t, file); !slices.EqualFunc(kept, beside, bytes.Equal) {
				t.Error("the file has other sums than that of a daemon that began with the points")
			}

			other := topic(t, 1)
			slices.Reverse(stay)
			produce(t, other, stay...)
			flags["workers"] = "1"
			u = start(t, other, filepath.Join(t.TempDir(), "streamd.db"), flags)
			u.waitForOffsets(int64(len(stay)))
			u.reduced()
			alone := u.inEpoch(u.pruned(c.how, 5), flags)
			u.stop()
			if comparable(got) != comparable(alone) {
				t.Errorf("after retirements\n%.400s\nwant\n%.400s", comparable(got), comparable(alone))
			}
		})
	}
}

// Blocks come, are replaced and retired while a basis is pruned again and again. A restart in the
// middle goes on without the log.
func TestPruningUnderWay(t *testing.T) {
	messages, _ := weightedBlocks(t, 40)
	for k := range messages {
		messages[k].key = fmt.Appendf(nil, "k%d", k%30) // the last ten replace the first
	}
	flags := map[string]string{
		"kernel.function": "gaussian(gamma=0.001)", "kernel.reduce": "random", "kernel.basis": "16", "kernel.rows": "0", "kernel.on_retire": "keep",
		"format.weight": "weight", "blocks.unit": "key", "snapshot.interval": "50ms",
	}
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	produce(t, name, messages[:25]...)
	d := start(t, name, file, flags)
	d.waitForOffsets(25)
	d.reduced()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for k := 25; k < 40; k += 3 {
			produce(t, name, messages[k:k+3]...)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	for k, points := range []int{14, 12, 10, 8, 6} {
		d.retire(fmt.Sprintf("key:k%d", 10+k))
		if s := d.pruned(reduce.PruneFisher, points); s.Basis.Map.Size() != points || !s.Basis.Stale {
			t.Errorf("%d coordinates, want %d; stale %t", s.Basis.Map.Size(), points, s.Basis.Stale)
		}
	}
	<-done
	d.waitForOffsets(40)
	d.checkEpoch()

	if err := d.Call(t.Context(), func() error {
		use := d.Live.InUse()
		m := use.Map.Selected([]int{1, 2, 5})
		made := &model.Reduction{Method: "given", Pruned: 6, MadeAt: time.Now().UTC()}
		learning.Describe(made, m)
		d.Live.ChoosePart()
		d.Bases.UseBasis(&bases.Reduction{}, m, made, nil)
		d.Bases.RetryAt(time.Now().Add(time.Hour)) // the process ends before it is built
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	produce(t, name, messages[10]) // comes into both
	d.waitForOffsets(41)
	if a := d.epoch(); a.Rebuild == nil || a.Rebuild.Missing != 25 || a.Rebuild.Blocks != 1 || !a.Rebuild.Stale {
		t.Fatalf("it is not under way: %+v", a.Rebuild)
	}
	d.stop()
	d = start(t, name, file, flags)
	release := d.holdReading()
	a := d.waitForEpoch("the part", func(a *httpapi.EpochAnswer) bool { return a.Rebuild == nil && a.InUse.Points == 3 })
	release()
	if a.InUse.Pruned != 6 || !a.Stale {
		t.Errorf("it is %+v, stale %t", a.InUse, a.Stale)
	}
	d.checkEpoch()
	d.stop()
}

// A basis that cannot be pruned is refused with the reason, and nothing begins.
func TestPruningIsRefused(t *testing.T) {
	name := topic(t, 1)
	messages, _ := weightedBlocks(t, 4)
	produce(t, name, messages...)
	flags := map[string]string{"format.weight": "weight"}
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	if err := d.Prune(t.Context(), reduce.PruneLDA, 3); !errors.Is(err, httpapi.ErrOff) {
		t.Errorf("without a kernel: %v", err)
	}
	d.stop()
	maps.Copy(flags, map[string]string{"kernel.function": "gaussian(gamma=0.001)", "kernel.reduce": "random", "kernel.basis": "8", "kernel.rows": "0"})
	d = start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	d.waitForOffsets(4)
	if err := d.Prune(t.Context(), reduce.PruneLDA, 3); !errors.Is(err, httpapi.ErrUnavailable) {
		t.Errorf("without a basis: %v", err)
	}
	whole := d.reduced()
	for _, c := range []struct {
		how    reduce.Pruning
		points int
		says   string
	}{{reduce.PruneLDA, 8, "has 8 coordinates, so it has no part of 8"}, {reduce.PruneFisher, 9, "part of 9"}, {reduce.PruneEigen, 3, "kernel.reduce: eigen"}} {
		if err := d.Prune(t.Context(), c.how, c.points); !errors.Is(err, httpapi.ErrUnfit) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s of %d: %v", c.how, c.points, err)
		}
	}
	if a := d.epoch(); a.InUse.Basis != whole.BasisID() || a.Reducing != nil || a.Rebuild != nil || a.Problem != "" {
		t.Errorf("a refused pruning leaves %+v", a)
	}
	// One that fails in the background leaves the basis, too.
	if err := d.Call(t.Context(), func() error {
		d.Bases.UseBasis(&bases.Reduction{}, nil, &model.Reduction{Pruned: 8}, incremental.ErrClasses)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if a := d.epoch(); a.InUse == nil || a.InUse.Basis != whole.BasisID() || a.Problem == "" {
		t.Errorf("a failed pruning leaves %+v", a)
	}
	d.pruned(reduce.PruneLDA, 3)
	if a := d.epoch(); a.Problem != "" {
		t.Errorf("the problem is still %q", a.Problem)
	}
	d.stop()
}

// Quality has the correctness of smaller bases, a function of the live set like the rest. Planes in
// the features have no such figures, and rules are in the coordinates of the whole basis.
func TestQualityBySize(t *testing.T) {
	flags := map[string]string{
		"kernel.function": "gaussian(gamma=0.001)", "kernel.reduce": "random", "kernel.basis": "40", "kernel.rows": "0",
		"model.nu": "1e5", "sample.rows": "4000",
	}
	measured := func(messages []message) *model.Quality {
		name := topic(t, 1)
		produce(t, name, messages...)
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
		d.waitForOffsets(int64(len(messages)))
		known := func(in *model.Served) bool { return in.Quality != nil && in.Quality.Digest == in.Digest }
		if s := d.wait("the quality in the features", known); s.Quality.Sizes != nil || s.Quality.SizesAbsent != "" {
			t.Errorf("planes in the features have the sizes %+v, %q", s.Quality.Sizes, s.Quality.SizesAbsent)
		}
		basis := d.reduced().BasisID()
		q := d.wait("the quality in its coordinates", func(s *model.Served) bool { return s.BasisID() == basis && known(s) }).Quality
		d.stop()
		return q
	}
	messages := boardBlocks(t, 93, 20, 200)
	q := measured(messages)
	var sizes []int
	for _, of := range q.Sizes {
		sizes = append(sizes, of.Coordinates)
	}
	if want := []int{1, 2, 3, 5, 7, 10, 15, 20, 30, 40}; !slices.Equal(sizes, want) {
		t.Fatalf("the sizes are %v: %s", sizes, q.SizesAbsent)
	}
	if one, all := q.Sizes[0].Correctness, q.Sizes[len(q.Sizes)-1].Correctness; !(one < 0.7 && all > 0.8) {
		t.Errorf("with one coordinate %v is right, and with all %v", one, all)
	}
	slices.Reverse(messages)
	if again := measured(messages); !slices.Equal(q.Sizes, again.Sizes) {
		t.Errorf("in another order they are %+v, not %+v", again.Sizes, q.Sizes)
	}

	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules: [{when: x1 <= 10 and x2 <= 10, then: -1, within: [0, 200]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags["model.knowledge"], flags["kernel.basis"] = rules, "6"
	if q := measured(messages); q.Sizes != nil || !strings.Contains(q.SizesAbsent, "rules") {
		t.Errorf("with rules they are %+v: %q", q.Sizes, q.SizesAbsent)
	}
}
