package snapshot

import (
	"os"
	"syscall"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// forgetPages drops from the process's memory the pages of the mapped file that transactions
// have touched. They stay in the system's cache and come back when needed.
func forgetPages(tx *bbolt.Tx) {
	// It is a hint, and nothing is lost if the system ignores it. Until this transaction
	// ends no other can map the file again. The used pages are mapped. The file may have
	// grown beyond the mapping, where other memory lies.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
}

// willNeed prefetches part of a file into the system's cache, without waiting.
func willNeed(file *os.File, at, length int64) {
	const atOnce = 128 << 10 // by default, systems read no more than this for one call
	for end := at + length; at < end; at += atOnce {
		_ = unix.Fadvise(int(file.Fd()), at, atOnce, unix.FADV_WILLNEED) // a hint, too
	}
}
