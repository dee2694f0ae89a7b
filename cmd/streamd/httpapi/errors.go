package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Code says what kind of error an answer is. The set is part of the API.
type Code string

const (
	CodeBadRequest           Code = "bad_request"            // 400
	CodeUnauthorized         Code = "unauthorized"           // 401
	CodeForbidden            Code = "forbidden"              // 403
	CodeNotFound             Code = "not_found"              // 404
	CodeMethodNotAllowed     Code = "method_not_allowed"     // 405
	CodeConflict             Code = "conflict"               // 409
	CodeTooLarge             Code = "too_large"              // 413
	CodeUnsupportedMediaType Code = "unsupported_media_type" // 415
	CodeInternal             Code = "internal"               // 500
	CodeNoModel              Code = "no_model"               // 503
	CodeUnavailable          Code = "unavailable"            // 503
)

var statusOf = map[Code]int{
	CodeBadRequest:           http.StatusBadRequest,
	CodeUnauthorized:         http.StatusUnauthorized,
	CodeForbidden:            http.StatusForbidden,
	CodeNotFound:             http.StatusNotFound,
	CodeMethodNotAllowed:     http.StatusMethodNotAllowed,
	CodeConflict:             http.StatusConflict,
	CodeTooLarge:             http.StatusRequestEntityTooLarge,
	CodeUnsupportedMediaType: http.StatusUnsupportedMediaType,
	CodeInternal:             http.StatusInternalServerError,
	CodeNoModel:              http.StatusServiceUnavailable,
	CodeUnavailable:          http.StatusServiceUnavailable,
}

// ErrorAnswer is the body of every answer that is an error.
type ErrorAnswer struct {
	Error struct {
		Code    Code   `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// failure is an error whose text is for the client.
type failure struct {
	code    Code
	message string
}

func (f *failure) Error() string { return f.message }

func fail(code Code, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// fail answers r with err. It keeps to itself what it does not know.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var known *failure
	switch {
	case errors.As(err, &known):
	case errors.Is(err, ErrNotLive):
		known = &failure{CodeNotFound, err.Error()}
	case errors.Is(err, ErrBadID):
		known = &failure{CodeBadRequest, err.Error()}
	case errors.Is(err, ErrBusy):
		known = &failure{CodeConflict, err.Error()}
	case errors.Is(err, ErrUnavailable):
		known = &failure{CodeUnavailable, err.Error()}
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		known = &failure{CodeUnavailable, "the client went away"} // who will not read it
	default:
		s.log.Error().Err(err).Str("method", r.Method).Str("path", r.URL.Path).Msg("request failed")
		known = &failure{CodeInternal, "something went wrong; the daemon's log says what"}
	}
	var answer ErrorAnswer
	answer.Error.Code, answer.Error.Message = known.code, known.message
	body, err := json.Marshal(answer)
	if err != nil {
		panic(err) // two strings
	}
	status := statusOf[known.code]
	header := w.Header()
	switch status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", `Bearer realm="streamd"`)
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", "1")
	}
	header.Del("ETag")
	writeJSON(w, status, append(body, '\n'))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client has gone
}

// answerJSON answers 200 with v, which must be a value that JSON can carry.
func answerJSON(w http.ResponseWriter, v any) error { return answerJSONWith(w, http.StatusOK, v) }

func answerJSONWith(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	writeJSON(w, status, append(body, '\n'))
	return nil
}
