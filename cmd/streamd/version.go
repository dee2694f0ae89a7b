package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// versionCmd prints the version.
type versionCmd struct {
	jsonFlag
}

func (c *versionCmd) Run(s *surroundings) error {
	b := thisBuild()
	if c.JSON {
		return printJSON(s.stdout, b)
	}
	return b.print(s.stdout)
}

// versionFlag is the version command as a flag.
type versionFlag bool

// BeforeReset implements kong's hook. The error of printing goes to failed, since kong would
// report a returned error as a wrong command line.
func (versionFlag) BeforeReset(k *kong.Kong, failed *error) error {
	*failed = thisBuild().print(k.Stdout)
	k.Exit(0)
	return nil
}

// build is the information that the Go tool puts into the program.
type build struct {
	Version  string `json:"version"`            // version of the module; "devel" if unknown
	Revision string `json:"revision,omitempty"` // revision of the checkout; "": unknown
	Time     string `json:"time,omitempty"`     // time of the revision
	Modified bool   `json:"modified"`           // whether the checkout had changes
	Go       string `json:"go"`
	Platform string `json:"platform"` // such as linux/amd64
}

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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

// String is the version with the revision, for logs and pages.
func (b build) String() string {
	switch {
	case b.Revision == "":
		return b.Version + " (unknown revision)"
	case b.Modified:
		return fmt.Sprintf("%s (%.12s, modified)", b.Version, b.Revision)
	default:
		return fmt.Sprintf("%s (%.12s)", b.Version, b.Revision)
	}
}

func (b build) print(w io.Writer) error {
	text := fmt.Sprintf("streamd %s, %s, %s\n", b, b.Go, b.Platform)
	if b.Revision == "" {
		text += "The revision is known of programs that were built in a checkout, with git at hand and without -buildvcs=false.\n"
	}
	_, err := io.WriteString(w, text)
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
