package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"streamd/incremental/sample"
)

// A migrating process is killed at each of these points. The file is then the old one or
// the new one, and the next process continues with it.
func TestMigrationIsKilled(t *testing.T) {
	const name = "streamd.db"
	isSync := func(c systemCall) bool { return c.number == syscall.SYS_FSYNC || c.number == syscall.SYS_FDATASYNC }
	points := []struct {
		name    string
		renamed bool // the file has been renamed by then
		at      func(c systemCall, file string, renamed bool) bool
	}{
		{"the copy is made", false, func(c systemCall, file string, _ bool) bool {
			return c.number == syscall.SYS_FLOCK && file == compacting(name)
		}},
		{"the copy is filled", false, func(c systemCall, file string, _ bool) bool {
			return c.number == syscall.SYS_PWRITE64 && file == compacting(name) && c.args[3] >= 4*uint64(os.Getpagesize())
		}},
		{"a transaction of the copy ends", false, func(c systemCall, file string, _ bool) bool {
			return c.number == syscall.SYS_PWRITE64 && file == compacting(name) && c.args[2] <= uint64(os.Getpagesize()) && c.args[3] < 2*uint64(os.Getpagesize())
		}},
		{"the copy is synced", false, func(c systemCall, file string, _ bool) bool {
			return isSync(c) && c.number == syscall.SYS_FSYNC && file == compacting(name)
		}},
		{"the copy is renamed", false, func(c systemCall, _ string, _ bool) bool { return c.number == syscall.SYS_RENAMEAT }},
		{"the folder is synced", true, func(c systemCall, _ string, renamed bool) bool { return renamed && isSync(c) }},
		{"the new file is in use", true, func(c systemCall, _ string, _ bool) bool { return c.number == syscall.SYS_EXIT_GROUP }},
	}
	for old, fixture := range fixtures {
		for _, p := range points {
			t.Run(fmt.Sprintf("format %d, %s", old, p.name), func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, name)
				b, err := os.ReadFile(fixture)
				if err == nil {
					err = os.WriteFile(path, b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				child := exec.Command(os.Args[0])
				child.Env = append(os.Environ(), childFile+"="+path, childMigrates+"=yes")
				child.Stderr = os.Stderr
				renamed, killed := false, false
				err = trace(child, func(c systemCall) bool {
					open, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", child.Process.Pid, c.args[0]))
					killed = p.at(c, filepath.Base(open), renamed)
					return killed
				}, func(c systemCall, result int64) {
					renamed = renamed || c.number == syscall.SYS_RENAMEAT && result == 0
				})
				if errors.Is(err, syscall.EPERM) {
					t.Skip("processes may not be traced here: ", err)
				}
				if err != nil || !killed || renamed != p.renamed {
					t.Fatalf("killed %t, renamed %t: %v", killed, renamed, err)
				}
				if p.renamed {
					checkFixture(t, path, int(version), old)
				} else {
					checkFixture(t, path, old, old)
				}
				s, _ := mustOpen(t, path)
				parts := 0
				if err := s.Parts(func(string, *sample.Part) { parts++ }); err != nil || (parts == fixtureBlocks) != (old >= 2) {
					t.Errorf("%d parts: %v", parts, err)
				}
				s.Close()
				checkFixture(t, path, int(version), old)
				if _, err := os.Stat(compacting(path)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a copy is left: %v", err)
				}
				s, c := mustOpen(t, path)
				change := fixtureChange()
				for i := range change.Spaces {
					if i < len(c.Spaces) {
						change.Spaces[i].Put = nil
					}
				}
				change.Put = nil
				if _, err := s.Save(change); err != nil {
					t.Fatal(err)
				}
				s.Close()
				if report, err := Verify(t.Context(), path, nil); err != nil || !report.OK {
					t.Errorf("after a save into it: %+v, %v", report, err)
				}
			})
		}
	}
}
