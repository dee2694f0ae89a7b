package witness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/witness/witnesstest"
	"streamd/config"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// site is a log in a file, and two witnesses of it.
type site struct {
	*testing.T
	log   *log
	path  string
	store *snapshot.Store
	of    config.Receipts
	keys  []*receipt.Witness
	by    []*witnesstest.Witness
	*Witnesses
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, log: newLog(t, 1), path: filepath.Join(t.TempDir(), "streamd.db")}
	for _, name := range []string{"a.example/w", "b.example/w"} {
		w := &witnesstest.Witness{Name: name, Log: s.log.key.Public()}
		s.by, s.keys = append(s.by, w), append(s.keys, keyOf(t, w))
		s.of.Witnesses = append(s.of.Witnesses, serve(t, w)+" "+w.Public())
	}
	s.open()
	t.Cleanup(func() { s.store.Close() })
	return s
}

// open continues with what is on the disk.
func (s *site) open() {
	s.Helper()
	store, _, err := snapshot.Open(s.path, snapshot.Settings{})
	if err != nil {
		s.Fatal(err)
	}
	s.store = store
	head, err := store.LogHead()
	if err == nil {
		s.Witnesses, err = New(s.of, zerolog.Nop(), store, head)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// grow adds leaves to the log, and saves them.
func (s *site) grow(leaves int, text string) {
	s.Helper()
	var records []receipt.Record
	for i := range leaves {
		leaf := receipt.Leaf{Kind: receipt.Lost, Blocks: 1, Rows: int64(i), Durable: time.UnixMilli(int64(len(text)))}
		records = append(records, receipt.Record{Leaf: leaf.AppendBinary(nil)})
	}
	g, err := s.log.key.Grow(s.log.size, s.store, records)
	if err == nil {
		_, err = s.store.Save(snapshot.Change{SavedAt: time.UnixMilli(1), Receipts: g})
	}
	if err != nil {
		s.Fatal(err)
	}
	s.log.size += int64(leaves)
	s.Saved(snapshot.LogHead{Size: s.log.size, Checkpoint: g.Checkpoint})
}

// saved checks that the file has the latest cosignature of each witness and one checkpoint of a
// size, and that of the checkpoints with a leaf the smallest one of those with the most
// cosignatures proves it.
func (s *site) saved() {
	s.Helper()
	head, err := s.store.LogHead()
	if err != nil {
		s.Fatal(err)
	}
	latest := make([]int64, len(s.by))
	size := int64(0)
	for _, h := range head.Cosigned {
		by, err := receipt.Cosignatures(h.Checkpoint, s.keys)
		if err != nil || len(by) == 0 || h.Size <= size {
			s.Fatalf("a checkpoint of %d leaves, after one of %d, has the cosignatures %v: %v", h.Size, size, by, err)
		}
		size = h.Size
		for i, key := range s.keys {
			if signedBy(by, key) {
				latest[i] = size
			}
		}
	}
	for leaf := range s.log.size {
		want, most := head.Size, 0
		for _, h := range slices.Backward(head.Cosigned) {
			if by, _ := receipt.Cosignatures(h.Checkpoint, s.keys); leaf < h.Size && len(by) >= most {
				want, most = h.Size, len(by)
			}
		}
		if best, ok := MostCosigned(head, leaf); best.Size != want || ok != (most > 0) {
			s.Fatalf("leaf %d is proved by a checkpoint of %d leaves, want %d: %t", leaf, best.Size, want, ok)
		}
	}
	told, _ := s.Report()
	for i, w := range s.by {
		if latest[i] != w.Size() || told[i].Cosigned != w.Size() || told[i].Name != w.Name {
			s.Fatalf("%s has cosigned %d leaves, the file has %d, and the report is %+v", w.Name, w.Size(), latest[i], told[i])
		}
	}
}

// Witnesses that are away by turns are asked while the log grows and the daemon starts anew. The
// latest cosignature of each is on the disk, and reported, and a checkpoint that both have signed
// is one.
func TestCosignaturesAreKept(t *testing.T) {
	both := 0
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(85, seed))
		s := newSite(t)
		var away [2]int // the status of each; 0: it answers
		for range 40 {
			i := r.IntN(2)
			switch k := r.IntN(10); {
			case k < 2:
				s.grow(1+r.IntN(5), "")
			case k < 3:
				s.store.Close()
				s.open()
			case k < 4:
				away[i] = http.StatusServiceUnavailable
				if r.IntN(2) == 0 {
					away[i] = 0
				}
				s.by[i].Fail(away[i])
			case k < 5:
				if err := s.Check(t.Context(), s.log.key); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			case s.log.size > 0:
				f := s.followers[i]
				known := f.size
				if r.IntN(3) == 0 {
					known = 0 // the witness says what it has
				}
				err := s.ask(t.Context(), f, s.head, known)
				if s.note(f, err); (err == nil) != (away[i] == 0) || err == nil && s.by[i].Size() != s.log.size {
					t.Fatalf("seed %d: %s has cosigned %d of %d leaves, and has the status %d: %v", seed, s.by[i].Name, s.by[i].Size(), s.log.size, away[i], err)
				}
				var problems []string
				_, all := s.Report()
				for _, p := range all {
					problems = append(problems, p.Subject)
				}
				if has := strings.Contains(fmt.Sprint(problems), s.by[i].Name); has != (err != nil) {
					t.Fatalf("seed %d: %s: %v, and problems are told of %q", seed, s.by[i].Name, err, problems)
				}
			}
			s.saved()
			if s.log.size > 0 && s.by[0].Size() == s.log.size && s.by[1].Size() == s.log.size {
				if n := len(s.cosigned); n != 1 {
					t.Fatalf("seed %d: both have cosigned the log, and %d checkpoints are kept", seed, n)
				}
				both++
			}
		}
	}
	if both < 10 {
		t.Errorf("both have cosigned the log at %d of 240 moments: too few", both)
	}
}

// A problem is told since the first failure after an answer, and failures are counted.
func TestProblemOfAWitness(t *testing.T) {
	s := newSite(t)
	s.grow(1, "")
	var since time.Time // of the problem
	after := time.Now()
	for step, c := range []struct {
		status   int
		failures int64
		first    bool
	}{{http.StatusServiceUnavailable, 1, true}, {http.StatusServiceUnavailable, 2, false}, {0, 2, false}, {http.StatusServiceUnavailable, 3, true}, {http.StatusForbidden, 4, false}} {
		s.by[0].Fail(c.status)
		f := s.followers[0]
		s.note(f, s.ask(t.Context(), f, s.head, f.size))
		told, problems := s.Report()
		if told[0].Failures != c.failures || told[1].Failures != 0 || (len(problems) == 1) != (c.status != 0) {
			t.Fatalf("step %d: %+v, %+v", step, told, problems)
		}
		switch {
		case c.status == 0:
			after = time.Now()
		case c.first && problems[0].Since.Before(after), !c.first && !problems[0].Since.Equal(since):
			t.Errorf("step %d: the problem is told since %v, and was since %v", step, problems[0].Since, since)
		default:
			since = problems[0].Since
		}
	}
}

// At a start a witness is asked once what it has cosigned, and cosigns what follows. One that has
// cosigned leaves that the log lacks is an error. One that is away, or knows no leaves, is none.
func TestCheckOfWitnesses(t *testing.T) {
	s := newSite(t)
	check := func(when string, asked int, size int64, want string) {
		t.Helper()
		before := s.by[0].Asked()
		err := s.Check(t.Context(), s.log.key)
		if n := s.by[0].Asked() - before; n != asked || s.by[0].Size() != size || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: asked %d times, want %d; cosigned %d leaves, want %d; %v, want %q", when, n, asked, s.by[0].Size(), size, err, want)
		}
	}
	s.by[1].Fail(http.StatusServiceUnavailable)
	check("an empty log", 1, 0, "")
	s.grow(3, "")
	check("a witness that has cosigned nothing", 2, 3, "")
	check("the same log", 1, 3, "")
	s.grow(2, "")
	s.store.Close()
	s.open()
	check("a log that has grown", 2, 5, "")
	s.saved()
	s.by[0].Fail(http.StatusServiceUnavailable)
	check("both are away", 1, 5, "")
	s.by[0].Fail(0)
	if err := s.Check(t.Context(), nil); err != nil || s.by[0].Asked() != 7 {
		t.Errorf("without a key a witness is asked %d times: %v", s.by[0].Asked(), err)
	}
	odd := serve(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(http.StatusConflict)
		fmt.Fprintln(rw, 0)
	}))
	empty := newSite(t)
	empty.of.Witnesses = []string{odd + " " + empty.by[0].Public()}
	empty.store.Close()
	empty.open()
	if err := empty.Check(t.Context(), s.log.key); err != nil {
		t.Errorf("a witness that says it has no leaves: %v", err)
	}
	// The file is a new one, whose log has other leaves under the same key.
	s.store.Close()
	s.path, s.log.size = filepath.Join(t.TempDir(), "new.db"), 0
	s.open()
	check("a new log", 1, 5, "has cosigned a log of 5 receipts, and the snapshot has 0")
	s.grow(3, "other")
	check("a shorter log", 1, 5, "has cosigned a log of 5 receipts, and the snapshot has 3")
	s.grow(2, "other")
	check("another log of that size", 1, 5, "has cosigned other receipts than the first 5 of the snapshot")
	s.grow(1, "other")
	check("another log", 2, 5, "has cosigned other receipts than the first 5 of the snapshot")
}

// A log that grows is cosigned without a call of anybody, and what was asked ends with the context.
func TestFollow(t *testing.T) {
	s := newSite(t)
	ctx, stop := context.WithCancel(t.Context())
	end := s.Follow(ctx, func(run func()) { run() })
	s.grow(4, "")
	deadline := time.Now().Add(time.Minute)
	cosigned := func() (least int64) {
		told, _ := s.Report()
		return min(told[0].Cosigned, told[1].Cosigned)
	}
	for cosigned() != 4 || s.Receipts() != 4 {
		if time.Now().After(deadline) {
			t.Fatal("the witnesses do not cosign the log")
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	end()
	s.saved()
	if s.ask(ctx, s.followers[0], s.head, 4) == nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("an ended context is not heeded")
	}
}
