package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"streamd/retire/receipt"
	"streamd/snapshot"
)

type receiptsFindCmd struct {
	IDs        []string `arg:"" name:"id" help:"Ids of blocks, live or not: orders/0/17, or with blocks.unit: key the key behind key:, as GET /v1/blocks shows them."`
	Snapshot   string   `required:"" placeholder:"FILE" help:"Copy of the snapshot, whose log has the receipts."`
	PrivateKey string   `required:"" placeholder:"FILE" help:"The key in receipts.key_file. Only it finds blocks in receipts."`
	jsonFlag
}

// receiptsOf are the receipts about a block.
type receiptsOf struct {
	Block    string         `json:"block"`
	Proof    string         `json:"proof,omitempty"` // for --block of verify
	Receipts []foundReceipt `json:"receipts"`
}

type foundReceipt struct {
	Leaf    int64        `json:"leaf"`
	Kind    receipt.Kind `json:"kind"`
	Durable time.Time    `json:"durable_at"`
}

func (c *receiptsFindCmd) Run(s *surroundings) error {
	key, err := readPrivate(c.PrivateKey, "")
	if err != nil {
		return err
	}
	var all []*receiptsOf
	wanted := map[receipt.Hash]*receiptsOf{}
	for _, id := range c.IDs {
		of := &receiptsOf{Block: id, Proof: hex.EncodeToString(key.ProveItemKey(id)), Receipts: []foundReceipt{}}
		all, wanted[key.ItemKey(id)] = append(all, of), of
	}
	if err := findReceipts(c.Snapshot, key, wanted); err != nil {
		return err
	}
	var missing []string
	t := newTable(s.stdout)
	t.row("block", "receipt", "kind", "durable", "proof")
	for _, of := range all {
		for _, r := range of.Receipts {
			t.row(of.Block, strconv.FormatInt(r.Leaf, 10), r.Kind.String(), utc(r.Durable), of.Proof)
		}
		if len(of.Receipts) == 0 {
			missing = append(missing, of.Block)
		}
	}
	if c.JSON {
		err = printJSON(s.stdout, map[string]any{"blocks": all})
	} else if len(missing) < len(all) {
		err = t.flush()
	}
	if err == nil && missing != nil {
		err = fmt.Errorf("%s: no receipt is about %s", c.Snapshot, strings.Join(missing, ", "))
	}
	return err
}

// findReceipts adds to the wanted blocks, by the keys of their items, the receipts in a snapshot's
// log that are about them.
func findReceipts(path string, key *receipt.Key, wanted map[receipt.Hash]*receiptsOf) (err error) {
	store, saved, err := snapshot.OpenReadOnly(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if saved.Log.Size == 0 {
		return fmt.Errorf("%s has no receipts", path)
	}
	if _, err := receipt.OpenCheckpoint(saved.Log.Checkpoint, key.Public()); err != nil {
		return fmt.Errorf("%s: --private-key is not the key of its receipts: %w", path, err)
	}
	for i := range saved.Log.Size {
		record, err := store.Receipt(i)
		if err != nil {
			return err
		}
		leaf, items, err := record.Open()
		if err != nil {
			return fmt.Errorf("%s: receipt %d: %w", path, i, err)
		}
		for _, item := range items {
			if of := wanted[item.Key]; of != nil {
				of.Receipts = append(of.Receipts, foundReceipt{i, leaf.Kind, leaf.Durable})
			}
		}
	}
	return nil
}
