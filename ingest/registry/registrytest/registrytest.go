// Package registrytest has a double of a schema registry for tests: it answers the requests of
// Confluent's protocol that package registry makes, from memory. No real registry was at hand whose
// artifacts are in a public repository and start in a few seconds.
package registrytest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Reference is a schema's reference to the first version of a subject.
type Reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

type schema struct {
	Schema     string      `json:"schema"`
	Type       string      `json:"schemaType,omitempty"`
	References []Reference `json:"references,omitempty"`
}

// Registry is an http.Handler. It is safe for concurrent use.
type Registry struct {
	Username, Password string              // wanted, if any
	Away               atomic.Bool         // answers are 503
	Requests           atomic.Int64        // that were answered
	Instead            http.Handler        // answers in place of the registry; nil: it does
	OnRequest          func(*http.Request) // is called first; nil: nothing is

	mu       sync.Mutex
	ids      map[uint32]schema
	subjects map[string]schema
}

// Put adds a schema: AVRO, JSON or PROTOBUF.
func (r *Registry) Put(id uint32, kind, text string, references ...Reference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind == "AVRO" { // registries leave it out
		kind = ""
	}
	if r.ids == nil {
		r.ids = map[uint32]schema{}
	}
	r.ids[id] = schema{text, kind, references}
}

// PutSubject adds the first version of a subject.
func (r *Registry) PutSubject(subject, kind, text string, references ...Reference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.subjects == nil {
		r.subjects = map[string]schema{}
	}
	r.subjects[subject] = schema{text, kind, references}
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.Requests.Add(1)
	if r.OnRequest != nil {
		r.OnRequest(q)
	}
	user, password, _ := q.BasicAuth()
	switch {
	case r.Away.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case r.Instead != nil:
		r.Instead.ServeHTTP(w, q)
		return
	case user != r.Username || password != r.Password:
		fail(w, http.StatusUnauthorized, 401, "Unauthorized")
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if text, ok := strings.CutPrefix(q.URL.Path, "/schemas/ids/"); ok && q.Method == http.MethodGet {
		id, err := strconv.ParseUint(text, 10, 32)
		if s, known := r.ids[uint32(id)]; known && err == nil {
			answer(w, s)
			return
		}
		fail(w, http.StatusNotFound, 40403, "Schema not found")
		return
	}
	if text, ok := strings.CutPrefix(q.URL.Path, "/subjects/"); ok && q.Method == http.MethodGet {
		if s, known := r.subjects[strings.TrimSuffix(text, "/versions/1")]; known {
			answer(w, s)
			return
		}
		fail(w, http.StatusNotFound, 40401, "Subject not found.")
		return
	}
	fail(w, http.StatusNotFound, 404, "HTTP 404 Not Found")
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}

func fail(w http.ResponseWriter, status, code int, message string) {
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error_code":%d,"message":%q}`, code, message)
}

// Frame puts a frame around a payload.
func Frame(id uint32, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), payload...)
}
