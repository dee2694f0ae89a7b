//go:build !amd64 || purego

package kafka

import "hash/crc32"

// checksum is crc32.Update with Castagnoli's polynomial.
func checksum(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }
