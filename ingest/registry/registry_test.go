package registry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"streamd/ingest/registry"
	"streamd/ingest/registry/registrytest"
)

// serve starts a double and a client of it.
func serve(t *testing.T, r *registrytest.Registry) *registry.Client {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	c, err := registry.New(registry.Config{URL: server.URL + "/", Username: r.Username, Password: r.Password})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// away and bad are the error as one of its kinds, or nil.
func away(err error) (e *registry.AwayError) { errors.As(err, &e); return e }
func bad(err error) (e *registry.BadIDError) { errors.As(err, &e); return e }

// A schema is asked for once. References come after those that they need.
func TestGet(t *testing.T) {
	r := &registrytest.Registry{Username: "u", Password: "p ä"}
	r.Put(1, "JSON", `{"type":"object"}`)
	r.Put(2, "AVRO", `"int"`)
	r.Put(1<<32-1, "PROTOBUF", "top", registrytest.Reference{Name: "a.proto", Subject: "a/b", Version: 1}, registrytest.Reference{Name: "c.proto", Subject: "c", Version: 1})
	r.PutSubject("a/b", "PROTOBUF", "text a", registrytest.Reference{Name: "c.proto", Subject: "c", Version: 1})
	r.PutSubject("c", "PROTOBUF", "text c")
	c := serve(t, r)
	for range 3 {
		for id, want := range map[uint32]string{
			1:         `1 JSON {"type":"object"} []`,
			2:         `2 Avro "int" []`,
			1<<32 - 1: `4294967295 Protobuf top [{c.proto text c} {a.proto text a}]`,
		} {
			s, err := c.Get(id)
			if err != nil || fmt.Sprintf("%v %v %v %v", s.ID, s.Kind, s.Text, s.References) != want {
				t.Errorf("schema %d: %v, %v, want %s", id, s, err, want)
			}
		}
	}
	if n := r.Requests.Load(); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
}

// An unknown id is a BadIDError, and everything that is no answer of a registry an AwayError.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		instead http.HandlerFunc
		bad     string // its reason
		away    string
	}{
		"unknown":       {bad: "does not know it"},
		"other kind":    {instead: text(200, `{"schema":"s","schemaType":"THRIFT"}`), bad: "want AVRO, JSON or PROTOBUF"},
		"no JSON":       {instead: text(200, "<html>"), away: "not that of a schema registry"},
		"no schema":     {instead: text(200, `{"id":1}`), away: "not that of a schema registry"},
		"array":         {instead: text(200, strings.Repeat("[", 1<<19)), away: "not that of a schema registry"},
		"proxy's 404":   {instead: text(404, "not here"), away: "format.registry.url"},
		"other 404":     {instead: text(404, `{"error_code":404}`), away: "format.registry.url"},
		"500":           {instead: text(500, `{"error_code":50001}`), away: "the answer is 500"},
		"429":           {instead: text(429, ""), away: "the answer is 429"},
		"401":           {instead: text(401, ""), away: "format.registry.username"},
		"redirect":      {instead: http.RedirectHandler("http://elsewhere.example/", http.StatusFound).ServeHTTP, away: "redirects"},
		"huge":          {instead: text(200, `{"schema":"`+strings.Repeat("x", 1<<20)+`"}`), bad: "more than 1048576 bytes"},
		"huge 404":      {instead: text(404, strings.Repeat("x", 1<<22)), away: "format.registry.url"},
		"circle":        {instead: deep, bad: "deep, or go round"},
		"many":          {instead: many, bad: "more than 64 references"},
		"its reference": {instead: lacks, bad: `reference to "n": the schema registry does not know it`},
		"cut off": {instead: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"schema":`)
		}, away: "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &registrytest.Registry{}
			if c.instead != nil {
				r.Instead = c.instead
			}
			client := serve(t, r)
			_, err := client.Get(7)
			switch b, a := bad(err), away(err); {
			case c.bad != "" && (b == nil || !strings.Contains(err.Error(), c.bad) || b.ID != 7),
				c.away != "" && (a == nil || !strings.Contains(err.Error(), c.away) || a.ID != 7):
				t.Fatalf("got %T %v, want %s%s", err, err, c.bad, c.away)
			}
			since, why := client.Away()
			if since.IsZero() != (c.bad != "") || (why == nil) != since.IsZero() {
				t.Errorf("away since %v: %v", since, why)
			}
			asked := r.Requests.Load()
			if _, again := client.Get(7); fmt.Sprint(again) != fmt.Sprint(err) || r.Requests.Load() != asked {
				t.Errorf("asked at once again: %v", again)
			}
			if r.Requests.Load() > 70 {
				t.Errorf("%d requests", r.Requests.Load())
			}
		})
	}
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// deep answers each request with a schema that refers to another one.
func deep(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, `{"schema":"s","references":[{"name":"n%d","subject":"s","version":1}]}`, time.Now().UnixNano())
}

// many answers with a schema that refers to a thousand others.
func many(w http.ResponseWriter, q *http.Request) {
	var list []string
	for i := range 1000 {
		list = append(list, fmt.Sprintf(`{"name":"n%d","subject":"s","version":1}`, i))
	}
	if strings.HasPrefix(q.URL.Path, "/subjects/") {
		list = nil
	}
	fmt.Fprintf(w, `{"schema":"s","references":[%s]}`, strings.Join(list, ","))
}

// lacks answers with a schema whose reference is unknown.
func lacks(w http.ResponseWriter, q *http.Request) {
	if strings.HasPrefix(q.URL.Path, "/schemas/") {
		io.WriteString(w, `{"schema":"s","references":[{"name":"n","subject":"none","version":1}]}`)
		return
	}
	w.WriteHeader(404)
	io.WriteString(w, `{"error_code":40401}`)
}

// What has been answered needs no registry. Await asks until it is back, and ends with its context.
func TestAwait(t *testing.T) {
	r := &registrytest.Registry{}
	r.Put(1, "JSON", "{}")
	c := serve(t, r)
	if _, err := c.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Await(t.Context(), 2); bad(err) == nil {
		t.Fatalf("an unknown id: %v", err)
	}
	r.Away.Store(true)
	if _, err := c.Get(1); err != nil {
		t.Errorf("a schema that is kept: %v", err)
	}
	if _, err := c.Get(2); bad(err) == nil {
		t.Errorf("an id that was unknown: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Await(short, 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a registry that is away: %v", err)
	}
	if since, why := c.Away(); since.IsZero() || !strings.Contains(why.Error(), "503") {
		t.Errorf("away since %v: %v", since, why)
	}
	got := make(chan error)
	go func() { _, err := c.Await(t.Context(), 3); got <- err }()
	time.Sleep(50 * time.Millisecond)
	r.Put(3, "JSON", "{}")
	r.Away.Store(false)
	if err := <-got; err != nil {
		t.Errorf("a registry that is back: %v", err)
	}
	if since, _ := c.Away(); !since.IsZero() {
		t.Error("it is still away")
	}
}

// TLS is that of the configuration, also of the next connection.
func TestTLS(t *testing.T) {
	r := &registrytest.Registry{}
	r.Put(1, "JSON", "{}")
	server := httptest.NewTLSServer(r)
	defer server.Close()
	roots := x509.NewCertPool()
	settings := func() *tls.Config { return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12} }
	c, err := registry.New(registry.Config{URL: server.URL, TLS: settings})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(1); away(err) == nil || !strings.Contains(err.Error(), "certificate") {
		t.Fatalf("an unknown authority: %v", err)
	}
	roots.AddCert(server.Certificate())
	if _, err := c.Await(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

func TestCheckURL(t *testing.T) {
	for _, good := range []string{"http://a", "https://registry.example:8081/apis/ccompat/v7/"} {
		if base, err := registry.CheckURL(good); err != nil || strings.HasSuffix(base, "/") {
			t.Errorf("%s: %s, %v", good, base, err)
		}
	}
	for _, wrong := range []string{"", "registry:8081", "ftp://a", "http://", "http://u:p@a", "http://a?b", "http://a#b"} {
		if _, err := registry.CheckURL(wrong); err == nil {
			t.Errorf("%q is taken for a URL", wrong)
		}
	}
}

// A server that answers slowly is given up.
func TestSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	r := &registrytest.Registry{Instead: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(200)
		for q.Context().Err() == nil {
			io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	})}
	start := time.Now()
	if _, err := serve(t, r).Get(1); away(err) == nil || time.Since(start) > 15*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}
