package snapshot

import (
	"os"
	"syscall"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// forget takes the pages of the mapped file that transactions have touched out of
// the process's memory. They stay in the system's cache and come back when they are
// needed; a process that lives long would come to hold a file as a whole.
func (s *Store) forget() {
	// It is a hint: nothing is lost when it is not taken. Until this transaction ends
	// no other can map the file anew. The pages in use are mapped; those by which the
	// file has grown ahead of them may not be, and what lies in their place is
	// somebody else's.
	_ = s.view(func(tx *bbolt.Tx) error {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
		return nil
	})
}

// willNeed has the system read part of a file into its cache, without waiting for it.
func willNeed(file *os.File, at, length int64) {
	const atOnce = 128 << 10 // of a longer part some disks' default leaves the rest out
	for end := at + length; at < end; at += atOnce {
		_ = unix.Fadvise(int(file.Fd()), at, atOnce, unix.FADV_WILLNEED) // a hint as well
	}
}
