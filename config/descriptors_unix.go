//go:build unix

package config

import "syscall"

// descriptors is the most files and connections that the process may have open.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the usual limit
	}
	return uint64(limit.Cur)
}
