package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

const (
	zipBytes  = 4 << 10 // shorter answers are not compressed
	zippedTag = "-gzip" // ends the ETag of a compressed answer, whose bytes are others
	zipMemory = 1 << 20 // of a compressor, about
)

// zippers are spare *gzip.Writer.
var zippers = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is one of those there are
	}
	return z
}}

// zip compresses a body.
func zip(body []byte) []byte {
	var out bytes.Buffer
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(&out)
	z.Write(body) // a buffer takes everything
	z.Close()
	return out.Bytes()
}

// acceptsGzip says whether a client can read gzip (RFC 9110, 12.5.3).
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, weight, weighted := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		weight = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(weight)), "q=")
		q, err := strconv.ParseFloat(weight, 64)
		return !weighted || err == nil && q > 0
	}
	return false
}

// beginZip says whether the client of w can read gzip, and gives the header what
// goes with a compressed body if it does.
func beginZip(w http.ResponseWriter) bool {
	if a, ok := w.(*answer); !ok || !a.gzip {
		return false
	}
	header := w.Header()
	header.Set("Content-Encoding", "gzip")
	if tag, ok := strings.CutSuffix(header.Get("ETag"), `"`); ok {
		header.Set("ETag", tag+zippedTag+`"`)
	}
	return true
}

// write answers with a body, compressed if it is long and the client can read that.
// It is compressed before anything is written, so that a client that reads slowly
// holds no compressor.
func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	writeEither(w, status, contentType, body, func() []byte { return zip(body) })
}

// writeEither is write for a body that is compressed elsewhere.
func writeEither(w http.ResponseWriter, status int, contentType string, body []byte, zipped func() []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	if len(body) >= zipBytes && beginZip(w) {
		body = zipped()
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client has gone
}
