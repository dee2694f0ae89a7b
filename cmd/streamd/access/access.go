// Package access decides who may call the daemon over HTTP.
//
// # Callers
//
// A bearer token identifies the caller, else the client certificate of the connection;
// else the caller is anonymous. A token has the roles of its line in http.tokens_file. A
// certificate has the roles that http.tls.clients gives to its names. Everybody has the
// roles of http.anonymous as well. An unknown token is an error, also where anonymous
// callers would be served: a caller who sends a token means to be somebody.
//
// # Pages
//
// The owner of a web page may point its name at this machine. To a browser the page then
// has the daemon's origin (DNS rebinding). Its requests still carry that name in Host, so
// [Guard.CheckHost] accepts only known names. Pages of other origins may call when
// http.cors_origins lists them.
//
// # Files
//
// Tokens, certificate and authorities are read again when their files change. Tokens and
// authorities count from the next request on, the certificate from the next connection
// on. A file that cannot be used is logged, and its earlier content stays in force.
// Replace a file by renaming another one over it, so that it is never read half written.
package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/watched"
	"streamd/config"
)

// Caller is the sender of a request.
type Caller struct {
	Name   string // name of the token or in the certificate; "": anonymous
	Roles  config.Roles
	Remote string // address of the sender
}

// String is the name, for logs.
func (c Caller) String() string {
	if c.Name == "" {
		return "anonymous"
	}
	return c.Name
}

type callerKey struct{}

// WithCaller returns a context for a request of c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of the request of ctx.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Errors of callers that cannot be identified.
var (
	ErrUnknownToken       = errors.New("the token is not one of the daemon's")
	ErrUnknownCertificate = errors.New("the client certificate has expired or is not of an authority any more")
)

// Guard knows the callers and the hosts of one daemon. It is safe for concurrent use.
type Guard struct {
	tokens    *watched.Value[[]token]     // nil: no tokens
	tls       *watched.Value[*tls.Config] // nil: no encryption
	clients   map[string]config.Roles
	anonymous config.Roles
	hosts     map[string]bool
}

// New reads the files that h names. The errors name the configuration's keys.
func New(h config.HTTP, log zerolog.Logger) (*Guard, error) {
	g := &Guard{clients: h.TLS.Clients, anonymous: h.AnonymousRoles(), hosts: map[string]bool{"localhost": true}}
	for _, host := range h.Hosts {
		g.hosts[strings.ToLower(host)] = true
	}
	var tokensErr, tlsErr error
	if h.TokensFile != "" {
		g.tokens, tokensErr = watched.New("http.tokens_file", []string{h.TokensFile}, func() ([]token, error) { return readTokens(h.TokensFile, log) }, log)
	}
	if h.TLS.CertFile != "" {
		files := []string{h.TLS.CertFile, h.TLS.KeyFile}
		if h.TLS.ClientCAFile != "" {
			files = append(files, h.TLS.ClientCAFile)
		}
		g.tls, tlsErr = watched.New("http.tls", files, func() (*tls.Config, error) { return readTLS(h.TLS) }, log)
	}
	return g, errors.Join(tokensErr, tlsErr)
}

// TLS is the configuration of encrypted connections; nil: they are not encrypted.
func (g *Guard) TLS() *tls.Config {
	if g.tls == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.tls.Get(), nil },
	}
}

// TakesTokens says whether there are tokens.
func (g *Guard) TakesTokens() bool { return g.tokens != nil }

// Caller identifies the sender of r. The errors are [ErrUnknownToken] and, on a connection
// that has been open for a while, [ErrUnknownCertificate].
func (g *Guard) Caller(r *http.Request) (Caller, error) {
	c := Caller{Roles: g.anonymous, Remote: r.RemoteAddr}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case g.tokens != nil && strings.EqualFold(scheme, "Bearer"):
		t, ok := find(g.tokens.Get(), strings.TrimLeft(text, " "))
		if !ok {
			return c, ErrUnknownToken
		}
		c.Name, c.Roles = t.name, c.Roles.With(t.roles)
	case g.tls != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		leaf := r.TLS.PeerCertificates[0]
		if err := verify(r.TLS.PeerCertificates, g.tls.Get().ClientCAs); err != nil {
			return c, ErrUnknownCertificate
		}
		names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
		known := slices.IndexFunc(names, func(name string) bool { return g.clients[name] != "" })
		c.Name = fmt.Sprintf("certificate %.200q", names[max(0, known)])
		for _, name := range names {
			c.Roles = c.Roles.With(g.clients[name])
		}
	}
	return c, nil
}

// CheckHost refuses a request for another host than this one. On loopback, the daemon's
// names are localhost and loopback addresses; elsewhere localhost and any IP address,
// since no page can have one for its name. The configured names count in both places.
func (g *Guard) CheckHost(r *http.Request) error {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if g.hosts[strings.ToLower(host)] {
		return nil
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if err == nil && (address.Unmap().IsLoopback() || !onLoopback(r)) {
		return nil
	}
	return fmt.Errorf("this daemon is not %.200q: http.hosts lists the names that it answers to", r.Host)
}

// onLoopback says whether r came to an address that only this machine reaches.
func onLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && local.IP.IsLoopback()
}
