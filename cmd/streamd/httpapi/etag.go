package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// hasModel sets the fingerprint as a weak tag, and answers 304 if the client has an answer of that
// fingerprint. The tag is weak because times, offsets and reports in the answer are no part of the
// fingerprint.
func hasModel(w http.ResponseWriter, r *http.Request, fingerprint string) bool {
	w.Header().Set("ETag", weakPrefix+`"`+fingerprint+`"`)
	return notModified(w, r, fingerprint)
}

// hasBytes is hasModel for the tag of the answer's bytes, which is strong.
func hasBytes(w http.ResponseWriter, r *http.Request, tag string) bool {
	w.Header().Set("ETag", `"`+tag+`"`)
	return notModified(w, r, tag)
}

const weakPrefix = "W/"

func notModified(w http.ResponseWriter, r *http.Request, tag string) bool {
	w.Header().Set("Cache-Control", "no-cache")
	if !parseTags(r.Header.Values("If-None-Match")).has(tag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// tags are the entries of an If-None-Match header (RFC 9110, 13.1.2).
type tags struct {
	any   bool
	named []string // opaque parts, without quotes
}

// parseTags reads the header's lines up to the first malformed tag. The RFC wants weak
// comparison for this header, so W/ is dropped.
func parseTags(lines []string) tags {
	var t tags
	rest := strings.Join(lines, ",")
	for {
		rest = strings.TrimLeft(rest, " \t,")
		if strings.HasPrefix(rest, "*") {
			t.any = true
			return t
		}
		quoted, ok := strings.CutPrefix(strings.TrimPrefix(rest, weakPrefix), `"`)
		if !ok {
			return t
		}
		tag, after, ok := strings.Cut(quoted, `"`)
		if !ok {
			return t
		}
		t.named = append(t.named, strings.TrimSuffix(tag, zippedTag))
		rest = after
	}
}

func (t tags) has(fingerprint string) bool {
	return t.any || slices.Contains(t.named, fingerprint)
}

// tagOf is the strong tag of an answer, by its content.
func tagOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8])
}
