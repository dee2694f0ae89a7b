package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
)

// Health is the body of GET /healthz and GET /readyz where all is well.
type Health struct {
	Status string `json:"status"` // ok or ready
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) error {
	return answerJSON(w, Health{"ok"})
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if reason := s.service.Status().NotReady; reason != "" {
		return fail(CodeUnavailable, "not ready: %s", reason)
	}
	return answerJSON(w, Health{"ready"})
}

func (s *Server) scrape(w http.ResponseWriter, r *http.Request) error {
	var page recorded
	s.scraped.ServeHTTP(&page, r)
	if page.status != 0 && page.status != http.StatusOK {
		return fmt.Errorf("scrape: %s", page.body.Bytes())
	}
	write(w, http.StatusOK, page.Header().Get("Content-Type"), page.body.Bytes())
	return nil
}

// recorded is an http.ResponseWriter into memory.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *recorded) WriteHeader(status int) { r.status = status }

func (r *recorded) Write(p []byte) (int, error) { return r.body.Write(p) }
