package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/httpapi"
)

// A file of ids is read whatever program wrote it, or refused.
func TestFileOfIDs(t *testing.T) {
	long := strings.Repeat("a", httpapi.MaxBodyBytes)
	for content, want := range map[string][]string{
		"o/0/1\no/0/2\n":             {"o/0/1", "o/0/2"},
		"\ufeffo/0/1\r\n\r\n o/0/2 ": {"o/0/1", "o/0/2"},
		"o/0/1\no/0/1":               {"o/0/1", "o/0/1"},
		long:                         {long},
	} {
		if got, err := readIDs("-", strings.NewReader(content)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%.40q: %.40q, %v", content, got, err)
		}
	}
	for content, want := range map[string]string{
		"": "there is no id in it", " \n\t\n": "there is no id in it", "\ufeff\n": "there is no id in it",
		long + "a": "more than 16777216 bytes of ids: retire the blocks in parts",
	} {
		if _, err := readIDs("-", strings.NewReader(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", content, err, want)
		}
	}
	// Quotes and commas make the request larger than the file.
	err := run(t.Context(), []string{"retire", "--ids", "-"}, nil, strings.NewReader(strings.Repeat("a\n", httpapi.MaxBodyBytes/4+1)), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "retire the blocks in parts") {
		t.Errorf("a request that is too large: %v", err)
	}
}
