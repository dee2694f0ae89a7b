package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestBuildOf(t *testing.T) {
	const revision = "973deb16f3a1c0ffee00112233445566778899aa"
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, c := range []struct {
		name, version string
		settings      []debug.BuildSetting
		text          string
	}{
		{"checkout", "(devel)", []debug.BuildSetting{setting("vcs.revision", revision), setting("vcs.modified", "false")}, "devel (973deb16f3a1)"},
		{"changed checkout", "(devel)", []debug.BuildSetting{setting("vcs.revision", revision), setting("vcs.modified", "true")}, "devel (973deb16f3a1, modified)"},
		{"tag", "v1.2.3", []debug.BuildSetting{setting("vcs.revision", revision)}, "v1.2.3 (973deb16f3a1)"},
		{"module proxy", "v1.2.3", nil, "v1.2.3 (unknown revision)"},
		{"-buildvcs=false", "(devel)", nil, "devel (unknown revision)"},
		{"no build information", "", nil, "devel (unknown revision)"},
	} {
		b := buildOf(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings})
		if b.String() != c.text {
			t.Errorf("%s: %q, want %q", c.name, b, c.text)
		}
		var out strings.Builder
		if err := b.print(&out); err != nil {
			t.Fatal(err)
		}
		if explained := strings.Contains(out.String(), "-buildvcs=false"); explained != (b.Revision == "") {
			t.Errorf("%s: printed as %q", c.name, &out)
		}
	}
}
