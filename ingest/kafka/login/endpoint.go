package login

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// ClientCredentials gets tokens from a token endpoint by the grant client_credentials (RFC 6749,
// section 4.4).
type ClientCredentials struct {
	URL          string // of the token endpoint
	ClientID     string
	ClientSecret string
	Scope        string // empty: the endpoint's own
	Audience     string // empty: none
	// Parameters are further parameters of the request, such as resource.
	Parameters map[string]string
	// CAFile has the authorities that the endpoint's certificate is checked by, in PEM form. Empty:
	// the system's. It is read for each request.
	CAFile string
	Log    zerolog.Logger
}

// reserved are the parameters of a request that have their own fields.
var reserved = map[string]string{
	"grant_type": "", "client_id": "ClientID", "client_secret": "ClientSecret", "scope": "Scope", "audience": "Audience",
}

// CheckParameter checks the name of a further parameter.
func CheckParameter(name string) error {
	if name == "" {
		return errors.New("a parameter needs a name")
	}
	if _, ok := reserved[name]; ok {
		return fmt.Errorf("parameter %s has a setting of its own", name)
	}
	return nil
}

// CheckURL checks the address of a token endpoint.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http":
		return errors.New("want an address such as https://login.example.com/oauth2/token")
	case u.User != nil:
		return errors.New("want an address without a user name and a password")
	case u.Fragment != "":
		return errors.New("want an address without a fragment")
	}
	return nil
}

// endpoint is a token endpoint with the token that it gave.
type endpoint struct {
	cc     ClientCredentials
	cache  cached[string]
	inBody atomic.Bool // the client's secret goes into the body of the request, not into a header
}

// NewTokens returns a source of tokens, which asks for one when it is first needed.
func (cc ClientCredentials) NewTokens() (Tokens, error) {
	err := CheckURL(cc.URL)
	if err == nil && (cc.ClientID == "" || cc.ClientSecret == "") {
		err = errors.New("want a client id and a client secret")
	}
	for name := range cc.Parameters {
		err = cmp.Or(err, CheckParameter(name))
	}
	if err == nil {
		_, err = authorities(cc.CAFile)
	}
	if err != nil {
		return nil, fmt.Errorf("token endpoint %s: %w", cc.URL, err)
	}
	e := &endpoint{cc: cc}
	e.cache = cached[string]{what: "token of " + cc.URL, log: cc.Log, fetch: e.fetch}
	return e, nil
}

// Token implements Tokens.
func (e *endpoint) Token(ctx context.Context) (string, error) { return e.cache.get(ctx) }

// Discard implements Tokens.
func (e *endpoint) Discard() { e.cache.discard() }

// fetch requests a token.
func (e *endpoint) fetch(ctx context.Context) (string, time.Time, error) {
	token, expires, err := e.request(ctx, e.inBody.Load())
	var a *answerError
	if errors.As(err, &a) && a.client && !e.inBody.Load() {
		// RFC 6749 wants the header, and some endpoints take the body only.
		if token, expires, again := e.request(ctx, true); again == nil {
			e.inBody.Store(true)
			return token, expires, nil
		}
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("the token endpoint %s %w", e.cc.URL, err)
	}
	return token, expires, nil
}

func (e *endpoint) request(ctx context.Context, inBody bool) (string, time.Time, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	set := func(name, value string) {
		if value != "" {
			form.Set(name, value)
		}
	}
	set("scope", e.cc.Scope)
	set("audience", e.cc.Audience)
	for name, value := range e.cc.Parameters {
		set(name, value)
	}
	if inBody {
		set("client_id", e.cc.ClientID)
		set("client_secret", e.cc.ClientSecret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cc.URL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", time.Time{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if !inBody {
		req.SetBasicAuth(url.QueryEscape(e.cc.ClientID), url.QueryEscape(e.cc.ClientSecret))
	}
	roots, err := authorities(e.cc.CAFile)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("cannot be checked: %w", err)
	}
	status, body, err := ask(req, roots, true)
	if err != nil {
		return "", time.Time{}, err
	}
	token, expires, err := readToken(status, body, time.Now())
	var a *answerError
	if errors.As(err, &a) { // an endpoint may repeat what it was sent
		for _, form := range []string{e.cc.ClientSecret, url.QueryEscape(e.cc.ClientSecret)} {
			a.reason = strings.ReplaceAll(a.reason, form, "(the secret)")
		}
	}
	return token, expires, err
}

// answerError is an endpoint's refusal.
type answerError struct {
	status int
	reason string
	client bool // it does not accept the client's id and secret
}

func (a *answerError) Error() string {
	text := fmt.Sprintf("answered %d", a.status)
	if name := http.StatusText(a.status); name != "" {
		text += " " + name
	}
	if a.reason != "" {
		text += ": " + a.reason
	}
	return text
}

// defaultLifetime is that of a token whose endpoint does not say it.
const defaultLifetime = 5 * time.Minute

// readToken reads the answer of a token endpoint (RFC 6749, sections 5.1 and 5.2).
func readToken(status int, body []byte, now time.Time) (token string, expires time.Time, err error) {
	var answer struct {
		AccessToken string          `json:"access_token"`
		TokenType   string          `json:"token_type"`
		ExpiresIn   json.RawMessage `json:"expires_in"`
		Error       string          `json:"error"`
		Description string          `json:"error_description"`
	}
	invalid := json.Unmarshal(body, &answer)
	if status != http.StatusOK {
		a := &answerError{status: status}
		if invalid == nil {
			a.reason = printable(strings.Trim(answer.Error+": "+answer.Description, ": "))
		}
		a.client = status == http.StatusUnauthorized || status == http.StatusBadRequest && answer.Error == "invalid_client"
		return "", time.Time{}, a
	}
	if invalid != nil { // its text may show a token
		return "", time.Time{}, errors.New("answered 200 OK with something else than the JSON of a token")
	}
	if answer.Error != "" {
		return "", time.Time{}, &answerError{status: status, reason: printable(answer.Error + ": " + answer.Description)}
	}
	if answer.TokenType != "" && !strings.EqualFold(answer.TokenType, "bearer") {
		return "", time.Time{}, fmt.Errorf("gives tokens of type %q, want Bearer", printable(answer.TokenType))
	}
	if err := checkToken(answer.AccessToken); err != nil {
		return "", time.Time{}, fmt.Errorf("answered 200 OK, but %w", err)
	}
	// Some endpoints write the number as a text.
	seconds, err := strconv.ParseFloat(strings.Trim(string(answer.ExpiresIn), `"`), 64)
	const most = 365 * 24 * 3600
	switch jwt := jwtExpiry(answer.AccessToken); {
	case err == nil && seconds > 0:
		expires = now.Add(time.Duration(min(seconds, most) * float64(time.Second)))
	case !jwt.IsZero():
		expires = jwt
	default:
		expires = now.Add(defaultLifetime)
	}
	return answer.AccessToken, expires, nil
}

// maxReply bounds the body of an HTTP answer, in bytes.
const maxReply = 64 << 10

// ask sends a request, and returns the status and the body of the answer. Redirections are not
// followed, as they would take a secret elsewhere.
func ask(req *http.Request, roots *x509.CertPool, proxied bool) (status int, body []byte, err error) {
	transport := &http.Transport{
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxReply,
	}
	if proxied {
		transport.Proxy = http.ProxyFromEnvironment
	}
	defer transport.CloseIdleConnections()
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) { // it begins with the method and the address
			err = u.Err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer in time: %w", err)
		}
		return 0, nil, fmt.Errorf("cannot be asked: %w", err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(resp.Body, maxReply+1)); err != nil {
		return 0, nil, fmt.Errorf("broke off its answer: %w", err)
	}
	if len(body) > maxReply {
		return 0, nil, fmt.Errorf("answered with more than %d bytes", maxReply)
	}
	return resp.StatusCode, body, nil
}

// authorities reads the certificates of a file. Without one it returns nil, for the system's.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return pool, nil
}
