package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// goList returns the lines that go list prints.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	command := exec.Command("go", append([]string{"list"}, args...)...)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return strings.Fields(string(out))
}

// A production build imports neither the embedded broker nor the commands that measure
// streamd itself. Other builds do: else the names here would be out of date.
func TestProductionImports(t *testing.T) {
	everything := goList(t, "-deps", ".")
	production := goList(t, "-deps", "-tags", "production", ".")
	for _, name := range []string{
		"github.com/twmb/franz-go/pkg/kfake",
		"streamd/ingest/kafka/embedded",
		"streamd/cmd/streamd/bench",
		"streamd/cmd/streamd/reproduce",
	} {
		if !slices.Contains(everything, name) {
			t.Errorf("an ordinary build does not import %s", name)
		}
		if slices.Contains(production, name) {
			t.Errorf("a production build imports %s", name)
		}
	}
	// The protocol's messages are franz-go's. Its broker and its client are not for production.
	messages := []string{
		"github.com/twmb/franz-go/pkg/kbin",
		"github.com/twmb/franz-go/pkg/kmsg",
		"github.com/twmb/franz-go/pkg/kmsg/internal/kbin",
	}
	for _, name := range production {
		if strings.Contains(name, "twmb/franz-go") && !slices.Contains(messages, name) {
			t.Errorf("a production build imports %s", name)
		}
	}
	// Thrift, which Parquet takes, imports testing itself. None of our packages may.
	for _, pair := range goList(t, "-deps", "-tags", "production", "-f", "{{$of := .ImportPath}}{{range .Imports}}{{$of}}:{{.}} {{end}}", ".") {
		if of, name, _ := strings.Cut(pair, ":"); name == "testing" && strings.HasPrefix(of, "streamd/") {
			t.Errorf("package %s of a production build imports testing", of)
		}
	}
}
