package httpapi

import (
	"net/http"
	"strconv"
)

const (
	defaultPage = 100  // blocks
	maxPage     = 1000 // blocks; a larger limit is cut to it
)

// BlocksAnswer is the body of GET /v1/blocks?after=ID&limit=N. Next is the
// after of the next page and left out on the last one.
type BlocksAnswer struct {
	Blocks []BlockInfo `json:"blocks"`
	Next   string      `json:"next,omitempty"`
}

func (s *Server) blocks(w http.ResponseWriter, r *http.Request) error {
	limit, err := intQuery(r, "limit", defaultPage)
	if err != nil {
		return err
	}
	page, next, err := s.service.Blocks(r.Context(), r.URL.Query().Get("after"), min(limit, maxPage))
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
	receipt.Offsets = listed(receipt.Offsets)
	return answerJSON(w, receipt)
}

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) error {
	info, err := s.service.Snapshot(r.Context())
	if err != nil {
		return err
	}
	info.Offsets = listed(info.Offsets)
	return answerJSON(w, info)
}

// intQuery is the query's number under name, or otherwise when there is none.
func intQuery(r *http.Request, name string, otherwise int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fail(CodeBadRequest, "%s=%q is not a whole number above 0", name, text)
	}
	return n, nil
}

// boolQuery is the query's true or false under name; false when there is none.
func boolQuery(r *http.Request, name string) (bool, error) {
	switch text := r.URL.Query().Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fail(CodeBadRequest, "%s=%q is neither true nor false", name, text)
	}
}
