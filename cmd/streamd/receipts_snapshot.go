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
	since := ""
	if s.Since > 0 {
		since = fmt.Sprintf(", without %s that came later", counted(s.Since, "block"))
	}
	switch {
	case s.Proved:
		t.row("its digest", fmt.Sprintf("is the one after receipt %d, the last of those that tell of blocks%s", s.Last, since))
	case s.Last >= 0:
		t.row("its digest", fmt.Sprintf("is not compared with receipt %d, the last of those that tell of blocks: %s grown since", s.Last, counted(s.Grown, "block")))
	}
	if s.Root != "" && s.Proved {
		t.row("its live set", fmt.Sprintf("has the root after receipt %d%s, from ids and summaries", s.Last, since))
	}
	if s.Looked > 0 {
		again := ""
		if s.Live > 0 {
			again = ": they came again"
		}
		t.row("live in it", fmt.Sprintf("%d of %s looked for%s", s.Live, counted(s.Looked, "block"), again))
	}
}

// readPrivate reads the private key of the log with that public key, or of any log if that is "";
// nil: no file is given.
func readPrivate(path, public string) (*receipt.Key, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--private-key: %w", err)
	}
	key, err := receipt.ParseKey(strings.TrimSpace(string(text)))
	if err == nil && public != "" && key.Public() != public {
		err = errors.New("it is not the key of --key")
	}
	if err != nil {
		return nil, fmt.Errorf("--private-key %s: %w", path, err)
	}
	return key, nil
}
