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
	// Arrow's compute kernels were a third of the work of a first build.
	for _, name := range everything {
		if strings.HasPrefix(name, "github.com/apache/arrow-go/v18/arrow/compute") {
			t.Errorf("a build imports %s", name)
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
	if slices.Contains(production, "testing") {
		t.Error("a package of a production build imports testing")
	}
}
