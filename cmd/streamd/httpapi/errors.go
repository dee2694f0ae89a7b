package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Code says what kind of error an answer is. The set is part of the API.
type Code string

const (
	CodeBadRequest           Code = "bad_request"
	CodeUnauthorized         Code = "unauthorized"
	CodeForbidden            Code = "forbidden"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeConflict             Code = "conflict"
	CodeTooLarge             Code = "too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeInternal             Code = "internal"
	CodeNoModel              Code = "no_model"
	CodeUnavailable          Code = "unavailable"
)

// codes are all there are, with their statuses and what the document says of them.
var codes = map[Code]struct {
	status  int
	meaning string
}{
	CodeBadRequest:           {http.StatusBadRequest, "The query, the path or the body is not what the call takes."},
	CodeUnauthorized:         {http.StatusUnauthorized, "The call wants a token, or the token is not one of the daemon's."},
	CodeForbidden:            {http.StatusForbidden, "The caller does not have the role; or the request is of a page that may not call, or addressed to a host that is not this one."},
	CodeNotFound:             {http.StatusNotFound, "There is no such thing; the message says why."},
	CodeMethodNotAllowed:     {http.StatusMethodNotAllowed, "The path takes other methods."},
	CodeConflict:             {http.StatusConflict, "The same is under way already, or is off by configuration; nothing was begun."},
	CodeTooLarge:             {http.StatusRequestEntityTooLarge, "The body, or the answer to it, would be beyond the limits."},
	CodeUnsupportedMediaType: {http.StatusUnsupportedMediaType, "The body is of a type that the call does not take."},
	CodeInternal:             {http.StatusInternalServerError, "Something went wrong; the daemon's log says what."},
	CodeNoModel:              {http.StatusServiceUnavailable, "There is no model; the message says why."},
	CodeUnavailable:          {http.StatusServiceUnavailable, "The daemon cannot now; the message says why."},
}

// ErrorAnswer is the body of every answer that is an error.
type ErrorAnswer struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail says what is wrong.
type ErrorDetail struct {
	Code    Code   `json:"code"`    // for programs
	Message string `json:"message"` // for people; it may change
}

// failure is an error whose text is for the client.
type failure struct {
	code    Code
	message string
}

func (f *failure) Error() string { return f.message }

// errInternal is all that a client is told of what goes wrong inside.
var errInternal = &failure{CodeInternal, "something went wrong; the daemon's log says what"}

func fail(code Code, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// bearer is how callers are told to say who they are.
const bearer = `Bearer realm="streamd"`

// fail answers r with err. It keeps to itself what it does not know.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var known *failure
	switch {
	case errors.As(err, &known):
	case errors.Is(err, ErrNotLive):
		known = &failure{CodeNotFound, err.Error()}
	case errors.Is(err, ErrBadID):
		known = &failure{CodeBadRequest, err.Error()}
	case errors.Is(err, ErrBusy), errors.Is(err, ErrOff):
		known = &failure{CodeConflict, err.Error()}
	case errors.Is(err, ErrUnavailable):
		known = &failure{CodeUnavailable, err.Error()}
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		known = &failure{CodeUnavailable, "the client went away"} // who will not read it
	default:
		s.log.Error().Err(err).Str("method", r.Method).Str("path", shownPath(r)).Msg("request failed")
		known = errInternal
	}
	var answer ErrorAnswer
	answer.Error.Code, answer.Error.Message = known.code, known.message
	body, err := json.Marshal(answer)
	if err != nil {
		panic(err) // two strings
	}
	status := codes[known.code].status
	header := w.Header()
	switch status {
	case http.StatusForbidden:
		s.logRefusal(r, status, known.message)
	case http.StatusUnauthorized:
		s.logRefusal(r, status, known.message)
		header.Set("WWW-Authenticate", bearer)
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", "1")
	}
	header.Del("ETag")
	writeJSON(w, status, append(body, '\n'))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	write(w, status, "application/json", body)
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
