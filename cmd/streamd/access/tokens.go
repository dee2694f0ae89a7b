package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/rs/zerolog"

	"streamd/config"
)

const (
	leastToken    = 16      // bytes
	maxTokens     = 1000    // each request is compared with all of them
	maxTokensFile = 1 << 20 // bytes
)

// token is a line of http.tokens_file.
type token struct {
	name  string
	roles config.Roles
	sum   [sha256.Size]byte // hash of the text, which is not kept
}

// readTokens reads and checks a file of tokens.
func readTokens(file string, log zerolog.Logger) ([]token, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokensFile+1))
	if err != nil {
		return nil, err
	}
	tokens, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn().Str("file", file).Stringer("mode", info.Mode().Perm()).
			Msg("others than its owner can read or change the file of tokens: chmod 600 it")
	}
	return tokens, nil
}

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)
	tokenPattern = regexp.MustCompile(`^[!-~]{1,1000}$`) // the characters of an Authorization header
)

// parseTokens reads lines of a name, roles and a token, with blanks between them. Empty
// lines and lines that begin with # are comments. Several lines may have the same name, so
// that a token can be replaced without a gap. An error repeats nothing of the text, since
// the words may be in the wrong order.
func parseTokens(text []byte) ([]token, error) {
	if len(text) > maxTokensFile {
		return nil, fmt.Errorf("larger than %d bytes", maxTokensFile)
	}
	var tokens []token
	first := map[[sha256.Size]byte]int{} // line of each token
	number := 0
	for line := range bytes.Lines(text) {
		number++
		bad := func(problem string) error { return fmt.Errorf("line %d: %s", number, problem) }
		words := strings.Fields(string(line))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 3 {
			return nil, bad("want three words, NAME ROLES TOKEN")
		}
		roles, err := config.ParseRoles(words[1])
		switch {
		case !namePattern.MatchString(words[0]):
			return nil, bad("want a name of 1 to 64 letters, digits or . _ - @")
		case err != nil:
			return nil, bad("roles: " + err.Error())
		case len(words[2]) < leastToken:
			return nil, bad(fmt.Sprintf("the token has fewer than %d bytes; openssl rand -hex 24 makes a good one", leastToken))
		case !tokenPattern.MatchString(words[2]):
			return nil, bad("want a token of at most 1000 printable ASCII characters")
		case len(tokens) == maxTokens:
			return nil, bad(fmt.Sprintf("more than %d tokens", maxTokens))
		}
		t := token{words[0], roles, sha256.Sum256([]byte(words[2]))}
		if other, ok := first[t.sum]; ok {
			return nil, bad(fmt.Sprintf("the same token as in line %d", other))
		}
		first[t.sum] = number
		tokens = append(tokens, t)
	}
	if len(tokens) == 0 {
		return nil, errors.New("there is no token in it")
	}
	return tokens, nil
}

// find looks for the token with the text. Its time depends neither on the text nor on the
// token's place.
func find(tokens []token, text string) (t token, ok bool) {
	sum := sha256.Sum256([]byte(text)) // has the same length for all texts
	at := -1
	for i := range tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], tokens[i].sum[:]), i, at)
	}
	if at < 0 {
		return token{}, false
	}
	return tokens[at], true
}
