package snapshot

import (
	"syscall"

	"go.etcd.io/bbolt"
)

// forget takes the pages of the mapped file that transactions have touched out of
// the process's memory. They stay in the system's cache and come back when they are
// needed; a process that lives long would come to hold a file as a whole.
func (s *Store) forget() {
	// It is a hint: nothing is lost when it is not taken. Until this transaction ends
	// no other can map the file anew. The pages in use are mapped; those by which the
	// file has grown ahead of them may not be, and what lies in their place is
	// somebody else's.
	_ = s.db.View(func(tx *bbolt.Tx) error {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, s.db.Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
		return nil
	})
}
