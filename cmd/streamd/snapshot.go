package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/snapshot"
)

// snapshotCmd looks at snapshot files, and makes the daemon write one.
type snapshotCmd struct {
	Inspect snapshotInspectCmd `cmd:"" help:"Say what a snapshot file holds."`
	Verify  snapshotVerifyCmd  `cmd:"" help:"Check everything in a snapshot file: sum its blocks up anew and compare the state's digest."`
	Save    snapshotSaveCmd    `cmd:"" help:"Make a running daemon save its state now."`
}

// snapshotReport is what inspect prints.
type snapshotReport struct {
	File     string           `json:"file"`
	Version  int              `json:"version"`
	Topic    string           `json:"topic"`
	Unit     string           `json:"unit"`
	SavedAt  *time.Time       `json:"saved_at"` // null: nothing was saved yet
	Features []string         `json:"features"` // null: not fixed yet
	Classes  int              `json:"classes"`
	Rows     int64            `json:"rows"`
	Blocks   int              `json:"blocks"`
	Digest   string           `json:"state_digest"`
	Offsets  []httpapi.Offset `json:"offsets"`
}

type snapshotInspectCmd struct {
	File string `arg:"" help:"The snapshot."`
	jsonFlag
}

func (c *snapshotInspectCmd) Run(s *surroundings) error {
	store, contents, err := snapshot.OpenReadOnly(c.File)
	if err != nil {
		return err
	}
	defer store.Close()
	r := snapshotReport{
		File:     c.File,
		Version:  contents.Version,
		Topic:    contents.Topic,
		Unit:     contents.Unit,
		Features: contents.Features,
		Blocks:   len(contents.Entries),
		Offsets:  []httpapi.Offset{},
	}
	if !contents.SavedAt.IsZero() {
		r.SavedAt = &contents.SavedAt
	}
	if state := contents.State; state != nil {
		digest := state.Digest()
		r.Classes, r.Rows, r.Digest = state.Classes(), state.Rows(), hex.EncodeToString(digest[:])
	}
	for _, o := range contents.Offsets {
		r.Offsets = append(r.Offsets, httpapi.Offset{Topic: o.Topic, Partition: o.Partition, Next: o.Next})
	}
	if c.JSON {
		return printJSON(s.stdout, r)
	}
	t := newTable(s.stdout)
	t.row("file", fmt.Sprintf("%s, format %d", r.File, r.Version))
	t.row("topic", fmt.Sprintf("%s, a block per %s", r.Topic, r.Unit))
	if r.SavedAt == nil {
		t.row("saved", "nothing yet")
		return t.flush()
	}
	t.row("saved", r.SavedAt.Local().Format(time.DateTime))
	t.row("state", fmt.Sprintf("%s in %s, %s, %s",
		counted(r.Rows, "row"), counted(r.Blocks, "block"), counted(r.Classes, "class"), counted(len(r.Features), "feature")))
	t.row("digest", r.Digest)
	for _, e := range contents.Epochs {
		use := "being built"
		if e.Number == contents.Epoch {
			use = "in use"
		}
		digest := e.State.Digest()
		t.row("epoch", fmt.Sprintf("%d, %s: %d of %s in %s",
			e.Number, use, len(e.Blocks), counted(r.Blocks, "block"), counted(len(e.State.Features()), "coordinate")))
		t.row("  digest", hex.EncodeToString(digest[:]))
	}
	for _, o := range r.Offsets {
		t.row("seen", fmt.Sprintf("%s/%d before offset %d", o.Topic, o.Partition, o.Next))
	}
	return t.flush()
}

type snapshotVerifyCmd struct {
	File string `arg:"" help:"The snapshot."`
	jsonFlag
}

// verifyReport is what verify prints.
type verifyReport struct {
	File    string   `json:"file"`
	OK      bool     `json:"ok"`
	Blocks  int64    `json:"blocks"`
	Rows    int64    `json:"rows"`
	Saved   string   `json:"state_digest"`        // as saved
	Summed  string   `json:"summed_state_digest"` // of the blocks
	Damaged int      `json:"damaged"`
	Damage  []string `json:"damage"` // the first of it
}

func (c *snapshotVerifyCmd) Run(ctx context.Context, s *surroundings) error {
	var done, all atomic.Int64
	stop := s.report("verifying "+c.File, func() string {
		return fmt.Sprintf("%d of %d summaries", done.Load(), all.Load())
	})
	found, err := snapshot.Verify(ctx, c.File, func(n, of int) {
		done.Store(int64(n))
		all.Store(int64(of))
	})
	stop()
	if err != nil {
		return err
	}
	r := verifyReport{
		File: c.File, OK: found.OK, Blocks: found.Blocks, Rows: found.Rows,
		Saved: hex.EncodeToString(found.Saved[:]), Summed: hex.EncodeToString(found.Summed[:]),
		Damaged: found.Damaged, Damage: []string{},
	}
	for _, d := range found.Damage {
		r.Damage = append(r.Damage, d.Error())
	}
	if c.JSON {
		err = printJSON(s.stdout, r)
	} else {
		t := newTable(s.stdout)
		t.row("file", r.File)
		t.row("blocks", fmt.Sprintf("%d with %s", r.Blocks, counted(r.Rows, "row")))
		t.row("digest saved", r.Saved)
		t.row("digest summed", r.Summed)
		for _, d := range r.Damage {
			t.row("damage", d)
		}
		err = t.flush()
	}
	switch {
	case err != nil:
		return err
	case r.Damaged > 0:
		return fmt.Errorf("snapshot %s is damaged in %s: restore a copy, or move it away to learn from the log anew", c.File, counted(r.Damaged, "place"))
	case !r.OK:
		return fmt.Errorf("snapshot %s: the saved state is not the sum of its blocks: restore a copy, or move it away to learn from the log anew", c.File)
	}
	if !c.JSON {
		_, err = fmt.Fprintln(s.stdout, "good: the saved state is the sum of its blocks")
	}
	return err
}

type snapshotSaveCmd struct {
	daemonFlags
	jsonFlag
}

func (c *snapshotSaveCmd) Run(ctx context.Context, s *surroundings) error {
	q := question{c.daemonFlags, c.jsonFlag, http.MethodPost, "/v1/snapshot", adminTimeout}
	return show(ctx, s, q, func(t *table, info *httpapi.SnapshotInfo) {
		t.row(fmt.Sprintf("saved %s in %s, %d bytes, in %.3g s; digest %s",
			counted(info.Rows, "row"), counted(info.Blocks, "block"), info.Bytes, info.Seconds, info.Digest))
	})
}
