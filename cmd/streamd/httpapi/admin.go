package httpapi

import (
	"fmt"
	"net/http"
	"time"
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

var (
	blocksAfter = &parameter[string]{
		name: "after", kind: anyText,
		meaning: "The page begins behind the block with this id, which need not be live any more: `next` of the previous page. Empty means the first page.",
	}
	blocksLimit = &parameter[int]{
		name: "limit", kind: wholeNumber, otherwise: defaultPage,
		meaning: fmt.Sprintf("Blocks on a page. More than %d counts as %[1]d.", maxPage),
	}
	compactQuery = &parameter[bool]{
		name: "compact", kind: trueOrFalse,
		meaning: "Whether to compact the file afterwards, so that it keeps nothing of retired or replaced blocks. It takes as long as writing the whole file.",
	}
)

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

func (s *Server) epoch(w http.ResponseWriter, r *http.Request) error {
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSON(w, answer)
}

// reduce begins a reduction and answers at once. GET /v1/epoch has its progress.
func (s *Server) reduce(w http.ResponseWriter, r *http.Request) error {
	if err := s.service.Reduce(r.Context()); err != nil {
		return err
	}
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSONWith(w, http.StatusAccepted, answer)
}

// abandon ends a reduction or a rebuild that is under way.
func (s *Server) abandon(w http.ResponseWriter, r *http.Request) error {
	if err := s.service.Abandon(r.Context()); err != nil {
		return err
	}
	return s.epoch(w, r)
}
