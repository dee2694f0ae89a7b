package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/access/accesstest"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/retire"
)

// syncBuffer is a log that the server's goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// take returns the text written since its last call.
func (b *syncBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	return b.b.String()
}

// listen serves s on a free port of loopback until the test ends.
func listen(t testing.TB, s *Server) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr().String()
}

// Each route wants its role and no other, from tokens and from anonymous callers.
func TestRoutesWantRoles(t *testing.T) {
	tokens := map[config.Role]string{config.RoleRead: readToken, config.RolePredict: predictToken, config.RoleRetire: retireToken, config.RoleAdmin: adminToken}
	wanted := map[config.Role]int{}
	for i := range routes {
		r := &routes[i]
		wanted[r.role]++
		target := wildcard.ReplaceAllString(documented(r.path), "page.css")
		ask := func(anonymous config.Roles, headers ...string) int {
			f := newFake()
			f.ids = append(f.ids, "page.css")
			s := New(Config{Access: guard(t, anonymous)}, f, NewMetrics(), zerolog.Nop())
			s.stop() // a stream of events ends at once
			code := do(s, r.method, target, body(r), append(headers, mediaOf(r))...).Code
			if code == 401 || code == 403 {
				return code
			}
			return 200 // it was answered, perhaps with 404
		}
		want := func(allowed bool, refusal int) int {
			if allowed || r.role == "" {
				return 200
			}
			return refusal
		}
		name := r.method + " " + r.path
		if got := ask(""); got != want(false, 401) {
			t.Errorf("%s without a token: %d", name, got)
		}
		for role, token := range tokens {
			refusal := 403
			if r.signsIn {
				refusal = 401 // with a page that asks for another token
			}
			bearer := "Authorization: Bearer " + token
			if got := ask("", bearer); got != want(role == r.role || role == config.RoleAdmin, refusal) {
				t.Errorf("%s with a token that may %s: %d", name, role, got)
			}
			if got := ask(config.Roles(role)); got != want(role == r.role || role == config.RoleAdmin, 401) {
				t.Errorf("%s without a token where all may %s: %d", name, role, got)
			}
			if got := ask(config.Roles(role), bearer+"x"); got != want(false, 401) {
				t.Errorf("%s with a wrong token where all may %s: %d", name, role, got)
			}
		}
	}
	if wanted[config.RoleRead] < 7 || wanted[config.RolePredict] != 8 || wanted[config.RoleRetire] != 2 || wanted[config.RoleAdmin] < 4 || wanted[""] > 6 {
		t.Errorf("routes by role: %v", wanted)
	}
}

// FuzzAuthorise looks for a request that reaches the service without the role. The service
// must not see a request without a token of the file, or with a token of another role.
func FuzzAuthorise(f *testing.F) {
	for _, seed := range [][4]string{
		{"DELETE", "/v1/blocks/orders/3/7", "Bearer " + retireToken, "example.com"},
		{"DELETE", "/v1/blocks/orders/3/7", "bearer  " + readToken, "localhost"},
		{"POST", "/v1/snapshot", "Bearer " + adminToken, "127.0.0.1:80"},
		{"GET", "/v1/blocks?limit=1", "Bearer " + adminToken[1:], "example.com"},
		{"POST", "/v1/retire", "Bearer " + retireToken, "example.com"},
		{"POST", "//v1/../v1/refine", "Basic " + adminToken, "[::1]"},
		{"GET", "/v1/model", "", "evil.example"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], "")
	}
	f.Add("POST", "/v1/refine", "Bearer "+adminToken, "example.com", "https://evil.example")
	allowed := guard(f, "")
	f.Fuzz(func(t *testing.T, method, target, authorization, host, origin string) {
		r, err := http.NewRequest(method, "http://example.com/", nil)
		if err != nil {
			return
		}
		if r.URL, err = r.URL.Parse(target); err != nil {
			return
		}
		r.Host = host
		r.Header["Authorization"] = []string{authorization}
		if origin != "" {
			r.Header["Origin"] = []string{origin}
		}
		heard := &recorder{fake: newFake()}
		New(Config{Access: allowed}, heard, NewMetrics(), zerolog.Nop()).ServeHTTP(httptest.NewRecorder(), r)
		scheme, token, _ := strings.Cut(authorization, " ")
		token = strings.TrimLeft(token, " ")
		for _, role := range heard.roles {
			with := map[config.Role]string{config.RoleRead: readToken, config.RoleRetire: retireToken}[role]
			if !strings.EqualFold(scheme, "Bearer") || token != adminToken && (with == "" || token != with) {
				t.Errorf("%s %s with %q reached what wants the role %s", method, target, authorization, role)
			}
			if origin != "" && origin != "http://"+host && role != config.RoleRead {
				t.Errorf("%s %s of a page of %q on host %q reached what wants the role %s", method, target, origin, host, role)
			}
			name := host
			if n, _, err := net.SplitHostPort(host); err == nil {
				name = n
			}
			if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err != nil && !strings.EqualFold(name, "localhost") && !strings.EqualFold(name, "example.com") {
				t.Errorf("%s %s on host %q was answered", method, target, host)
			}
		}
	})
}

// recorder notes the role of each call that reaches it.
type recorder struct {
	*fake
	roles []config.Role
}

func (r *recorder) Blocks(ctx context.Context, archived bool, after string, limit int) ([]BlockInfo, string, error) {
	r.roles = append(r.roles, config.RoleRead)
	return r.fake.Blocks(ctx, archived, after, limit)
}

func (r *recorder) Retire(ctx context.Context, s retire.Selector, how RetireOptions) (Retirement, error) {
	role := config.RoleAdmin
	if _, one := s.Single(); one {
		role = config.RoleRetire
	}
	r.roles = append(r.roles, role)
	return r.fake.Retire(ctx, s, how)
}

func (r *recorder) Snapshot(ctx context.Context, compact bool) (SnapshotInfo, error) {
	r.roles = append(r.roles, config.RoleAdmin)
	return r.fake.Snapshot(ctx, compact)
}

func (r *recorder) Refine(ctx context.Context) (*model.Refinement, error) {
	r.roles = append(r.roles, config.RoleAdmin)
	return r.fake.Refine(ctx)
}

func (r *recorder) Reduce(ctx context.Context) error {
	r.roles = append(r.roles, config.RoleAdmin)
	return r.fake.Reduce(ctx)
}

func (r *recorder) LearnLists(ctx context.Context) (*LearnedLists, error) {
	r.roles = append(r.roles, config.RoleAdmin)
	return r.fake.LearnLists(ctx)
}

func (r *recorder) Abandon(ctx context.Context) error {
	r.roles = append(r.roles, config.RoleAdmin)
	return r.fake.Abandon(ctx)
}

// DNS rebinding: to a browser, a page on a name that points to 127.0.0.1 has the daemon's
// origin, and could read keys and models.
func TestRebinding(t *testing.T) {
	guard, err := access.New(config.HTTP{}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	address := listen(t, New(Config{Access: guard}, newFake(), NewMetrics(), zerolog.New(&log)))
	_, port, _ := net.SplitHostPort(address)
	for host, want := range map[string]int{
		"evil.example:" + port: 403, "evil.example": 403, "10.0.0.1:" + port: 403, "127.0.0.1.evil.example": 403,
		"localhost:" + port: 200, "127.0.0.1:" + port: 200, "[::1]:" + port: 200,
	} {
		for _, path := range []string{"/v1/model", "/v1/blocks", "/", "/metrics", "/healthz"} {
			r, err := http.NewRequest("GET", "http://"+address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			w, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(w.Body)
			w.Body.Close()
			if w.StatusCode != want || want == 403 && (!bytes.Contains(text, []byte("http.hosts")) || bytes.Contains(text, []byte("orders/3/7"))) {
				t.Errorf("GET %s of %s: status %d, %.200s", path, host, w.StatusCode, text)
			}
		}
	}
	if got := log.take(); !strings.Contains(got, `"reason":"this daemon is not \"evil.example`) || !strings.Contains(got, `"remote":"127.0.0.1:`) {
		t.Errorf("log %s", got)
	}
}

// Pages of listed origins may call and read the answers. Others may not.
func TestCORS(t *testing.T) {
	const board = "https://board.example"
	s := New(Config{Access: guard(t, "read"), Origins: []string{board}}, newFake(), NewMetrics(), zerolog.Nop())
	bearer := "Authorization: Bearer " + retireToken
	for _, test := range []struct {
		method, target, origin string
		headers                []string
		status                 int
		allowed                bool
	}{
		{"OPTIONS", "/v1/blocks/orders/3/7", board, []string{"Access-Control-Request-Method: DELETE", "Access-Control-Request-Headers: authorization"}, 204, true},
		{"OPTIONS", "/v1/blocks/orders/3/7", "https://evil.example", []string{"Access-Control-Request-Method: DELETE"}, 405, false},
		{"OPTIONS", "/v1/blocks/orders/3/7", board + ".evil.example", []string{"Access-Control-Request-Method: DELETE"}, 405, false},
		{"OPTIONS", "/v1/model", "null", []string{"Access-Control-Request-Method: GET"}, 405, false},
		{"OPTIONS", "/v1/model", board, nil, 405, true},
		{"GET", "/v1/model", board, nil, 200, true},
		{"GET", "/v1/model", "https://evil.example", nil, 200, false}, // which its page cannot read
		{"GET", "/v1/model", "", nil, 200, false},
		{"DELETE", "/v1/blocks/orders/3/7", board, []string{bearer, "Sec-Fetch-Site: cross-site"}, 200, true},
		{"DELETE", "/v1/blocks/orders/3/7", board, []string{"Sec-Fetch-Site: cross-site"}, 401, true},
		{"DELETE", "/v1/blocks/orders/3/7", "https://evil.example", []string{bearer, "Sec-Fetch-Site: cross-site"}, 403, false},
		{"DELETE", "/v1/blocks/orders/3/7", "https://evil.example", []string{bearer}, 403, false},
	} {
		headers := test.headers
		if test.origin != "" {
			headers = append(headers, "Origin: "+test.origin)
		}
		s.service.(*fake).ids = []string{"orders/3/7"}
		w := do(s, test.method, test.target, "", headers...)
		header := w.Header()
		if w.Code != test.status || (header.Get("Access-Control-Allow-Origin") == test.origin && test.origin != "") != test.allowed {
			t.Errorf("%s %s of %q: status %d, %v", test.method, test.target, test.origin, w.Code, header)
		}
		if header.Get("Access-Control-Allow-Credentials") != "" || !slices.Contains(header.Values("Vary"), "Origin") {
			t.Errorf("%s %s of %q: %v", test.method, test.target, test.origin, header)
		}
		if w.Code == 204 && (!strings.Contains(header.Get("Access-Control-Allow-Methods"), "DELETE") || !strings.Contains(header.Get("Access-Control-Allow-Headers"), "Authorization")) {
			t.Errorf("preflight: %v", header)
		}
	}
}

// The log names refused callers and calls, without tokens and ids of blocks, and at most a
// few times a second.
func TestRefusalsAreLogged(t *testing.T) {
	var log syncBuffer
	s := New(Config{Access: guard(t, "")}, newFake(), NewMetrics(), zerolog.New(&log).Level(zerolog.WarnLevel))
	do(s, "DELETE", "/v1/blocks/key:alice", "", "Authorization: Bearer "+readToken)
	do(s, "DELETE", "/v1/blocks/key:alice", "", "Authorization: Bearer "+readToken+"x")
	got := log.take()
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 2 || strings.Contains(got, "alice") || strings.Contains(got, readToken) {
		t.Fatalf("log %s", got)
	}
	for i, want := range []map[string]any{
		{"level": "warn", "status": 403., "method": "DELETE", "path": "/v1/blocks/{id}", "caller": "reader", "remote": "192.0.2.1:1234", "reason": "reader: this call wants the role retire", "message": "request refused"},
		{"level": "warn", "status": 401., "method": "DELETE", "path": "/v1/blocks/{id}", "caller": "anonymous", "remote": "192.0.2.1:1234", "reason": access.ErrUnknownToken.Error(), "message": "request refused"},
	} {
		var line map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &line); err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if line[name] != value {
				t.Errorf("line %d: %s is %v, want %v", i, name, line[name], value)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) { // with a clock that stands still
		s := New(Config{Access: guard(t, "")}, newFake(), NewMetrics(), zerolog.New(&log).Level(zerolog.WarnLevel))
		for range 3 * refusedLines {
			do(s, "DELETE", "/v1/blocks/key:alice", "")
		}
		if n := strings.Count(log.take(), "\n"); n != refusedLines {
			t.Errorf("%d refusals are logged at once, want %d", n, refusedLines)
		}
	})
}

// Connections are encrypted, certificates identify callers, and certificates and
// authorities change without a restart.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	servers, clients, others := accesstest.NewAuthority(t), accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	cert, key := servers.Issue(t, "streamd one")
	files := config.HTTPTLS{
		CertFile: write("cert.pem", cert), KeyFile: write("key.pem", key), ClientCAFile: write("ca.pem", clients.PEM),
		Clients: map[string]config.Roles{"board.example": "read", "privacy": "retire"},
	}
	var log syncBuffer
	guard, err := access.New(config.HTTP{TLS: files}, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	address := listen(t, New(Config{Access: guard}, newFake(), NewMetrics(), zerolog.New(&log)))

	// ask returns the status, or 0 without a connection, and the name of the server.
	ask := func(method, path string, by *accesstest.Authority, name string, dns ...string) (status int, server string) {
		t.Helper()
		c := &tls.Config{RootCAs: x509.NewCertPool()}
		c.RootCAs.AppendCertsFromPEM(servers.PEM)
		if by != nil {
			pair, err := tls.X509KeyPair(by.Issue(t, name, dns...))
			if err != nil {
				t.Fatal(err)
			}
			// The client shows it whatever the server asks for.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
		defer client.CloseIdleConnections()
		r, err := http.NewRequest(method, "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.Do(r)
		if err != nil {
			return 0, ""
		}
		w.Body.Close()
		return w.StatusCode, w.TLS.PeerCertificates[0].Subject.CommonName
	}
	for _, test := range []struct {
		method, path string
		by           *accesstest.Authority
		name         string
		dns          []string
		want         int
	}{
		{"GET", "/healthz", nil, "", nil, 200},
		{"GET", "/v1/model", nil, "", nil, 403},
		{"GET", "/v1/model", clients, "board.example", nil, 200},
		{"GET", "/v1/model", clients, "other", []string{"x.example", "board.example"}, 200},
		{"GET", "/v1/model", clients, "evil.example", nil, 403},
		{"GET", "/v1/model", others, "board.example", nil, 0},
		{"DELETE", "/v1/blocks/orders/3/7", clients, "board.example", nil, 403},
		{"DELETE", "/v1/blocks/orders/3/7", clients, "privacy", nil, 200},
		{"GET", "/v1/model", clients, "privacy", []string{"board.example"}, 200},
	} {
		if got, _ := ask(test.method, test.path, test.by, test.name, test.dns...); got != test.want {
			t.Errorf("%s %s by %q %q: status %d, want %d", test.method, test.path, test.name, test.dns, got, test.want)
		}
	}
	if got := log.take(); !strings.Contains(got, `"caller":"certificate \"board.example\""`) {
		t.Errorf("log %s", got)
	}

	cert, key = servers.Issue(t, "streamd two")
	write("cert.pem", cert)
	if _, server := ask("GET", "/healthz", nil, ""); server != "streamd one" {
		t.Errorf("with half of a new pair the server is %q", server)
	}
	write("key.pem", key)
	if _, server := ask("GET", "/healthz", nil, ""); server != "streamd two" {
		t.Errorf("with a new pair the server is %q", server)
	}
	pair, err := tls.X509KeyPair(clients.Issue(t, "board.example"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(servers.PEM)
	open := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}
	defer open.CloseIdleConnections()
	again := func() int {
		w, err := open.Get("https://" + address + "/v1/model")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, w.Body)
		w.Body.Close()
		return w.StatusCode
	}
	if status := again(); status != 200 {
		t.Errorf("before: status %d", status)
	}
	write("ca.pem", others.PEM)
	if status := again(); status != 401 {
		t.Errorf("a client of the former authority, on its old connection: status %d", status)
	}
	if status, _ := ask("GET", "/v1/model", clients, "board.example"); status != 0 {
		t.Errorf("a client of the former authority: status %d", status)
	}
	if status, _ := ask("GET", "/v1/model", others, "board.example"); status != 200 {
		t.Errorf("a client of the new authority: status %d", status)
	}
	write("ca.pem", []byte("nonsense"))
	if status, _ := ask("GET", "/v1/model", others, "board.example"); status != 200 {
		t.Errorf("a client beside a broken file: status %d", status)
	}
	if got := log.take(); strings.Count(got, "stays in force") != 2 || !strings.Contains(got, "ca.pem holds no certificate") {
		t.Errorf("log %s", got)
	}
}

// Without the role the page asks for a token and shows nothing else.
func TestPageAsksForAToken(t *testing.T) {
	s := New(Config{Access: guard(t, "")}, newFake(), NewMetrics(), zerolog.Nop())
	for header, want := range map[string]string{
		"X: y": "Token with the role read", "Authorization: Bearer " + predictToken: "predictor: this call wants the role read",
		"Authorization: Bearer x": access.ErrUnknownToken.Error(),
	} {
		w := do(s, "GET", "/", "", header)
		page := w.Body.String()
		if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" || !strings.Contains(page, `name="token"`) || !strings.Contains(page, html.EscapeString(want)) || strings.Contains(page, "orders") {
			t.Errorf("%s: status %d, %s", header, w.Code, page)
		}
		if !strings.Contains(w.Header().Get("Content-Security-Policy"), "form-action 'self'") {
			t.Errorf("headers %v", w.Header())
		}
	}
	if w := do(s, "GET", "/", "", "Authorization: Bearer "+readToken); w.Code != 200 || !strings.Contains(w.Body.String(), "orders") {
		t.Errorf("with the token: status %d", w.Code)
	}
	if w := do(s, "GET", "/assets/page.js", ""); w.Code != 200 {
		t.Errorf("the page's script: status %d", w.Code)
	}
}
