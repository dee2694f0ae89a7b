package httpapi

import (
	"bytes"
	"fmt"
	"net/http"

	"streamd/cmd/streamd/regions"
)

// drawable says whether there is a picture of the regions: a basis of two features
// says where the picture is, and its classes can be told apart.
func (s *Served) drawable() bool {
	return s.Model != nil && s.Basis != nil && len(s.Basis.Features) == 2 && len(s.Model.Classes) <= regions.MostClasses
}

// regions draws where the served classifier puts its classes, as SVG.
func (s *Server) regions(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil {
		return noModel(served)
	}
	if !served.drawable() {
		return absent("picture of its regions", fmt.Sprintf("it is not one of two features and up to %d classes behind a kernel", regions.MostClasses))
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
