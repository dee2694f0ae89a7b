package daemon

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/classifier"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/kernels"
	"streamd/kernels/reduce"
	"streamd/kernels/width"
	"streamd/retire"
)

// rebuilding is the loop's part in going from one basis to another.
//
// A reduction chooses γ and a basis from a complete view of the sample: a function of
// the live set, so that the basis is one, too. It works on a copy, on as many
// goroutines as there are processors but one. Its basis begins an epoch, which is
// built beside the one in use: workers put new blocks into both, and older ones
// are read from the log again and taken in where they are still live as they were.
// What comes and goes meanwhile comes and goes in both. When the epoch has every
// live block it takes the place of the other one, between two deliveries and in
// one transaction with it; what is served stays until planes in the new
// coordinates have been solved. The epoch is saved as it grows, so that a restart
// reads what is left.
type rebuilding struct {
	reducing *reduction         // under way
	reading  context.CancelFunc // ends the pass over the log that is under way; nil: there is none
	again    time.Time          // not before, after a failure
	at       time.Time          // when the last reduction began; zero: not looked at yet
	churn    int64              // of the live set then
	tried    int                // reductions of this process
	problem  string             // why the last reduction came to nothing
	taken    int64              // rows of older blocks, of the epoch being built, by this process
	skipped  []httpapi.UnreadBlock
}

// reduction is one under way.
type reduction struct {
	began time.Time
	end   context.CancelFunc

	mu     sync.Mutex
	stages []httpapi.Stage
}

// listedBlocks bounds the blocks that are named in an answer.
const listedBlocks = 100

// rebuild does what is to be done for the basis now.
func (d *Daemon) rebuild(ctx context.Context, now time.Time) {
	if d.cfg.Kernel.Function == config.KernelNone {
		return
	}
	if d.live.next != nil {
		d.build(ctx, now)
	} else if d.rebuilding.reducing == nil && d.reductionDue(now) {
		d.beginReduction(ctx, now)
	}
}

// reductionDue says whether a basis is to be chosen without being asked for.
func (d *Daemon) reductionDue(now time.Time) bool {
	r, k := &d.rebuilding, &d.cfg.Kernel
	if now.Before(r.again) || d.live.ledger.Rows() == 0 || d.live.sample.Lacking() > 0 {
		return false
	}
	if r.at.IsZero() && d.live.epoch != nil && digestOf(d.live.sums.total()) == d.live.epoch.made.Digest {
		r.churn = d.live.churn // chosen before the start, of the same rows
	}
	if r.at.IsZero() {
		r.at = d.started
		if d.live.epoch != nil {
			r.at = d.live.epoch.made.MadeAt
		}
	}
	if d.live.epoch == nil || !fits(d.live.epoch.basis, d.cfg) {
		return k.Rows > 0 && d.live.ledger.Rows() >= k.Rows && (r.tried == 0 || r.churn != d.live.churn)
	}
	return k.Interval > 0 && now.Sub(r.at) >= k.Interval && r.churn != d.live.churn
}

// beginReduction begins to choose a basis.
func (d *Daemon) beginReduction(ctx context.Context, now time.Time) {
	r := &d.rebuilding
	if !d.flushRuns() {
		return
	}
	working, end := context.WithCancel(ctx)
	r.reducing, r.at, r.churn = &reduction{began: now, end: end}, now, d.live.churn
	r.tried++
	job := r.reducing
	made := &httpapi.Reduction{
		Method: string(d.cfg.Kernel.Reduce), Digest: digestOf(d.live.sums.total()), Live: d.live.ledger.Rows(),
	}
	snap := d.live.sample.Snapshot(d.live.sums.total(), 0)
	var sums *incremental.Moments
	if d.cfg.Model.Standardise == config.SwitchOn {
		sums = d.live.sums.total().Moments()
	}
	d.ends.Go(func() {
		defer end()
		basis, err := d.reduce(working, job, snap, sums, made)
		made.MadeAt, made.Seconds = time.Now().UTC(), time.Since(now).Seconds()
		d.call(ctx, func() error {
			if working.Err() != nil { // perhaps when the basis was there, but not here
				err = errGivenUp
			}
			if err == nil {
				d.metrics.ReduceSeconds.Observe(made.Seconds)
			}
			d.endReduction(basis, made, err)
			return nil
		})
	})
}

// endReduction begins an epoch with the basis.
func (d *Daemon) endReduction(basis *kernels.Map, made *httpapi.Reduction, err error) {
	r := &d.rebuilding
	r.reducing, r.problem = nil, ""
	switch {
	case d.failure != nil:
	case err != nil:
		r.problem, r.again = err.Error(), time.Now().Add(afterFailure)
		d.log.Warn().Err(err).Msg("no basis could be chosen")
	case d.live.epoch != nil && d.live.epoch.id == made.Basis:
		d.live.abandon() // a rebuild for another one
		d.endReading()
		d.log.Info().Str("basis", made.Basis).Msg("the basis stays")
	case d.live.next != nil && d.live.next.id == made.Basis:
		clear(d.live.next.unread) // perhaps the log has them now
		r.again = time.Time{}
	default:
		d.endReading()
		d.live.begin(basis, made, d.cfg.Kernel.Regulariser)
		r.taken = 0
		r.again = time.Time{}
		d.log.Info().Str("basis", made.Basis).Int("points", made.Points).Int("blocks", len(d.live.next.missing)).
			Msg("a basis has been chosen; putting the live blocks into its coordinates")
	}
}

func (d *Daemon) endReading() {
	if end := d.rebuilding.reading; end != nil {
		end()
	}
}

var errGivenUp = errors.New("it was given up")

var errLacking = errors.New("the sample lacks rows of live blocks, which are read from the log again")

// reduce chooses a basis from the sample.
func (d *Daemon) reduce(ctx context.Context, job *reduction, snap *sample.Snapshot, sums *incremental.Moments, made *httpapi.Reduction) (*kernels.Map, error) {
	view := snap.View()
	if !view.Complete() {
		return nil, fmt.Errorf("%w: %d blocks", errLacking, view.Lacking)
	}
	b := view.Block
	columns := b.Columns
	var mean, sigma []float64
	if sums != nil {
		mean, sigma = sums.Scale()
		columns = scaled(columns, mean, sigma)
	}
	kernel, auto := d.cfg.Kernel.Function.Kernel()
	if auto {
		gamma, err := d.gamma(ctx, view, columns, made)
		if err != nil {
			return nil, fmt.Errorf("choose gamma: %w", err)
		}
		if kernel, err = kernels.Gaussian(gamma); err != nil {
			return nil, err
		}
	}
	result, err := reduce.Named(string(d.cfg.Kernel.Reduce), d.cfg.Kernel.Basis).Reduce(ctx, &reduce.Problem{
		Columns: columns, Codes: b.Codes, Classes: len(b.Classes), Weights: b.Weights,
		Kernel: kernel, Points: d.cfg.Kernel.Basis, Seed: uint64(d.cfg.Sample.Seed),
		Workers: max(1, runtime.GOMAXPROCS(0)-1),
		Progress: func(s reduce.Stage) {
			job.mu.Lock()
			defer job.mu.Unlock()
			job.stages = append(job.stages, httpapi.NewStage(s, b.Classes))
		},
	})
	if err != nil {
		return nil, err
	}
	basis, err := kernels.NewMap(kernel, result.Features, result.Z)
	if err == nil && sums != nil {
		basis, err = basis.Scaled(mean, sigma)
	}
	if err != nil {
		return nil, err
	}
	digest := basis.Digest()
	made.Basis, made.Kernel, made.Points, made.Rows, made.Stages = hex.EncodeToString(digest[:]), kernel.String(), basis.Points(), b.Rows(), job.stages
	return basis, nil
}

const (
	// gammaRows is how many rows of the sample γ is chosen by, at most: their
	// correctness is known to a percentage point.
	gammaRows  = 4000
	gammaFolds = 5
)

// gamma chooses a Gaussian's γ by the first rows of the sample, in these columns,
// which are a sample of the live rows too. Where they have too few rows of the
// classes to judge by, it is the median heuristic's.
func (d *Daemon) gamma(ctx context.Context, view *sample.View, columns []gram.Column, made *httpapi.Reduction) (float64, error) {
	b := view.Block
	some := first(&incremental.Block{Classes: b.Classes, Codes: b.Codes, Weights: b.Weights, Columns: columns}, min(b.Rows(), gammaRows))
	o := d.options
	o.Standardise = false
	if d.tunes() {
		o.Nu = 0
	}
	gamma, trials, err := width.Search(ctx, &width.Problem{
		Block: weighted(some, view.Totals), Folds: dealt(some), Options: o,
		Points: d.cfg.Kernel.Basis, Gram: d.cfg.Kernel.Regulariser == config.RegulariserKernel,
	})
	if errors.Is(err, incremental.ErrClasses) {
		made.Unjudged = err.Error()
		return kernels.MedianGamma(columns)
	}
	made.Gammas = httpapi.NewGammas(trials)
	return gamma, err
}

// dealt deals rows to folds in turn. Copies of a row, which follow each other in a
// sample, stay together: in another fold one would tell the other's class.
func dealt(b *incremental.Block) [][]int {
	folds := make([][]int, gammaFolds)
	fold := 0
	for i := range b.Rows() {
		if i > 0 && slices.ContainsFunc(b.Columns, func(c gram.Column) bool { return c.At(i) != c.At(i-1) }) {
			fold = (fold + 1) % gammaFolds
		}
		folds[fold] = append(folds[fold], i)
	}
	return folds
}

// scaled are the columns as a scaled map takes them.
func scaled(columns []gram.Column, mean, sigma []float64) []gram.Column {
	out := make([]gram.Column, len(columns))
	for j, c := range columns {
		x := make([]float64, c.Len())
		c.Copy(x, 0)
		inverse := 1 / sigma[j]
		for i := range x {
			x[i] = (x[i] - mean[j]) * inverse
		}
		out[j] = gram.ColumnOf(x)
	}
	return out
}

// build goes on with the epoch that is being built.
func (d *Daemon) build(ctx context.Context, now time.Time) {
	r, next := &d.rebuilding, d.live.next
	if len(next.missing) == 0 {
		d.switchEpoch()
		return
	}
	if r.reading != nil || now.Before(r.again) {
		return
	}
	if len(next.unread) == len(next.missing) {
		if d.cfg.Kernel.Unread == config.UnreadSkip {
			d.skipUnread()
		}
		return
	}
	blocks := d.liveBlocks(slices.DeleteFunc(d.live.ledger.Page(retire.Lowest, math.MaxInt), func(e retire.Entry) bool {
		_, lacks := next.missing[e.ID]
		_, known := next.unread[e.ID]
		return !lacks || known
	}))
	reading, end := context.WithCancel(ctx)
	r.reading = end
	d.ends.Go(func() {
		defer end()
		unread, err := d.readInto(reading, next, blocks)
		d.call(ctx, func() error {
			d.endReadInto(reading, next, unread, err)
			return nil
		})
	})
}

// skipUnread retires the blocks that the log does not give back.
func (d *Daemon) skipUnread() {
	next := d.live.next
	unread := d.unread()
	for _, id := range slices.Sorted(maps.Keys(next.missing)) {
		for _, p := range d.partitions {
			if err := d.endBlock(p, id); err != nil {
				d.fail(err)
				return
			}
		}
		if _, lacks := next.missing[id]; !lacks {
			continue // its rows were still in hand
		}
		if err := d.live.remove(id); err != nil {
			d.fail(err)
			return
		}
		d.counts.BlocksRetired++
	}
	d.rebuilding.skipped = unread
	d.log.Warn().Int("blocks", len(unread)).Str("block", unread[0].ID).Str("reason", unread[0].Reason).
		Msg("retired blocks that the log does not give back for the new coordinates (kernel.unread is skip)")
	d.switchEpoch()
}

// unread lists the blocks that the log does not give back, by id.
func (d *Daemon) unread() (out []httpapi.UnreadBlock) {
	for _, u := range d.live.next.unread {
		out = append(out, httpapi.UnreadBlock{ID: u.ID, Rows: u.Rows, Reason: u.reason.Error()})
	}
	slices.SortFunc(out, func(a, b httpapi.UnreadBlock) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// switchEpoch takes the epoch that has been built into use.
func (d *Daemon) switchEpoch() {
	d.live.switchEpoch()
	d.changed = true
	// Studies are of planes in other coordinates.
	y := &d.studying
	y.last, y.due = nil, true
	d.log.Info().Str("basis", d.live.epoch.id).Int("blocks", d.live.ledger.Len()).Msg("all live blocks are in the coordinates of the new basis")
}

// takenAtOnce bounds the bytes of summaries that are handed to the loop together.
const takenAtOnce = 8 << 20

var errUnsaved = errors.New("the snapshot cannot be saved")

// summarised is a block in the coordinates of an epoch.
type summarised struct {
	summary *incremental.Summary
	digest  [32]byte // of its summary of features
}

// readInto reads blocks from the log and has the loop take them into an epoch.
func (d *Daemon) readInto(ctx context.Context, next *epoch, blocks *liveBlocks) (unread []unreadBlock, err error) {
	d.log.Info().Int("blocks", len(blocks.entries)).Msg("reading blocks again for the coordinates of a new basis")
	c := next.coordinates
	atOnce := min(max(takenAtOnce/(8*gram.PackedLen(len(c.names))), 1), offersAtOnce)
	return readAgain(ctx, d, blocks, atOnce, func(w *worker, b *incremental.Block, s *incremental.Summary) (summarised, error) {
		in, err := w.lifter.summary(b, c)
		return summarised{in, s.Digest()}, err
	}, func(e retire.Entry, z summarised) error {
		if d.saveProblem != nil && d.live.unsaved() >= d.cfg.Snapshot.Blocks {
			return errUnsaved
		}
		if _, lacks := next.missing[e.ID]; lacks && d.live.next == next && d.failure == nil {
			next.add(e.ID, z.summary, z.digest)
			d.rebuilding.taken += e.Rows
		}
		return nil
	})
}

// endReadInto is the end of a pass, in the loop. What it has left is not in next,
// since it cannot be read again as it was.
func (d *Daemon) endReadInto(ctx context.Context, next *epoch, unread []unreadBlock, err error) {
	d.rebuilding.reading = nil
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.rebuilding.again = time.Now().Add(afterFailure)
		d.log.Error().Err(err).Msg("blocks could not be read again for the coordinates of a new basis; it will be tried again")
	case len(unread) > 0:
		for _, u := range unread {
			if e, ok := d.live.ledger.Get(u.ID); ok && e == u.Entry {
				if _, lacks := next.missing[u.ID]; lacks {
					next.unread[u.ID] = u
				}
			}
		}
		d.log.Warn().Int("blocks", len(unread)).Str("block", unread[0].ID).AnErr("reason", unread[0].reason).
			Msg("blocks are not in the coordinates of the new basis, since they cannot be read again as they were")
	}
}

// Reduce implements httpapi.Service.
func (d *Daemon) Reduce(ctx context.Context) error {
	if d.cfg.Kernel.Function == config.KernelNone {
		return fmt.Errorf("kernel.function is none: %w", httpapi.ErrOff)
	}
	return d.call(ctx, func() error {
		r := &d.rebuilding
		switch {
		case d.failure != nil:
			return errStopping
		case d.live.ledger.Rows() == 0:
			return fmt.Errorf("there are no live rows: %w", httpapi.ErrUnavailable)
		case d.live.sample.Lacking() > 0:
			return fmt.Errorf("reduce: %w: %w", errLacking, httpapi.ErrUnavailable)
		case r.reducing != nil:
			return fmt.Errorf("reduce: %w", httpapi.ErrBusy)
		case d.live.next != nil && len(d.live.next.unread) < len(d.live.next.missing):
			return fmt.Errorf("reduce: blocks are being put into the coordinates of a basis, which DELETE /v1/reduce gives up: %w", httpapi.ErrBusy)
		}
		d.beginReduction(d.background, time.Now())
		return nil
	})
}

// Abandon implements httpapi.Service.
func (d *Daemon) Abandon(ctx context.Context) error {
	return d.call(ctx, func() error {
		r := &d.rebuilding
		if d.failure != nil {
			return errStopping
		}
		if r.reducing != nil {
			r.reducing.end()
		}
		if d.live.next != nil {
			d.endReading()
			d.live.abandon()
			d.log.Info().Msg("the basis that had been chosen is given up")
		}
		r.again = time.Now().Add(afterFailure)
		return nil
	})
}

// Epoch implements httpapi.Service.
func (d *Daemon) Epoch(ctx context.Context) (*httpapi.EpochAnswer, error) {
	return inLoop(ctx, d, func() (*httpapi.EpochAnswer, error) {
		a := d.epochAnswer()
		a.Skipped = d.rebuilding.skipped[:min(len(d.rebuilding.skipped), listedBlocks)]
		if e := d.live.epoch; e != nil {
			a.Basis = classifier.BasisOf(e.basis, string(d.cfg.Kernel.Regulariser))
		}
		if a.Rebuild != nil {
			a.Rebuild.Reasons = d.unread()
			a.Rebuild.Reasons = a.Rebuild.Reasons[:min(len(a.Rebuild.Reasons), listedBlocks)]
		}
		return a, nil
	})
}

// epochAnswer is what takes no time to say after every step.
func (d *Daemon) epochAnswer() *httpapi.EpochAnswer {
	r := &d.rebuilding
	a := &httpapi.EpochAnswer{Problem: r.problem, Served: basisID(d.published.Load().served)}
	if e := d.live.epoch; e != nil {
		a.Epoch, a.InUse = e.number, e.made
	}
	if job := r.reducing; job != nil {
		job.mu.Lock()
		a.Reducing = &httpapi.ReducingAnswer{Began: job.began.UTC(), Stages: append([]httpapi.Stage{}, job.stages...)}
		job.mu.Unlock()
	}
	if e := d.live.next; e != nil {
		b := &httpapi.RebuildAnswer{
			Reduction: e.made, Blocks: d.live.ledger.Len() - len(e.missing), Missing: len(e.missing),
			Rows: e.sums.rows(), LiveRows: d.live.ledger.Rows(), Unread: len(e.unread),
		}
		if r.taken > 0 && b.Unread < b.Missing {
			left := time.Since(e.began).Seconds() / float64(r.taken) * float64(b.LiveRows-b.Rows)
			if !math.IsInf(left, 0) {
				b.Seconds = &left
			}
		}
		a.Rebuild = b
	}
	return a
}
