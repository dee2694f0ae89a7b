package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/snapshot"
)

// snapshotCmd inspects and rewrites snapshot files, and makes the daemon save its own.
type snapshotCmd struct {
	Inspect snapshotInspectCmd `cmd:"" help:"Show the contents of a snapshot file."`
	Verify  snapshotVerifyCmd  `cmd:"" help:"Check everything in a snapshot file. Sums up its blocks anew and compares the digest of the state."`
	Save    snapshotSaveCmd    `cmd:"" help:"Make a running daemon save its state now."`
	Compact snapshotCompactCmd `cmd:"" help:"Remove the remains of retired and replaced blocks from a snapshot file that no daemon runs on."`
	Rekey   snapshotRekeyCmd   `cmd:"" help:"Put a snapshot file under a key, under another key, or under none."`
}

// keyFlag names the file of the key that a snapshot is under.
type keyFlag struct {
	KeyFile string `placeholder:"FILE" help:"File of the key that the snapshot is under (snapshot.key_file)."`
}

func (f keyFlag) key(s *surroundings) (*snapshot.Key, error) {
	return readKey(s, "--key-file", f.KeyFile)
}

// readKey reads the key from the file of a flag; nil: the flag is not given.
func readKey(s *surroundings, flag, file string) (*snapshot.Key, error) {
	if file == "" {
		return nil, nil
	}
	key, loose, err := snapshot.ReadKey(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if loose {
		fmt.Fprintf(s.stderr, "streamd: warning: others than its owner can read or change %s: chmod 600 it\n", file)
	}
	return key, nil
}

// snapshotReport is the output of inspect.
type snapshotReport struct {
	File       string         `json:"file"`
	Version    int            `json:"version"`
	Topic      string         `json:"topic"`
	Unit       string         `json:"unit"`
	SavedAt    *time.Time     `json:"saved_at"` // null: nothing was saved yet
	Features   []string       `json:"features"` // null: not fixed yet
	Classes    int            `json:"classes"`
	Rows       int64          `json:"rows"`
	Unlabelled int64          `json:"unlabelled_rows,omitempty"` // of the rows
	Blocks     int            `json:"blocks"`
	Archived   int            `json:"archived,omitempty"`  // blocks that retire.archive keeps
	Withdrawn  int            `json:"withdrawn,omitempty"` // blocks that the control topic retires
	Receipts   int64          `json:"receipts,omitempty"`  // in its log
	Digest     string         `json:"state_digest"`
	Offsets    []model.Offset `json:"offsets"`
	Keyed      bool           `json:"keyed"`  // it is under a key
	Missed     int64          `json:"missed"` // explicit retirements that it does not have
	// Uncompacted is the time of the oldest explicit retirement since the file was
	// compacted; null: there is none.
	Uncompacted *time.Time `json:"uncompacted"`
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
		Features: contents.Features(),
		Blocks:   len(contents.Entries),
		Offsets:  []model.Offset{},
		Keyed:    contents.Keyed,
		Missed:   contents.Missed,
		Receipts: contents.Log.Size,

		Withdrawn: len(contents.Withdrawn),
	}
	for _, e := range contents.Archived {
		if e.Withdrawn {
			r.Withdrawn++
		} else {
			r.Archived++
		}
	}
	if !contents.Uncompacted.IsZero() {
		r.Uncompacted = &contents.Uncompacted
	}
	if !contents.SavedAt.IsZero() {
		r.SavedAt = &contents.SavedAt
	}
	if space := contents.Space(snapshot.Features); space != nil {
		state := space.State
		digest := state.Digest()
		r.Classes, r.Rows, r.Digest = state.Classes(), state.Rows(), hex.EncodeToString(digest[:])
		r.Unlabelled = state.Unlabelled().Rows
	}
	for _, o := range contents.Offsets {
		r.Offsets = append(r.Offsets, model.Offset{Topic: o.Topic, Partition: o.Partition, Next: o.Next})
	}
	if c.JSON {
		return printJSON(s.stdout, r)
	}
	t := newTable(s.stdout)
	t.row("file", fmt.Sprintf("%s, format %d", r.File, r.Version))
	t.row("topic", fmt.Sprintf("%s, a block per %s", r.Topic, r.Unit))
	if r.Keyed {
		t.row("key", "the file is under one (streamd snapshot verify --key-file checks it)")
	}
	if r.Missed > 0 {
		t.row("older", fmt.Sprintf("it lacks %s that were saved under this name, the last at %s: blocks may be live again that were forgotten",
			counted(r.Missed, "retirement"), contents.LastRetired.Local().Format(time.DateTime)))
	}
	if r.Uncompacted != nil {
		t.row("remains", fmt.Sprintf("of blocks retired since %s, until it is compacted", r.Uncompacted.Local().Format(time.DateTime)))
	}
	if r.SavedAt == nil {
		t.row("saved", "nothing yet")
		return t.flush()
	}
	t.row("saved", r.SavedAt.Local().Format(time.DateTime))
	t.row("state", fmt.Sprintf("%s in %s, %s, %s",
		counted(r.Rows, "row"), counted(r.Blocks, "block"), counted(r.Classes, "class"), counted(len(r.Features), "feature")))
	if r.Unlabelled > 0 {
		t.row("unlabelled", counted(r.Unlabelled, "row"))
	}
	if r.Archived > 0 {
		t.row("archived", counted(r.Archived, "block"))
	}
	if r.Withdrawn > 0 {
		t.row("withdrawn", fmt.Sprintf("%s that the control topic retires", counted(r.Withdrawn, "block")))
	}
	if r.Receipts > 0 {
		t.row("receipts", fmt.Sprint(r.Receipts))
	}
	t.row("digest", r.Digest)
	for _, s := range contents.Spaces {
		if s.Number == snapshot.Features {
			continue
		}
		use := "being built"
		if s.Number == contents.InUse {
			use = "in use"
		}
		digest := s.State.Digest()
		t.row("epoch", fmt.Sprintf("%d, %s: %d of %s in %s",
			s.Number, use, r.Blocks-len(s.Missing), counted(r.Blocks, "block"), counted(len(s.State.Features()), "coordinate")))
		t.row("  digest", hex.EncodeToString(digest[:]))
	}
	for _, o := range r.Offsets {
		t.row("seen", fmt.Sprintf("%s/%d before offset %d", o.Topic, o.Partition, o.Next))
	}
	return t.flush()
}

type snapshotVerifyCmd struct {
	File string `arg:"" help:"The snapshot."`
	Free bool   `help:"Also look for remains of deleted values in the unused parts of the file."`
	keyFlag
	jsonFlag
}

// verifyReport is the output of verify.
type verifyReport struct {
	File    string   `json:"file"`
	OK      bool     `json:"ok"`
	Blocks  int64    `json:"blocks"`
	Rows    int64    `json:"rows"`
	Saved   string   `json:"state_digest"`        // as saved
	Summed  string   `json:"summed_state_digest"` // of the blocks
	Damaged int      `json:"damaged"`
	Damage  []string `json:"damage"` // the first damaged places

	Authenticated bool           `json:"authenticated"` // its MAC was checked with a key
	Remains       *remainsReport `json:"remains,omitempty"`
}

// remainsReport describes the unused parts of a file, for verify --free.
type remainsReport struct {
	Free        int64      `json:"free"`        // all bytes of them
	Written     int64      `json:"written"`     // bytes in pages that are not all zeros
	Pages       int        `json:"pages"`       // number of these pages
	Uncompacted *time.Time `json:"uncompacted"` // the oldest explicit retirement since a compaction; null: there is none
}

func (c *snapshotVerifyCmd) Run(ctx context.Context, s *surroundings) error {
	key, err := c.key(s)
	if err != nil {
		return err
	}
	var done, all atomic.Int64
	stop := s.report("verifying "+c.File, func() string {
		return fmt.Sprintf("%d of %d summaries", done.Load(), all.Load())
	})
	found, err := key.Verify(ctx, c.File, func(n, of int) {
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
		Damaged: found.Damaged, Damage: []string{}, Authenticated: key != nil,
	}
	if c.Free {
		if r.Remains, err = findRemains(c.File); err != nil {
			return err
		}
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
		switch {
		case r.Authenticated:
			t.row("key", "nobody without it has changed the file")
		case found.Keyed:
			t.row("key", "the file is under one, and was not checked with it (--key-file)")
		}
		if m := r.Remains; m != nil {
			t.row("unused", fmt.Sprintf("%d bytes, of which %d in %s that are not all zeros", m.Free, m.Written, counted(m.Pages, "page")))
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
	case r.Remains != nil && r.Remains.Uncompacted != nil:
		return fmt.Errorf("snapshot %s: %s may hold remains of blocks that were retired since %s: streamd snapshot compact removes them",
			c.File, counted(r.Remains.Pages, "unused page"), r.Remains.Uncompacted.Local().Format(time.DateTime))
	case r.Remains != nil && r.Remains.Written > 0:
		return fmt.Errorf("snapshot %s: %s hold remains of blocks that were replaced or are live: streamd snapshot compact removes them",
			c.File, counted(r.Remains.Pages, "unused page"))
	}
	if !c.JSON {
		_, err = fmt.Fprintln(s.stdout, "good: the saved state is the sum of its blocks")
	}
	return err
}

func findRemains(file string) (*remainsReport, error) {
	found, err := snapshot.FindRemains(file)
	if err != nil {
		return nil, err
	}
	r := &remainsReport{Free: found.Free, Written: found.Written, Pages: found.Pages}
	if !found.Uncompacted.IsZero() {
		r.Uncompacted = &found.Uncompacted
	}
	return r, nil
}

type snapshotSaveCmd struct {
	Compact bool `help:"Also remove the remains of retired and replaced blocks from its file."`
	daemonFlags
	jsonFlag
}

func (c *snapshotSaveCmd) Run(ctx context.Context, s *surroundings) error {
	path := "/v1/snapshot"
	if c.Compact {
		path += "?compact=true"
	}
	q := question{c.daemonFlags, c.jsonFlag, http.MethodPost, path, adminTimeout}
	return show(ctx, s, q, func(t *table, info *httpapi.SnapshotInfo) {
		how := "saved"
		if info.Compacted {
			how = "saved and compacted"
		}
		t.row(fmt.Sprintf("%s %s in %s, %d bytes, in %.3g s; digest %s",
			how, counted(info.Rows, "row"), counted(info.Blocks, "block"), info.Bytes, info.Seconds, info.Digest))
	})
}

type snapshotCompactCmd struct {
	File string `arg:"" help:"The snapshot."`
	keyFlag
	jsonFlag
}

// compactReport is the output of compact.
type compactReport struct {
	File   string `json:"file"`
	Before int64  `json:"bytes_before"`
	After  int64  `json:"bytes_after"`
}

func (c *snapshotCompactCmd) Run(ctx context.Context, s *surroundings) error {
	key, err := c.key(s)
	if err != nil {
		return err
	}
	before, err := os.Stat(c.File)
	if err != nil {
		return err
	}
	info, err := key.Compact(ctx, c.File)
	if err != nil {
		return err
	}
	r := compactReport{c.File, before.Size(), info.FileBytes}
	if c.JSON {
		return printJSON(s.stdout, r)
	}
	_, err = fmt.Fprintf(s.stdout, "compacted %s: %d bytes, before %d; the file system may keep the old ones on the disk\n", r.File, r.After, r.Before)
	return err
}

type snapshotRekeyCmd struct {
	File       string `arg:"" help:"The snapshot. No daemon may run on it."`
	KeyFile    string `placeholder:"FILE" help:"File of the key that it is to be under. Without this flag: none."`
	OldKeyFile string `placeholder:"FILE" help:"File of the key that it is under. Without this flag: none, and the file is trusted as it is."`
}

func (c *snapshotRekeyCmd) Run(ctx context.Context, s *surroundings) error {
	if c.KeyFile == "" && c.OldKeyFile == "" {
		return usagef("want --key-file to put %s under a key, or --old-key-file to put it under none", c.File)
	}
	old, err := readKey(s, "--old-key-file", c.OldKeyFile)
	if err != nil {
		return err
	}
	key, err := readKey(s, "--key-file", c.KeyFile)
	if err != nil {
		return err
	}
	switch found, err := old.Verify(ctx, c.File, nil); {
	case err != nil:
		return err
	case !found.OK:
		return fmt.Errorf("snapshot %s is damaged (see streamd snapshot verify), and stays as it is", c.File)
	}
	if err := old.Rekey(c.File, key); err != nil {
		return err
	}
	says := "is under the key now"
	if key == nil {
		says = "is under no key now"
	}
	_, err = fmt.Fprintf(s.stdout, "%s %s\n", c.File, says)
	return err
}
