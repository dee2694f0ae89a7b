package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A copy of an open file has its last saved state and nothing of retired blocks, while the file is
// saved and compacted. Without receipts it has everything but the log of receipts.
func TestCopy(t *testing.T) {
	key, err := NewKey([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []*Key{nil, key} {
		dir := t.TempDir()
		s, _, err := key.Open(filepath.Join(dir, "streamd.db"), settings)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(rand.New(rand.NewPCG(47, 1)), 2)
		w.log = newWorldLog()
		b := planted()
		w.add(b)
		for range 200 {
			w.step()
		}
		w.save(t, s)
		w.remove(b.Entry.ID)
		w.retired++
		w.save(t, s)
		for _, receipts := range []bool{true, false} {
			path := filepath.Join(dir, "copy.db")
			if err := s.Copy(t.Context(), path, receipts); err != nil {
				t.Fatal(err)
			}
			if got := found(t, path, traces(b)); got != nil {
				t.Errorf("receipts %t: the copy has %q of what was retired", receipts, got)
			}
			if report, err := key.Verify(t.Context(), path, nil); err != nil || !report.OK || report.Keyed != (key != nil) {
				t.Errorf("receipts %t: %+v, %v", receipts, report, err)
			}
			c, contents, err := key.Open(path, settings)
			if err != nil {
				t.Fatal(err)
			}
			want := worldCopy(w)
			want.uncompacted, want.retirements = time.Time{}, w.retirements
			if want.log = w.log; !receipts {
				want.log = nil
			}
			contents.Keyed = false
			want.compare(t, c, contents)
			c.Close()
			os.Remove(path)
			os.Remove(retiredPath(path))
		}

		// Saves and compactions go on beside copies.
		ended := make(chan error)
		go func() {
			defer close(ended)
			for range 5 {
				path := filepath.Join(dir, "beside.db")
				err := s.Copy(context.Background(), path, true)
				if err == nil {
					var report Report
					if report, err = key.Verify(context.Background(), path, nil); err == nil && !report.OK {
						err = errors.New("a copy is not whole")
					}
				}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
		for i := range 30 {
			w.step()
			if w.save(t, s); i%7 == 0 {
				w.compact(t, s)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		path := filepath.Join(dir, "cancelled.db")
		if err := s.Copy(ctx, path, true); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is left: %v", err)
		}
		s.Close()
	}
}

// A copy becomes a snapshot that is open and goes on, under the key that it has been under. One
// that is under another key, or of another topic, leaves nothing.
func TestReceive(t *testing.T) {
	one, other := newKey(t, "a secret that is long enough, and more"), newKey(t, "another secret that is long enough")
	for _, key := range []*Key{nil, one} {
		dir := t.TempDir()
		s, _, err := key.Open(filepath.Join(dir, "streamd.db"), settings)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(rand.New(rand.NewPCG(48, 1)), 2)
		for range 100 {
			w.step()
		}
		w.save(t, s)
		copied := filepath.Join(dir, "copy.db")
		if err := s.Copy(t.Context(), copied, false); err != nil {
			t.Fatal(err)
		}
		s.Close()
		receive := func(path string, under *Key, of Settings) (*Store, *Contents, error) {
			f, err := os.Open(copied)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			return under.Receive(path, f, of)
		}
		elsewhere := t.TempDir()
		for _, c := range []struct {
			under *Key
			of    Settings
			want  error
		}{
			{nil, settings, ErrKeyNeeded},
			{other, settings, ErrMAC},
			{key, Settings{Topic: "others", Unit: settings.Unit}, &SettingsError{}},
		} {
			if key == nil && c.under == nil && c.of == settings {
				continue
			}
			if key == nil && c.under == other {
				c.want = ErrNoMAC
			}
			_, _, err := receive(filepath.Join(elsewhere, "streamd.db"), c.under, c.of)
			if of := (*SettingsError)(nil); !errors.Is(err, c.want) && !(errors.As(err, &of) && errors.As(c.want, &of)) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
				t.Fatalf("it has left %v, %v", left, err)
			}
		}
		path := filepath.Join(elsewhere, "streamd.db")
		s, c, err := receive(path, key, settings)
		if err != nil {
			t.Fatal(err)
		}
		w.log, c.Keyed = nil, false
		w.compare(t, s, c)
		for range 100 {
			w.step()
		}
		w.save(t, s)
		w.compact(t, s)
		s.Close()
		if s, c, err = key.Open(path, settings); err != nil {
			t.Fatal(err)
		}
		c.Keyed = false
		w.compare(t, s, c)
		s.Close()
	}
}
