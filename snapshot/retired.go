package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Beside a snapshot NAME lies the file NAME.retired. It has the number of explicit
// retirements that were saved under that name, and the time of the last one. It names no
// block. When the snapshot is lost or replaced by an older copy, retired blocks may be
// live again. Its head then counts fewer retirements than the file beside it. The file
// has one frame, with this payload:
//
//	offset size
//	     0    8  explicit retirements, number
//	     8    8  time of the save that has the last of them, ms since 1970 UTC
type retirements struct {
	number int64
	last   time.Time
}

// nameRetired takes the place of bucket and key in the frame.
const nameRetired = "retired"

func retiredPath(path string) string { return path + "." + nameRetired }

// readRetired returns zero if there is no such file.
func readRetired(path string) (r retirements, err error) {
	path = retiredPath(path)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer f.Close()
	value := make([]byte, frameSize+17) // one byte more, to notice a longer file
	n, err := f.ReadAt(value, 0)
	if err != nil && err != io.EOF {
		return r, fmt.Errorf("read %s: %w", path, err)
	}
	if r, err = decodeRetired(value[:n]); err != nil {
		return r, fmt.Errorf("%s: %w (it tells whether the snapshot is older than the last saved retirement; remove it if you know that it is not)", path, err)
	}
	return r, nil
}

func appendRetired(b []byte, r retirements) []byte {
	return appendTime(appendI64(b, r.number), r.last)
}

func decodeRetired(value []byte) (r retirements, err error) {
	p, err := open(nil, []byte(nameRetired), value)
	if err != nil {
		return r, err
	}
	r.number, r.last = p.natural(), p.time()
	return r, p.done(nil, []byte(nameRetired))
}

// writeRetired replaces the file and returns when the new one is on the disk.
func writeRetired(path string, r retirements) error {
	value := appendRetired(frame(), r)
	if err := seal(nil, []byte(nameRetired), value); err != nil {
		return err
	}
	return replaceFile(retiredPath(path), value)
}

// replaceFile replaces a small file and returns when the new one is on the disk.
func replaceFile(path string, value []byte) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	err := writeFile(temporary, func(f *os.File) error {
		_, err := f.WriteAt(value, 0)
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		os.Remove(temporary)
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// writeFile makes or replaces a file, and returns when its contents are on the disk. With an error
// there is none.
func writeFile(path string, write func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := cmp.Or(write(f), f.Sync(), f.Close()); err != nil {
		os.Remove(path)
		return err
	}
	return nil
}

// keepRetired updates the file beside the snapshot with the saved retirements.
func (s *Store) keepRetired(saved retirements) error {
	if saved.number <= s.retired.number {
		return nil
	}
	if err := writeRetired(s.path, saved); err != nil {
		return err
	}
	s.retired = saved
	return nil
}

// compareRetired compares the count of retirements in the snapshot with that beside it.
// If the latter is behind, as after a crash between the two, it is updated.
func (s *Store) compareRetired(c *Contents, readOnly bool) (err error) {
	if s.retired, err = readRetired(s.path); err != nil {
		return err
	}
	if n := s.retired.number - c.retirements; n > 0 {
		c.Missed, c.LastRetired = n, s.retired.last
	}
	if readOnly {
		return nil
	}
	return s.keepRetired(retirements{c.retirements, c.SavedAt})
}
