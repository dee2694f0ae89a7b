// Package witness has witnesses cosign the log of receipts, over HTTP and as c2sp.org/tlog-witness
// has it. A witness cosigns only logs that grow: with the cosignatures of witnesses that two
// parties trust, the log's owner cannot show them different logs.
package witness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Witnesses cosign the log of receipts. A goroutine for each asks after every save that has added
// receipts, so that neither a save nor an answer waits for a witness. They only see heads that are
// on the disk: a witness that had cosigned a lost one would refuse all later ones.
type Witnesses struct {
	log       zerolog.Logger
	store     *snapshot.Store
	followers []*follower
	saving    sync.Mutex // one goroutine at a time saves cosignatures

	mu       sync.Mutex
	head     snapshot.LogHead // on the disk
	grown    chan struct{}    // closed when head is replaced
	cosigned []cosigned       // by ascending size; the choice of those to keep is dropCosigned's
}

// cosigned is a checkpoint with the cosignatures of some witnesses.
type cosigned struct {
	snapshot.LogHead
	by []receipt.Cosignature
}

// follower is a witness. Its mutable fields are under the mutex of Witnesses.
type follower struct {
	key    *receipt.Witness
	client *client

	size     int64     // of the log that it has cosigned last
	failures int64     // since the start
	failing  time.Time // since when; zero: it has answered
	problem  error
}

// Pauses between two calls of a witness. After a failure the pause doubles.
const (
	betweenCalls = time.Second
	mostPause    = 5 * time.Minute
)

// New continues with the cosignatures that the snapshot has.
func New(c config.Receipts, log zerolog.Logger, store *snapshot.Store, saved snapshot.LogHead) (*Witnesses, error) {
	w := &Witnesses{log: log, store: store, head: saved, grown: make(chan struct{})}
	var keys []*receipt.Witness
	for _, text := range c.Witnesses {
		url, key, err := config.ParseWitness(text)
		if err != nil {
			return nil, fmt.Errorf("receipts.witnesses: %w", err)
		}
		keys = append(keys, key)
		w.followers = append(w.followers, &follower{key: key, client: newClient(url, key)})
	}
	for _, h := range saved.Cosigned {
		by, err := receipt.Cosignatures(h.Checkpoint, keys)
		if err != nil {
			return nil, err
		}
		if len(by) > 0 { // else by former witnesses
			w.cosigned = append(w.cosigned, cosigned{h, by})
		}
		for _, f := range w.followers {
			if signedBy(by, f.key) {
				f.size = max(f.size, h.Size)
			}
		}
	}
	return w, nil
}

func signedBy(by []receipt.Cosignature, key *receipt.Witness) bool {
	return slices.ContainsFunc(by, func(c receipt.Cosignature) bool { return c.Witness == key })
}

// Saved tells the witnesses that a log that has grown is on the disk.
func (w *Witnesses) Saved(head snapshot.LogHead) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.head = head
	close(w.grown)
	w.grown = make(chan struct{})
}

// answersWithin is the most time that a start waits for answers of witnesses.
const answersWithin = 3 * time.Second

// Check asks all witnesses once whether they have cosigned a later log under the key, or another
// one. Then leaves would follow that fork it: the snapshot is an older copy, or new, and the
// checkpoint beside it is, too. One that has cosigned less of this log cosigns the rest. A witness
// that does not answer in time is no error.
func (w *Witnesses) Check(ctx context.Context, key *receipt.Key) error {
	if len(w.followers) == 0 || key == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	head := w.head
	if head.Size == 0 {
		root, err := tlog.TreeHash(0, w.store)
		if err != nil {
			return err
		}
		if head.Checkpoint, err = key.Sign(0, root); err != nil {
			return err
		}
	}
	forks := make([]error, len(w.followers))
	var all sync.WaitGroup
	for i, f := range w.followers {
		all.Go(func() {
			c, err := f.client.add(ctx, head.Size, nil, head.Checkpoint)
			other := (*conflictError)(nil)
			if errors.As(err, &other) && other.size < head.Size {
				c, err = w.show(ctx, f, head, other.size)
			}
			switch {
			case other != nil && other.size > 0 && (other.size >= head.Size || errors.Is(err, errOtherLog)):
				forks[i] = &forkError{f.key.Name(), other.size, head.Size}
			case err == nil && head.Size > f.size:
				if err := w.add(f, head, c); err != nil {
					w.log.Warn().Err(err).Str("witness", f.key.Name()).Msg("the cosignature is not saved; the witness is asked again")
				}
			}
		})
	}
	all.Wait()
	return errors.Join(forks...)
}

// A forkError says that a witness has cosigned leaves that the log of receipts lacks.
type forkError struct {
	witness    string
	seen, size int64
}

func (e *forkError) Error() string {
	says := fmt.Sprintf("the witness %s has cosigned a log of %d receipts, and the snapshot has %d", e.witness, e.seen, e.size)
	if e.seen <= e.size {
		says = fmt.Sprintf("the witness %s has cosigned other receipts than the first %d of the snapshot", e.witness, e.seen)
	}
	return says + ": the snapshot is an older copy, or new, or another daemon has used receipts.key_file; put the latest snapshot back, or begin with a new snapshot and a new key, and keep the public half of this one; to go on with a log that the witness never cosigns again, take it out of receipts.witnesses"
}

// Follow asks the witnesses until ctx ends, each in a run of its own, which keep calls until it
// returns without a panic. The caller waits for the end.
func (w *Witnesses) Follow(ctx context.Context, keep func(run func())) (end func()) {
	var all sync.WaitGroup
	for _, f := range w.followers {
		all.Go(func() { keep(func() { w.run(ctx, f) }) })
	}
	return all.Wait
}

// run asks one witness until ctx ends.
func (w *Witnesses) run(ctx context.Context, f *follower) {
	pause := betweenCalls
	for {
		w.mu.Lock()
		head, size, grown := w.head, f.size, w.grown
		w.mu.Unlock()
		if head.Size == 0 || head.Size == size {
			select {
			case <-grown:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := w.ask(ctx, f, head, size)
		if ctx.Err() != nil {
			return
		}
		if w.note(f, err); err == nil {
			pause = betweenCalls
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // daemons that failed together do not come together
		case <-ctx.Done():
			return
		}
		if err != nil {
			pause = min(2*pause, mostPause)
		}
	}
}

// ask gets the cosignature of a head. size is that of the log that the witness has cosigned last,
// as far as known: the witness says another size once.
func (w *Witnesses) ask(ctx context.Context, f *follower, head snapshot.LogHead, size int64) error {
	for told := false; ; told = true {
		c, err := w.show(ctx, f, head, size)
		if err == nil {
			return w.add(f, head, c)
		}
		other := (*conflictError)(nil)
		switch {
		case !errors.As(err, &other):
			return err
		case other.size > head.Size, other.size == size:
			return fmt.Errorf("it has cosigned %d leaves of another continuation of this log, which has %d: was an older snapshot put back, or is another daemon using receipts.key_file?", other.size, head.Size)
		case told:
			return fmt.Errorf("%w, and another number before: is another daemon using receipts.key_file?", err)
		}
		size = other.size
	}
}

// show shows a witness a head, with the proof that it continues the log of that size, which the
// witness has cosigned last; 0: it has cosigned none.
func (w *Witnesses) show(ctx context.Context, f *follower, head snapshot.LogHead, size int64) (c receipt.Cosignature, err error) {
	var proof tlog.TreeProof
	if size > 0 {
		if proof, err = tlog.ProveTree(head.Size, size, w.store); err != nil {
			return c, err
		}
	}
	return f.client.add(ctx, size, proof, head.Checkpoint)
}

// add adds a cosignature and saves it.
func (w *Witnesses) add(f *follower, head snapshot.LogHead, c receipt.Cosignature) error {
	w.saving.Lock()
	defer w.saving.Unlock()
	if err := w.store.SaveCosigned(w.cosign(head, c)); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.size = head.Size
	return nil
}

// cosign adds a cosignature to those of a head, and returns all that are kept.
func (w *Witnesses) cosign(head snapshot.LogHead, c receipt.Cosignature) []snapshot.LogHead {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.cosigned)
	at := slices.IndexFunc(all, func(x cosigned) bool { return x.Size == head.Size })
	if at < 0 {
		at = len(all)
		all = append(all, cosigned{LogHead: snapshot.LogHead{Size: head.Size, Checkpoint: head.Checkpoint}})
	}
	if x := &all[at]; !signedBy(x.by, c.Witness) {
		x.by, x.Checkpoint = append(slices.Clone(x.by), c), receipt.Cosign(x.Checkpoint, c)
	}
	slices.SortFunc(all, func(a, b cosigned) int { return cmp.Compare(a.Size, b.Size) })
	all = dropCosigned(all, 2*len(w.followers))
	w.cosigned = all
	heads := make([]snapshot.LogHead, len(all))
	for i := range all {
		heads[i] = all[i].LogHead
	}
	return heads
}

// dropCosigned drops the checkpoints that are not needed any more. They come by ascending size. A
// checkpoint goes when a larger one has all its signers: while a witness is away, the proofs of
// older leaves keep its cosignature.
//
// Witnesses that are away by turns leave a checkpoint for each set of signers. So at most that many
// stay, twice the number of witnesses. Beyond this the one with the fewest signers goes, the
// smallest log of several, but none that is the latest of a witness.
func dropCosigned(all []cosigned, most int) []cosigned {
	var kept []cosigned // by descending size
	for _, x := range slices.Backward(all) {
		if !slices.ContainsFunc(kept, func(larger cosigned) bool { return hasSigners(larger.by, x.by) }) {
			kept = append(kept, x)
		}
	}
	slices.Reverse(kept)
	for len(kept) > most {
		fewest := -1
		for i, x := range kept {
			var later []receipt.Cosignature
			for _, larger := range kept[i+1:] {
				later = append(later, larger.by...)
			}
			if hasSigners(later, x.by) && (fewest < 0 || len(x.by) < len(kept[fewest].by)) {
				fewest = i
			}
		}
		kept = slices.Delete(kept, fewest, fewest+1) // at most one for each witness is a latest one, so there is another
	}
	return kept
}

// hasSigners reports whether all signers of some cosignatures are among those of others.
func hasSigners(others, some []receipt.Cosignature) bool {
	return !slices.ContainsFunc(some, func(c receipt.Cosignature) bool { return !signedBy(others, c.Witness) })
}

// MostCosigned is the checkpoint with the most cosignatures of those that have a leaf, and the
// smallest log of several: a witness that is away has not cosigned the larger ones. Without any it
// is the head, and ok is false.
func MostCosigned(head snapshot.LogHead, leaf int64) (best snapshot.LogHead, ok bool) {
	best, most := head, 0
	for _, h := range head.Cosigned { // by ascending size
		if n := bytes.Count(h.Checkpoint, []byte("\n— ")); leaf < h.Size && n > most {
			best, most = h, n
		}
	}
	return best, most > 0
}

// note notes whether a witness has cosigned, and logs the change.
func (w *Witnesses) note(f *follower, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.problem = err; err == nil {
		f.failing = time.Time{}
		return
	}
	if f.failures++; f.failing.IsZero() {
		f.failing = time.Now()
	}
}

// Report reports on the witnesses.
func (w *Witnesses) Report() (witnesses []httpapi.Witness, problems []httpapi.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.followers {
		witnesses = append(witnesses, httpapi.Witness{Name: f.key.Name(), Cosigned: f.size, Failures: f.failures})
		if f.problem != nil {
			problems = append(problems, httpapi.Problem{
				Kind: httpapi.ProblemWitness, Subject: f.key.Name(), Since: f.failing,
				Text: fmt.Sprintf("the witness %s does not cosign the log of receipts: %v", f.key.Name(), f.problem),
			})
		}
	}
	return witnesses, problems
}

// Receipts is the number of leaves on the disk.
func (w *Witnesses) Receipts() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head.Size
}
