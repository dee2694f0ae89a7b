package snapshot

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// childFile names, in the environment, the file that a child process of
// TestKill saves into.
const childFile = "STREAMD_SNAPSHOT_TEST_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		if err := saveForever(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

const stepsPerSave = 5

// worldAfter is what the child has in memory after so many saves.
func worldAfter(saves int64) *world {
	w := newWorld(rand.New(rand.NewPCG(16, 1)), 3)
	for range saves * stepsPerSave {
		w.step()
	}
	w.change() // sets the time of the save
	if saves > 0 {
		w.saved()
	}
	return w
}

// saveForever goes on where the file ends, and tells of every save after it.
func saveForever(path string) error {
	s, c, err := Open(path, settings)
	if err != nil {
		return err
	}
	saves := c.Counts.Records / stepsPerSave
	w := worldAfter(saves)
	for {
		for range stepsPerSave {
			w.step()
		}
		if _, err := s.Save(w.change()); err != nil {
			return err
		}
		w.saved()
		saves++
		fmt.Println(saves)
	}
}

// Killed at any moment, the file holds the last save that was told of, or the
// one after it.
func TestKill(t *testing.T) {
	const kills = 20
	r := rand.New(rand.NewPCG(17, 1))
	path := filepath.Join(t.TempDir(), "streamd.db")
	var told int64
	for kill := range kills {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childFile+"="+path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		wait := r.IntN(20)
		if kill > 0 { // the first time perhaps while the file is made
			for range 1 + wait {
				if !lines.Scan() {
					t.Fatalf("the child ended: %v", child.Wait())
				}
				fmt.Sscan(lines.Text(), &told)
			}
		}
		time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
		child.Process.Kill()
		for lines.Scan() {
			fmt.Sscan(lines.Text(), &told)
		}
		child.Wait()

		s, c, err := Open(path, settings)
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		saves := c.Counts.Records / stepsPerSave
		if saves < told || saves > told+1 {
			t.Fatalf("kill %d: the file is after save %d, the child told of %d", kill, saves, told)
		}
		if saves > 0 {
			worldAfter(saves).compare(t, s, c)
		}
		s.Close()
		if report, err := Verify(t.Context(), path, nil); err != nil || !report.OK {
			t.Fatalf("kill %d: %+v, %v", kill, report, err)
		}
	}
	if told < kills {
		t.Errorf("only %d saves", told)
	}
}
