package daemon

import (
	"errors"
	"slices"
	"testing"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/httpapi"
	"streamd/retire"
)

// sliceAll does the slices that are left, and applies what has come meanwhile.
func (o *offline) sliceAll() {
	o.t.Helper()
	for {
		for o.slices() {
			if o.meanwhile != nil {
				o.meanwhile()
			}
			if err := o.slice(o.t.Context()); err != nil {
				o.t.Fatal(err)
			}
		}
		y, wants := o.intake.Waiting()
		if y != nil && o.saver.hasRoom(wants) && o.slicing.held == nil && o.meanwhile != nil {
			o.applyNext(o.t.Context(), y)
			continue
		}
		if y != nil || len(o.intake.Deliveries()) == 0 || o.meanwhile == nil {
			return
		}
		o.applyNext(o.t.Context(), <-o.intake.Deliveries())
	}
}

// owned are the partitions of instance i.
func owned(owner []int, i int) (partitions []int) {
	for partition, of := range owner {
		if of == i {
			partitions = append(partitions, partition)
		}
	}
	return partitions
}

// arrivals returns a function that delivers the next records of some partition, now and then. It is nil
// where blocks do not depart in slices.
func (h *logHistory) arrivals(o *offline, partitions []int) func() {
	if !h.sliced {
		return nil
	}
	return func() {
		if h.r.IntN(2) == 0 || len(partitions) == 0 || len(o.intake.Deliveries()) > 10 {
			return
		}
		partition := partitions[h.r.IntN(len(partitions))]
		from, read := o.at[partition]
		rest := between(h.log[partition], from, h.end(partition))
		if !read || len(rest) == 0 {
			return
		}
		few := rest[:min(len(rest), 1+h.r.IntN(3))]
		for _, b := range batches(partition, few, few[len(few)-1].Offset+1) {
			if err := o.intake.Deliver(o.t.Context(), b); err != nil {
				o.t.Error(err)
			}
			o.at[partition] = b.Position.Next
		}
	}
}

// retireAmid retires blocks by a random selector while records arrive between the slices. What the
// answer names must be what a fresh daemon finds at its offsets, see fresh.
func (h *logHistory) retireAmid(t *testing.T, o *offline, partitions []int) {
	t.Helper()
	o.giveBack()
	o.flushRuns()
	places := o.live.Everything()
	slices.SortStableFunc(places, func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) })
	s, want := randomSelector(h.r, h.flags, places)
	o.meanwhile = h.arrivals(o, partitions)
	done, err := o.retire(s, false, access.Caller{})
	o.meanwhile = nil
	keyed := h.flags["blocks.unit"] == "key"
	if errors.Is(err, httpapi.ErrNoneChosen) || errors.Is(err, httpapi.ErrNotLive) {
		if len(want) > 0 && !keyed {
			t.Fatalf("%v, want %v", err, want)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, b := range done.First {
		ids = append(ids, b.ID)
		if !slices.Contains(want, b.ID) {
			t.Fatalf("block %s is retired, which was not asked for", b.ID)
		}
	}
	if len(ids) != done.Blocks || !keyed && !slices.Equal(ids, want) {
		t.Fatalf("%d blocks are retired: %v, want %v", done.Blocks, ids, want)
	}
	o.asked = append(o.asked, retirement{Retirement: done, ids: ids, follows: o.follows})
}
