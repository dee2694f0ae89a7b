//go:build unix

package snapshot

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and the mode of another, so that the same users can
// open it.
func keepOwner(f *os.File, of fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	have, ok1 := info.Sys().(*syscall.Stat_t)
	want, ok2 := of.Sys().(*syscall.Stat_t)
	if ok1 && ok2 && (have.Uid != want.Uid || have.Gid != want.Gid) {
		if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
			return err
		}
	}
	return f.Chmod(of.Mode().Perm())
}
