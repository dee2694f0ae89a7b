package receipts

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/config"
	"streamd/retire/receipt"
)

// receiptsOf makes receipts by a configuration, which are of no log.
func receiptsOf(cfg *config.Config, learned ...string) *Receipts {
	l := loop.New(&loop.Environment{Config: cfg})
	return &Receipts{Loop: l, retention: retention{Environment: l.Environment}, learned: func() []string { return learned }}
}

// The archive keeps what expires, and nothing else that leaves. Archived blocks are not in the
// state.
func TestScopeOfTheArchive(t *testing.T) {
	for _, archive := range []bool{false, true} {
		r := receiptsOf(&config.Config{Retire: config.Retire{Archive: archive}})
		for kind := receipt.Retired; kind < receipt.Kinds; kind++ {
			want := receipt.None
			switch {
			case !archive || kind == receipt.Restored || kind == receipt.Returned || kind == receipt.Excluded || kind == receipt.Begun:
			case kind == receipt.Expired:
				want = receipt.Kept
			default:
				want = receipt.Done
			}
			if state := r.scope(&leaving{kind: kind, based: false})[receipt.State]; (state == receipt.Done) == (kind.Listed() || kind == receipt.Restored || kind == receipt.Begun) {
				t.Errorf("%v: the state has status %d", kind, state)
			}
			if got := r.scope(&leaving{kind: kind, based: true})[receipt.Archive]; got != want {
				t.Errorf("archive %v, %v: status %d, want %d", archive, kind, got, want)
			}
		}
	}
}

// The daemon's own places are never out of its reach: what does not leave pages and bases by itself
// stays there until a request.
func TestScopeOfPagesAndBases(t *testing.T) {
	gaussian := config.Kernel{Function: "gaussian", OnRetire: config.OnRetireReduce}
	kept, often := gaussian, gaussian
	kept.OnRetire, often.Interval = config.OnRetireKeep, time.Hour
	for _, c := range []struct {
		scrub         time.Duration
		kernel        config.Kernel
		kind          receipt.Kind
		pages, spaces receipt.Status
	}{
		{time.Hour, gaussian, receipt.Retired, receipt.Pending, receipt.Pending},
		{time.Hour, gaussian, receipt.Deleted, receipt.Pending, receipt.Pending},
		{time.Hour, gaussian, receipt.Withdrawn, receipt.Pending, receipt.Pending},
		{time.Hour, gaussian, receipt.Purged, receipt.Pending, receipt.Pending},
		{time.Hour, gaussian, receipt.Replaced, receipt.Kept, receipt.Pending},
		{time.Hour, gaussian, receipt.Expired, receipt.Kept, receipt.Kept},
		{time.Hour, gaussian, receipt.Lost, receipt.Kept, receipt.Kept},
		{0, kept, receipt.Retired, receipt.Kept, receipt.Kept},
		{0, kept, receipt.Purged, receipt.Kept, receipt.Kept},
		{0, often, receipt.Expired, receipt.Kept, receipt.Pending},
		{0, config.Kernel{Function: config.KernelNone}, receipt.Retired, receipt.Kept, receipt.None},
		{time.Hour, gaussian, receipt.Restored, receipt.None, receipt.None},
		{time.Hour, gaussian, receipt.Returned, receipt.None, receipt.None},
	} {
		r := receiptsOf(&config.Config{Snapshot: config.Snapshot{Scrub: c.scrub}, Spec: config.Spec{Kernel: c.kernel}})
		want := c.spaces
		if want != receipt.None {
			want = receipt.Done
		}
		if got := r.scope(&leaving{kind: c.kind, based: false})[receipt.Spaces]; got != want {
			t.Errorf("%v, outside of a basis: %d, want %d", c.kind, got, want)
		}
		s := r.scope(&leaving{kind: c.kind, based: true})
		if s[receipt.Pages] != c.pages || s[receipt.Spaces] != c.spaces {
			t.Errorf("%v, scrub %v, %+v: pages %d and spaces %d, want %d and %d", c.kind, c.scrub, c.kernel, s[receipt.Pages], s[receipt.Spaces], c.pages, c.spaces)
		}
		for _, place := range []receipt.Place{receipt.State, receipt.Folds, receipt.Sample, receipt.Archive} {
			if s[place] == receipt.NotOurs {
				t.Errorf("%v: place %d is out of reach", c.kind, place)
			}
		}
	}
}

// A learned list may name values of rows that have left, so whatever leaves a live set or the
// archive stays there until a request. There is no such place before a list is learned.
func TestScopeOfLists(t *testing.T) {
	for _, c := range []struct {
		learned []string
		want    receipt.Status
		says    string
	}{
		{nil, receipt.None, ""},
		{[]string{"town"}, receipt.Kept, `["town"]`},
		{[]string{"street", "town"}, receipt.Kept, `["street" "town"]`},
	} {
		r := receiptsOf(&config.Config{}, c.learned...)
		for kind := receipt.Retired; kind < receipt.Kinds; kind++ {
			want := c.want
			if kind == receipt.Restored || kind == receipt.Returned || kind == receipt.Excluded || kind == receipt.Begun {
				want = receipt.None
			}
			l := &leaving{kind: kind}
			if got := r.scope(l)[receipt.Lists]; got != want {
				t.Errorf("%v, %v: status %d, want %d", c.learned, kind, got, want)
			}
			if text := fmt.Sprint(r.Remains(l.kind, l.based, l.latest)); strings.Contains(text, "names of values in the learned lists of "+c.says) != (want == receipt.Kept) {
				t.Errorf("%v, %v: the answer has %s", c.learned, kind, text)
			}
		}
	}
}

// The documentation has the places that the receipts have, and answers name those that the rows may
// still be in.
func TestPlacesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../config/receipts.md")
	if err != nil {
		t.Fatal(err)
	}
	var all receipt.Scope
	var table strings.Builder
	for _, p := range places {
		all[p.Place]++
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", p.Place, p.what, p.leaves)
	}
	for place, n := range all {
		if n != 1 {
			t.Errorf("%d lines are about %s", n, receipt.Place(place))
		}
	}
	if !strings.Contains(string(text), "|---|---|---|\n"+table.String()+"\n") {
		t.Errorf("config/receipts.md has another table than\n%s", table.String())
	}
	r := receiptsOf(&config.Config{}, "town")
	r.Config.Retire.Archive, r.Config.Model.Folds, r.Config.Sample.Rows, r.Config.Kernel.Function = true, 10, 100, "linear"
	r.Config.DeadLetters = config.DeadLetters{Policy: config.DeadLettersQueue, Topic: "letters"}
	for kind := receipt.Retired; kind < receipt.Kinds; kind++ {
		for _, based := range []bool{false, true} {
			l := &leaving{kind: kind, based: based}
			left := 0
			for _, status := range r.scope(l) {
				if status != receipt.None && status != receipt.Done {
					left++
				}
			}
			if kind == receipt.Expired {
				left-- // the archive, which no answer is about
			}
			if texts := r.Remains(l.kind, l.based, l.latest); len(texts) != left {
				t.Errorf("%v, %t: %d places are left, and the answer has %q", kind, based, left, texts)
			}
		}
	}
}
