// Package watched reads values from files, and again when one of them changes: tokens and
// certificates are replaced while the daemon runs. A file that cannot be used is logged, and its
// earlier content stays in force. Replace a file by renaming another one over it, so that it is
// never read half written.
package watched

import (
	"fmt"
	"os"
	"sync"

	"github.com/rs/zerolog"
)

// Value is a value that is read from files, and read again when one of them changes. It is safe for
// concurrent use.
type Value[T any] struct {
	key   string // configuration key that names the files
	files []string
	read  func() (T, error)
	log   zerolog.Logger

	mu    sync.Mutex
	seen  []os.FileInfo // files as they were last read; nil: missing
	value T
}

// New reads a value for the first time. The error names the configuration's key for the files.
func New[T any](key string, files []string, read func() (T, error), log zerolog.Logger) (*Value[T], error) {
	v := &Value[T]{key: key, files: files, read: read, log: log}
	v.seen = v.look()
	var err error
	if v.value, err = read(); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return v, nil
}

// Get returns the value of the files. If they cannot be used, it logs that once and returns
// their earlier value.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.look() // before reading, so that a change in between is seen the next time
	if sameFiles(now, v.seen) {
		return v.value
	}
	v.seen = now
	if value, err := v.read(); err != nil {
		v.log.Error().Err(err).Msg(v.key + " has changed and cannot be used: what was read before stays in force")
	} else {
		v.value = value
		v.log.Info().Msg(v.key + " has changed and was read again")
	}
	return v.value
}

func (v *Value[T]) look() []os.FileInfo {
	infos := make([]os.FileInfo, len(v.files))
	for i, file := range v.files {
		infos[i], _ = os.Stat(file) // reading it has the error
	}
	return infos
}

func sameFiles(a, b []os.FileInfo) bool {
	for i := range a {
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil || b[i] == nil || !os.SameFile(a[i], b[i]):
			return false
		case a[i].Size() != b[i].Size() || a[i].Mode() != b[i].Mode() || !a[i].ModTime().Equal(b[i].ModTime()):
			return false
		}
	}
	return true
}
