//go:build !unix

package config

// descriptors bounds the open files and connections of the process.
func descriptors() uint64 { return 8192 }
