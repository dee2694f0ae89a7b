package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/regions"
)

// drawable says whether there is a picture of the regions: a basis of two features
// says where the picture is, and its classes can be told apart.
func drawable(s *model.Served) bool {
	return s.Model != nil && s.Basis != nil && len(s.Basis.Features) == 2 && len(s.Model.Classes) <= regions.MostClasses
}

// regions draws where the served classifier puts its classes, as SVG.
func (s *Server) regions(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil {
		return noModel(served)
	}
	if !drawable(served) {
		return absent("picture of its regions", fmt.Sprintf("it is not one of two features and up to %d classes behind a kernel", regions.MostClasses))
	}
	if parseTags(r.Header.Values("If-None-Match")).has(served.Fingerprint) {
		notModified(w, r, served.Fingerprint)
		return nil
	}
	picture, err := s.picture(r.Context(), served)
	if err != nil {
		return err
	}
	if notModified(w, r, picture.fingerprint) {
		return nil
	}
	write(w, http.StatusOK, "image/svg+xml", picture.svg)
	return nil
}

// picture is the picture of a model's regions.
type picture struct {
	fingerprint string // of the model
	svg         []byte
}

// picture returns the picture of what is served, drawn once however many ask. One
// is drawn at a time, as one of the predictions; who asks meanwhile gets that one,
// though it may be of the model before.
func (s *Server) picture(ctx context.Context, served *model.Served) (*picture, error) {
	if last := s.drawn.Load(); last != nil && last.fingerprint == served.Fingerprint {
		return last, nil
	}
	drawing := s.drawing.DoChan("", func() (any, error) {
		// The others go on waiting when the first one goes away.
		if err := takeSlot(context.WithoutCancel(ctx), s.slots); err != nil {
			return nil, err
		}
		defer func() { <-s.slots }()
		var svg bytes.Buffer
		drawing := regions.Picture{Classifier: served.Classifier()}
		if err := drawing.SVG(&svg); err != nil {
			return nil, err
		}
		p := &picture{served.Fingerprint, svg.Bytes()}
		s.drawn.Store(p)
		return p, nil
	})
	select {
	case result := <-drawing:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*picture), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
