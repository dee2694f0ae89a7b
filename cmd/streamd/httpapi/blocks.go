package httpapi

import (
	"net/http"
	"time"
)

const (
	defaultPage = 100  // blocks
	maxPage     = 1000 // blocks; a larger limit is cut to it
)

// BlocksAnswer is the body of GET /v1/blocks?after=ID&limit=N.
type BlocksAnswer struct {
	Blocks []BlockInfo `json:"blocks"`         // in the order of their times
	Next   string      `json:"next,omitempty"` // the after of the next page, left out on the last one
}

func (s *Server) blocks(w http.ResponseWriter, r *http.Request) error {
	page, next, err := s.service.Blocks(r.Context(), blocksAfter.of(r), min(blocksLimit.of(r), maxPage))
	if err != nil {
		return err
	}
	return answerJSON(w, BlocksAnswer{Blocks: listed(page), Next: next})
}

// listed makes the empty list [] in JSON, never null.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (s *Server) retire(w http.ResponseWriter, r *http.Request) error {
	receipt, err := s.service.Retire(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	receipt.Offsets, receipt.Remains = listed(receipt.Offsets), listed(receipt.Remains)
	return answerJSON(w, receipt)
}

// compactPatience is how long a compaction may keep its caller waiting.
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
