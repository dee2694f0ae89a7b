package access

import (
	"fmt"
	"os"
	"sync"

	"github.com/rs/zerolog"
)

// watched is a value that is read from files, and read again when one of them changes.
type watched[T any] struct {
	key   string // configuration key that names the files
	files []string
	read  func() (T, error)
	log   zerolog.Logger

	mu    sync.Mutex
	seen  []os.FileInfo // files as they were last read; nil: missing
	value T
}

func watch[T any](key string, files []string, read func() (T, error), log zerolog.Logger) (*watched[T], error) {
	w := &watched[T]{key: key, files: files, read: read, log: log}
	w.seen = w.look()
	var err error
	if w.value, err = read(); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return w, nil
}

// get returns the value of the files. If they cannot be used, it logs that once and returns
// their earlier value.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.look() // before reading, so that a change in between is seen the next time
	if sameFiles(now, w.seen) {
		return w.value
	}
	w.seen = now
	if value, err := w.read(); err != nil {
		w.log.Error().Err(err).Msg(w.key + " has changed and cannot be used: what was read before stays in force")
	} else {
		w.value = value
		w.log.Info().Msg(w.key + " has changed and was read again")
	}
	return w.value
}

func (w *watched[T]) look() []os.FileInfo {
	infos := make([]os.FileInfo, len(w.files))
	for i, file := range w.files {
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
