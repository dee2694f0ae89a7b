package access

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"streamd/config"
)

const (
	first  = "0123456789abcdef"
	second = "fedcba9876543210"
)

// replace puts a file into place as deployments do, by renaming.
func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestParseTokens(t *testing.T) {
	tokens, err := parseTokens([]byte("# comment\n\n ops  admin\t" + first + "\r\nboard read+predict " + second))
	if err != nil || len(tokens) != 2 || tokens[0].name != "ops" || tokens[0].roles != "admin" || tokens[1].roles != "read+predict" {
		t.Fatalf("%+v, %v", tokens, err)
	}
	for text, name := range map[string]string{first: "ops", second: "board", "": "", first[1:]: "", first + "x": "", second[:15]: ""} {
		if got, ok := find(tokens, text); got.name != name || ok != (name != "") {
			t.Errorf("%q is %q", text, got.name)
		}
	}

	for text, want := range map[string]string{
		"":                                      "there is no token",
		"# only words\n":                        "there is no token",
		"ops admin":                             "line 1: want three words",
		first:                                   "line 1: want three words",
		"ops admin " + first + " x":             "line 1: want three words",
		"ops root " + first:                     "line 1: roles:",
		"ops " + first + " admin":               "line 1: roles:",
		"o:s admin " + first:                    "line 1: want a name",
		"\nops admin " + first[:15]:             "line 2: the token has fewer than 16 bytes",
		"ops admin " + first + "\u00e4":         "line 1: want a token of",
		"a read " + first + "\nb read " + first: "line 2: the same token as in line 1",
		strings.Repeat("#\n", maxTokensFile):    "larger than",
	} {
		if _, err := parseTokens([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), first[:15]) {
			t.Errorf("%.60q: %v, want %q without the token", text, err, want)
		}
	}
	var many strings.Builder
	for i := range maxTokens + 1 {
		fmt.Fprintf(&many, "n read %s%04d\n", first, i)
	}
	if _, err := parseTokens([]byte(many.String())); err == nil || !strings.Contains(err.Error(), "more than 1000 tokens") {
		t.Error(err)
	}
}

// FuzzParseTokens looks for a file that is misread. Each token must be a line of three
// words, and its text must find the line's name and roles. No error repeats a word that is
// long enough to be a token.
func FuzzParseTokens(f *testing.F) {
	f.Add([]byte("ops admin "+first+"\n# x\nboard read+predict "+second), second)
	f.Add([]byte(first+" ops admin"), first)
	f.Fuzz(func(t *testing.T, text []byte, other string) {
		tokens, err := parseTokens(text)
		words := map[string][]string{} // words of the lines, by the last word
		for line := range strings.Lines(string(text)) {
			w := strings.Fields(line)
			for _, word := range w {
				if err != nil && len(word) >= leastToken && strings.Contains(err.Error(), word) {
					t.Errorf("the error repeats %q: %v", word, err)
				}
			}
			if len(w) == 3 && !strings.HasPrefix(w[0], "#") {
				words[w[2]] = w
			}
		}
		if err != nil {
			return
		}
		if len(tokens) != len(words) || len(tokens) == 0 {
			t.Fatalf("%d tokens in %d lines", len(tokens), len(words))
		}
		for last, w := range words {
			got, ok := find(tokens, last)
			roles, err := config.ParseRoles(w[1])
			if !ok || got.name != w[0] || err != nil || got.roles != roles || len(last) < leastToken {
				t.Errorf("%q is found as %+v", w, got)
			}
		}
		if got, ok := find(tokens, other); ok && words[other] == nil {
			t.Errorf("%q is taken for the token of %s", other, got.name)
		}
	})
}

// A changed file of tokens counts from the next request on. A file that cannot be used
// changes nothing.
func TestTokensAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	replace(t, file, "ops admin "+first+"\n")
	var log bytes.Buffer
	g, err := New(config.HTTP{TokensFile: file, Anonymous: "read"}, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(token string) (Caller, error) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		return g.Caller(r)
	}
	if c, err := ask(first); err != nil || c.Name != "ops" || !c.Roles.Has(config.RoleAdmin) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ask(second); err == nil {
		t.Errorf("another token is taken for that of %+v", c)
	}
	replace(t, file, "board predict "+second+"\n")
	if c, err := ask(second); err != nil || c.Name != "board" || c.Roles != "read+predict" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ask(first); err == nil {
		t.Error("a token that was taken out of the file still counts")
	}
	if log.Len() == 0 || strings.Contains(log.String(), `"error"`) {
		t.Errorf("log %s", &log)
	}

	for _, broken := range []func(){
		func() { replace(t, file, "ops admin short") },
		func() { os.Remove(file) },
	} {
		broken()
		log.Reset()
		for range 3 {
			if c, err := ask(second); err != nil || c.Name != "board" {
				t.Errorf("%+v, %v", c, err)
			}
		}
		if strings.Count(log.String(), "stays in force") != 1 {
			t.Errorf("log %s", &log)
		}
	}
	if _, err := New(config.HTTP{TokensFile: file}, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "http.tokens_file: open "+file) {
		t.Errorf("error %v", err)
	}
}

func TestReadableTokensAreWarnedOf(t *testing.T) {
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true} {
		file := filepath.Join(t.TempDir(), "tokens")
		replace(t, file, "ops admin "+first)
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		if _, err := New(config.HTTP{TokensFile: file}, zerolog.New(&log)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "chmod 600") != warned || strings.Contains(log.String(), first) {
			t.Errorf("mode %o: log %s", mode, &log)
		}
	}
}

// A caller is known by its token. Other authorisation schemes, such as that of a proxy
// in front, are ignored.
func TestCallers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	replace(t, file, "ops admin "+first)
	guarded, err := New(config.HTTP{TokensFile: file}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	open, err := New(config.HTTP{}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		g      *Guard
		header string
		want   string // name and roles
	}{
		{guarded, "", "anonymous:"},
		{guarded, "Bearer " + first, "ops:admin"},
		{guarded, "bearer   " + first, "ops:admin"},
		{guarded, "Bearer", "error"},
		{guarded, "Bearer ", "error"},
		{guarded, "Bearer " + first + " ", "error"},
		{guarded, "Bearer " + strings.ToUpper(first), "error"},
		{guarded, "Basic " + first, "anonymous:"},
		{guarded, first, "anonymous:"},
		{open, "Bearer " + first, "anonymous:admin"},
		{open, "", "anonymous:admin"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if test.header != "" {
			r.Header.Set("Authorization", test.header)
		}
		c, err := test.g.Caller(r)
		got := c.String() + ":" + string(c.Roles)
		if err != nil {
			got = "error"
		}
		if got != test.want || c.Remote != r.RemoteAddr {
			t.Errorf("%q: %s, want %s", test.header, got, test.want)
		}
	}
}

// A foreign name that points to this machine is no name of the daemon.
func TestHosts(t *testing.T) {
	for _, test := range []struct {
		local string // address that the connection came to
		hosts []string
		good  []string
		bad   []string
	}{
		{"127.0.0.1", nil,
			[]string{"localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "127.0.0.2:1"},
			[]string{"", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1:8080", "[2001:db8::1]", "localhost:80:80", "evil.example@localhost", "0.0.0.0"}},
		{"::1", []string{"Board.example"}, []string{"board.EXAMPLE:443", "[::1]:1"}, []string{"example", "x.board.example"}},
		{"10.0.0.1", nil,
			[]string{"10.0.0.1:8080", "10.0.0.1", "192.168.1.1", "[2001:db8::1]:80", "localhost", "127.0.0.1"},
			[]string{"", "evil.example", "evil.example:8080", "10.0.0.1.evil.example", "10.1", "0x7f000001", "2130706433"}},
		{"10.0.0.1", []string{"streamd"}, []string{"streamd", "streamd:8080", "10.0.0.1"}, []string{"streamd.evil.example"}},
	} {
		g, err := New(config.HTTP{Hosts: test.hosts}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		check := func(host string) error {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = host
			return g.CheckHost(r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(test.local)})))
		}
		for _, host := range test.good {
			if err := check(host); err != nil {
				t.Errorf("to %s: %v", test.local, err)
			}
		}
		for _, host := range test.bad {
			if err := check(host); err == nil {
				t.Errorf("to %s: %q is taken", test.local, host)
			}
		}
	}
}
