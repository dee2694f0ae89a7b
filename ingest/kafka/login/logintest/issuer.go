package logintest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Issuer is a token endpoint for the grant client_credentials. It signs JSON web tokens (HS256).
type Issuer struct {
	*httptest.Server
	ClientID, Secret string
	Lifetime         time.Duration // of tokens
	Unsigned         bool          // tokens for Kafka's unsecured test mode
	BodyOnly         bool          // the client's secret is not taken from the header

	mu       sync.Mutex
	instead  http.HandlerFunc // answers instead, if not nil
	requests int
	last     url.Values // of the latest request
	n        int
}

// signingKey is of tests only.
var signingKey = []byte("the key of an issuer in tests")

// Start begins to listen.
func (i *Issuer) Start() { i.Server = httptest.NewServer(i) }

// Instead lets a handler answer. Nil ends that.
func (i *Issuer) Instead(h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.instead = h
}

// Requests returns how many requests there were, and the form of the latest.
func (i *Issuer) Requests() (int, url.Values) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests, i.last
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.ParseForm()
	i.mu.Lock()
	i.requests++
	i.last = r.PostForm
	instead := i.instead
	i.mu.Unlock()
	if instead != nil {
		instead(w, r)
		return
	}
	id, secret, _ := r.BasicAuth()
	id, _ = url.QueryUnescape(id)
	secret, _ = url.QueryUnescape(secret)
	if i.BodyOnly || id == "" {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodPost || r.PostForm.Get("grant_type") != "client_credentials" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"unsupported_grant_type"}`)
		return
	}
	if id != i.ClientID || secret != i.Secret {
		w.WriteHeader(http.StatusUnauthorized)
		// Some endpoints repeat what they were sent.
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s with secret %s is unknown"}`, id, secret)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{
		"access_token": i.Token(id, time.Now().Add(i.Lifetime)), "token_type": "Bearer", "expires_in": i.Lifetime.Seconds(),
	})
}

// Token makes a token for a subject.
func (i *Issuer) Token(subject string, expires time.Time) string {
	i.mu.Lock()
	i.n++
	claims := map[string]any{"sub": subject, "iat": float64(time.Now().UnixMilli()) / 1000, "exp": float64(expires.UnixMilli()) / 1000, "jti": fmt.Sprint(i.n)}
	i.mu.Unlock()
	text, _ := json.Marshal(claims)
	encode := base64.RawURLEncoding.EncodeToString
	if i.Unsigned {
		return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "."
	}
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(text)
	return signed + "." + encode(signature(signed))
}

func signature(text string) []byte {
	mac := hmac.New(sha256.New, signingKey)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// Check checks a signed token, for Broker.Check.
func Check(token string) (subject string, expires time.Time, err error) {
	at := strings.LastIndexByte(token, '.')
	if at < 0 {
		return "", time.Time{}, errors.New("no signature")
	}
	given, err := base64.RawURLEncoding.DecodeString(token[at+1:])
	if err != nil || !hmac.Equal(given, signature(token[:at])) {
		return "", time.Time{}, errors.New("the signature is wrong")
	}
	_, claims, _ := strings.Cut(token[:at], ".")
	text, err := base64.RawURLEncoding.DecodeString(claims)
	if err != nil {
		return "", time.Time{}, err
	}
	var c struct {
		Sub string
		Exp float64
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return "", time.Time{}, err
	}
	if expires = time.UnixMilli(int64(c.Exp * 1000)); !time.Now().Before(expires) {
		return "", time.Time{}, errors.New("the token has expired")
	}
	return c.Sub, expires, nil
}
