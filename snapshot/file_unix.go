//go:build unix

package snapshot

import (
	"io/fs"
	"syscall"
)

func idOf(info fs.FileInfo) (id fileID) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		order.PutUint64(id[:8], uint64(stat.Dev))
		order.PutUint64(id[8:], stat.Ino)
	}
	return id
}
