package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon"
	"streamd/config"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// replayedReport says what the topic gives when it is read again.
type replayedReport struct {
	Records int64  `json:"records"`             // read again
	Blocks  int64  `json:"blocks"`              // live by the topic and the policy, without those that left otherwise
	Rows    int64  `json:"rows"`                // of them
	Digest  string `json:"state_digest"`        // of their state
	Root    string `json:"live_root,omitempty"` // likewise; absent without the log's key
	Receipt bool   `json:"is_of_the_receipt"`   // both are those of the receipt; false: the snapshot is later than the receipt
	// Compared counts the moments on the way at which the live set was compared with that of the
	// receipts: those of requests and alarms, and those of what the control topic has moved.
	Compared int `json:"live_sets_compared"`
	// Unplaced counts the receipts of such moments that were not compared, by the reason.
	Unplaced map[string]int64 `json:"not_compared,omitempty"`
	// Left counts the blocks that left otherwise: by the receipt that says so, "withdrawn now"
	// by the control topic, or "without a receipt". Without the log's key nothing tells which
	// receipt is about a block.
	Left map[string]int64 `json:"left"`
}

const (
	leftWithdrawn = "withdrawn now"
	leftUnsaid    = "without a receipt"
	leftUntold    = "receipt unknown without the log's key"
)

// replay reads the topic again, into an empty state, and compares that with a snapshot and with
// a receipt of its log.
func (c *receiptsVerifyCmd) replay(ctx context.Context, s *surroundings, proved *receipt.Receipt) (*replayedReport, error) {
	cfg, err := config.Load(config.Sources{File: c.Replay, FileRequired: true, Env: s.env})
	if err != nil {
		return nil, usageError{err}
	}
	key, err := logKey(cfg.Receipts.KeyFile)
	if err != nil {
		return nil, err
	}
	store, saved, err := snapshot.OpenReadOnly(c.Snapshot)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	log := zerolog.New(zerolog.ConsoleWriter{Out: s.stderr, NoColor: true}).Level(zerolog.ErrorLevel)
	var read, all atomic.Int64
	stop := s.watch("reading the topic again", func() advance {
		a := advance{rows: read.Load()}
		if n := all.Load(); n > 0 {
			a.done = float64(a.rows) / float64(n)
		}
		return a
	})
	got, err := daemon.Replay(ctx, daemon.Options{Config: cfg, Log: log}, store, saved, key, func(n, of int64) {
		read.Store(n)
		all.Store(of)
	})
	stop()
	if err != nil {
		return nil, err
	}
	if got.Side != got.Saved || len(got.Others)+len(got.Foreign)+len(got.Untold) > 0 || got.Parted >= 0 {
		return nil, errors.New(noProof(got))
	}
	r := &replayedReport{
		Records: got.Read, Blocks: int64(got.Blocks), Rows: got.Rows, Left: map[string]int64{}, Compared: got.Compared, Unplaced: map[string]int64{},
		Digest: hex.EncodeToString(got.Side.Digest[:]), Root: hex.EncodeToString(got.Side.Root[:]), Receipt: got.Side == proved.Leaf.After,
	}
	if key == nil {
		r.Root, r.Receipt = "", got.Side.Digest == proved.Leaf.After.Digest
	}
	for _, u := range got.Unplaced {
		r.Unplaced[u.Why]++
	}
	for i := range got.Left {
		switch left := &got.Left[i]; {
		case left.Kind != 0:
			r.Left[left.Kind.String()]++
		case left.Withdrawn:
			r.Left[leftWithdrawn]++
		case key == nil:
			r.Left[leftUntold]++
		default:
			r.Left[leftUnsaid]++
		}
	}
	return r, nil
}

// logKey reads the private key of a log. Without a file it is nil.
func logKey(file string) (*receipt.Key, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	var key *receipt.Key
	if err == nil {
		key, err = receipt.ParseKey(strings.TrimSpace(string(text)))
	}
	if err != nil {
		return nil, fmt.Errorf("receipts.key_file: %w (leave it out of the configuration to compare digests without the log's key)", err)
	}
	return key, nil
}

// listedBlocks bounds the blocks that an error names.
const listedBlocks = 5

// noProof says why the topic does not give the state of the snapshot.
func noProof(r *daemon.Replayed) string {
	b := fmt.Appendf(nil, "no proof: the topic gives the state %x, and the snapshot has %x", r.Side.Digest, r.Saved.Digest)
	if n := len(r.Foreign); n > 0 {
		b = fmt.Appendf(b, "; the topic does not give the blocks of %s as they are there, such as receipt %d", counted(int64(n), "receipt"), r.Foreign[0])
	}
	if n := len(r.Others); n > 0 {
		b = fmt.Appendf(b, "; the topic does not give %s as the snapshot has them, such as %s", counted(int64(n), "block"), strings.Join(r.Others[:min(n, listedBlocks)], ", "))
	}
	for _, gap := range r.Gone[:min(len(r.Gone), listedBlocks)] {
		b = fmt.Appendf(b, "; Kafka no longer has offsets %d to %d of partition %d", gap.From, gap.To-1, gap.Partition)
	}
	if r.Parted >= 0 {
		b = fmt.Appendf(b, "; they part at receipt %d, which has another live set than the topic gives at its offsets", r.Parted)
	}
	if n := len(r.Unplaced); n > 0 {
		first := r.Unplaced[0]
		b = fmt.Appendf(b, "; the live sets of %s could not be compared, and blocks that requests or alarms took out may decide about later ones, such as receipt %d: %s",
			counted(int64(n), "receipt"), first.Receipt, first.Why)
	}
	if n := len(r.Untold); n > 0 {
		b = fmt.Appendf(b, "; no receipt says that the control topic has taken out %s, such as %s", counted(int64(n), "block"), strings.Join(r.Untold[:min(n, listedBlocks)], ", "))
	}
	return string(b)
}

// rows adds the report to a table.
func (r *replayedReport) rows(t *table) {
	if r == nil {
		return
	}
	t.row("replay", fmt.Sprintf("%s of the topic give the state of the snapshot: %s with %s", counted(r.Records, "record"), counted(r.Blocks, "block"), counted(r.Rows, "row")))
	t.row("  on the way", fmt.Sprintf("the live set is that of the receipts at %s", counted(int64(r.Compared), "cut")))
	for _, why := range slices.Sorted(maps.Keys(r.Unplaced)) {
		t.row("  not compared", fmt.Sprintf("%s: %s", counted(r.Unplaced[why], "receipt"), why))
	}
	for _, how := range slices.Sorted(maps.Keys(r.Left)) {
		t.row("  left out", fmt.Sprintf("%s, %s", counted(r.Left[how], "block"), how))
	}
	if r.Receipt {
		t.row("  its state", "is the one after the receipt")
	} else {
		t.row("  its state", "is later than the receipt")
	}
}
