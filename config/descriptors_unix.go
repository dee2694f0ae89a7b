//go:build unix

package config

import "syscall"

// descriptors bounds the open files and connections of the process.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the usual limit
	}
	return uint64(limit.Cur)
}
