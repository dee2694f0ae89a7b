package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"streamd/cmd/streamd/access"
	"streamd/ingest/wire"
)

// The bounds on what a client may ask for.
const (
	MaxBodyBytes = 16 << 20 // of a request, unless Config says otherwise
	MaxRows      = 100_000  // of a prediction, likewise
	MaxWait      = time.Minute

	MaxConnections = 1024 // likewise

	ReadTimeout  = 30 * time.Second // for a request with its body
	WriteTimeout = 30 * time.Second // from the request's header to the end of the answer

	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	stopTimeout    = 5 * time.Second // for requests under way when the server stops
	maxHeaderBytes = 32 << 10
)

// Config is what can be chosen about the API.
type Config struct {
	// Access says who may call.
	Access *access.Guard
	// Origins are those of pages that may call, beside the daemon's own.
	Origins []string
	// Rows is how blocks are read. Predictions name labels and weights in the
	// same way, and ignore them; Format and Features are not used.
	Rows wire.Options
	// The largest body and the most rows of a prediction; 0 stands for the
	// constants of these names.
	MaxBodyBytes, MaxRows int
	// MaxConnections is how many connections Serve keeps open; 0 stands for the
	// constant of this name. Half as many polls may wait.
	MaxConnections int
	// Memory is how many bytes predictions may take; 0 stands for the constant of
	// this name.
	Memory int64
}

// Server answers the API's requests. It is an http.Handler; use either that or
// Serve.
type Server struct {
	service Service
	metrics *Metrics
	log     zerolog.Logger
	rows    wire.Options
	maxBody int
	maxRows int
	access  *access.Guard
	origins map[string]bool
	pages   *http.CrossOriginProtection
	refused zerolog.Logger // log, of refused requests a few lines a second

	mux        http.Handler
	scraped    http.Handler // the metrics
	encoded    atomic.Pointer[encodedModel]
	slots      chan struct{}       // one per prediction whose body has been read and that is not made yet
	polls      chan struct{}       // one per poll that waits
	memory     *semaphore.Weighted // of mostMemory bytes, for predictions
	mostMemory int64
	drawn      atomic.Pointer[picture] // the last one
	drawing    singleflight.Group
	maxConns   int
	stopping   chan struct{}
	stop       func() // closes stopping
}

// refusedLines is how many refused requests are logged in a second.
const refusedLines = 10

// New makes a server for service. It adds what the service says of itself to
// metrics, so it can be called once per Metrics. The origins must be of the form
// scheme://host.
func New(config Config, service Service, metrics *Metrics, log zerolog.Logger) *Server {
	slots := 2 * runtime.GOMAXPROCS(0)
	s := &Server{
		service:    service,
		metrics:    metrics,
		log:        log,
		rows:       config.Rows,
		maxBody:    cmp.Or(config.MaxBodyBytes, MaxBodyBytes),
		maxRows:    cmp.Or(config.MaxRows, MaxRows),
		access:     config.Access,
		origins:    map[string]bool{},
		pages:      http.NewCrossOriginProtection(),
		refused:    log.Sample(&zerolog.BurstSampler{Burst: refusedLines, Period: time.Second}),
		slots:      make(chan struct{}, slots),
		mostMemory: cmp.Or(config.Memory, Memory),
		maxConns:   cmp.Or(config.MaxConnections, MaxConnections),
		stopping:   make(chan struct{}),
	}
	s.memory = semaphore.NewWeighted(s.mostMemory)
	s.polls = make(chan struct{}, max(1, s.maxConns/2))
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	for _, origin := range config.Origins {
		s.origins[origin] = true
		if err := s.pages.AddTrustedOrigin(origin); err != nil {
			panic(err) // the caller's mistake
		}
	}
	metrics.watch(service)
	s.mux = s.newMux()
	s.scraped = metrics.handler(log)
	return s
}

func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	for _, route := range routes {
		mux.HandleFunc(route.method+" "+route.path, func(w http.ResponseWriter, r *http.Request) {
			if err := s.call(&route, w, r); err != nil {
				s.fail(w, r, err)
			}
		})
		allowed[route.path] = append(allowed[route.path], route.method)
	}

	// The mux's own answers to the wrong path and the wrong method are text.
	for path, methods := range allowed {
		if slices.Contains(methods, "GET") {
			methods = append(methods, "HEAD")
		}
		allow := strings.Join(methods, ", ")
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allow)
			s.fail(w, r, fail(CodeMethodNotAllowed, "this path takes %s", allow))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, errNoPath)
	})
	return mux
}

var errNoPath = fail(CodeNotFound, "there is nothing at this path; /v1/openapi.json has all there are")

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	answer := &answer{ResponseWriter: w, gzip: acceptsGzip(r)}
	r = opaqueID(r)
	defer func() {
		if problem := recover(); problem != nil {
			if problem != http.ErrAbortHandler {
				s.log.Error().Interface("panic", problem).Bytes("stack", debug.Stack()).
					Str("method", r.Method).Str("path", shownPath(r)).Msg("request panicked")
			}
			if problem == http.ErrAbortHandler || answer.status != 0 {
				panic(http.ErrAbortHandler) // too late for another answer
			}
			s.fail(answer, r, errInternal)
		}
		took := time.Since(start)
		s.metrics.request(r, answer.status, took)
		s.log.Debug().Str("method", r.Method).Str("path", shownPath(r)).Int("status", answer.status).
			Int64("bytes", answer.bytes).Dur("took", took).Str("remote", r.RemoteAddr).Msg("request")
	}()

	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept-Encoding")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if err := s.access.CheckHost(r); err != nil {
		s.fail(answer, r, fail(CodeForbidden, "%v", err))
		return
	}
	if s.answersPage(answer, r) {
		return
	}
	if err := s.pages.Check(r); err != nil {
		s.fail(answer, r, fail(CodeForbidden, "a page of another origin may not ask for this: http.cors_origins lists those that may"))
		return
	}
	// The mux would redirect to the cleaned path. A client that writes such a
	// path has made a mistake, and DELETE should not be led elsewhere.
	p := r.URL.EscapedPath()
	if clean := path.Clean(p); p != clean && (clean == "/" || p != clean+"/") {
		s.fail(answer, r, errNoPath)
		return
	}
	r.Body = http.MaxBytesReader(answer, r.Body, int64(s.maxBody))
	s.mux.ServeHTTP(answer, r)
}

const blocksPath = "/v1/blocks/"

// opaqueID makes a block's id one segment of the path, so that the mux neither
// splits nor cleans it.
func opaqueID(r *http.Request) *http.Request {
	id, ok := strings.CutPrefix(r.URL.Path, blocksPath)
	if !ok {
		return r
	}
	u := *r.URL
	u.RawPath = blocksPath + url.PathEscape(id)
	opaque := r.WithContext(r.Context())
	opaque.URL = &u
	return opaque
}

// shownPath is the path of r for the log. The id of a block is left out: it may
// hold the key of a customer who is to be forgotten.
func shownPath(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, blocksPath) {
		return blocksPath + "{id}"
	}
	return r.URL.Path[:min(len(r.URL.Path), 200)]
}

// extend gives the answer d more, from now, than WriteTimeout, which counts from
// the request. (ReadTimeout ends with the request's last byte.) A writer without
// deadlines, such as a test's recorder, has none to put off.
func extend(w http.ResponseWriter, d time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + WriteTimeout))
}

// Serve answers the requests that come in on ln until ctx ends, and closes ln.
// Then polls that wait are answered at once, requests under way have a few
// seconds to end, and Serve returns nil; it is the service's part to stay up
// until then. Serve can be called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          stdlog.New(warnings{s.refused}, "", 0), // failed handshakes for the most part
	}
	bounded := newConnections(ln, s.maxConns)
	server.ConnState = bounded.note
	ln = bounded
	if c := s.access.TLS(); c != nil {
		ln = tls.NewListener(ln, c) // without HTTP/2: one connection is one request at a time
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case err := <-served:
		s.stop()
		return fmt.Errorf("serve HTTP on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		s.log.Warn().Err(err).Msg("stop HTTP: requests cut off")
		server.Close()
	}
	<-served
	return nil
}

// warnings logs what it is written as warnings.
type warnings struct{ log zerolog.Logger }

func (w warnings) Write(p []byte) (int, error) {
	w.log.Warn().Msg(strings.TrimSpace(string(p)))
	return len(p), nil
}

// answer notes what was answered.
type answer struct {
	http.ResponseWriter
	gzip   bool // the client can read it
	status int
	bytes  int64
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap is how http.ResponseController finds the connection's deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
