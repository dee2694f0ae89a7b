package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Served is an answer of GET /v1/model that is to be checked.
type Served struct {
	*model.Identity
	*model.Figures
	Fingerprint string           // that the answer has
	Receipts    int64            // that it names, under the owner's signature; 0: none
	Basis       *model.BasisJSON // nil: the planes are in the features
	Stale       bool             // it says that sources of the basis have left
	Sample      *model.Sampled   // by which the choices were made, if rows took part
	Tuning      *model.Tuning    // the choice of ν, if there was one
}

// ModelReport is the result of checking a served model with a snapshot file.
type ModelReport struct {
	Fingerprint string `json:"fingerprint"` // computed from the other parts of the answer
	Digest      string `json:"state_digest"`
	Planes      int    `json:"planes"` // made again, with the same bits; 0: they are not checked
	// Proved and Unchecked are sentences: what the snapshot shows of the model, and what not.
	Proved    []string `json:"proved"`
	Unchecked []string `json:"not_checked"`
}

// Model checks a served model with a snapshot file. It opens the file as a daemon does, and makes
// the model again by the daemon's code: planes off the sums, ν, refinement, curves and the rule of
// labels from the rows of the sample. It takes as long as a start and a study, and as much memory.
//
// What is checked follows from the settings and the snapshot, and never from what the answer says
// of itself: an answer that contradicts them is an error, with both values. So is a part that the
// fingerprint covers and that has other bits. The report names the parts that could not be made
// again, with the reason.
func Model(ctx context.Context, path string, served *Served) (*ModelReport, error) {
	p := &ModelReport{Fingerprint: served.Identity.Fingerprint(), Digest: served.Digest}
	if p.Fingerprint != served.Fingerprint {
		return nil, fmt.Errorf("the model says that its fingerprint is %s, and that of its parts is %s: it has been changed", served.Fingerprint, p.Fingerprint)
	}
	p.proved("the fingerprint is that of its digest, options, planes, calibration and rule of labels")
	if err := p.check(ctx, path, served); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func (p *ModelReport) proved(format string, of ...any) {
	p.Proved = append(p.Proved, fmt.Sprintf(format, of...))
}

func (p *ModelReport) unchecked(format string, of ...any) {
	p.Unchecked = append(p.Unchecked, fmt.Sprintf(format, of...))
}

// check compares the model with that of the live blocks.
func (p *ModelReport) check(ctx context.Context, path string, served *Served) error {
	// The sums of the file, in each space and fold, are those of its blocks.
	verified, err := snapshot.Verify(ctx, path, nil)
	if err == nil && !verified.OK {
		err = fmt.Errorf("its blocks add up to the digest %x, and it has %x; %d damaged values (streamd snapshot verify names them)", verified.Summed, verified.Saved, verified.Damaged)
	}
	if err != nil {
		return err
	}
	store, saved, err := snapshot.OpenReadOnly(path)
	if err != nil {
		return err
	}
	defer store.Close()
	if saved.Learning == nil {
		return errors.New("it has no settings of the model: no daemon has saved them")
	}
	settings, err := learning.Read(saved.Learning)
	a := &again{store: store, served: served, report: p, processor: settings.Processor}
	var missing error
	if err == nil {
		a.learner, missing, err = settings.Learner()
	}
	if err != nil {
		return err
	}
	if n := saved.Log.Size; n > 0 && served.Receipts == 0 {
		return fmt.Errorf("the number of receipts in its log is %d, and the model names none: take the model again, after a save of a daemon with receipts.key_file", n)
	}
	blocks := len(saved.Entries)
	if err := a.open(saved); err != nil {
		return err
	}
	if err := a.sums(blocks); err != nil {
		return err
	}
	if err := a.settings(settings, saved.Log.Size); err != nil {
		return err
	}
	if err := a.parts(ctx, blocks); err != nil {
		return err
	}
	if err := a.basis(ctx); err != nil {
		return err
	}
	made, stated, err := a.model(ctx, missing)
	if err != nil {
		return err
	}
	return a.compare(made, stated)
}

// again makes a model again.
type again struct {
	store     *snapshot.Store
	served    *Served
	report    *ModelReport
	learner   *learning.Learner
	set       *live.Set
	weighted  *live.Weighted // nil without a half-life
	processor string         // of the daemon, as the snapshot states
	partial   int            // blocks of which the sample has some rows only
}

// open restores the live set, and brings its sample and its weights up to date.
func (a *again) open(saved *snapshot.Contents) (err error) {
	const unlimited = 1 << 62
	cfg := *a.learner.Config
	cfg.Limits.Features, cfg.Limits.Classes = unlimited, unlimited
	cfg.Retire.Archive = false // archived blocks are in no sum
	if a.set, _, err = live.Open(a.store, saved, &cfg, memory.New(&cfg, unlimited), zerolog.Nop()); err != nil {
		return err
	}
	for a.set.Lacking() > 0 && len(a.set.Wanted()) == 0 {
		if err := a.set.Look(time.Second); err != nil {
			return err
		}
	}
	for a.learner.Fades() && a.weighted == nil {
		if a.weighted, err = a.set.Weigh(time.Second); err != nil {
			return err
		}
	}
	return nil
}

// sums compares the sums that the planes are solved from, and the coordinates that they are in.
func (a *again) sums(blocks int) error {
	served, use := a.served, a.set.InUse()
	if basis := a.learner.Basis(a.set); basis == nil && served.Identity.Basis != "" || basis != nil && basis.ID != served.Identity.Basis {
		return errors.New("it has no sums in the model's basis: take a copy of the snapshot while the model is served")
	}
	if use.Coordinates != nil {
		if served.Basis == nil {
			return errors.New("the model has the id of a basis, and no basis")
		}
		m, err := served.Basis.Map(len(served.Features))
		if err != nil {
			return fmt.Errorf("the model's basis: %w", err)
		}
		if digest := m.Digest(); hex.EncodeToString(digest[:]) != served.Identity.Basis {
			return fmt.Errorf("the model's basis has the id %x, and the model says %s", digest, served.Identity.Basis)
		}
		// An answer says so at once, also of a digest from before the block has left.
		if use.Stale() != live.Fresh && !served.Stale {
			return errors.New("blocks that the basis was chosen from have left, and the model says basis_stale is false")
		}
	}
	if digest := a.set.Digest(); digest != served.Digest {
		return fmt.Errorf("its blocks add up to the digest %s, and the model is of %s: take a copy of the snapshot while the model is served", digest, served.Digest)
	}
	a.report.proved("its sums are those of the %d live blocks of the snapshot", blocks)
	if a.weighted != nil {
		if a.weighted.Digest != served.Weighted {
			return fmt.Errorf("its blocks, weighted by their age, add up to the digest %s, and the model is of %s", a.weighted.Digest, served.Weighted)
		}
		a.report.proved("its weighted sums are those of the blocks by their event times, which the snapshot states")
	}
	return nil
}

// settings compares the settings with those of the newest receipt.
func (a *again) settings(s learning.Settings, receipts int64) error {
	if receipts == 0 {
		a.report.unchecked("settings: they are those that the snapshot states, and it has no receipt with their hash")
		return nil
	}
	text, err := a.store.Leaf(receipts - 1)
	if err != nil {
		return err
	}
	leaf, err := receipt.DecodeLeaf(text)
	if err != nil {
		return err
	}
	before := s.OfLeaf(nil) // the first block, whose features they are
	s = s.OfLeaf(a.set.Features().Names())
	if leaf.Settings != sha256.Sum256(s.Text()) && leaf.Settings != sha256.Sum256(before.Text()) {
		a.report.unchecked("settings: they are those that the snapshot states, and receipt %d has the hash of others: they have changed since", receipts-1)
		return nil
	}
	a.report.proved("its settings are those that receipt %d has the hash of", receipts-1)
	return nil
}

// parts checks the rows of the sample. Those of a whole block make its sums, in the basis, too.
func (a *again) parts(ctx context.Context, blocks int) error {
	in := a.set.InUse().Coordinates
	var keeper live.Keeper
	whole := 0
	partial, err := checkParts(a.store, func(id string, b *incremental.Block) error {
		whole++
		if in == nil {
			return nil
		}
		s, err := keeper.Summary(ctx, b, in)
		if err != nil {
			return err
		}
		if saved, err := a.store.Summary(in.Number, id); err != nil || s.Digest() != saved.Digest() {
			return errors.Join(err, fmt.Errorf("the sums of the block %s in the basis are not those of its rows in the sample", id))
		}
		return nil
	})
	if a.partial = partial; err != nil || in == nil {
		return err
	}
	a.report.proved("the sums in the basis of %d of the %d live blocks are those of their rows in the sample", whole, blocks)
	if others := blocks - whole; others > 0 {
		a.report.unchecked("sums in the basis of %d blocks: the sample does not have all of their rows", others)
	}
	return nil
}

// basis chooses the basis again, if it was chosen from the present rows.
func (a *again) basis(ctx context.Context) error {
	in := a.set.InUse().Coordinates
	if in == nil {
		return nil
	}
	const not = "the choice of the basis: "
	was := in.Reduction
	switch {
	case was.Digest != a.set.Features().Digest():
		a.report.unchecked(not + "it was chosen from the rows of another live set")
		return nil
	case was.Pruned > 0:
		a.report.unchecked(not + "it is a part of an earlier one")
		return nil
	case a.set.Lacking() > 0:
		a.report.unchecked(not+"the snapshot lacks rows of the sample, of %d blocks", a.set.Lacking())
		return nil
	}
	m, err := a.learner.Reduce(ctx, a.set.Sample(0).View(), a.learner.Scaling(a.set), new(model.Reduction), func(model.Stage) {})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil || m.Digest() != in.Map.Digest():
		a.report.unchecked(not + "by the present settings the rows make another one; it may have been chosen by former ones")
	default:
		a.report.proved("its basis is the one that the rows of the sample make")
	}
	return nil
}

// The parts of a model that are made beside its sums.
const (
	options = "options"
	method  = "method"
	planes  = "planes"
	curves  = "calibration"
	rule    = "decision"
)

// model makes the model again. stated are the parts that are not made, each with the reason.
func (a *again) model(ctx context.Context, missing error) (made *model.Served, stated map[string]string, err error) {
	l, next := a.learner, a.learner.Begin(a.set, a.weighted)
	if err := a.studied(next.SumsDigest()); err != nil {
		return nil, nil, err
	}
	m := l.Config.Model
	stated = map[string]string{}
	// state has the parts that a study chooses be stated.
	state := func(why string) {
		if l.Tunes() {
			stated[options] = why
		}
		// Also of settings that refine, planes may be solved: then these are made.
		if l.Refines() && model.Refined(a.served.Method) {
			if stated[planes] = why; m.Refine == config.RefineAuto {
				stated[method] = why
			} else {
				next.Refinement = &model.Refinement{Method: string(m.Refine)}
			}
		}
		if l.Judges() && m.Calibration != config.CalibrationNone {
			stated[curves] = why
		}
		if l.Judges() && m.Decision != config.DecisionValue {
			stated[rule] = why
		}
	}
	switch {
	case missing != nil:
		state(missing.Error())
		stated[method], stated[planes] = missing.Error(), missing.Error()
	case a.processor != runtime.GOARCH && (l.Tunes() || l.Judges() || l.Refines() || !l.Portable()):
		why := fmt.Sprintf("the snapshot states that they were made on %s, and this program runs on %s, where functions such as exp have other bits", a.processor, runtime.GOARCH)
		if state(why); !l.Portable() {
			stated[planes] = why
		}
	case !l.Tunes() && !l.Judges() && !l.Refines(): // there is nothing to choose
	case a.set.Lacking() > 0:
		state(fmt.Sprintf("the snapshot lacks rows of the sample, of %d blocks", a.set.Lacking()))
	default:
		s := l.Study(a.set, a.weighted, next)
		if m.Rows == config.RowsLog {
			s.Rows = noRows{}
		}
		if s.Make(ctx); ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		made := s.Served
		if s.Refined && m.Rows == config.RowsLog {
			// A refinement may have failed there. Then the solved planes and what they give are
			// served, and these are made here: so an answer that says so gains nothing by a lie.
			if model.Refined(a.served.Method) {
				const why = "they are made by planes that are refined on the rows of the log"
				stated = map[string]string{planes: why, curves: why, rule: why}
				made.Refinement = &model.Refinement{Method: s.By}
			} else {
				a.report.unchecked("refinement: by the settings the planes are refined on the rows of the log, and the model has solved ones, as after a refinement that failed")
			}
		}
		if err := a.chosen(made); err != nil {
			return nil, nil, err
		}
		if a.partial > 0 && made.Sample != nil {
			a.report.unchecked("rows of the sample: of %d blocks it has some rows, which their sums do not show to be theirs", a.partial)
		}
		return made, stated, nil
	}
	in := a.set.InUse().Coordinates
	o := l.OptionsIn(a.set, in)
	if _, as := stated[options]; as {
		o.Nu = a.served.Options.Nu
		if m.Balanced == config.SwitchAuto {
			o.Balanced = a.served.Options.Balanced
		}
		if m.Standardise == config.SwitchAuto {
			o.Standardise = a.served.Options.Standardise
		}
	}
	sums := learning.Sums(a.set, a.weighted)
	learning.Solve(ctx, next, in.Moments(sums), o, a.set.Features().Names(), sums.Labels())
	return next, stated, ctx.Err()
}

// noRows are the rows of the log, which the snapshot does not have.
type noRows struct{}

func (noRows) Pass(context.Context, func(*incremental.Block) error) error {
	return errors.New("the snapshot does not have the rows of the log")
}

func (noRows) Whole() bool { return false }

// studied checks what the model says of the study that its choices come from. By the settings there
// is one, and it is of the sums that are served.
func (a *again) studied(sums string) error {
	l, of, lacking := a.learner, a.served.Sample, a.set.Lacking()
	const again = ": take the model, and the copy after it, when the stream has rested for a study"
	switch {
	case !l.Tunes() && !l.Judges() && !l.Refines():
		return nil
	case of == nil && l.Config.Sample.Rows > 0:
		return fmt.Errorf("the model says that no sample took part (sample is null), and by the settings its choices are made by one, for the sums %s"+again, sums)
	case of != nil && l.Config.Sample.Rows == 0:
		return fmt.Errorf("the model says that a sample took part, of the sums %s, and by the settings (sample.rows) there is none", of.Digest)
	case of != nil && of.Digest != sums:
		return fmt.Errorf("the model says that its choices were made for the sums %s (sample.digest), and it is of the sums %s"+again, of.Digest, sums)
	case of != nil && lacking == 0 && (!of.Complete || of.Lacking != 0):
		return fmt.Errorf("the model says that its sample lacked rows of %d blocks (sample.lacking_blocks, complete is %t), and the sample of the snapshot lacks none"+again, of.Lacking, of.Complete)
	}
	return nil
}

// chosen compares what the model says of the choice of ν with the one that was made.
func (a *again) chosen(made *model.Served) error {
	of := func(t *model.Tuning) string {
		if t == nil {
			return "no choice of ν"
		}
		return "a choice of ν for the state " + t.Digest
	}
	if says, is := of(a.served.Tuning), of(made.Tuning); says != is {
		return fmt.Errorf("the model says that there was %s (tuning), and by the settings there is %s: take the model, and the copy after it, when the stream has rested for a study", says, is)
	}
	return nil
}

// compare compares the model with the one that was made, except for what is stated.
func (a *again) compare(made *model.Served, stated map[string]string) error {
	served, p := a.served.Identity, a.report
	if made.Model == nil {
		return fmt.Errorf("its blocks make no model: %s", made.Problem)
	}
	want, figures := made.Identity(), made.Figures()
	for _, part := range []string{options, method, planes, curves, rule} {
		why, is := stated[part]
		if !is {
			continue
		}
		p.unchecked("%s: %s", part, why)
		switch part {
		case planes:
			want.Planes = served.Planes
		case method:
			want.Method = served.Method
		case curves:
			want.Calibration = served.Calibration
		case rule:
			want.Decision = served.Decision
		}
	}
	if lines := append(want.Differences(served), figures.Differences(a.served.Figures)...); lines != nil {
		return fmt.Errorf("the model is not that of its blocks: %s", strings.Join(lines, "; "))
	}
	var parts []string
	for _, part := range []string{options, method, planes, curves, rule} {
		if _, is := stated[part]; !is {
			parts = append(parts, part)
		}
	}
	if _, is := stated[planes]; !is {
		p.Planes = len(served.Planes)
	}
	if parts != nil {
		p.proved("made again with the same bits: %s", strings.Join(parts, ", "))
	}
	p.proved("its means, and its counts of rows and blocks, are those of the snapshot")
	return nil
}
