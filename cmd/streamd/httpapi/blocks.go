package httpapi

import (
	"net/http"
	"time"

	"streamd/cmd/streamd/model"
)

const (
	defaultPage = 100  // blocks
	maxPage     = 1000 // blocks; the upper bound of a limit
)

// BlocksAnswer is a page of the live blocks.
type BlocksAnswer struct {
	Blocks []BlockInfo `json:"blocks"`         // blocks in the order of their times
	Next   string      `json:"next,omitempty"` // the parameter after of the next page; absent on the last page
}

// BlockInfo is one live block.
type BlockInfo struct {
	ID        string    `json:"id"`            // opaque id
	Topic     string    `json:"topic"`         // topic of its first record
	Partition int       `json:"partition"`     // partition of its first record
	Offset    int64     `json:"offset"`        // offset of its first record
	Key       []byte    `json:"key,omitempty"` // key of the message in base64, where keys name blocks
	Time      time.Time `json:"time"`          // event time
	Rows      int64     `json:"rows"`          // rows of weight above 0
}

// Receipt proves a retirement: adding the block to the state of the later digest gives the
// state of the earlier one.
type Receipt struct {
	Block        BlockInfo      `json:"block"`               // retired block
	Offsets      []model.Offset `json:"offsets"`             // offsets of both states: they have the records below, and none beyond
	DigestBefore string         `json:"state_digest_before"` // digest of the state with the block
	DigestAfter  string         `json:"state_digest_after"`  // digest of the state without it
	InBasis      bool           `json:"in_basis"`            // whether the block is a source of the basis in use or of the next one: its numbers may be among the points until a later basis is in use (see /v1/epoch)
	RetiredAt    time.Time      `json:"retired_at"`          // time when the retirement was durable
	Remains      []string       `json:"remains"`             // other places that may still have the rows, for people to read
}

// SnapshotInfo describes a saved state.
type SnapshotInfo struct {
	MadeAt  time.Time      `json:"made_at"`      // time when saving began
	Seconds float64        `json:"seconds"`      // time it took to save
	Bytes   int64          `json:"bytes"`        // size of the file
	Blocks  int            `json:"blocks"`       // live blocks
	Rows    int64          `json:"rows"`         // rows of the live blocks
	Digest  string         `json:"state_digest"` // digest of the saved state
	Offsets []model.Offset `json:"offsets"`      // offsets of the saved state: it has the records below, and none beyond
	Resume  []model.Offset `json:"resume"`       // offsets where reading resumes after a restart; they are lower for a block that still gathers records, which are read again

	Compacted bool `json:"compacted"` // whether the file has nothing but the saved state
}

func (s *Server) blocks(w http.ResponseWriter, r *http.Request) error {
	page, next, err := s.service.Blocks(r.Context(), blocksAfter.of(r), min(blocksLimit.of(r), maxPage))
	if err != nil {
		return err
	}
	return answerJSON(w, BlocksAnswer{Blocks: listed(page), Next: next})
}

func (s *Server) retire(w http.ResponseWriter, r *http.Request) error {
	receipt, err := s.service.Retire(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	receipt.Offsets, receipt.Remains = listed(receipt.Offsets), listed(receipt.Remains)
	return answerJSON(w, receipt)
}

// compactPatience bounds how long the caller waits for a compaction.
const compactPatience = 10 * time.Minute

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) error {
	if compactQuery.of(r) {
		extend(w, compactPatience)
	}
	info, err := s.service.Snapshot(r.Context(), compactQuery.of(r))
	if err != nil {
		return err
	}
	info.Offsets, info.Resume = listed(info.Offsets), listed(info.Resume)
	return answerJSON(w, info)
}
