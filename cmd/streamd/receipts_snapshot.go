package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"streamd/cmd/streamd/audit"
	"streamd/retire/receipt"
)

// showSnapshot prints what was found in a snapshot.
func showSnapshot(t *table, s *audit.Report) {
	t.row("snapshot", fmt.Sprintf("%s: %s in %s add up to its digest", s.File, counted(s.Rows, "row"), counted(s.Blocks, "block")))
	t.row("its log", fmt.Sprintf("goes on that of the receipt; %s, all of them proved", counted(s.Leaves, "receipt")))
	switch {
	case s.At == nil:
		t.row("its digest", fmt.Sprintf("is that of no receipt: blocks have come since receipt %d, the last of those that tell of blocks", s.Last))
	case *s.At == s.Last:
		t.row("its digest", fmt.Sprintf("is the one after receipt %d, the last of those that tell of blocks", s.Last))
	default:
		t.row("its digest", fmt.Sprintf("is the one after receipt %d; the same sums have come again since receipt %d", *s.At, s.Last))
	}
	if s.Root != "" && s.At != nil {
		t.row("its live set", fmt.Sprintf("has the root after receipt %d, from ids and summaries", *s.At))
	}
	if s.Looked > 0 {
		t.row("live in it", fmt.Sprintf("%d of %s looked for", s.Live, counted(s.Looked, "block")))
	}
}

// readPrivate reads the private key of the log with that public key; nil: no file is given.
func readPrivate(path, public string) (*receipt.Key, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--private-key: %w", err)
	}
	key, err := receipt.ParseKey(strings.TrimSpace(string(text)))
	if err == nil && key.Public() != public {
		err = errors.New("it is not the key of --key")
	}
	if err != nil {
		return nil, fmt.Errorf("--private-key %s: %w", path, err)
	}
	return key, nil
}
