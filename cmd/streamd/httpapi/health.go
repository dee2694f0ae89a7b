package httpapi

import "net/http"

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
