package snapshot

import (
	"errors"
	"runtime"
	"syscall"
)

func init() {
	withoutRights = func(f func()) (err error) {
		runtime.LockOSThread() // the file system's user is a property of the thread
		defer runtime.UnlockOSThread()
		const nobody = 65534
		if err := syscall.Setfsuid(nobody); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, syscall.Setfsuid(0)) }()
		f()
		return nil
	}
}
