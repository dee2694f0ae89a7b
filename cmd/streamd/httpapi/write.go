package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
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

// write answers with a body, compressed if it is long and the client can read gzip.
// Compression ends before the first byte is written, so that a slow client holds no
// compressor.
func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	writeEither(w, status, contentType, body, func() []byte { return zip(body) })
}

// writeEither is write with the compressed body of zipped.
func writeEither(w http.ResponseWriter, status int, contentType string, body []byte, zipped func() []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	if len(body) >= zipBytes && beginZip(w) {
		body = zipped()
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
