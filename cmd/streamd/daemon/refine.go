package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/sample"
	"streamd/retire"
)

// refine moves the planes that were solved to where they are wanted. When that
// fails they stay where they are, and the operator hears why.
func (s *study) refine(ctx context.Context, view *sample.View) {
	if !s.d.refines() {
		return
	}
	from := time.Now()
	r, err := s.refined(ctx, view)
	took := time.Since(from).Seconds()
	s.d.metrics.RefineSeconds.Observe(took)
	if err != nil {
		s.refining = err
		s.served.Absent.Refinement = err.Error()
		return
	}
	r.MadeAt, r.Seconds = time.Now().UTC(), took
	s.served.Refinement, s.served.Absent.Refinement = r, ""
}

func (s *study) refined(ctx context.Context, view *sample.View) (*model.Refinement, error) {
	planes := s.served.Model
	out := &model.Refinement{
		Digest: s.served.Digest, Source: string(s.d.cfg.Model.Rows), Live: s.served.Rows,
	}
	var result *newton.Result
	var err error
	if s.blocks != nil {
		rows := &logRows{log: s.d.archive, blocks: s.blocks, in: s.in}
		o := s.newtonOptions(s.total, nil)
		result, err = newton.Refine(ctx, planes, rows, o)
		out.Method, out.Complete = o.Method.String(), rows.missing == 0
		if err == nil && rows.unread != nil {
			s.d.log.Warn().Int("blocks", rows.missing).AnErr("reason", rows.unread).
				Msg("the planes are refined without blocks that the log does not give back as they were")
		}
	} else {
		o := s.newtonOptions(s.total, standFor(view.Block, s.totals))
		result, err = newton.Refine(ctx, planes, newton.Blocks{view.Block}, o)
		out.Method, out.Complete = o.Method.String(), view.Complete()
	}
	if err != nil {
		return nil, fmt.Errorf("refine on rows of the %s: %w", out.Source, err)
	}
	out.Rows, out.Planes = result.Rows, model.PlaneRefinements(result.Planes)
	s.served.Model = result.Model
	return out, nil
}

func (s *study) newtonOptions(sums *incremental.Moments, multipliers map[string]float64) newton.Options {
	o := newton.Options{Method: newton.Full, Multipliers: multipliers, Workers: 1}
	if s.d.cfg.Model.Refine == config.RefineLine {
		o.Method = newton.Line
	}
	if s.options.Standardise {
		o.Mean, o.Sigma = sums.Scale()
	}
	return o
}

// logRows is the rows of live blocks, read from the log for every pass.
type logRows struct {
	log     *rereader
	blocks  *live.Blocks // after the first pass, those that it has shown
	in      *live.Coordinates
	passes  int
	missing int   // blocks that it has not
	unread  error // why, of the first that is still live
}

// errMoved says that a later pass did not find what the first one did.
var errMoved = errors.New("the log does not give back any more what it did a moment ago")

// Pass implements newton.Rows. The first pass compares every block with its
// summary and leaves out those that are not as they were, and those that have
// been retired meanwhile and cannot be compared.
func (r *logRows) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	var mu sync.Mutex
	shown := map[string]bool{}
	unread, err := r.log.pass(ctx, r.blocks, r.passes == 0, func(w *worker, e retire.Entry, b *incremental.Block, _ *incremental.Summary) error {
		in, err := w.keeper.Block(ctx, b, r.in)
		if err != nil {
			return err
		}
		if err := visit(in); err != nil {
			return err
		}
		mu.Lock()
		shown[e.ID] = true
		mu.Unlock()
		return nil
	})
	if err != nil {
		return err
	}
	r.passes++
	if len(shown) == len(r.blocks.Entries) {
		return nil
	}
	if r.passes > 1 {
		return errMoved
	}
	r.missing = len(r.blocks.Entries) - len(shown)
	if len(unread) > 0 {
		r.unread = fmt.Errorf("block %s: %w", unread[0].ID, unread[0].Reason)
	}
	left := *r.blocks
	left.Entries = slices.DeleteFunc(slices.Clone(left.Entries), func(e retire.Entry) bool { return !shown[e.ID] })
	r.blocks = &left
	return nil
}
