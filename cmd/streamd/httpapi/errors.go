package httpapi

import (
	"fmt"
	"net/http"
)

// Code is the kind of an error. The set of codes is part of the API.
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
	CodeNotAcceptable        Code = "not_acceptable"
	CodeInternal             Code = "internal"
	CodeNoModel              Code = "no_model"
	CodeUnavailable          Code = "unavailable"
	CodeNotYet               Code = "not_yet"
)

// codes has the status and the description of every code.
var codes = map[Code]struct {
	status  int
	meaning string
}{
	CodeBadRequest:           {http.StatusBadRequest, "The call does not take this query, path or body."},
	CodeUnauthorized:         {http.StatusUnauthorized, "The call needs a token, or the daemon does not know the token."},
	CodeForbidden:            {http.StatusForbidden, "The caller lacks the role, or the request comes from a page that may not call, or is addressed to another host."},
	CodeNotFound:             {http.StatusNotFound, "Not found; the message says why."},
	CodeMethodNotAllowed:     {http.StatusMethodNotAllowed, "The path does not take this method."},
	CodeConflict:             {http.StatusConflict, "The same operation is under way already, is off by configuration, or does not go with the basis in use; nothing was begun."},
	CodeTooLarge:             {http.StatusRequestEntityTooLarge, "The body or its answer exceeds a limit."},
	CodeUnsupportedMediaType: {http.StatusUnsupportedMediaType, "The call does not take this type of body."},
	CodeNotAcceptable:        {http.StatusNotAcceptable, "The call has no answer of a type that Accept takes."},
	CodeInternal:             {http.StatusInternalServerError, "An internal error; the daemon's log has its cause."},
	CodeNoModel:              {http.StatusServiceUnavailable, "There is no model; the message says why."},
	CodeNotYet:               {http.StatusGatewayTimeout, "The state does not include yet what the call names; ask again."},
	CodeUnavailable:          {http.StatusServiceUnavailable, "The daemon cannot answer now; the message says why."},
}

// ErrorAnswer is the body of every error.
type ErrorAnswer struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail describes an error.
type ErrorDetail struct {
	Code    Code   `json:"code"`    // code, for programs
	Message string `json:"message"` // message, for people; its wording may change
}

// Error is the text of an error of the daemon, for its clients.
func (e *ErrorDetail) Error() string { return string(e.Code) + ": " + e.Message }

// failure is an error with a text for the client.
type failure struct {
	code    Code
	message string
}

func (f *failure) Error() string { return f.message }

// errInternal is all that a client learns about an internal error.
var errInternal = &failure{CodeInternal, "something went wrong; the daemon's log says what"}

func fail(code Code, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

var errNoPath = fail(CodeNotFound, "there is nothing at this path; /v1/openapi.json has all there are")
