package witness

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"streamd/retire/receipt"
)

// Bounds of a call.
const (
	timeout    = 10 * time.Second
	mostAnswer = 64 << 10 // bytes: a witness may cosign with several keys
)

// client calls one witness. Its methods may be called at the same time.
type client struct {
	url  string
	key  *receipt.Witness
	http *http.Client
}

// newClient makes a client of the witness at a URL, the submission prefix, that cosigns with a key.
func newClient(url string, key *receipt.Witness) *client {
	return &client{url: strings.TrimRight(url, "/"), key: key, http: &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// A conflictError says that the witness has last cosigned a log of another size.
type conflictError struct{ size int64 }

func (e *conflictError) Error() string {
	return fmt.Sprintf("the witness has cosigned %d leaves", e.size)
}

// errOtherLog says that the log does not continue the one that the witness has cosigned.
var errOtherLog = errors.New("the log is not a continuation of the one that the witness has cosigned: was an older snapshot put back?")

// add asks for the cosignature of a signed checkpoint. proof proves that it continues the log of
// that old size, which the witness has cosigned last; 0 and no proof if there is none. The error
// is a *conflictError if the witness has another size, and errOtherLog if the proof is wrong for
// it.
func (c *client) add(ctx context.Context, old int64, proof tlog.TreeProof, checkpoint []byte) (receipt.Cosignature, error) {
	var none receipt.Cosignature
	body := fmt.Appendf(nil, "old %d\n", old)
	for _, h := range proof {
		body = append(base64.StdEncoding.AppendEncode(body, h[:]), '\n')
	}
	body = append(append(body, '\n'), checkpoint...)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/add-checkpoint", bytes.NewReader(body))
	if err != nil {
		return none, err
	}
	r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	r.Header.Set("User-Agent", "streamd")
	answer, err := c.http.Do(r)
	if err != nil {
		return none, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer+1))
	switch {
	case err != nil:
		return none, err
	case len(text) > mostAnswer:
		return none, fmt.Errorf("POST %s: the answer has more than %d bytes", r.URL, mostAnswer)
	case answer.StatusCode == http.StatusOK:
	case answer.StatusCode == http.StatusConflict && answer.Header.Get("Content-Type") == "text/x.tlog.size":
		digits, _ := strings.CutSuffix(string(text), "\n")
		size, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || size < 0 {
			return none, fmt.Errorf("POST %s: a conflict with the size %.40q", r.URL, digits)
		}
		return none, &conflictError{size}
	default:
		err := fmt.Errorf("POST %s: %s: %.200q%s", r.URL, answer.Status, strings.TrimSpace(string(text)), explained(answer.StatusCode))
		if answer.StatusCode == http.StatusUnprocessableEntity {
			err = fmt.Errorf("%w (%w)", err, errOtherLog)
		}
		return none, err
	}
	found, err := receipt.Cosignatures(append(bytes.Clone(checkpoint), text...), []*receipt.Witness{c.key})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("it has no cosignature of the key %s+%08x", c.key.Name(), c.key.KeyHash())
	}
	if err != nil {
		return none, fmt.Errorf("POST %s: the answer: %w", r.URL, err)
	}
	return found[0], nil
}

// explained says what to do about a refusal.
func explained(status int) string {
	switch status {
	case http.StatusNotFound:
		return " (the witness does not know this log: give it the public key of receipts.key_file)"
	case http.StatusForbidden:
		return " (the witness has another public key for this log)"
	}
	return ""
}
