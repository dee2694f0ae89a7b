//go:build !unix

package config

// descriptors is the most files and connections that the process may have open.
func descriptors() uint64 { return 8192 }
