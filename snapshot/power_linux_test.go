package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sector is the unit of a disk's writes in bytes.
const sector = 512

// inode is a file as the system sees it, and as it may be on the disk. The disk may have
// any of the sectors and any of the lengths that were written since the last sync.
type inode struct {
	cache   []byte
	sure    []byte             // synced
	maybe   map[int64][][]byte // sectors that may be on the disk instead of the sure ones
	unclean map[int64]bool     // sectors that a sync will write
	lengths []int              // lengths that it may have instead of the sure one
}

func (f *inode) write(b []byte, at int64) {
	f.resize(max(len(f.cache), int(at)+len(b)))
	copy(f.cache[at:], b)
	for i := at / sector; i*sector < at+int64(len(b)); i++ {
		f.maybe[i] = append(f.maybe[i], bytes.Clone(f.cache[i*sector:min((i+1)*sector, int64(len(f.cache)))]))
		f.unclean[i] = true
	}
}

func (f *inode) resize(length int) {
	if length == len(f.cache) {
		return
	}
	f.cache = append(f.cache[:min(length, len(f.cache))], make([]byte, max(0, length-len(f.cache)))...)
	f.lengths = append(f.lengths, length)
}

func (f *inode) sync() {
	sure := make([]byte, len(f.cache))
	copy(sure, f.sure)
	for i := range f.unclean {
		copy(sure[i*sector:], f.cache[i*sector:min((i+1)*sector, int64(len(f.cache)))])
		delete(f.maybe, i)
	}
	clear(f.unclean)
	f.sure, f.lengths = sure, nil
}

// lose is a failed sync, after which the system counts all sectors as written.
func (f *inode) lose() { clear(f.unclean) }

// afterLoss is a possible state of the file after a loss of power.
func (f *inode) afterLoss(r *rand.Rand) []byte {
	lengths := append([]int{len(f.sure)}, f.lengths...)
	length := lengths[r.IntN(len(lengths))]
	b := make([]byte, max(len(f.sure), len(f.cache)))
	copy(b, f.sure)
	share := []float64{0, 0.1, 0.5, 0.9, 1}[r.IntN(5)]
	for _, i := range slices.Sorted(maps.Keys(f.maybe)) {
		if r.Float64() < share {
			copy(b[i*sector:], f.maybe[i][r.IntN(len(f.maybe[i]))])
		}
	}
	return b[:length]
}

// folder is the same for a folder.
type folder struct {
	files, sure map[string]*inode
	changes     []change // since it was synced
}

// change is names that change together.
type change []entry

// entry is a name with its new file, or a name that was removed.
type entry struct {
	name string
	file *inode // nil: removed
}

func (e entry) in(files map[string]*inode) {
	if files[e.name] = e.file; e.file == nil {
		delete(files, e.name)
	}
}

func (d *folder) change(name string, f *inode) {
	e := entry{name, f}
	e.in(d.files)
	d.changes = append(d.changes, change{e})
}

// rename changes both names together.
func (d *folder) rename(from, to string) {
	f := d.files[from]
	entry{to, f}.in(d.files)
	entry{from, nil}.in(d.files)
	d.changes = append(d.changes, change{{to, f}, {from, nil}})
}

func (d *folder) sync() {
	d.sure, d.changes = maps.Clone(d.files), nil
}

// afterLoss is a file that the name may lead to, or nil.
func (d *folder) afterLoss(r *rand.Rand, name string) *inode {
	files := maps.Clone(d.sure)
	for _, c := range d.changes {
		if r.IntN(2) == 0 {
			for _, e := range c {
				e.in(files)
			}
		}
	}
	return files[name]
}

// systemCall is the kernel's ptrace_syscall_info.
type systemCall struct {
	at     uint8 // 1: its entry, 2: its end
	_      [3]uint8
	_      uint32
	_, _   uint64
	number uint64 // at its end: the result
	args   [6]uint64
	_      uint64
}

// trace runs a process and calls ended after every system call of its first thread. It
// kills the process at the start of the first system call for which entered returns true.
func trace(c *exec.Cmd, entered func(systemCall) bool, ended func(c systemCall, result int64)) error {
	runtime.LockOSThread() // one thread must do all tracing
	defer runtime.UnlockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := c.Start(); err != nil {
		return err
	}
	pid := c.Process.Pid
	var call systemCall
	for begun := false; ; {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err == syscall.EINTR {
			continue
		} else if err != nil {
			return err
		}
		if status.Exited() || status.Signaled() {
			c.Process.Release()
			return nil
		}
		signal := status.StopSignal()
		switch {
		case !begun:
			signal, begun = 0, true
			if err := syscall.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
				return err
			}
		case signal == syscall.SIGTRAP|0x80:
			signal = 0
			var now systemCall
			if _, _, err := syscall.Syscall6(syscall.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO,
				uintptr(pid), unsafe.Sizeof(now), uintptr(unsafe.Pointer(&now)), 0, 0); err != 0 {
				return err
			}
			if now.at == 2 {
				ended(call, int64(now.number))
			} else if call = now; entered(call) {
				c.Process.Kill()
				continue
			}
		}
		if err := syscall.PtraceSyscall(pid, int(signal)); err != nil && err != syscall.ESRCH {
			return err
		}
	}
}

// After a loss of power at any moment, also soon after a kill or a failed sync, the file
// has the last reported save or the one after it. The system calls of a process that
// saves show which states a loss of power may leave.
func TestPowerLoss(t *testing.T) {
	const lives = 8
	r := rand.New(rand.NewPCG(20, 1))
	dir, scratch := t.TempDir(), t.TempDir()
	path, name := filepath.Join(dir, "streamd.db"), "streamd.db"
	d := folder{files: map[string]*inode{}, sure: map[string]*inode{}}
	worlds := map[int64]*world{}
	reported, states := int64(-1), 0 // -1: the file may not exist yet

	lose := func(what string) {
		t.Helper()
		f := d.afterLoss(r, name)
		states++
		if f == nil {
			if reported >= 0 {
				t.Fatalf("after %s: the file is gone, %d saves were reported", what, reported)
			}
			return
		}
		left := filepath.Join(scratch, "left.db")
		if err := os.WriteFile(left, f.afterLoss(r), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := removeIfThere(retiredPath(left)); err != nil {
			t.Fatal(err)
		}
		beside := d.afterLoss(r, filepath.Base(retiredPath(name)))
		if beside != nil {
			if err := os.WriteFile(retiredPath(left), beside.afterLoss(r), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		open := OpenReadOnly
		goesOn := r.IntN(50) == 0
		if goesOn {
			open = func(path string) (*Store, *Contents, error) { return Open(path, settings) }
		}
		s, c, err := open(left)
		if err != nil {
			t.Fatalf("after %s, save %d was reported: %v", what, reported, err)
		}
		defer s.Close()
		saves := c.Counts.AppliedRecords / stepsPerSave
		if saves < reported || saves > max(reported, 0)+1 {
			t.Fatalf("after %s: the file is after save %d, reported was %d", what, saves, reported)
		}
		w := worlds[saves]
		if w == nil {
			w = worldAfter(saves)
			worlds[saves] = w
		}
		if saves > 0 {
			w.compareAfter(t, saves, s, c)
		}
		retired, err := readRetired(left)
		if w := worlds[reported]; err != nil || w != nil && retired.number < int64(w.retirements) || c.Missed > 0 {
			t.Fatalf("after %s: the file beside it has %+v, the snapshot has missed %v: %v", what, retired, c.Missed, err)
		}
		if goesOn {
			w = worldAfter(saves)
			w.step()
			w.save(t, s)
			s.Close()
			if report, err := Verify(t.Context(), left, nil); err != nil || !report.OK {
				t.Fatalf("after %s, and another save: %+v, %v", what, report, err)
			}
		}
	}

	for life := range lives {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childFile+"="+path)
		if life%2 == 1 {
			child.Env = append(child.Env, childFails+"=yes")
		}
		child.Stderr = os.Stderr
		memory := func(at, length uint64) []byte {
			mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", child.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			defer mem.Close()
			b := make([]byte, length)
			if n, err := mem.ReadAt(b, int64(at)); err != nil && (err != io.EOF || n == 0) {
				t.Fatal(err)
			}
			return b
		}
		nameAt := func(at uint64) string {
			var path []byte
			for { // it may reach into another page
				page := memory(at, 4096-at%4096)
				part, _, ended := bytes.Cut(page, []byte{0})
				if path = append(path, part...); ended {
					return filepath.Base(string(path))
				}
				at += uint64(len(page))
			}
		}
		pathOf := func(fd uint64) string {
			path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", child.Process.Pid, fd))
			if err != nil {
				return ""
			}
			return path
		}
		fileOf := func(fd uint64) *inode {
			if in, base := filepath.Split(pathOf(fd)); filepath.Clean(in) == dir {
				return d.files[base]
			}
			return nil
		}
		// The moment of the kill: some system call, or the last sync of a save.
		left, afterMeta := 1+r.IntN(80), false
		lastSync := life%3 > 0
		entered := func(c systemCall) bool {
			isSync := c.number == syscall.SYS_FDATASYNC || c.number == syscall.SYS_FSYNC
			switch {
			case isSync, c.number == syscall.SYS_PWRITE64, c.number == syscall.SYS_LINKAT, c.number == syscall.SYS_UNLINKAT, c.number == syscall.SYS_RENAMEAT:
				left--
			case c.number == syscall.SYS_WRITE && c.args[0] == 1:
				var saves int64
				if word := strings.TrimSpace(string(memory(c.args[1], c.args[2]))); word == lost {
					d.files[name].lose()
				} else if _, err := fmt.Sscan(word, &saves); err != nil {
					t.Fatalf("the child says %q", word)
				} else {
					reported = saves
				}
				lose("what the child said")
			}
			return left <= 0 && (!lastSync || isSync && afterMeta)
		}
		ended := func(c systemCall, result int64) {
			if result < 0 {
				return
			}
			what := ""
			switch c.number {
			case syscall.SYS_OPENAT:
				if path := pathOf(uint64(result)); filepath.Dir(path) == dir && d.files[filepath.Base(path)] == nil {
					what = "making a file"
					d.change(filepath.Base(path), &inode{maybe: map[int64][][]byte{}, unclean: map[int64]bool{}})
				}
			case syscall.SYS_PWRITE64:
				if f := fileOf(c.args[0]); f != nil {
					what = "writing"
					f.write(memory(c.args[1], uint64(result)), int64(c.args[3]))
					afterMeta = c.args[3] < 2*uint64(os.Getpagesize())
				}
			case syscall.SYS_FTRUNCATE:
				if f := fileOf(c.args[0]); f != nil {
					what = "growing"
					f.resize(int(c.args[1]))
				}
			case syscall.SYS_FSYNC, syscall.SYS_FDATASYNC:
				what = "syncing"
				if f := fileOf(c.args[0]); f != nil {
					f.sync()
				} else if pathOf(c.args[0]) == dir {
					d.sync()
				}
			case syscall.SYS_LINKAT:
				what = "linking"
				d.change(nameAt(c.args[3]), d.files[nameAt(c.args[1])])
			case syscall.SYS_RENAMEAT:
				what = "renaming"
				from, to := nameAt(c.args[1]), nameAt(c.args[3])
				d.rename(from, to)
			case syscall.SYS_UNLINKAT:
				what = "unlinking"
				d.change(nameAt(c.args[1]), nil)
			}
			if what != "" {
				lose(what)
			}
		}
		err := trace(child, entered, ended)
		if errors.Is(err, syscall.EPERM) {
			t.Skip("processes may not be traced here: ", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if left > 0 {
			t.Fatal("the child ended")
		}
		// The trace has seen everything that the child did.
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(d.files) {
			t.Fatalf("%d files, want %d: %v", len(entries), len(d.files), err)
		}
		for _, e := range entries {
			if b, err := os.ReadFile(filepath.Join(dir, e.Name())); err != nil || !bytes.Equal(b, d.files[e.Name()].cache) {
				t.Fatalf("%s is not what was seen to be written: %v", e.Name(), err)
			}
		}
	}
	if reported < lives || states < 30*lives {
		t.Errorf("only %d saves and %d states", reported, states)
	}
}
