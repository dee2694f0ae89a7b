package httpapi

import "net/http"

func (s *Server) quality(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil {
		return noModel(served)
	}
	if served.Quality == nil {
		return absent("measured quality", served.Absent.Quality)
	}
	if notModified(w, r, served.Fingerprint) {
		return nil
	}
	return answerJSON(w, served.Quality)
}
