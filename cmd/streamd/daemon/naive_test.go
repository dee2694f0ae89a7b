package daemon

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// fates is a history told naively: lists of blocks, and a search through all of them at each step.
// It uses nothing of the intake, of a ledger, of the selections in force, or of an archive. Only
// the boundaries of gathered blocks are a daemon's.
type fates struct {
	h       *logHistory
	cfg     *config.Config
	places  []retire.Entry // that the policy keeps, withdrawn ones included
	past    []retire.Entry // that it has let go
	horizon retire.Rank
}

// toldNaively counts the naive comparisons: with live, withdrawn and archived blocks, and after
// requests.
var toldNaively struct{ live, withdrawn, archived, asked atomic.Int64 }

// checkNaively compares the daemon's blocks with those of the history told naively, which covers
// histories whose features are fixed, and whose blocks requests do not divide.
func (h *logHistory) checkNaively(t *testing.T, o *offline, when string) {
	t.Helper()
	gathers := h.flags["blocks.unit"] == "offsets" || h.flags["blocks.unit"] == "time"
	if h.others || gathers && len(o.asked) > 0 {
		return
	}
	f, from, named := &fates{h: h, cfg: o.Config, horizon: retire.Lowest}, map[int]int64{}, o.named()
	if gathers {
		f.meet(h.gathered(t, named))
	} else {
		for _, done := range o.asked {
			to := maps.Clone(from)
			for _, each := range done.Offsets {
				to[each.Partition] = each.Next
			}
			f.meet(h.made(from, to, o.Config.Retire.MaxFuture))
			from = to
			f.forget(done.ids)
		}
		f.meet(h.made(from, named, o.Config.Retire.MaxFuture))
	}
	count := func(n *atomic.Int64, is bool) {
		if is {
			n.Add(1)
		}
	}
	live, withdrawn := f.divide(f.places, o.follows)
	if got := o.unkeyed(o.Live.Page(retire.Lowest, o.Live.Blocks())); !slices.Equal(got, live) {
		t.Errorf("%s: live are\n%v\nwant\n%v", when, got, live)
	}
	archived, out := []retire.Entry(nil), []retire.Entry(nil)
	if o.Config.Retire.Archive {
		archived, out = f.divide(f.past, o.follows)
		for i := range archived {
			archived[i].Archived = true
		}
		for i := range out {
			out[i].Archived = true
		}
	}
	if got := o.unkeyed(o.Live.ArchivedBlocks(retire.Lowest, len(f.past)+1)); !slices.Equal(got, archived) {
		t.Errorf("%s: archived are\n%v\nwant\n%v", when, got, archived)
	}
	count(&toldNaively.live, len(live) > 0)
	count(&toldNaively.withdrawn, len(withdrawn) > 0)
	count(&toldNaively.archived, len(archived) > 0)
	count(&toldNaively.asked, len(o.asked) > 0)
	away := slices.Concat(withdrawn, out)
	slices.SortFunc(away, func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) })
	if got := o.unkeyed(o.withdrawn()); !slices.Equal(got, away) || o.Live.Withdrawn() != len(away) {
		t.Errorf("%s: withdrawn are\n%v\nwant\n%v", when, got, away)
	}
}

// gathered lists the blocks of the records below the offsets, as a daemon has them that keeps all
// and follows no control topic.
func (h *logHistory) gathered(t *testing.T, to map[int]int64) []retire.Entry {
	t.Helper()
	flags := maps.Clone(h.flags)
	flags["snapshot.file"] = filepath.Join(t.TempDir(), "plain.db")
	for _, name := range []string{"retire.keep", "retire.blocks", "retire.rows", "retire.age", "retire.topic", "retire.archive", "retire.half_life", "retire.half_life_rows", "receipts.key_file"} {
		delete(flags, name)
	}
	o := openOffline(t, flags, false)
	defer o.Store.Close()
	for partition, next := range to {
		o.deliver(partition, between(h.log[partition], 0, next), next)
	}
	o.FlushRuns()
	return o.everything()
}

// made lists what the records between the offsets make: a block each, of no rows where a record
// makes none.
func (h *logHistory) made(from, to map[int]int64, ahead time.Duration) (all []retire.Entry) {
	for partition, records := range h.log {
		var times []int64 // of the records so far
		for i, r := range records {
			if slices.Equal(r.Value, unreadable) {
				continue
			}
			at := incremental.Position{Topic: "t", Partition: partition, Offset: r.Offset}
			e := retire.Entry{ID: at.String(), Position: at, Last: r.Offset, Time: r.Time}
			if h.flags["blocks.unit"] == "key" {
				e.ID = "key:" + string(r.Key) // the keys need no escapes
			}
			for _, header := range r.Headers {
				if header.Key == h.flags["retire.header"] {
					e.Header = retire.HashHeader(header.Key, header.Value)
				}
			}
			valid := r.Time.Year() <= 9999
			if value := string(h.plain[partition][i].Value); valid && !strings.Contains(value, "?") {
				e.Rows = int64(strings.Count(value, `"v":`) - strings.Count(value, `"v":0`))
			}
			if r.Time.IsZero() {
				e.Time = time.UnixMilli(0).UTC()
			} else if valid {
				times = append(times, r.Time.UnixMilli())
				latest := slices.Sorted(slices.Values(times[max(0, len(times)-16):]))
				if len(latest) > 3 && !r.Appended { // the first three have no clock
					if bound := time.UnixMilli(latest[len(latest)-3]).UTC().Add(ahead); r.Time.After(bound) {
						e.Time = bound
					}
				}
			}
			if from[partition] <= r.Offset && r.Offset < to[partition] && !h.hasLabelAlone(&r) {
				all = append(all, e)
			}
		}
	}
	return all
}

// hasLabelAlone reports whether a record has a label and none of the features, which is no value of
// its key where other columns are passed over.
func (h *logHistory) hasLabelAlone(r *kafka.Record) bool {
	return h.flags["blocks.unit"] == "key" && h.flags["format.features"] != "" && r.Time.Year() <= 9999 && strings.Contains(string(r.Value), `"x9"`)
}

// meet adds blocks in place of those of the same id. One without rows only takes the place.
func (f *fates) meet(blocks []retire.Entry) {
	for _, e := range blocks {
		f.places = slices.DeleteFunc(f.places, func(is retire.Entry) bool { return is.ID == e.ID })
		if e.Rows > 0 {
			f.places = append(f.places, e)
		}
	}
	f.enforce()
}

// enforce lets go what the policy does not keep.
func (f *fates) enforce() {
	rank := func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) }
	keep := f.cfg.Retire
	f.letGo(func(e *retire.Entry) bool { return e.Rank().Compare(f.horizon) <= 0 })
	slices.SortFunc(f.places, rank)
	rows, blocks := int64(0), 0
	for _, e := range slices.Backward(f.places) {
		newest := f.places[len(f.places)-1].Time.UnixMilli()
		rows, blocks = rows+e.Rows, blocks+1
		above := f.horizon
		if keep.Blocks > 0 && blocks > keep.Blocks || keep.Rows > 0 && rows > keep.Rows {
			above = e.Rank()
		}
		if limit := newest - keep.Age.Milliseconds(); keep.Age > 0 && e.Time.UnixMilli() < limit {
			above = retire.Rank{Milliseconds: limit}
		}
		if above.Compare(f.horizon) > 0 {
			f.horizon = above
		}
	}
	f.letGo(func(e *retire.Entry) bool { return e.Rank().Compare(f.horizon) <= 0 })
}

// letGo moves places to the past.
func (f *fates) letGo(which func(e *retire.Entry) bool) {
	f.places = slices.DeleteFunc(f.places, func(e retire.Entry) bool {
		if !which(&e) {
			return false
		}
		f.past = append(f.past, e)
		return true
	})
}

// forget takes out what a request names. That of a place makes room.
func (f *fates) forget(ids []string) {
	named, places := func(e retire.Entry) bool { return slices.Contains(ids, e.ID) }, len(f.places)
	f.places, f.past = slices.DeleteFunc(f.places, named), slices.DeleteFunc(f.past, named)
	if len(f.places) < places {
		f.horizon = retire.Lowest
		f.enforce()
	}
}

// divide finds those of the blocks that no selection chooses, after so many records of the control
// topic, by rank, and the others.
func (f *fates) divide(blocks []retire.Entry, follows int) (in, out []retire.Entry) {
	selections := map[string]*retire.Selection{}
	for _, c := range f.h.control[:follows] {
		selections[c.Name] = c.Selection
	}
	blocks = slices.SortedFunc(slices.Values(blocks), func(a, b retire.Entry) int {
		return cmp.Or(a.Rank().Compare(b.Rank()), cmp.Compare(a.ID, b.ID))
	})
	for _, e := range blocks {
		for _, s := range selections {
			e.Withdrawn = e.Withdrawn || s != nil && chosenBy(s, &e)
		}
		if e.Withdrawn {
			out = append(out, e)
		} else {
			in = append(in, e)
		}
	}
	return in, out
}

// chosenBy reports whether a selection chooses a block.
func chosenBy(s *retire.Selection, e *retire.Entry) bool {
	inRange := s.Ranges == nil
	for _, r := range s.Ranges {
		for offset := e.Position.Offset; offset <= e.Last; offset++ {
			inRange = inRange || r.Topic == "t" && r.Partition == e.Position.Partition && r.First <= offset && offset <= r.Last
		}
	}
	within := func(from, to time.Time) bool {
		return (from.IsZero() || e.Time.Sub(from) >= 0) && (to.IsZero() || e.Time.Sub(to) < 0)
	}
	return inRange && (s.IDs == nil || slices.Contains(s.IDs, e.ID)) && (s.Headers == nil || slices.Contains(s.Headers, e.Header)) && within(s.From, s.To)
}
