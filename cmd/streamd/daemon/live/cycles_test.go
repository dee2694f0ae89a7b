package live

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Blocks of several classes, whose numbers are between 1e-30 and 1e30, are added and retired in
// many cycles in which they overlap at random. The live set then has the digest, the root and, to
// the bit, the planes of before. STREAMD_CYCLES is the number of cycles.
func TestCyclesEndWhereTheyBegan(t *testing.T) {
	cycles := 10_000
	if many := os.Getenv("STREAMD_CYCLES"); many != "" {
		var err error
		if cycles, err = strconv.Atoi(many); err != nil {
			t.Fatal(err)
		}
	}
	const features, stays, comes, most = 3, 20, 200, 60
	r := rand.New(rand.NewPCG(64, 1))
	store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	cfg := liveConfig(3, 0)
	cfg.Limits.Classes = 4
	l, _, err := Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, err := receipt.OpenKey(filepath.Join(t.TempDir(), "receipts.key"), "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.KeepReceipts(key); err != nil {
		t.Fatal(err)
	}
	l.Fix(incremental.DefaultFeatures(features))
	var z Keeper
	var blocks []Kept
	for i := range stays + comes {
		b := &incremental.Block{Classes: []string{"a", "b", "c", "d"}}
		for range 1 + r.IntN(30) {
			b.Codes = append(b.Codes, int32(r.IntN(4)))
		}
		exponent := func() float64 { return -30 + 60*r.Float64() }
		if i < stays { // so that their planes can be solved
			exponent = r.Float64
		}
		for range features {
			x := make([]float64, len(b.Codes))
			for j := range x {
				x[j] = r.NormFloat64() * math.Pow(10, exponent())
			}
			b.Columns = append(b.Columns, gram.ColumnOf(x))
		}
		k, err := z.Keep(t.Context(), b, l.Target())
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, k)
	}
	add := func(i int) {
		e := retire.Entry{ID: fmt.Sprint(i), Position: incremental.Position{Offset: int64(i)}, Last: int64(i), Time: time.UnixMilli(int64(i)), Rows: blocks[i].Summary.Rows()}
		if _, err := l.Add(e, blocks[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range stays {
		add(i)
	}
	planes := func() *incremental.Model {
		m, err := l.Features().Total().Moments().Solve(incremental.Options{Nu: 1})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	folds := func() (all []string) {
		for _, fold := range l.Features().PerFold() {
			all = append(all, DigestOf(fold))
		}
		return all
	}
	start, model, parts := l.Side(), planes(), folds()

	out := rand.New(rand.NewPCG(64, 2)).Perm(comes) // blocks that are not live
	var in []int
	for i := range out {
		out[i] += stays
	}
	take := func(from *[]int) int {
		all := *from
		i := r.IntN(len(all))
		taken := all[i]
		all[i] = all[len(all)-1]
		*from = all[:len(all)-1]
		return taken
	}
	changed := 0
	for added, retired := 0, 0; retired < cycles; {
		if added < cycles && len(in) < most && (len(in) == 0 || r.IntN(2) == 0) {
			i := take(&out)
			add(i)
			in, added = append(in, i), added+1
			continue
		}
		i := take(&in)
		if err := l.Retire(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		out, retired = append(out, i), retired+1
		if retired%max(1, cycles/10) == 0 && retired < cycles && l.Side() != start {
			changed++
		}
	}
	if changed == 0 {
		t.Error("the live set was the one of the start on the way, too")
	}
	if end := l.Side(); end != start {
		t.Errorf("after %d cycles the digest is %x, root %x; at the start %x, %x", cycles, end.Digest, end.Root, start.Digest, start.Root)
	}
	if got := folds(); !reflect.DeepEqual(got, parts) {
		t.Errorf("after %d cycles the folds have digests %v, at the start %v", cycles, got, parts)
	}
	if got := planes(); !reflect.DeepEqual(got, model) { // no NaN: the planes are of linear systems
		t.Errorf("after %d cycles the planes are %+v, at the start %+v", cycles, got, model)
	}
}
