package httpapi

import (
	"bytes"
	"net/http"

	"streamd/cmd/streamd/regions"
)

// drawable says whether there is a picture of the regions: the points of a basis
// of two features say what is to be in it.
func (s *Served) drawable() bool {
	return s.Model != nil && s.Basis != nil && len(s.Basis.Features) == 2
}

// regions draws where the served classifier puts its classes, as SVG.
func (s *Server) regions(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil {
		return noModel(served)
	}
	if !served.drawable() {
		return absent("picture of its regions", "it is not one of two features behind a kernel")
	}
	if notModified(w, r, served.Fingerprint) {
		return nil
	}
	picture := regions.Picture{Classifier: served.Classifier()}
	var body bytes.Buffer
	if err := picture.SVG(&body); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Write(body.Bytes()) // an error means that the client has gone
	return nil
}
