package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
)

// drawable says whether the model's regions have a picture: its basis has two features,
// and there are colours enough for its classes.
func drawable(s *model.Served) bool {
	return s.Model != nil && s.Basis != nil && len(s.Basis.Features) == 2 && len(s.Model.Classes) <= plot.MostClasses
}

var regionsModel = &parameter[string]{
	name: "model", kind: anyText,
	meaning: "Ignored. A page that puts the fingerprint here fetches the picture again when the model changes.",
}

var regionsNarrow = &parameter[bool]{
	name: "narrow", kind: trueOrFalse,
	meaning: "Whether the picture is for a phone: the legend is below the plot.",
}

// regions answers with the served classifier's regions, one per class, as SVG.
func (s *Server) regions(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if !drawable(served) {
		return s.absent(served, "picture of its regions", fmt.Sprintf("it is not one of two features and up to %d classes behind a kernel", plot.MostClasses))
	}
	if parseTags(r.Header.Values("If-None-Match")).has(served.Fingerprint) {
		hasModel(w, r, served.Fingerprint)
		return nil
	}
	picture, err := s.draw(r.Context(), served, regionsNarrow.of(r))
	if err != nil {
		return err
	}
	if hasModel(w, r, picture.fingerprint) {
		return nil
	}
	picture.write(w, http.StatusOK)
	return nil
}

// picture is the picture of a classifier.
type picture struct {
	fingerprint string
	*rendering
}

// draw draws the regions of the served model once, for all callers. One picture of each shape
// is drawn at a time, in a slot of the predictions. Callers that come meanwhile get that
// picture, even if the model has changed since.
func (s *Server) draw(ctx context.Context, served *model.Served, narrow bool) (*picture, error) {
	cached, shape := &s.drawn[0], "wide"
	if narrow {
		cached, shape = &s.drawn[1], "narrow"
	}
	if last := cached.Load(); last != nil && last.fingerprint == served.Fingerprint {
		return last, nil
	}
	drawing := s.drawing.DoChan(shape, func() (any, error) {
		// The other callers still wait when the first one goes away.
		if err := takeSlot(context.WithoutCancel(ctx), s.slots); err != nil {
			return nil, err
		}
		defer func() { <-s.slots }()
		var svg bytes.Buffer
		drawing := plot.Regions{Classifier: served.Classifier(), Narrow: narrow}
		if err := drawing.SVG(&svg); err != nil {
			return nil, err
		}
		drawn := &picture{served.Fingerprint, newRendering("image/svg+xml", svg.Bytes())}
		cached.Store(drawn)
		return drawn, nil
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
