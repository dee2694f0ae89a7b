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

	"streamd/incremental/decode"
)

// Beside a snapshot NAME lies the file NAME.retired. It remembers how many explicit
// retirements were saved under that name, and when the last was. It names no block.
// When somebody puts back an older copy of the snapshot, or it is lost, blocks that
// were retired may be live again: then its head counts fewer retirements than the file
// beside it. The file has one frame, with this payload:
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

// readRetired gives zero where there is no such file.
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
	value := make([]byte, frameSize+17) // one byte too many, if it has that
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
	b, err := unseal(nil, []byte(nameRetired), value)
	if err != nil {
		return r, err
	}
	p := payload{decode.Reader{Rest: b}}
	r.number, r.last = p.natural(), p.time()
	return r, p.done(nil, []byte(nameRetired))
}

// writeRetired replaces the file and returns when that is on the disk.
func writeRetired(path string, r retirements) (err error) {
	path = retiredPath(path)
	value := appendRetired(frame(), r)
	if err := seal(nil, []byte(nameRetired), value); err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary)
		}
	}()
	_, err = f.WriteAt(value, 0)
	if err := cmp.Or(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// keepRetired makes the file beside the snapshot know of the retirements that were
// saved.
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

// compareRetired compares the file's count of retirements with that beside it. Where
// the latter is behind, as after a crash between the two, it is brought up to date.
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
