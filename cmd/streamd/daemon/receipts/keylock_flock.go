//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package receipts

import (
	"errors"
	"os"
	"syscall"
)

// lockKey locks a key of receipts until the file is closed, so that it signs one log. The file is
// only read: its folder may be read-only.
func lockKey(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(ErrKeyInUse, f.Close())
	}
	return f, nil // with another error the file system has no such locks
}
