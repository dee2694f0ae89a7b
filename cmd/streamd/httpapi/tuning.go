package httpapi

import (
	"net/http"
)

func (s *Server) tuning(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil {
		return noModel(served)
	}
	if served.Tuning == nil {
		return absent("choice of ν", served.Absent.Tuning)
	}
	if notModified(w, r, served.Fingerprint) {
		return nil
	}
	return answerJSON(w, served.Tuning)
}

// absent is the error for a part that the served model does not have.
func absent(part, why string) error {
	return fail(CodeNotFound, "the served model has no %s: %s", part, why)
}
