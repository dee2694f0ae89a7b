package snapshot

import "syscall"

// forget takes the pages of the mapped file that transactions have touched, up to
// size, out of the process's memory. They stay in the system's cache and come back
// when they are needed; a process that lives long would come to hold a file as a
// whole. To be called where the file is written, which may map it anew.
func (s *Store) forget(size int64) {
	// A hint: nothing is lost when it is not taken.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, s.db.Info().Data, uintptr(size), syscall.MADV_DONTNEED)
}
