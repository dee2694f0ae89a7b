package snapshot

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuseSyncs has the system fail every fdatasync of a descriptor with EIO from now on, as of a
// disk that has lost what it was given. It cannot be undone.
func refuseSyncs(fd uintptr) error {
	// Offsets into struct seccomp_data: the number of the call, and its first argument.
	const number, argument = 0, 16
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: argument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(fd), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.EIO)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}

// A sync fails. The save fails, and the next one does not trust the file any more: it is in a new
// one, which has all changes. The filter of calls lasts, so the test has a process of its own.
func TestFailedSync(t *testing.T) {
	const alone = "STREAMD_TEST_FAILED_SYNC"
	kind := os.Getenv(alone)
	if kind == "" {
		for _, kind := range []string{"plain", "key"} {
			c := exec.Command(os.Args[0], "-test.run=^TestFailedSync$", "-test.v")
			c.Env = append(os.Environ(), alone+"="+kind)
			out, err := c.CombinedOutput()
			switch {
			case bytes.Contains(out, []byte("--- SKIP")):
				t.Skipf("the system has no filter of calls: %s", out)
			case err != nil || !bytes.Contains(out, []byte("--- PASS: TestFailedSync")):
				t.Errorf("%s: %v\n%s", kind, err, out)
			}
		}
		return
	}
	var key *Key
	if kind == "key" {
		key = newKey(t, "a secret that is long enough, and more")
	}
	path := filepath.Join(t.TempDir(), "streamd.db")
	w := newWorld(rand.New(rand.NewPCG(35, 1)), 3)
	s, _, err := key.Open(path, settings)
	if err != nil {
		t.Fatal(err)
	}
	steps := func(n int) {
		for range n {
			w.step()
		}
	}
	steps(60)
	w.save(t, s)
	before := fileAt(t, path)
	if err := refuseSyncs(s.data.Fd()); err != nil {
		if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	steps(60)
	if _, err := s.Save(w.change()); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a save whose sync fails: %v", err)
	}
	continueElsewhere(t, key, path, s, w, before)
}
