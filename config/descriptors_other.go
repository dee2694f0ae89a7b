//go:build !unix

package config

// descriptors is how many files and connections the process may have open.
func descriptors() uint64 { return 8192 }
