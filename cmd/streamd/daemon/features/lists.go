package features

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/ingest/schema"
	"streamd/retire"
)

// Lists are the lists of values that categories of the configuration learn (values: {most: K}).
//
// A list is learned on request alone. The rows of the live blocks are read from the log again, each
// block is compared with its summary, and values are counted exactly. The snapshot gets the schema
// with the lists as one that is wanted, and a successor goes to it by the way of every change of
// features (refeaturing.go). So a crash at any moment leaves the former lists or the new ones. A
// restart keeps the lists that the snapshot has, also where K has changed since: then a problem
// says so, until they are learned again. Without a list all values of the category are its others.
//
// Except configured and wanted, which stay as they are, the loop owns them.
type Lists struct {
	configured *schema.Schema // with lists to learn; nil: there are none
	wanted     *schema.Schema // configured, with the lists that were learned
	saved      learning.Lists
	counting   bool
}

// countedBytes is about the memory of a block that has been counted, beside its counts.
const countedBytes = 400

// NewLists has the lists of a snapshot, and those that a schema has to learn.
func NewLists(configured *schema.Schema, saved learning.Settings) *Lists {
	if len(configured.Learns()) == 0 {
		return &Lists{}
	}
	l := &Lists{configured: configured, saved: saved.Lists}
	of := saved.Format.Schema
	if l.saved.Wanted != nil {
		of = l.saved.Wanted
	}
	l.wanted = configured.Known(of)
	return l
}

// Wanted is the schema with the lists that were learned, or nil if there are no lists to learn.
func (l *Lists) Wanted() *schema.Schema { return l.wanted }

// Saved is what the snapshot has of the lists.
func (l *Lists) Saved() learning.Lists { return l.saved }

// InUse notes that the features are made by the lists.
func (l *Lists) InUse() { l.saved.Wanted = nil }

// LearnLists implements httpapi.Service.
func (f *Features) LearnLists(ctx context.Context) (*httpapi.LearnedLists, error) {
	l := f.lists
	if l.configured == nil {
		return nil, fmt.Errorf("format.schema has no category with values: {most: K}: %w", httpapi.ErrOff)
	}
	type result struct {
		answer *httpapi.LearnedLists
		err    error
	}
	ended := make(chan result, 1)
	// The request stands even if the caller stops waiting.
	err := f.Do(context.WithoutCancel(ctx), func() error {
		switch {
		case l.counting:
			return fmt.Errorf("learn lists of values: %w", httpapi.ErrBusy)
		case f.change != nil:
			return fmt.Errorf("learn lists of values: a change of features is %w", httpapi.ErrBusy)
		case f.Live.Blocks() == 0:
			return fmt.Errorf("there are no live rows to learn lists of values from: %w", httpapi.ErrUnavailable)
		}
		l.counting = true
		// As much again is needed for the second live set, soon.
		room := int64(max(0, f.Memory.Room()-f.Live.Price()) / 2)
		blocks, names := f.Live.Moment(f.Live.Page(retire.Lowest, math.MaxInt)), f.Live.Features().Names()
		end := func(a *httpapi.LearnedLists, err error) {
			l.counting = false
			ended <- result{a, err}
		}
		f.Begin(loop.TaskLists, true, func(ctx context.Context) func() {
			c, err := f.CountValues(ctx, blocks, names, room)
			return func() {
				if err != nil {
					f.Log.Warn().Err(err).Msg("no lists of values were learned")
					end(nil, err)
					return
				}
				end(f.TakeLists(c))
			}
		}, func(err error) { end(nil, fmt.Errorf("%w: %w", err, httpapi.ErrUnavailable)) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case r := <-ended:
		return r.answer, r.err
	case <-f.LoopDone:
		select {
		case r := <-ended: // the loop may have ended because of it
			return r.answer, r.err
		default:
			return nil, f.Ended()
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// countedBlocks are the values of live blocks.
type countedBlocks struct {
	values *schema.ValueCounts

	mu     sync.Mutex
	blocks map[string]countedBlock
	bytes  int64
}

type countedBlock struct {
	entry retire.Entry
	of    schema.BlockCounts
}

// CountValues reads blocks again, in the features of these names, and counts their values. The
// counts take no more bytes than there is room for.
func (f *Features) CountValues(ctx context.Context, blocks *live.Blocks, names []string, room int64) (*countedBlocks, error) {
	c := &countedBlocks{values: f.lists.configured.NewValueCounts(f.Config.Format.Schema, room/2), blocks: map[string]countedBlock{}}
	decoding := f.Decoding
	decoding.Schema = c.values.Schema()
	columns := decoding.Schema.Columns()
	decoding.Limits.Features += len(columns) - len(names)
	target := &live.Target{Features: &columns}
	log, err := f.OpenLog(passes.Settings{Config: f.Config, Decoding: decoding, Target: func() *live.Target { return target }, Was: names})
	if err != nil {
		return nil, err
	}
	defer log.Close()
	defer f.Topic.Hold()() // the memory suffices for one pass at a time
	unread, err := log.Pass(ctx, blocks, true, func(_ *passes.Worker, e retire.Entry, b *incremental.Block, _ *incremental.Summary) error {
		of := c.values.Of(b)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.bytes += countedBytes + of.Bytes(); c.bytes > room/2 {
			return fmt.Errorf("the counts of values in each block take more than %s, which is what limits.memory leaves: raise it: %w", memory.Size(float64(room/2)), httpapi.ErrUnavailable)
		}
		c.blocks[e.ID] = countedBlock{e, of}
		return nil
	})
	if err == nil && len(unread) > 0 {
		err = fmt.Errorf("the log does not return %d of %d live blocks unchanged, such as %s (%w), so their values cannot be counted: retire them, or send them again: %w",
			len(unread), len(blocks.Entries), unread[0].ID, unread[0].Reason, httpapi.ErrUnavailable)
	}
	return c, err
}

// TakeLists makes lists of the values of the blocks that are still live and unchanged, and has the
// daemon go to them.
func (f *Features) TakeLists(c *countedBlocks) (*httpapi.LearnedLists, error) {
	l := f.lists
	switch {
	case f.Failure != nil:
		return nil, loop.ErrStopping
	case f.change != nil || f.Changing.Load():
		return nil, loop.ErrChanging
	}
	a := &httpapi.LearnedLists{}
	for id, of := range c.blocks {
		if e, ok := f.Live.Find(id); ok && e == of.entry {
			c.values.Add(of.of)
			a.Blocks++
			a.Rows += e.Rows
		}
	}
	learned, all, err := c.values.Learned()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, httpapi.ErrUnavailable)
	}
	if n, most := len(learned.Columns()), f.Config.Limits.Features; n > most {
		return nil, fmt.Errorf("with the lists there are %d features, and limits.features is %d: %w", n, most, httpapi.ErrUnavailable)
	}
	a.Lists, a.Schema, a.Changes = all, learned, learned.String() != l.wanted.String()
	former, was := l.saved, f.saver.Learning
	l.saved = learning.Lists{Wanted: learned, Most: map[string]int{}}
	for _, of := range all {
		l.saved.Most[of.Feature] = of.Most
	}
	if !a.Changes {
		l.saved.Wanted = nil
	}
	f.saver.Learning = f.Learner.Saved(l.saved)
	if f.saver.Save() != nil {
		l.saved, f.saver.Learning = former, was
		return nil, fmt.Errorf("the snapshot could not be saved (see the log): %w", httpapi.ErrUnavailable)
	}
	f.Log.Info().Int("blocks", a.Blocks).Int64("rows", a.Rows).Bool("changes", a.Changes).Strs("categories", l.configured.Learns()).Msg("lists of values were learned")
	if a.Changes {
		f.Changing.Store(true)
		f.Stop(ErrOther)
	}
	return a, nil
}

// conditions are what the operator should know of lists.
func (l *Lists) conditions() (all []httpapi.Problem) {
	if l.configured == nil {
		return nil
	}
	missing := l.wanted.Learns()
	for _, category := range l.configured.Learns() {
		p := httpapi.Problem{Kind: httpapi.ProblemValues, Subject: category, Action: learnsLists}
		most, was := l.configured.Most(category), l.saved.Most[category]
		switch {
		case slices.Contains(missing, category):
			p.Text = fmt.Sprintf("the values of category %q are still to learn: until then all of them count as others", category)
		case was == most:
			continue
		case was == 0:
			p.Text = fmt.Sprintf("the list of category %q was declared, and the configuration has values: {most: %d}: it stays until a list is learned", category, most)
		default:
			p.Text = fmt.Sprintf("the list of category %q was learned for values: {most: %d}, and the configuration has %d: it stays until a list is learned again", category, was, most)
		}
		all = append(all, p)
	}
	return all
}

// learns reports whether the list of a category is learned.
func (l *Lists) learns(category string) bool {
	return l.configured != nil && l.configured.Most(category) > 0
}

const learnsLists = "POST /v1/features/learn (streamd schema learn) makes the list of the live rows; with a larger K it has more values"

// action says what helps against values of a category that no list has. It is empty where lists are
// declared, which is what a problem says anyway.
func (l *Lists) action(category string) string {
	if l.learns(category) {
		return learnsLists
	}
	return ""
}

// Learned names the categories whose lists were learned. Such a list may name values that no live
// row has.
func (l *Lists) Learned() (names []string) {
	for _, category := range l.configured.Learns() {
		if l.saved.Most[category] > 0 {
			names = append(names, category)
		}
	}
	return names
}
