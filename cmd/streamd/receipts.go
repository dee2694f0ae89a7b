package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"streamd/cmd/streamd/audit"
	"streamd/retire/receipt"
)

// receiptsCmd is about receipts of retirements.
type receiptsCmd struct {
	Get    receiptsGetCmd    `cmd:"" help:"Get a receipt from a running daemon."`
	Verify receiptsVerifyCmd `cmd:"" help:"Check a receipt, without a daemon: the signature of the log, that the receipt is in it, and that the blocks have left the live set. With a snapshot also check its sums and its whole log."`
	Find   receiptsFindCmd   `cmd:"" help:"Find the receipts about blocks in a copy of the snapshot, and the proofs of their keys, with the log's private key."`
}

type receiptsVerifyCmd struct {
	File      string   `arg:"" help:"The receipt, as streamd receipts get writes it. - is standard input."`
	Key       string   `required:"" placeholder:"FILE" help:"File with the public key of the log: the one beside receipts.key_file that ends in .pub."`
	Blocks    []string `name:"block" sep:"none" placeholder:"ID[=PROOF]" help:"Also check that the receipt is about this block: of one that a message key names (key:…) with the proof that the answer to the retirement has for it. May be given many times."`
	Witnesses []string `name:"witness" sep:"none" placeholder:"KEY" help:"Also check that this witness has cosigned the log, by its public key NAME+HASH+KEY. May be given many times: all have to."`
	Quorum    int      `placeholder:"N" help:"Number of the witnesses of --witness that have to have cosigned. The default is all."`

	Snapshot   string `placeholder:"FILE" help:"Also check this copy of the snapshot: that its blocks add up to its digest, that its log goes on that of the receipt, and each receipt in it."`
	Model      string `placeholder:"FILE" help:"Also check this served model, as GET /v1/model or streamd model --json writes it: its fingerprint, and that planes, ν, refinement, calibration and rule of labels are those that the blocks and the sample of --snapshot make, bit for bit. What cannot be made again is listed with the reason. It takes the time and the memory of a daemon's start and study."`
	PrivateKey string `placeholder:"FILE" help:"Also find the blocks of the snapshot in the live set of the receipts, with the key in receipts.key_file."`
	Replay     string `placeholder:"FILE" help:"Also read the topic again, with the daemon's configuration in this file, up to the offsets of --snapshot, and compare the live sets: those of its receipts on the way, and its own. It takes as long as the topic."`
	jsonFlag
}

// receiptReport is the output of verify.
type receiptReport struct {
	OK         bool              `json:"ok"`
	Log        string            `json:"log"`
	Leaf       int64             `json:"leaf"`
	LogSize    int64             `json:"log_size"`
	Kind       receipt.Kind      `json:"kind"`
	Blocks     int64             `json:"blocks"`
	Rows       int64             `json:"rows"`
	Passing    int64             `json:"passing"`        // blocks that came and went, or went and came back, between two saves
	Lacking    int64             `json:"lacking_blocks"` // live blocks of which the sample lacks rows
	Earliest   time.Time         `json:"earliest"`
	Latest     time.Time         `json:"latest"`
	Durable    time.Time         `json:"durable_at"`
	LogUntil   *time.Time        `json:"log_until,omitempty"` // when the topic's retention lets go of the records
	Principal  string            `json:"principal"`
	Build      string            `json:"build"`
	Topic      string            `json:"topic"`
	Offsets    map[uint32]int64  `json:"offsets"` // by partition
	Before     string            `json:"state_digest_before"`
	After      string            `json:"state_digest_after"`
	RootBefore string            `json:"live_root_before"`
	RootAfter  string            `json:"live_root_after"`
	Settings   string            `json:"settings"`
	Request    string            `json:"request"`
	Scope      map[string]string `json:"scope"`
	Absent     bool              `json:"absent"`              // it proves that the blocks were live before and are absent after
	Restored   bool              `json:"restored"`            // it proves that the blocks were absent before and are live after
	Withdrawn  int64             `json:"withdrawn,omitempty"` // of kind purged, the blocks that the control topic had taken out before; of kind excluded, all
	Others     int               `json:"others"`              // ids of the blocks that have another live block where the proof says that they are absent
	Named      []string          `json:"named,omitempty"`
	Cosigned   []cosignature     `json:"cosigned,omitempty"` // by witnesses of --witness
	Replay     *replayedReport   `json:"replay,omitempty"`
	Snapshot   *audit.Report     `json:"snapshot,omitempty"`
	Served     *servedReport     `json:"served_model,omitempty"` // of --model
}

// listedOffsets bounds the offsets in a report.
const listedOffsets = 8

type cosignature struct {
	Witness string    `json:"witness"`
	Time    time.Time `json:"time"` // by the clock of the witness
}

func (c *receiptsVerifyCmd) Run(ctx context.Context, s *surroundings) error {
	if c.Quorum < 0 || c.Quorum > len(c.Witnesses) {
		return usagef("--quorum %d: there are %d of --witness", c.Quorum, len(c.Witnesses))
	}
	if c.Replay != "" && c.Snapshot == "" {
		return usagef("--replay goes with --snapshot, which says up to which offsets, and without which blocks")
	}
	if c.Model != "" && c.Snapshot == "" {
		return usagef("--model goes with --snapshot, whose sums it is compared with")
	}
	if c.PrivateKey != "" && c.Snapshot == "" {
		return usagef("--private-key goes with --snapshot")
	}
	public, err := readPublic(c.Key)
	if err != nil {
		return err
	}
	proof, err := readProof(c.File, s.stdin)
	if err != nil {
		return err
	}
	r, err := receipt.Check(proof, public)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	report := receiptReportOf(r)
	named, err := c.named(r)
	if err != nil {
		return err
	}
	report.Named = slices.Sorted(maps.Keys(named))
	model, heads, err := c.openModel(public)
	if err != nil {
		return fmt.Errorf("--model %s: %w", c.Model, err)
	}
	if c.Snapshot != "" {
		key, err := readPrivate(c.PrivateKey, public)
		if err != nil {
			return err
		}
		if report.Snapshot, err = audit.Snapshot(c.Snapshot, r, public, key, named, heads...); err != nil {
			return err
		}
	}
	if model != nil {
		if report.Served, err = c.served(ctx, model, r.Index); err != nil {
			return fmt.Errorf("--model %s: %w", c.Model, err)
		}
	}
	if report.Cosigned, err = c.cosigned(r); err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if c.Replay != "" {
		if report.Replay, err = c.replay(ctx, s, r); err != nil {
			return fmt.Errorf("--replay: %w", err)
		}
	}
	if c.JSON {
		return printJSON(s.stdout, report)
	}
	t := newTable(s.stdout)
	t.row("receipt", fmt.Sprintf("%d of the %d in %s: signed and included", report.Leaf, report.LogSize, report.Log))
	report.showProved(t)
	report.showStated(t)
	if report.Snapshot != nil {
		showSnapshot(t, report.Snapshot)
	}
	report.Served.rows(t)
	report.Replay.rows(t)
	return t.flush()
}

// receiptReportOf reports what a receipt says and proves on its own.
func receiptReportOf(r *receipt.Receipt) *receiptReport {
	l := r.Leaf
	report := &receiptReport{
		OK: true, Log: r.Checkpoint.Origin, Leaf: r.Index, LogSize: r.Checkpoint.Size, Kind: l.Kind, Blocks: l.Blocks, Rows: l.Rows,
		Earliest: l.Earliest, Latest: l.Latest, Durable: l.Durable, Principal: l.Principal, Build: l.Build, Topic: l.Topic, Offsets: map[uint32]int64{},
		Before: hex.EncodeToString(l.Before.Digest[:]), After: hex.EncodeToString(l.After.Digest[:]),
		RootBefore: hex.EncodeToString(l.Before.Root[:]), RootAfter: hex.EncodeToString(l.After.Root[:]),
		Settings: hex.EncodeToString(l.Settings[:]), Request: hex.EncodeToString(l.Request[:]),
		Scope: l.Scope.Names(), Absent: len(r.Items) > 0 && l.Kind != receipt.Restored && !l.Kind.Listed(), Restored: len(r.Items) > 0 && l.Kind == receipt.Restored,
		Passing: l.Passing, Lacking: l.Lacking, Others: len(r.Others),
	}
	if !l.LogUntil.IsZero() {
		report.LogUntil = &l.LogUntil
	}
	for _, o := range l.Offsets {
		report.Offsets[o.Partition] = o.Offset
	}
	for _, item := range r.Items {
		if item.Withdrawn() {
			report.Withdrawn++
		}
	}
	return report
}

// named has the keys of the items of the blocks of --block, by id. It is an error if the receipt is
// not about one of them.
func (c *receiptsVerifyCmd) named(r *receipt.Receipt) (keys map[string]receipt.Hash, err error) {
	keys = map[string]receipt.Hash{}
	for _, block := range c.Blocks {
		id, text := block, ""
		if receipt.Keyed(block) {
			at := strings.LastIndex(block, "=")
			if at < 0 {
				return nil, fmt.Errorf("--block %s: a message key names the block: want ID=PROOF", block)
			}
			id, text = block[:at], block[at+1:]
		}
		proof, err := hex.DecodeString(text)
		if err != nil || hex.EncodeToString(proof) != text {
			return nil, fmt.Errorf("--block %s: the proof is not %d bytes in hex, in small letters", block, receipt.VRFProofSize)
		}
		if keys[id], err = r.Named(id, proof); err != nil {
			return nil, fmt.Errorf("%s: %w", c.File, err)
		}
	}
	return keys, nil
}

// showProved prints the part of the report that the receipt proves.
func (r *receiptReport) showProved(t *table) {
	others := ""
	if r.Others > 0 {
		others = fmt.Sprintf("; %s of theirs have another block there", counted(r.Others, "id"))
	}
	switch blocks := counted(r.Blocks, "block"); {
	case r.Restored:
		t.row("live set", "lacked the blocks at the save before, and has them after: "+blocks+others)
	case r.Absent && r.Kind == receipt.Retired:
		t.row("live set", "had the blocks before, lacks them after, and is else the same: "+blocks)
	case r.Kind == receipt.Returned:
		t.row("live set", "stays as it is")
		t.row("archived", blocks+" again, that the control topic had taken out")
	case r.Kind == receipt.Excluded:
		t.row("live set", "stays as it is")
		t.row("excluded", blocks+" that the control topic takes out, and that no live set of a receipt has")
	case r.Kind == receipt.Purged:
		t.row("live set", "stays as it is")
		if n := r.Blocks - r.Withdrawn; n > 0 {
			t.row("archived", counted(n, "block")+" that retire.archive kept; an earlier receipt of kind expired shows that they left the live set, if they were live")
		}
		if n := r.Withdrawn; n > 0 {
			t.row("withdrawn", counted(n, "block")+" that the control topic had taken out, and cannot give back now; an earlier receipt of kind withdrawn shows that they left the live set, if they were live")
		}
	case r.Absent && r.Principal != "":
		t.row("live set", "had the blocks before, and lacks them after: "+blocks)
	case r.Absent:
		t.row("live set", "had the blocks at the save before, and lacks them after: "+blocks+others)
	}
	for _, id := range r.Named {
		t.row("block", id+" is one of them")
	}
	for _, w := range r.Cosigned {
		t.row("cosigned", "by "+w.Witness+", "+utc(w.Time))
	}
	if r.Passing > 0 {
		t.row("not proved", fmt.Sprintf("%s more, which came and went, or went and came back, between two saves", counted(r.Passing, "block")))
	}
}

// showStated prints the part that the log's owner has stated by signing, and that the receipt does
// not prove.
func (r *receiptReport) showStated(t *table) {
	t.row("stated", "by the owner of the log, and not proved by the receipt:")
	switch r.Kind {
	case receipt.Begun:
		t.row("begun", "the log, with the key of the items that its name is bound to")
	default:
		t.row(r.Kind.String(), fmt.Sprintf("%s in %s of topic %s", counted(r.Rows, "row"), counted(r.Blocks, "block"), r.Topic))
	}
	if r.Blocks > 0 {
		t.row("event times", utc(r.Earliest)+" to "+utc(r.Latest))
	}
	t.row("durable", "by the save of "+utc(r.Durable))
	if r.Principal != "" {
		t.row("by", r.Principal)
	}
	t.row("digest before", r.Before)
	t.row("digest after", r.After)
	var next []string
	for _, partition := range slices.Sorted(maps.Keys(r.Offsets)) {
		next = append(next, fmt.Sprintf("%d/%d", partition, r.Offsets[partition]))
	}
	if more := len(next) - listedOffsets; more > 0 {
		next = append(next[:listedOffsets], fmt.Sprintf("and %d more (--json)", more))
	}
	t.row("offsets", "before "+strings.Join(next, ", ")+", by partition")
	r.showScope(t)
	t.row("settings", r.Settings)
	t.row("build", r.Build)
}

// showScope groups the places by what became of the blocks there.
func (r *receiptReport) showScope(t *table) {
	for _, status := range [][2]string{{"done", "gone from"}, {"partial", "gone from, which lacks rows of " + counted(r.Lacking, "other block") + ","}, {"pending", "leaves later"}, {"kept", "kept in"}, {"not_ours", "not ours"}} {
		var places []string
		for _, place := range slices.Sorted(maps.Keys(r.Scope)) {
			if r.Scope[place] != status[0] {
				continue
			}
			name := strings.ReplaceAll(place, "_", " ")
			if place == "log" && r.LogUntil != nil {
				name += " (until about " + utc(*r.LogUntil) + ")"
			}
			places = append(places, name)
		}
		if places != nil {
			t.row(status[1], strings.Join(places, ", "))
		}
	}
}

// cosigned lists the witnesses that have cosigned the checkpoint of a receipt. It is an error if
// they are too few.
func (c *receiptsVerifyCmd) cosigned(r *receipt.Receipt) (found []cosignature, err error) {
	if len(c.Witnesses) == 0 {
		return nil, nil
	}
	var keys []*receipt.Witness
	for _, public := range c.Witnesses {
		key, err := receipt.ParseWitness(public)
		if err != nil {
			return nil, fmt.Errorf("--witness %s: %w", public, err)
		}
		keys = append(keys, key)
	}
	all, err := receipt.Cosignatures(r.Signed, keys)
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		found = append(found, cosignature{x.Witness.Name(), x.Time})
	}
	quorum := c.Quorum
	if quorum == 0 {
		quorum = len(keys)
	}
	if len(found) >= quorum {
		return found, nil
	}
	var missing []string
	for _, key := range keys {
		if !slices.ContainsFunc(all, func(x receipt.Cosignature) bool { return x.Witness == key }) {
			missing = append(missing, key.Name())
		}
	}
	return nil, fmt.Errorf("%d of the %d witnesses that it takes have cosigned the log; %s not, or not yet: get the proof again later", len(found), quorum, strings.Join(missing, ", "))
}

// readPublic reads the public key of a log.
func readPublic(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--key: %w", err)
	}
	public := strings.TrimSpace(string(text))
	if _, err := note.NewVerifier(public); err != nil {
		return "", fmt.Errorf("--key %s: not the public key of a log, NAME+HASH+KEY: want the file beside receipts.key_file that ends in .pub", path)
	}
	return public, nil
}

// readProof reads a file, or standard input, of at most the length of a proof.
func readProof(path string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	proof, err := io.ReadAll(io.LimitReader(from, receipt.MaxProof+1))
	if err == nil && len(proof) > receipt.MaxProof {
		err = errors.New("it is too long to be a receipt")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return proof, nil
}
