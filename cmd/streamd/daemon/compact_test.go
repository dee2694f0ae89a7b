package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/retire"
	"streamd/snapshot"
)

// logging starts a daemon and returns its log, which may be read after the daemon has
// stopped.
func logging(t *testing.T, topic, file string, flags map[string]string) (*instance, *bytes.Buffer) {
	t.Helper()
	given := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": topic, "snapshot.file": file,
	}
	for k, v := range flags {
		given[k] = v
	}
	var text bytes.Buffer
	d, err := New(Options{Config: load(t, given), Log: zerolog.New(zerolog.SyncWriter(&text))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	i := &instance{Daemon: d, t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { i.done <- d.Run(ctx) }()
	return i, &text
}

func (i *instance) compact() httpapi.SnapshotInfo {
	i.t.Helper()
	status, body := i.ask(http.MethodPost, "/v1/snapshot?compact=true")
	var info httpapi.SnapshotInfo
	if err := json.Unmarshal([]byte(body), &info); err != nil || status != http.StatusOK || !info.Compacted {
		i.t.Fatalf("compact: %d: %s (%v)", status, body, err)
	}
	return info
}

// A block is retired by DELETE or by a tombstone while the daemon runs. After a
// compaction, and after further saves, nothing of the block is left in the file. The log
// says that a block was retired and contains nothing of it.
func TestCompactedWhileRunning(t *testing.T) {
	for how, forget := range map[string]func(*instance, string){
		"DELETE": func(i *instance, _ string) {
			receipt := i.retire(retire.KeyID(plantedKey))
			if len(receipt.Remains) != 5 || !strings.Contains(receipt.Remains[2], "within 1h") {
				i.t.Errorf("the receipt says that it remains in %q", receipt.Remains)
			}
		},
		"tombstone": func(i *instance, topic string) {
			produce(i.t, topic, message{key: []byte(plantedKey)})
			i.waitForOffsets(12)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name, folder := topic(t, 1), t.TempDir()
			file := filepath.Join(folder, "streamd.db")
			produce(t, name, append(customers(t)[:10], plantedRows(t))...)
			d, log := logging(t, name, file, map[string]string{"blocks.unit": "key", "log.level": "trace"})
			d.waitForOffsets(11)
			save := func() {
				t.Helper()
				if status, body := d.ask(http.MethodPost, "/v1/snapshot"); status != http.StatusOK {
					t.Fatalf("%d: %s", status, body)
				}
			}
			save()
			if len(found(files(t, folder))) < 5 {
				t.Fatal("the file has nothing to forget: this test would show nothing")
			}
			forget(d, name)
			save()
			d.compact()
			for trace := range found(files(t, folder)) {
				t.Error(trace)
			}
			d.stop()
			for trace := range found(files(t, folder)) {
				t.Errorf("after the last save: %s", trace)
			}
			for trace := range found(map[string][]byte{"the log": log.Bytes()}) {
				t.Error(trace)
			}
			if !strings.Contains(log.String(), "block retired") || !strings.Contains(log.String(), `"block":"key#`) {
				t.Errorf("the log does not say that a block was retired:\n%s", log)
			}
		})
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// await waits until a condition holds in the loop.
func (i *instance) await(what string, is func() bool) {
	i.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		ok, err := loop.Ask(i.t.Context(), i.Loop, func() (bool, error) { return is(), nil })
		if err != nil {
			i.t.Fatal(err)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			i.t.Fatalf("still not so: %s", what)
		}
	}
}

// An explicit retirement causes a compaction, also after a restart. Nothing else causes
// one.
func TestCompactedByItself(t *testing.T) {
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	for k := range 10 {
		produce(t, name, message{key: fmt.Appendf(nil, "k%d", k), value: jsonRow(k%2, k, 1)})
	}
	produce(t, name, message{key: []byte("k0"), value: jsonRow(0, 7, 7)}) // in the place of another
	d := start(t, name, file, map[string]string{"blocks.unit": "key", "snapshot.scrub": "1ms"})
	d.waitForOffsets(11)
	d.Call(t.Context(), func() error {
		if !d.Live.Uncompacted().IsZero() || !d.Saver.LastCompaction().IsZero() {
			t.Errorf("without a retirement: %v, %v", d.Live.Uncompacted(), d.Saver.LastCompaction())
		}
		return nil
	})
	d.retire("key:k1")
	d.await("a compaction", func() bool {
		return d.Live.Uncompacted().IsZero() && d.Saver.IsIdle() && !d.Saver.LastCompaction().IsZero()
	})
	d.stop()
	d = start(t, name, file, map[string]string{"blocks.unit": "key", "snapshot.scrub": "0"})
	d.waitForOffsets(11)
	d.retire("key:k2")
	d.stop()
	uncompacted := func() time.Time {
		t.Helper()
		store, contents, err := snapshot.OpenReadOnly(file)
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
		return contents.Uncompacted
	}
	if uncompacted().IsZero() {
		t.Error("the file does not know of the retirement that it was not compacted after")
	}
	d = start(t, name, file, map[string]string{"blocks.unit": "key", "snapshot.scrub": "1ms"})
	d.await("a compaction after the restart", func() bool { return d.Live.Uncompacted().IsZero() && d.Saver.IsIdle() })
	d.stop()
	if at := uncompacted(); !at.IsZero() {
		t.Errorf("the file was not compacted after the retirement of %v", at)
	}
}

// A save into a file that was removed under the daemon fails. The caller gets the error and
// the status shows it. After the file is put back, saves succeed again.
func TestSnapshotGoes(t *testing.T) {
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	produce(t, name, message{value: jsonRow(0, 1, 2)}, message{value: jsonRow(1, 3, 4)})
	d := start(t, name, file, nil)
	d.waitForOffsets(2)
	if err := os.Rename(file, file+".aside"); err != nil {
		t.Fatal(err)
	}
	if status, body := d.ask(http.MethodPost, "/v1/snapshot"); status != http.StatusServiceUnavailable {
		t.Errorf("saved: %d: %s", status, body)
	}
	if s := d.Status(); !s.SaveFails || !slices.ContainsFunc(s.Problems, func(p httpapi.Problem) bool { return strings.Contains(p.Text, "removed or replaced") }) {
		t.Errorf("the problems are %q", s.Problems)
	}
	if err := os.Rename(file+".aside", file); err != nil {
		t.Fatal(err)
	}
	if status, body := d.ask(http.MethodPost, "/v1/snapshot"); status != http.StatusOK {
		t.Errorf("not saved: %d: %s", status, body)
	}
	d.stop()
}

// A daemon that finds an older copy of its snapshot, or none, warns that retired blocks may
// be live again. The warning stays in log and status until as many retirements have
// been made again.
func TestOlderSnapshot(t *testing.T) {
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	produce(t, name, message{value: jsonRow(0, 1, 2)}, message{value: jsonRow(1, 3, 4)}, message{value: jsonRow(1, 5, 4)})
	d := start(t, name, file, nil)
	d.waitForOffsets(3)
	d.stop()
	backup := read(t, file)
	d = start(t, name, file, nil)
	d.retire(name + "/0/2")
	d.stop()
	for _, image := range [][]byte{backup, nil} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if image != nil {
			if err := os.WriteFile(file, image, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d, log := logging(t, name, file, map[string]string{"log.level": "warn"})
		const missedRetirements = "the snapshot is older than the last retirement that was saved, or new: blocks that were forgotten may be live again"
		missed := func(p httpapi.Problem) bool { return p.Kind == httpapi.ProblemRetired && p.Text == missedRetirements }
		d.waitForOffsets(3)
		if s := d.Status(); !slices.ContainsFunc(s.Problems, missed) {
			t.Errorf("the problems are %q", s.Problems)
		}
		d.retire(name + "/0/2")
		if s := d.Status(); slices.ContainsFunc(s.Problems, missed) {
			t.Errorf("then they are still %q", s.Problems)
		}
		d.stop()
		if !strings.Contains(log.String(), missedRetirements) {
			t.Errorf("the log says only %s", log)
		}
	}
}

// A snapshot under a key is opened with that key only.
func TestSnapshotKey(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	write := func(secret string) {
		t.Helper()
		if err := os.WriteFile(key, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sixteen bytes or more")
	name, file := topic(t, 1), filepath.Join(dir, "streamd.db")
	produce(t, name, message{value: jsonRow(0, 1, 2)}, message{value: jsonRow(1, 3, 4)})
	flags := map[string]string{"snapshot.key_file": key}
	d := start(t, name, file, flags)
	d.waitForOffsets(2)
	d.stop()
	d = start(t, name, file, flags)
	d.waitForOffsets(2)
	d.retire(name + "/0/0")
	d.compact()
	d.stop()
	open := func(flags map[string]string) error {
		given := map[string]string{"kafka.topic": name, "snapshot.file": file}
		for k, v := range flags {
			given[k] = v
		}
		_, err := New(Options{Config: load(t, given), Log: zerolog.Nop()})
		return err
	}
	if err := open(nil); !errors.Is(err, snapshot.ErrKeyNeeded) {
		t.Errorf("without the key: %v", err)
	}
	write("another sixteen bytes")
	if err := open(flags); !errors.Is(err, snapshot.ErrMAC) {
		t.Errorf("with another key: %v", err)
	}
	write("short")
	if err := open(flags); err == nil || !strings.Contains(err.Error(), "snapshot.key_file") {
		t.Errorf("with a short key: %v", err)
	}
}
