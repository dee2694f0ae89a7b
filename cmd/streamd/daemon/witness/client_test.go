package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/daemon/witness/witnesstest"
	"streamd/retire/receipt"
)

// log is a log in memory.
type log struct {
	key    *receipt.Key
	hashes []tlog.Hash
	size   int64
	head   []byte
}

func newLog(t *testing.T, seed byte) *log {
	t.Helper()
	private, err := receipt.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)), "streamd/test")
	if err != nil {
		t.Fatal(err)
	}
	key, err := receipt.ParseKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return &log{key: key}
}

func (l *log) ReadHashes(indexes []int64) (hashes []tlog.Hash, err error) {
	for _, i := range indexes {
		hashes = append(hashes, l.hashes[i])
	}
	return hashes, nil
}

// grow adds leaves, which have that text.
func (l *log) grow(t *testing.T, leaves int, text string) {
	t.Helper()
	var records []receipt.Record
	for i := range leaves {
		records = append(records, receipt.Record{Leaf: fmt.Append(nil, text, l.size, i)})
	}
	g, err := l.key.Grow(l.size, l, records)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range g.Hashes {
		l.hashes = append(l.hashes, h)
	}
	l.size, l.head = l.size+int64(leaves), g.Checkpoint
}

// add asks the witness, with the proof from an old size.
func (l *log) add(t *testing.T, c *client, old int64) (receipt.Cosignature, error) {
	t.Helper()
	var proof tlog.TreeProof
	if old > 0 {
		var err error
		if proof, err = tlog.ProveTree(l.size, old, l); err != nil {
			t.Fatal(err)
		}
	}
	return c.add(t.Context(), old, proof, l.head)
}

func serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func keyOf(t *testing.T, w *witnesstest.Witness) *receipt.Witness {
	t.Helper()
	key, err := receipt.ParseWitness(w.Public())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A witness cosigns a log as it grows, says which size it has, and refuses a fork.
func TestAdd(t *testing.T) {
	l := newLog(t, 1)
	w := &witnesstest.Witness{Name: "witness.example/w1", Log: l.key.Public(), Now: func() time.Time { return time.Unix(1e9, 0) }}
	c := newClient(serve(t, w)+"/prefix/", keyOf(t, w))
	old := int64(0)
	for i := range 9 {
		l.grow(t, 1+i*i, "a")
		got, err := l.add(t, c, old)
		if err != nil {
			t.Fatalf("from %d to %d: %v", old, l.size, err)
		}
		if found, err := receipt.Cosignatures(receipt.Cosign(l.head, got), []*receipt.Witness{keyOf(t, w)}); err != nil || len(found) != 1 || found[0].Time.Unix() != 1e9 {
			t.Errorf("cosigned: %+v, %v", found, err)
		}
		old = l.size
	}
	if _, err := l.add(t, c, old); err != nil {
		t.Errorf("the same checkpoint again: %v", err)
	}
	conflict := (*conflictError)(nil)
	if _, err := l.add(t, c, 0); !errors.As(err, &conflict) || conflict.size != old {
		t.Errorf("from a wrong size: %v", err)
	}
	fork := newLog(t, 1)
	fork.grow(t, int(old)+5, "b")
	if _, err := fork.add(t, c, old); err == nil || !strings.Contains(err.Error(), "422") || !strings.Contains(err.Error(), "was an older snapshot put back?") {
		t.Errorf("a fork: %v", err)
	}
	other := newLog(t, 2)
	other.grow(t, int(old), "a")
	if _, err := other.add(t, c, old); err == nil || !strings.Contains(err.Error(), "404") { // the name is bound to the key
		t.Errorf("another key: %v", err)
	}
	w.Log = ""
	if _, err := l.add(t, c, old); err == nil || !strings.Contains(err.Error(), "404 Not Found") || !strings.Contains(err.Error(), "give it the public key") {
		t.Errorf("an unknown log: %v", err)
	}
}

// An answer that is none is an error, is read up to a bound, and does not wait for ever.
func TestBadAnswers(t *testing.T) {
	l := newLog(t, 1)
	l.grow(t, 3, "a")
	w := &witnesstest.Witness{Name: "witness.example/w1", Log: l.key.Public()}
	text, _, _ := strings.Cut(string(l.head), "\n\n")
	good := w.Cosign(text + "\n")
	for name, test := range map[string]struct {
		status  int
		header  string // content type
		answer  string
		problem string
	}{
		"empty":           {200, "text/plain", "", "it has no cosignature of the key witness.example/w1+"},
		"of another":      {200, "text/plain", (&witnesstest.Witness{Name: "w2"}).Cosign(text + "\n"), "it has no cosignature of the key witness.example/w1+"},
		"of another text": {200, "text/plain", w.Cosign(text + "\nmore\n"), "invalid signature"},
		"no lines":        {200, "text/plain", "thanks\n", "malformed note"},
		"long":            {200, "text/plain", strings.Repeat(good, 1000), "more than 65536 bytes"},
		"no size":         {409, "text/x.tlog.size", "many\n", "a conflict with the size \"many\""},
		"negative size":   {409, "text/x.tlog.size", "-3\n", "a conflict with the size \"-3\""},
		"conflict":        {409, "text/plain", "3\n", "409 Conflict"},
		"moved":           {307, "text/plain", "elsewhere", "307 Temporary Redirect"},
		"overloaded":      {503, "text/plain", "later", "503 Service Unavailable: \"later\""},
	} {
		url := serve(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", test.header)
			rw.Header().Set("Location", "http://127.0.0.1:1/")
			rw.WriteHeader(test.status)
			fmt.Fprint(rw, test.answer)
		}))
		if _, err := l.add(t, newClient(url, keyOf(t, w)), 0); err == nil || !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: %v, want %q", name, err, test.problem)
		}
	}
	release := make(chan struct{})
	silent := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := newClient(silent, keyOf(t, w)).add(ctx, 0, nil, l.head); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent witness: %v", err)
	}
}

// A request is plain text, as the protocol of witnesses has it, and says whose it is.
func TestRequestIsPlainText(t *testing.T) {
	l := newLog(t, 1)
	l.grow(t, 3, "a")
	var of http.Header
	url := serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		of = r.Header.Clone()
		rw.WriteHeader(http.StatusServiceUnavailable)
	}))
	if _, err := l.add(t, newClient(url, keyOf(t, &witnesstest.Witness{Name: "w", Log: l.key.Public()})), 0); err == nil {
		t.Error("a cosignature without an answer")
	}
	if of.Get("Content-Type") != "text/plain; charset=utf-8" || of.Get("User-Agent") != "streamd" {
		t.Errorf("the request has the headers %v", of)
	}
}
