package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/model"
	"streamd/ingest/wire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// A daemon begins with a copy of another one's snapshot where the log no longer has everything. It
// serves the same model, reads on, and begins a log of receipts under its own key.
func TestBeginWith(t *testing.T) {
	const blocks = 30
	name := topic(t, 1)
	payloads, _ := ndcBlocks(t, blocks+5)
	var messages []message
	for i, payload := range payloads {
		messages = append(messages, message{key: fmt.Append(nil, i), value: payload, contentType: wire.Arrow.ContentType()})
	}
	produce(t, name, messages[:blocks]...)
	flags := map[string]string{"blocks.unit": "key", "model.nu": "auto", "model.refine": "none", "sample.rows": "200"}
	folder := t.TempDir()
	a := start(t, name, filepath.Join(folder, "streamd.db"), withReceipts(folder, maps.Clone(flags)))
	a.waitForOffsetsRead(blocks)
	a.retire("key:3")
	deleteRecords(t, name, blocks-2)
	a.settled()

	res, err := http.Get("http://" + a.Addr().String() + "/v1/snapshot?receipts=false")
	if err != nil {
		t.Fatal(err)
	}
	copied, err := io.ReadAll(res.Body)
	if res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v", res.StatusCode, err)
	}
	if _, err := os.Stat(snapshot.Copying(a.cfg.Snapshot.File)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy is left: %v", err)
	}

	other := t.TempDir()
	file := filepath.Join(other, "streamd.db")
	all := withReceipts(other, maps.Clone(flags))
	all["kafka.topic"], all["snapshot.file"] = name, file
	for what, c := range map[string]struct {
		copied []byte
		change map[string]string
		want   string
	}{
		"cut off":       {copied: copied[:len(copied)/2]},
		"a page":        {copied: []byte("<html>"), want: "not a streamd snapshot"},
		"nothing":       {want: "not a streamd snapshot"},
		"another topic": {copied: copied, change: map[string]string{"kafka.topic": "other"}, want: `made with topic "` + name},
		"another unit":  {copied: copied, change: map[string]string{"blocks.unit": "message"}, want: `made with unit "key"`},
	} {
		changed := maps.Clone(all)
		maps.Copy(changed, c.change)
		if err := BeginWith(bytes.NewReader(c.copied), load(t, changed), zerolog.Nop()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if left, _ := filepath.Glob(filepath.Join(other, "*")); len(left) > 0 {
			t.Fatalf("%s: there is %q", what, left)
		}
	}
	if err := BeginWith(bytes.NewReader(copied), load(t, all), zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	b := start(t, name, file, withReceipts(other, maps.Clone(flags)))
	same := func(when string) {
		t.Helper()
		_, tag, _ := a.etag("/v1/model", "")
		if _, got, _ := b.etag("/v1/model", ""); got != tag {
			t.Errorf("%s: the ETags are %s and %s", when, tag, got)
		}
	}
	b.settled()
	same("at the beginning")
	produce(t, name, messages[blocks:]...)
	for _, d := range []*instance{a, b} {
		d.wait("the next blocks", func(s *model.Served) bool { return len(s.Offsets) == 1 && s.Offsets[0].Next == blocks+5 })
		d.retire("key:5")
		d.settled()
	}
	same("after the next blocks")

	// Its receipts are of its own log, and of its own key.
	proof, err := b.Receipt(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	key := b.receipts.key
	if key.Public() == a.receipts.key.Public() {
		t.Fatal("both daemons sign with one key: this test would show nothing")
	}
	r, err := receipt.Check(proof, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if r.Items[0].Key != key.ItemKey("key:5") {
		t.Error("the receipt is not of the block that was retired")
	}
	a.stop()
	b.stop()
	if report, err := audit.Snapshot(file, r, key.Public(), key, nil); err != nil || !report.Proved {
		t.Errorf("%+v, %v", report, err)
	}
	if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
	again := start(t, name, file, withReceipts(other, maps.Clone(flags)))
	again.retire("key:6")
	again.stop()
}
