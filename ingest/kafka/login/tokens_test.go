package login

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka/login/logintest"
)

// secret has all that a form has to encode, and must not show anywhere.
const secret = "s3cret+/&=%:ü"

// endpointOf starts a token endpoint, and returns a source of its tokens.
func endpointOf(t *testing.T, issuer *logintest.Issuer, cc ClientCredentials) *endpoint {
	t.Helper()
	issuer.ClientID, issuer.Secret = "me:too", secret
	issuer.Start()
	t.Cleanup(issuer.Close)
	cc.URL, cc.ClientID, cc.ClientSecret = issuer.URL, "me:too", secret
	tokens, err := cc.NewTokens()
	if err != nil {
		t.Fatal(err)
	}
	return tokens.(*endpoint)
}

func TestClientCredentials(t *testing.T) {
	for _, bodyOnly := range []bool{false, true} {
		issuer := &logintest.Issuer{Lifetime: time.Hour, BodyOnly: bodyOnly}
		e := endpointOf(t, issuer, ClientCredentials{
			Scope: "kafka read", Audience: "brokers", Parameters: map[string]string{"resource": "urn:kafka"},
		})
		token, err := e.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if subject, _, err := logintest.Check(token); err != nil || subject != "me:too" {
			t.Errorf("%q, %v", subject, err)
		}
		n, form := issuer.Requests()
		for name, want := range map[string]string{"scope": "kafka read", "audience": "brokers", "resource": "urn:kafka"} {
			if form.Get(name) != want {
				t.Errorf("%s is %q", name, form.Get(name))
			}
		}
		if again, err := e.Token(t.Context()); err != nil || again != token {
			t.Error("the token was not kept", err)
		}
		// Where the header was refused once, it is not tried again.
		e.Discard()
		if again, err := e.Token(t.Context()); err != nil || again == token {
			t.Error("the token was not replaced", err)
		}
		want := 1
		if bodyOnly {
			want = 2
		}
		if n != want {
			t.Errorf("%d requests for the first token", n)
		}
		if m, _ := issuer.Requests(); m != n+1 {
			t.Errorf("%d requests for the second token", m-n)
		}
	}
}

// Many connections that want a token make one request.
func TestOneRequestAtATime(t *testing.T) {
	issuer := &logintest.Issuer{Lifetime: time.Hour}
	e := endpointOf(t, issuer, ClientCredentials{})
	var work sync.WaitGroup
	for range 50 {
		work.Go(func() {
			if _, err := e.Token(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if n, _ := issuer.Requests(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// Bad answers are errors that name the endpoint and say what was wrong, in bounded memory and time.
func TestBadAnswers(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); fmt.Fprint(w, body) }
	}
	expired := (&logintest.Issuer{}).Token("me", time.Now().Add(-time.Minute))
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"wrong secret": {answer(401, `{"error":"invalid_client","error_description":"no client with `+secret+`"}`), "answered 401 Unauthorized: invalid_client: no client with (the secret)"},
		"quoted":       {answer(400, `{"error":"invalid_scope","error_description":"a\u001b[31m\nb"}`), "answered 400 Bad Request: invalid_scope: a [31m b"},
		"long":         {answer(400, `{"error":"`+strings.Repeat("x", 5000)+`"}`), "xxx…"},
		"a page":       {answer(503, "<html>"+secret), "answered 503 Service Unavailable"},
		"garbage":      {answer(200, "\x00\xff"), "something else than the JSON of a token"},
		"no token":     {answer(200, `{"token_type":"Bearer"}`), "the token is empty"},
		"array":        {answer(200, `[]`), "something else than the JSON of a token"},
		"type":         {answer(200, `{"access_token":"abc","token_type":"mac"}`), `tokens of type "mac"`},
		"characters":   {answer(200, `{"access_token":"a\u0001b"}`), "characters that a bearer token cannot have"},
		"long token":   {answer(200, `{"access_token":"`+strings.Repeat("x", maxToken+1)+`"}`), "want at most"},
		"error in 200": {answer(200, `{"error":"temporarily_unavailable"}`), "temporarily_unavailable"},
		"expired":      {answer(200, `{"access_token":"`+expired+`"}`), "has expired already"},
		"huge":         {answer(200, `{"access_token":"`+strings.Repeat("x", 1<<20)+`"}`), "more than 65536 bytes"},
		"redirection": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect)
		}, "answered 307 Temporary Redirect"},
		"hang-up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be asked"},
		"half": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"access_token"`)
		}, "broke off its answer"},
		"slow": {func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer in time"},
		"drip": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond)
			}
		}, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := new(logintest.Issuer)
			e := endpointOf(t, issuer, ClientCredentials{})
			if e.cache.limit = 10 * time.Second; name == "slow" || name == "drip" {
				e.cache.limit = 300 * time.Millisecond
			}
			issuer.Instead(test.answer)
			began := time.Now()
			token, err := e.Token(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), issuer.URL) {
				t.Errorf("%q, %v", token, err)
			}
			if text := fmt.Sprint(err); strings.Contains(text, secret) || strings.Contains(text, expired) || len(text) > 600 {
				t.Errorf("the error says %q", text)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			// The next one has the same error at once, and the endpoint its peace.
			n, _ := issuer.Requests()
			if _, again := e.Token(t.Context()); again == nil {
				t.Error("no error")
			} else if m, _ := issuer.Requests(); m > n {
				t.Errorf("%d requests more, at once", m-n)
			}
		})
	}
}

// While a token is valid, an endpoint that is away is a line in the log. Afterwards it is an error,
// and none any more when the endpoint is back.
func TestEndpointAway(t *testing.T) {
	issuer := &logintest.Issuer{Lifetime: 1500 * time.Millisecond}
	var log bytes.Buffer
	e := endpointOf(t, issuer, ClientCredentials{Log: zerolog.New(&log)})
	first, err := e.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	issuer.Instead(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	time.Sleep(1250*time.Millisecond - time.Since(began))
	if token, err := e.Token(t.Context()); err != nil || token != first {
		t.Errorf("the valid token: %v", err)
	}
	time.Sleep(1600*time.Millisecond - time.Since(began))
	if _, err := e.Token(t.Context()); err == nil || !strings.Contains(err.Error(), "502 Bad Gateway") {
		t.Errorf("after its end: %v", err)
	}
	issuer.Instead(nil)
	for {
		token, err := e.Token(t.Context())
		if err == nil {
			if _, _, err := logintest.Check(token); err != nil {
				t.Error(err)
			}
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if text := log.String(); !strings.Contains(text, "could not be renewed") || !strings.Contains(text, "502") {
		t.Errorf("log %q", text)
	}
}

// Who waits for a token may leave, and the request goes on for the others.
func TestWaiterLeaves(t *testing.T) {
	issuer := &logintest.Issuer{Lifetime: time.Hour}
	release := make(chan bool)
	e := endpointOf(t, issuer, ClientCredentials{})
	issuer.Instead(func(w http.ResponseWriter, r *http.Request) {
		<-release
		issuer.Instead(nil)
		issuer.ServeHTTP(w, r)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.Token(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "wait for the token of "+issuer.URL) {
		t.Errorf("got %v", err)
	}
	close(release)
	if _, err := e.Token(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTokenLifetimes(t *testing.T) {
	now := time.Now()
	jwt := (&logintest.Issuer{}).Token("me", now.Add(time.Minute))
	for body, want := range map[string]time.Duration{
		`{"access_token":"abc","expires_in":60}`:           time.Minute,
		`{"access_token":"abc","expires_in":"60"}`:         time.Minute,
		`{"access_token":"abc"}`:                           defaultLifetime,
		`{"access_token":"abc","expires_in":null}`:         defaultLifetime,
		`{"access_token":"abc","expires_in":-1}`:           defaultLifetime,
		`{"access_token":"abc","expires_in":1e300}`:        365 * 24 * time.Hour,
		`{"access_token":"` + jwt + `"}`:                   time.Minute,
		`{"access_token":"` + jwt + `","expires_in":30}`:   30 * time.Second,
		`{"access_token":"abc","expires_in":[1,{"a":[]}]}`: defaultLifetime,
	} {
		_, expires, err := readToken(200, []byte(body), now)
		if got := expires.Sub(now); err != nil || got > want || got < want-time.Second {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}

func TestTokenFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issuer := new(logintest.Issuer)
	f := TokenFile(name)
	if _, err := f.Token(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for range 2 { // it is read again
		token := issuer.Token("me", time.Now().Add(time.Hour))
		write(token + "\n")
		if got, err := f.Token(t.Context()); err != nil || got != token {
			t.Errorf("%q, %v", got, err)
		}
	}
	old := issuer.Token("me", time.Now().Add(-time.Hour))
	for text, want := range map[string]string{
		"": "is empty", "two words": "characters", old: "has expired at", strings.Repeat("x", maxToken+1): "bytes, want at most",
	} {
		write(text)
		if _, err := f.Token(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	write(old)
	if err := f.Check(); err != nil { // something may be about to renew it
		t.Error(err)
	}
}

func TestNewTokensChecks(t *testing.T) {
	good := ClientCredentials{URL: "https://login.example/token", ClientID: "me", ClientSecret: "x"}
	if _, err := good.NewTokens(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*ClientCredentials){
		"want an address such as": func(c *ClientCredentials) { c.URL = "login.example" },
		"without a user name":     func(c *ClientCredentials) { c.URL = "https://a:b@login.example" },
		"without a fragment":      func(c *ClientCredentials) { c.URL += "#a" },
		"client id":               func(c *ClientCredentials) { c.ClientID = "" },
		"parameter scope":         func(c *ClientCredentials) { c.Parameters = map[string]string{"scope": "a"} },
		"no such file":            func(c *ClientCredentials) { c.CAFile = "/nowhere/ca.pem" },
	} {
		bad := good
		spoil(&bad)
		if _, err := bad.NewTokens(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
