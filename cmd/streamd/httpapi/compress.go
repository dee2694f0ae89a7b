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
	zippedTag = "-gzip" // suffix of a compressed answer's ETag: its bytes differ
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
		weight = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(weight)), "q=")
		q, err := strconv.ParseFloat(weight, 64)
		return !weighted || err == nil && q > 0
	}
	return false
}

// beginZip says whether the client of w can read gzip. If so, it marks the header for a
// compressed body.
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
