package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// childFile is the environment variable that names the file which a child process of
// TestKill or TestPowerLoss saves to. With childFails some of its saves fail.
const (
	childFile  = "STREAMD_SNAPSHOT_TEST_FILE"
	childFails = "STREAMD_SNAPSHOT_TEST_FAILS"
)

func init() {
	if os.Getenv(childFile) != "" {
		runtime.LockOSThread() // the tracer follows the first thread
	}
}

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		if err := saveForever(path, os.Getenv(childFails) != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	stepsPerSave       = 5
	savesPerCompaction = 4
)

// worldAfter is the world in the child's memory after the given number of saves.
func worldAfter(saves int64) *world {
	w := newWorld(rand.New(rand.NewPCG(16, 1)), 3)
	w.log = newWorldLog()
	w.withdraws, w.archives = true, true
	for save := range saves {
		for range stepsPerSave {
			w.step()
		}
		w.change() // sets the time of the save
		w.saved()
		if (save+1)%savesPerCompaction == 0 {
			w.uncompacted = time.Time{}
		}
	}
	return w
}

// compareAfter compares a file with a world after the given number of saves. A compaction
// after the last save may or may not have ended.
func (w *world) compareAfter(t testing.TB, saves int64, s *Store, c *Contents) {
	t.Helper()
	if saves%savesPerCompaction == 0 {
		c.Uncompacted = time.Time{}
	}
	w.compare(t, s, c)
}

// saveForever continues where the file ends. It reports that save and every later one, and
// compacts the file now and then.
func saveForever(path string, fails bool) error {
	s, c, err := Open(path, settings)
	if err != nil {
		return err
	}
	saves := c.Counts.AppliedRecords / stepsPerSave
	fmt.Println(saves)
	w := worldAfter(saves)
	var failing *bbolt.DB
	for {
		if saves > 0 && saves%savesPerCompaction == 0 {
			if _, err := s.Compact(context.Background()); err != nil {
				return err
			}
		}
		if fails && s.db != failing {
			failSyncs(s.db, func() { fmt.Println(lost) })
			failing = s.db
		}
		for range stepsPerSave {
			w.step()
		}
		_, err := s.Save(w.change())
		for fails && errors.Is(err, syscall.EIO) {
			_, err = s.Save(w.change())
		}
		if err != nil {
			return err
		}
		w.saved()
		saves++
		fmt.Println(saves)
	}
}

// lost is printed by a child beside the number of a save whose last sync failed.
const lost = "lost"

// failSyncs makes every third sync fail for bbolt. The meta page is written, but an error
// is reported, which is the same to bbolt. told is called before each failure.
func failSyncs(db *bbolt.DB, told func()) {
	field := reflect.ValueOf(db).Elem().FieldByName("ops").FieldByName("writeAt")
	hook := (*func([]byte, int64) (int, error))(field.Addr().UnsafePointer())
	writeAt, metas := *hook, 0
	*hook = func(b []byte, at int64) (int, error) {
		n, err := writeAt(b, at)
		if err == nil && at < 2*int64(db.Info().PageSize) {
			if metas++; metas%3 == 0 {
				told()
				err = syscall.EIO
			}
		}
		return n, err
	}
}

// After a kill at any moment, the file has the last reported save or the one after it.
func TestKill(t *testing.T) {
	const kills = 20
	r := rand.New(rand.NewPCG(17, 1))
	path := filepath.Join(t.TempDir(), "streamd.db")
	var reported int64
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
		if kill > 0 { // the first kill may come while the file is made
			for range 1 + wait {
				if !lines.Scan() {
					t.Fatalf("the child ended: %v", child.Wait())
				}
				fmt.Sscan(lines.Text(), &reported)
			}
		}
		time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
		child.Process.Kill()
		for lines.Scan() {
			fmt.Sscan(lines.Text(), &reported)
		}
		child.Wait()

		s, c, err := Open(path, settings)
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		saves := c.Counts.AppliedRecords / stepsPerSave
		if saves < reported || saves > reported+1 {
			t.Fatalf("kill %d: the file is after save %d, the child reported %d", kill, saves, reported)
		}
		if saves > 0 {
			worldAfter(saves).compareAfter(t, saves, s, c)
		}
		s.Close()
		if report, err := Verify(t.Context(), path, nil); err != nil || !report.OK {
			t.Fatalf("kill %d: %+v, %v", kill, report, err)
		}
	}
	if reported < kills {
		t.Errorf("only %d saves", reported)
	}
}
