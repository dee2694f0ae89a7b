//go:build unix

package daemon

import (
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/ingest/wire"
)

func init() {
	limitFiles = func() error {
		signal.Ignore(syscall.SIGXFSZ) // the write fails instead
		const bytes = 200_000
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: bytes})
	}
}

// On a full disk the daemon reports the problem, keeps serving, stops consuming what it
// could not save, stops on request, and loses nothing.
func TestFullDisk(t *testing.T) {
	const blocks = 1000
	name := topic(t, 1)
	payloads, want := ndcBlocks(t, blocks)
	var messages []message
	for _, payload := range payloads {
		messages = append(messages, message{value: payload, contentType: wire.Arrow.ContentType()})
	}
	produce(t, name, messages[:blocks/2]...)
	flags := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name, "http.listen": "127.0.0.1:0",
		"snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "10ms", "snapshot.blocks": "50",
		"kafka.fetch_bytes": "64KiB",
		fileLimit:           "",
	}
	p := spawn(t, flags)
	p.until(t, "the problem", func() bool { return strings.Contains(p.get(t, "/"), "the snapshot cannot be saved") })
	p.until(t, "not ready", func() bool { return strings.Contains(p.get(t, "/readyz"), "the state cannot be saved") })
	produce(t, name, messages[blocks/2:]...)
	all := fmt.Sprintf("streamd_partition_high_watermark{partition=\"0\",topic=%q} %d\n", name, blocks)
	p.until(t, "the rest, in the log", func() bool { return strings.Contains(p.get(t, "/metrics"), all) })
	p.until(t, "a model", func() bool {
		_, rows, seen, err := p.model()
		if err != nil || seen > blocks/2 {
			t.Fatalf("a model of %d rows after %d records: %v", rows, seen, err)
		}
		return rows > 0
	})
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("it does not stop")
	}
	if text := p.stderr.String(); !strings.Contains(text, "the last changes are not saved and will be read again") || strings.Contains(text, "shutdown_timeout") {
		t.Errorf("it stops with %s", text)
	}

	delete(flags, fileLimit)
	p = spawn(t, flags)
	p.waitFor(t, blocks, live.DigestOf(want))
}
