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
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"
)

// refusedLines bounds the log lines about refused requests, per second.
const refusedLines = 10

// New makes a server for service. It registers the service's status with metrics, so
// call it once per Metrics. The origins have the form scheme://host.
func New(config Config, service Service, metrics *Metrics, log zerolog.Logger) *Server {
	metrics.watch(service)
	return newServerOf(config, service, metrics, routes, errNoPath, log)
}

// newServerOf makes a server of some routes. noPath is its answer at all other paths.
func newServerOf(config Config, service Service, metrics *Metrics, routes []route, noPath error, log zerolog.Logger) *Server {
	config.MaxBodyBytes = cmp.Or(config.MaxBodyBytes, MaxBodyBytes)
	config.MaxRows = cmp.Or(config.MaxRows, MaxRows)
	config.MaxConnections = cmp.Or(config.MaxConnections, MaxConnections)
	config.Memory = cmp.Or(config.Memory, Memory)
	s := &Server{
		config:   config,
		service:  service,
		metrics:  metrics,
		log:      log,
		refused:  log.Sample(&zerolog.BurstSampler{Burst: refusedLines, Period: time.Second}),
		origins:  map[string]bool{},
		pages:    http.NewCrossOriginProtection(),
		slots:    make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		windows:  make(chan struct{}, 1),
		polls:    make(chan struct{}, max(1, config.MaxConnections/2)),
		streams:  make(chan struct{}, max(1, config.MaxConnections/4)),
		memory:   semaphore.NewWeighted(config.Memory),
		stopping: make(chan struct{}),
	}
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	for _, origin := range config.Origins {
		s.origins[origin] = true
		if err := s.pages.AddTrustedOrigin(origin); err != nil {
			panic(err) // a mistake of the caller
		}
	}
	s.mux = s.newMux(routes, noPath)
	s.scraped = metrics.handler(log)
	return s
}

func (s *Server) newMux(routes []route, noPath error) *http.ServeMux {
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

	// The mux itself answers a wrong path or method with text, not JSON.
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
		s.fail(w, r, noPath)
	})
	return mux
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if to := s.successor.Load(); to != nil {
		to.ServeHTTP(w, r)
		return
	}
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
	if err := s.config.Access.CheckHost(r); err != nil {
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
	// The mux would redirect to the cleaned path. Such a path is a mistake of the
	// client, and a DELETE must not be led elsewhere.
	p := r.URL.EscapedPath()
	if clean := path.Clean(p); p != clean && (clean == "/" || p != clean+"/") {
		s.fail(answer, r, errNoPath)
		return
	}
	r.Body = http.MaxBytesReader(answer, r.Body, int64(s.config.MaxBodyBytes))
	s.mux.ServeHTTP(answer, r)
}

// opaqueID makes a block's id one segment of the path, so that the mux does not split or
// clean it.
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

// preflightSeconds is the time that a browser remembers a preflight answer.
const preflightSeconds = "600"

// answersPage sets the CORS headers that let a page of a listed origin read the answer.
// It answers a preflight request itself, and then returns true. Pages send tokens and
// never cookies, so credentials are not allowed.
func (s *Server) answersPage(w http.ResponseWriter, r *http.Request) bool {
	if len(s.origins) == 0 {
		return false
	}
	header, origin := w.Header(), r.Header.Get("Origin")
	header.Add("Vary", "Origin")
	if !s.origins[origin] {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", "ETag, Retry-After, "+modelHeader+", "+inferHeader)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header.Set("Access-Control-Allow-Methods", strings.Join([]string{http.MethodGet, http.MethodPost, http.MethodDelete}, ", "))
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Content-Encoding, If-None-Match, Last-Event-ID, "+inferHeader)
	header.Set("Access-Control-Max-Age", preflightSeconds)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// HandOver has another server of the same configuration answer all requests from now on.
// Requests that wait for another model are answered at once.
func (s *Server) HandOver(to *Server) {
	s.successor.Store(to)
	s.stop()
}

// stopAll ends the waiting of requests, those of successors included.
func (s *Server) stopAll() {
	for ; s != nil; s = s.successor.Load() {
		s.stop()
	}
}

// Serve answers requests on ln until ctx ends, and closes ln. Then waiting polls are
// answered and streams of events end at once, open requests have a few seconds to end, and Serve
// returns nil. The service must stay up until then. Serve can be called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          stdlog.New(warnings{s.refused}, "", 0), // mostly failed handshakes
	}
	bounded := newConnections(ln, s.config.MaxConnections)
	server.ConnState = bounded.note
	ln = bounded
	if c := s.config.Access.TLS(); c != nil {
		ln = tls.NewListener(ln, c) // without HTTP/2, so that a connection has one request at a time
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case err := <-served:
		s.stopAll()
		return fmt.Errorf("serve HTTP on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.stopAll()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		s.log.Warn().Err(err).Msg("stop HTTP: requests cut off")
		server.Close()
	}
	<-served
	return nil
}
