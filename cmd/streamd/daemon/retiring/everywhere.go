package retiring

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/httpapi"
	"streamd/retire"
	"streamd/retire/receipt"
)

// A request to retire blocks, where there is a control topic, is written to that topic, and every
// replica forgets. Its records name the chosen blocks by their positions. So they choose the same
// blocks in every replica and no later ones: a new value of a key is another block. They name no
// key. The caller is answered when this daemon has followed the records and saved that.

// everywhere is a request whose records this daemon has yet to follow.
type everywhere struct {
	*Departures
	*Request
	name string
	left int // records
	done chan answer
}

// retireEverywhere retires the blocks that a request has chosen in every replica.
func (d *Departures) retireEverywhere(ctx context.Context, q *Request) (none httpapi.Retirement, err error) {
	if d.receipts.Key != nil { // a leaf proves what has left since a save
		if _, err := d.saver.Snapshot(ctx, false); err != nil {
			return none, err
		}
	}
	selectors := control.SelectorsOf(q.Chosen, d.Config.Blocks.Unit)
	var random [6]byte
	rand.Read(random[:]) // never fails
	e := &everywhere{
		Departures: d, Request: q, left: len(selectors), done: make(chan answer, 1),
		name: time.Now().UTC().Format("request-20060102T150405Z-") + hex.EncodeToString(random[:]),
	}
	records := control.RecordsOf(e.name, selectors)
	w := d.withdrawing
	ctx, cancel := context.WithTimeout(ctx, control.Patience)
	defer cancel()
	for asked := false; !asked; {
		if err := d.Do(ctx, func() error {
			if asked = w.caughtUp; !asked {
				return nil
			}
			for _, r := range records {
				w.asked[control.NameOf(r.Partition, r.Key)] = e
			}
			return nil
		}); err != nil {
			return none, err
		}
		if asked {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond): // a start has not read the topic yet
		case <-ctx.Done():
			return none, fmt.Errorf("the control topic %s has not been read up to its end, so nothing is retired: %w", d.Config.Retire.Topic, httpapi.ErrUnavailable)
		}
	}
	defer d.Call(context.WithoutCancel(ctx), func() error { // what has not come is not waited for any more
		for _, r := range records {
			delete(w.asked, control.NameOf(r.Partition, r.Key))
		}
		return nil
	})
	if err := w.Write(ctx, records); err != nil {
		return none, fmt.Errorf("the control topic %s could not be written, so nothing is retired, or what it has of the records %s: %v: %w", d.Config.Retire.Topic, e.name, err, httpapi.ErrUnavailable)
	}
	r, err := d.await(ctx, e.done)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the control topic %s has the records %s, which retire the blocks in every replica; this one has not followed them within %v: %w", d.Config.Retire.Topic, e.name, control.Patience, httpapi.ErrUnavailable)
	}
	return r, err
}

// followed is called when no block departs any more by the records.
func (e *everywhere) followed(failed error) {
	if failed != nil {
		e.done <- answer{err: failed}
		return
	}
	var first []retire.Entry
	for _, chosen := range e.Chosen {
		is, ok := e.Live.Find(chosen.ID)
		if !ok || !is.Withdrawn || is.Position != chosen.Position {
			continue // it has gone in another way, or is another one
		}
		is.Withdrawn = chosen.Withdrawn // before the request
		e.describe(&is)
		if first = append(first, is); len(first) >= 2*ListedNames {
			first = firstOf(first)
		}
	}
	e.r.DigestAfter, e.r.Control = e.Live.Digest(), e.name
	r := e.described(firstOf(first))
	left := e.receipts.AddDepartures()
	e.saver.SaveThen(func(err error) {
		e.logRetirement(&r, e.by, err)
		if err != nil {
			e.done <- answer{err: errRetiredUnsaved}
			return
		}
		e.describeRetired(&r, receipt.Withdrawn)
		for _, p := range left {
			if p.Kind == receipt.Withdrawn {
				r.Receipts = append(r.Receipts, p.Index)
			}
		}
		e.receipts.Prove(&r)
		e.done <- answer{retirement: r}
	})
}
