package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"streamd/cmd/streamd/access"
	"streamd/ingest/wire"
	"streamd/retire"
)

// Limits on requests. Config may set the first four.
const (
	MaxBodyBytes   = 16 << 20  // of a request
	MaxRows        = 100_000   // in a prediction
	MaxConnections = 1024      // kept open
	Memory         = 256 << 20 // bytes that all predictions together may take

	MaxWait      = time.Minute
	ReadTimeout  = 30 * time.Second // for a request with its body
	WriteTimeout = 30 * time.Second // from the request's header to the end of the answer

	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	stopTimeout    = 5 * time.Second // for open requests when the server stops
	maxHeaderBytes = 32 << 10
)

// Config configures the API. A limit of 0 stands for the constant of its name.
type Config struct {
	// Access says who may call.
	Access *access.Guard
	// Origins of the pages that may call, beside the daemon's own.
	Origins []string
	// Rows says how blocks are read. Predictions name labels and weights in the same
	// way and ignore them. Format and Features are not used.
	Rows wire.Options
	// Name of the model, by which the Open Inference Protocol knows it.
	Name string
	// Topics are those whose positions the served states have.
	Topics []string

	MaxBodyBytes, MaxRows int
	// MaxConnections bounds the connections that Serve keeps open. Half as many polls
	// may wait, and a quarter as many clients may follow the events.
	MaxConnections int
	Memory         int64

	// Remember keeps predictions with an id until their labels come; nil: there are none such.
	Remember Remembering

	// IDField is a field of a row that is its id, beside id and inference_id (labels.id); empty:
	// there is none.
	IDField string
}

// Server answers the API's requests. It is an http.Handler; use either that or
// Serve.
type Server struct {
	config  Config // with its limits filled in
	service Service
	metrics *Metrics
	log     zerolog.Logger
	refused zerolog.Logger // log of refused requests, a few lines a second
	origins map[string]bool
	pages   *http.CrossOriginProtection

	mux       http.Handler
	scraped   http.Handler                  // the metrics
	rendered  atomic.Pointer[renderedModel] // the model as JSON
	rendering sync.Mutex                    // one request renders a model
	turns     turns                         // of the polls
	slots     chan struct{}                 // one per prediction that is being computed
	polls     chan struct{}                 // one per waiting poll
	windows   chan struct{}                 // one per window that is being solved
	streams   chan struct{}                 // one per client that follows the events
	memory    *semaphore.Weighted           // config.Memory bytes
	drawn     [2]atomic.Pointer[picture]    // the model's regions, wide and narrow
	drawing   singleflight.Group
	stopping  chan struct{}
	stop      func() // closes stopping

	successor atomic.Pointer[Server] // answers in the place of this one
}

const blocksPath = "/v1/blocks/"

// shownPath is the path of r for the log. It leaves out the id of a block, which may hold
// the key of a customer who is to be forgotten.
func shownPath(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, blocksPath) {
		return blocksPath + "{id}"
	}
	return r.URL.Path[:min(len(r.URL.Path), 200)]
}

// extend moves the answer's deadline to d and WriteTimeout from now. ReadTimeout ends with
// the request's last byte. A writer without deadlines, such as a test's recorder, stays
// as it is.
func extend(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + WriteTimeout))
}

// bearer is the challenge to a caller without a token.
const bearer = `Bearer realm="streamd"`

// fail answers r with err. The text of an unknown error stays in the log.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var known *failure
	switch {
	case errors.As(err, &known):
	case errors.Is(err, ErrNotLive), errors.Is(err, ErrNoneChosen), errors.Is(err, ErrNoWindow), errors.Is(err, ErrNoReceipt), errors.Is(err, ErrNoPlanes):
		known = &failure{CodeNotFound, err.Error()}
	case errors.Is(err, ErrManySteps):
		known = &failure{CodeTooLarge, err.Error()}
	case errors.Is(err, ErrBadID), errors.Is(err, ErrOtherTopic):
		known = &failure{CodeBadRequest, err.Error()}
	case errors.Is(err, ErrBusy), errors.Is(err, ErrOff), errors.Is(err, ErrUnfit), errors.Is(err, retire.ErrHeaders):
		known = &failure{CodeConflict, err.Error()}
	case errors.Is(err, ErrUnavailable):
		known = &failure{CodeUnavailable, err.Error()}
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		known = &failure{CodeUnavailable, "the client went away"} // nobody reads this
	default:
		s.log.Error().Err(err).Str("method", r.Method).Str("path", shownPath(r)).Msg("request failed")
		known = errInternal
	}
	var answer any = ErrorAnswer{ErrorDetail{known.code, known.message}}
	if r.URL.Path == protocolPath || strings.HasPrefix(r.URL.Path, protocolPath+"/") {
		answer = InferError{known.message}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		panic(err) // strings
	}
	status := codes[known.code].status
	header := w.Header()
	switch status {
	case http.StatusForbidden:
		s.logRefusal(r, status, known.message)
	case http.StatusUnauthorized:
		s.logRefusal(r, status, known.message)
		header.Set("WWW-Authenticate", bearer)
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", "1")
	}
	header.Del("ETag")
	writeJSON(w, status, append(body, '\n'))
}

// logRefusal logs a refused request.
func (s *Server) logRefusal(r *http.Request, status int, why string) {
	line := s.refused.Warn().Int("status", status).Str("method", r.Method).Str("path", shownPath(r)).Str("reason", why).
		Stringer("caller", access.CallerOf(r.Context())).Str("remote", r.RemoteAddr)
	if origin := r.Header.Get("Origin"); origin != "" {
		line = line.Str("origin", origin[:min(len(origin), 200)])
	}
	line.Msg("request refused")
}
