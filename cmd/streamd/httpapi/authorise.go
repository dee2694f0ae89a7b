package httpapi

import (
	"net/http"
	"strings"

	"streamd/cmd/streamd/access"
	"streamd/config"
)

// authorise puts the caller into r. The caller must have the role.
func (s *Server) authorise(r *http.Request, role config.Role) error {
	caller, err := s.config.Access.Caller(r)
	*r = *r.WithContext(access.WithCaller(r.Context(), caller))
	switch {
	case err != nil:
		return fail(CodeUnauthorized, "%v", err)
	case !caller.Roles.Has(role) && caller.Name == "" && s.config.Access.TakesTokens():
		return fail(CodeUnauthorized, "this call wants a token with the role %s: Authorization: Bearer TOKEN", role)
	case !caller.Roles.Has(role):
		return fail(CodeForbidden, "%s: this call wants the role %s", caller, role)
	case changes(role) && caller.Name == "" && r.Header.Get("Origin") != "":
		// A page acts in the name of whoever looks at it, so it must show a token.
		return fail(CodeForbidden, "a page may ask for this with a token only")
	}
	return nil
}

// changes says whether calls of a role change something.
func changes(role config.Role) bool { return role == config.RoleRetire || role == config.RoleAdmin }

// logRefusal logs a refused request.
func (s *Server) logRefusal(r *http.Request, status int, why string) {
	line := s.refused.Warn().Int("status", status).Str("method", r.Method).Str("path", shownPath(r)).Str("reason", why).
		Stringer("caller", access.CallerOf(r.Context())).Str("remote", r.RemoteAddr)
	if origin := r.Header.Get("Origin"); origin != "" {
		line = line.Str("origin", origin[:min(len(origin), 200)])
	}
	line.Msg("request refused")
}

// preflightSeconds is the time that a browser remembers a preflight answer.
const preflightSeconds = "600"

// answersPage sets the CORS headers that let a page of a listed origin read the answer.
// It answers a preflight request itself, and then returns true. Pages send tokens and
// never cookies, so credentials are not allowed.
func (s *Server) answersPage(w http.ResponseWriter, r *http.Request) bool {
	if len(s.origins) == 0 {
		return false
	}
	header, origin := w.Header(), r.Header.Get("Origin")
	header.Add("Vary", "Origin")
	if !s.origins[origin] {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", "ETag, Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header.Set("Access-Control-Allow-Methods", strings.Join([]string{http.MethodGet, http.MethodPost, http.MethodDelete}, ", "))
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Content-Encoding, If-None-Match")
	header.Set("Access-Control-Max-Age", preflightSeconds)
	w.WriteHeader(http.StatusNoContent)
	return true
}
