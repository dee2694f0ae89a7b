package httpapi

import (
	"net/http"

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
