package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// answer counts the bytes of an answer and notes its status.
type answer struct {
	http.ResponseWriter
	gzip   bool // whether the client can read gzip
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

// Unwrap lets http.ResponseController find the connection's deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// rendering is the body of an answer that many clients get. It is compressed once, for the
// first client that can read gzip.
type rendering struct {
	contentType string
	body        []byte
	zipped      func() []byte
}

func newRendering(contentType string, body []byte) *rendering {
	return &rendering{contentType, body, sync.OnceValue(func() []byte { return zip(body) })}
}

// write answers with a body, compressed if it is long and the client can read gzip.
func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	newRendering(contentType, body).write(w, status)
}

// write answers with the rendering. Compression ends before the first byte is written, so
// that a slow client holds no compressor.
func (r *rendering) write(w http.ResponseWriter, status int) {
	header, body := w.Header(), r.body
	header.Set("Content-Type", r.contentType)
	if len(body) >= zipBytes && beginZip(w) {
		body = r.zipped()
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client went away
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	write(w, status, "application/json", body)
}

// answerJSON answers 200 with v as JSON.
func answerJSON(w http.ResponseWriter, v any) error { return answerJSONWith(w, http.StatusOK, v) }

func answerJSONWith(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	writeJSON(w, status, append(body, '\n'))
	return nil
}

// listed makes a nil list [] in JSON instead of null.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

const (
	zipBytes  = 4 << 10 // shorter answers are not compressed
	zippedTag = "-gzip" // suffix of a compressed answer's strong ETag: its bytes differ
	zipMemory = 1 << 20 // about the memory of a compressor
)

// zippers has spare *gzip.Writer.
var zippers = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is valid
	}
	return z
}}

// zip compresses a body.
func zip(body []byte) []byte {
	var out bytes.Buffer
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(&out)
	z.Write(body) // a buffer never fails
	z.Close()
	return out.Bytes()
}

// acceptsGzip says whether the client can read gzip (RFC 9110, 12.5.3).
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, weight, weighted := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		return !weighted || qualityOf(weight) > 0
	}
	return false
}

// qualityOf is the weight among the parameters of a range (RFC 9110, 12.4.2): 1 without one,
// and 0 for one that cannot be read.
func qualityOf(parameters string) float64 {
	for part := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		q, err := strconv.ParseFloat(value, 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}

// beginZip says whether the client of w can read gzip. If so, it marks the header for a
// compressed body.
func beginZip(w http.ResponseWriter) bool {
	if a, ok := w.(*answer); !ok || !a.gzip {
		return false
	}
	header := w.Header()
	header.Set("Content-Encoding", "gzip")
	if tag, ok := strings.CutSuffix(header.Get("ETag"), `"`); ok && !strings.HasPrefix(tag, weakPrefix) {
		header.Set("ETag", tag+zippedTag+`"`)
	}
	return true
}
