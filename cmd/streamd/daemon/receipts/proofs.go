package receipts

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/daemon/witness"
	"streamd/cmd/streamd/httpapi"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Proofs reads the log of receipts for those who check it, beside the loop.
type Proofs struct {
	Key   *receipt.Key // nil: there are no receipts
	store *snapshot.Store
}

// Checkpoint implements httpapi.Service.
func (p *Proofs) Checkpoint(context.Context) ([]byte, error) {
	head, err := p.store.LogHead()
	if err == nil && head.Size == 0 {
		err = errNoReceipts
	}
	if n := len(head.Cosigned); n > 0 && head.Cosigned[n-1].Size == head.Size {
		head = head.Cosigned[n-1]
	}
	return head.Checkpoint, err
}

// Receipt implements httpapi.Service.
func (p *Proofs) Receipt(_ context.Context, leaf int64) ([]byte, error) {
	head, err := p.store.LogHead()
	if err != nil {
		return nil, err
	}
	if head.Size == 0 {
		return nil, errNoReceipts
	}
	if leaf < 0 || leaf >= head.Size {
		return nil, fmt.Errorf("receipt %d of %d: %w", leaf, head.Size, httpapi.ErrNoReceipt)
	}
	record, err := p.store.Receipt(leaf)
	if err != nil {
		return nil, err
	}
	signed, cosigned := witness.MostCosigned(head, leaf)
	if key := p.Key; key != nil && !cosigned {
		return key.Prove(leaf, record, p.store)
	}
	return receipt.ProveIn(signed.Checkpoint, signed.Size, leaf, record, p.store)
}

// Tile implements httpapi.Service.
func (p *Proofs) Tile(_ context.Context, path string) ([]byte, error) {
	head, err := p.store.LogHead()
	if err != nil {
		return nil, err
	}
	tile, ok := receipt.ParseTile(path, head.Size)
	if !ok {
		return nil, fmt.Errorf("tile %.100q: %w", path, httpapi.ErrNoReceipt)
	}
	if tile.L >= 0 {
		return tlog.ReadTileData(tile, p.store)
	}
	var bundle []byte
	for i := range tile.W {
		r, err := p.store.Receipt(tile.N*receipt.TileWidth + int64(i))
		if err != nil {
			return nil, err
		}
		bundle = append(binary.BigEndian.AppendUint16(bundle, uint16(len(r.Leaf))), r.Leaf...)
	}
	return bundle, nil
}

// errNoReceipts says that there is no log.
var errNoReceipts = fmt.Errorf("there are no receipts (receipts.key_file): %w", httpapi.ErrNoReceipt)
