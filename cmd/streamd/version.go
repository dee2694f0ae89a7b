package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// versionCmd says which streamd this is.
type versionCmd struct {
	jsonFlag
}

// build is what the Go tool has noted in the program.
type build struct {
	Version  string `json:"version"`            // of the module; "devel" when built from a checkout
	Revision string `json:"revision,omitempty"` // of the version control system
	Time     string `json:"time,omitempty"`     // of the revision
	Modified bool   `json:"modified"`           // whether the checkout had changes
	Go       string `json:"go"`
	Platform string `json:"platform"` // as linux/amd64
}

func thisBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is the version with the revision, as logs and pages show it.
func (b build) String() string {
	s := b.Version
	if b.Revision != "" {
		s += " (" + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			s += ", modified"
		}
		s += ")"
	}
	return s
}

func (c *versionCmd) Run(s *surroundings) error {
	b := thisBuild()
	if c.JSON {
		return printJSON(s.stdout, b)
	}
	_, err := fmt.Fprintf(s.stdout, "streamd %s, %s, %s\n", b, b.Go, b.Platform)
	return err
}

// printJSON prints v on a line of its own.
func printJSON(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
