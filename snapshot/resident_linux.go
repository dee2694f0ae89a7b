package snapshot

import (
	"os"
	"syscall"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// forget drops the pages of the mapped file that transactions have touched from
// the process's memory. They stay in the system's cache and come back when they are
// needed. Without it, a process that lives long would come to hold the whole file.
func (s *Store) forget() {
	// It is a hint: nothing is lost when the system does not take it. Until this
	// transaction ends no other can map the file again. The used pages are mapped. The file
	// may have grown ahead of them, beyond the mapping, where other memory lies.
	_ = s.view(func(tx *bbolt.Tx) error {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
		return nil
	})
}

// willNeed has the system read part of a file into its cache, without waiting for it.
func willNeed(file *os.File, at, length int64) {
	const atOnce = 128 << 10 // by default, systems read no more than this for one call
	for end := at + length; at < end; at += atOnce {
		_ = unix.Fadvise(int(file.Fd()), at, atOnce, unix.FADV_WILLNEED) // a hint, too
	}
}
