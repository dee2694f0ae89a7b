//go:build !unix

package snapshot

import (
	"io/fs"
	"os"
)

func keepOwner(f *os.File, of fs.FileInfo) error { return f.Chmod(of.Mode().Perm()) }
