package daemon

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/history"
	"streamd/cmd/streamd/model"
	"streamd/snapshot"
)

// The history has rows, correctness, lag and memory, and outlives a restart. A record
// that cannot be read is dropped with a warning.
func TestHistoryOutlivesARestart(t *testing.T) {
	name := topic(t, 1)
	produce(t, name, message{value: jsonRow(0, 3, 2)}, message{value: jsonRow(1, -3, 2)})
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, nil)
	digest := d.waitForOffsets(2).Digest
	d.stop() // adds a sample
	rows := func(h *model.History) (rows float64) {
		for i, rate := range h.RowsPerSecond {
			if rate != nil {
				rows += *rate
			}
			if m := h.Memory[i]; m != nil && (*m < 1<<20 || *m > 1<<40) {
				t.Errorf("%d bytes of memory", *m)
			}
		}
		return rows
	}
	before := d.History(model.SpanDays)
	if rows(before) <= 0 || before.MemoryLimit != d.Memory.Limit {
		t.Fatalf("the history is %+v", before)
	}

	store, saved, err := snapshot.OpenReadOnly(file)
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	var log bytes.Buffer
	for _, c := range []struct {
		record []byte
		kept   bool
	}{{saved.History, true}, {append([]byte{1}, saved.History[1:]...), false}, {nil, false}} {
		log.Reset()
		r := history.NewRecorder(zerolog.New(&log), nil, 1, c.record)
		if kept := bytes.Equal(r.Encoded(), saved.History); kept != c.kept || (log.Len() > 0) != (c.record != nil && !c.kept) {
			t.Errorf("kept %v, and the log has %q", kept, &log)
		}
	}

	d = start(t, name, file, nil)
	if after := d.History(model.SpanDays); rows(after) != rows(before) {
		t.Errorf("after the restart there are %g rows a second, before %g", rows(after), rows(before))
	}
	if again := d.waitForOffsets(2).Digest; again != digest {
		t.Errorf("digest %s, then %s", digest, again)
	}
	d.stop()
}
