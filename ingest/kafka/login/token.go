package login

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// maxToken bounds a token, in bytes. It has to fit an answer, and a request to a broker.
const maxToken = 32 << 10

// tokenText is what a bearer token may consist of (RFC 6750, section 2.1).
var tokenText = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// checkToken checks a token without showing it.
func checkToken(token string) error {
	switch {
	case token == "":
		return errors.New("the token is empty")
	case len(token) > maxToken:
		return fmt.Errorf("the token has %d bytes, want at most %d", len(token), maxToken)
	case !tokenText.MatchString(token):
		return errors.New("the token has characters that a bearer token cannot have")
	}
	return nil
}

// jwtExpiry returns the time of exp in a JSON web token, or the zero time for other tokens. The
// signature is the broker's business.
func jwtExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var c struct {
		Exp float64 `json:"exp"`
	}
	const latest = 253402300799 // the end of the year 9999
	if json.Unmarshal(claims, &c) != nil || !(c.Exp > 0 && c.Exp < latest) {
		return time.Time{}
	}
	return time.Unix(int64(c.Exp), 0)
}

// TokenFile reads tokens from a file that something else renews, such as Kubernetes' projected
// service account tokens. It is read for each login.
type TokenFile string

// Token implements Tokens.
func (f TokenFile) Token(context.Context) (string, error) {
	token, err := f.look()
	if err != nil {
		return "", err
	}
	if expires := jwtExpiry(token); !expires.IsZero() && !time.Now().Before(expires) {
		return "", fmt.Errorf("%s: the token has expired at %s: what writes the file has to renew it", string(f), expires.UTC().Format(time.RFC3339))
	}
	return token, nil
}

// Check reports whether the file has a token, be it an old one.
func (f TokenFile) Check() error {
	_, err := f.look()
	return err
}

func (f TokenFile) look() (string, error) {
	token, err := f.read()
	if err != nil {
		return "", err
	}
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("%s: %w", string(f), err)
	}
	return token, nil
}

// Discard implements Tokens. The file is read again in any case.
func (TokenFile) Discard() {}

// read returns the text of the file.
func (f TokenFile) read() (string, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxToken+2))
	return strings.TrimSpace(string(data)), err
}
