package live

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/retire"
)

// Blocks that depart in steps end where blocks that depart at once do, whatever happens to the
// others and to themselves in between.
func TestDepartingInStepsIsDepartingAtOnce(t *testing.T) {
	waited, settled := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(83, seed))
		cfg := liveConfig(3, 20)
		cfg.Retire.Archive = seed%2 == 0
		if seed%4 < 2 {
			cfg.Retire.Rows = 40
		}
		once, _ := reopen(t, filepath.Join(t.TempDir(), "streamd.db"), cfg)
		steps, _ := reopen(t, filepath.Join(t.TempDir(), "streamd.db"), cfg)
		steps.DepartAtOnce(int(seed % 3))
		both := func(what string, f func(l *Set) (any, error)) {
			t.Helper()
			want, err := f(once)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f(steps); err != nil || got != want {
				t.Fatalf("seed %d: %s: %v, want %v; %v", seed, what, got, want, err)
			}
		}
		settle := func() {
			waited += steps.Departing()
			if err := steps.Settle(); err != nil {
				t.Fatal(err)
			}
		}
		both("selections", func(l *Set) (any, error) { return l.FollowWithdrawals() })
		var z Keeper
		for step := range 150 {
			id := fmt.Sprint(r.IntN(25))
			switch k := r.IntN(12); {
			case k < 7:
				if steps.Emptied() {
					settle()
				}
				if _, departing := steps.departing.blocks[id]; departing {
					settled++
				}
				kept, err := z.Keep(t.Context(), randomBlock(r), once.Target())
				if err != nil {
					t.Fatal(err)
				}
				e := retire.Entry{ID: id, Position: incremental.Position{Topic: "t", Offset: int64(step)}, Last: int64(step), Time: time.UnixMilli(r.Int64N(200)), Rows: kept.Summary.Rows()}
				both("add "+id, func(l *Set) (any, error) { return l.Add(e, kept) })
			case k < 9:
				settle()
				for range 2 {
					name, of := fmt.Sprint(r.IntN(2)), (*retire.Selection)(nil)
					if r.IntN(3) > 0 {
						from := r.Int64N(200)
						of = &retire.Selection{From: time.UnixMilli(from), To: time.UnixMilli(from + r.Int64N(150))}
					}
					both("withdraw", func(l *Set) (any, error) { return l.Withdraw(name, of) })
				}
			case k == 9:
				if _, ok := once.Find(id); ok {
					both("retire "+id, func(l *Set) (any, error) { return nil, l.Retire(id) })
				}
			case k == 10:
				n := 1 + r.IntN(3)
				waiting := steps.Departing()
				left, err := steps.Depart(n)
				if got := steps.Departing(); err != nil || got != max(0, waiting-n) || got > 0 && !left {
					t.Fatalf("seed %d: %d of %d blocks have departed, want %d; %v", seed, waiting-got, waiting, n, err)
				}
			default:
				settle()
				both("the sums", func(l *Set) (any, error) { return l.Digest(), nil })
				both("unsaved blocks", func(l *Set) (any, error) { return l.Unsaved(), nil })
				both("withdrawn blocks", func(l *Set) (any, error) { return l.Withdrawn(), nil })
				both("archived blocks", func(l *Set) (any, error) { return l.Archived(), nil })
			}
		}
	}
	if waited < 300 || settled < 30 {
		t.Errorf("%d blocks were left to depart together, and %d came again before: too few", waited, settled)
	}
}

// The counts of withdrawals add up, field by field.
func TestWithdrawalsAddUp(t *testing.T) {
	sum := Withdrawal{Blocks: 1, Rows: 20, Archived: 300, ArchivedRows: 4000}
	sum.Add(Withdrawal{Blocks: 5, Rows: 60, Archived: 700, ArchivedRows: 8000})
	if want := (Withdrawal{Blocks: 6, Rows: 80, Archived: 1000, ArchivedRows: 12000}); sum != want {
		t.Errorf("%+v, want %+v", sum, want)
	}
}
