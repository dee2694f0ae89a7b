package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
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
	if _, err := os.Stat(snapshot.Copying(a.Config.Snapshot.File)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy is left: %v", err)
	}

	other := t.TempDir()
	file := filepath.Join(other, "streamd.db")
	all := withReceipts(other, maps.Clone(flags))
	all["kafka.topic"], all["snapshot.file"] = name, file
	begin := func(copied []byte, flags map[string]string) error {
		d, err := New(Options{Config: load(t, flags), Log: zerolog.Nop(), Copy: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(copied)), nil
		}})
		if err == nil {
			err = d.close()
		}
		return err
	}
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
		if err := begin(c.copied, changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if left, _ := filepath.Glob(filepath.Join(other, "*")); len(left) > 0 {
			t.Fatalf("%s: there is %q", what, left)
		}
	}
	if err := begin(copied, all); err != nil {
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
	key := b.receipts.Key
	if key.Public() == a.receipts.Key.Public() {
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

// A client polls two replicas in turn, as through a balancer, while blocks come, while requests to
// the one or the other retire some, and while one of them starts anew. Each answer is the model of
// the records that it names, less what the records of the control topic that it names retire. No
// poll says that the model has changed when it has not.
func TestPollThroughABalancer(t *testing.T) {
	const partitions, each = 3, 60
	name := topic(t, partitions)
	following := controlTopic(t, name)
	r := rand.New(rand.NewPCG(36, 1))
	var rows [partitions][]message
	for p := range rows {
		for i := range each {
			text := fmt.Sprintf("%d,%g,%g\n%d,%g,%g\n", i%2, r.NormFloat64(), 19.99+r.Float64(), (i+1)%2, r.NormFloat64(), 1e-7*r.NormFloat64())
			rows[p] = append(rows[p], message{partition: p, value: []byte(text), contentType: "text/csv"})
		}
	}
	decoder, err := wire.NewDecoder(wire.Options{Header: wire.HeaderAbsent})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var retired []string // by the records of the control topic, in their order
	digestAt := func(offsets []model.Offset) string {
		mu.Lock()
		defer mu.Unlock()
		var z incremental.Summariser
		sum, out := incremental.NewState(incremental.DefaultFeatures(2)), map[string]bool{}
		for _, o := range offsets {
			if o.Topic == following {
				for _, id := range retired[:min(len(retired), int(o.Next)-1)] {
					out[id] = true
				}
			}
		}
		for _, o := range offsets {
			for i := range o.Next {
				if o.Topic != name || out[fmt.Sprintf("%s/%d/%d", name, o.Partition, i)] {
					continue
				}
				b, err := decoder.Decode("text/csv", rows[o.Partition][i].value)
				if err != nil {
					panic(err)
				}
				s, err := z.Summarise(b)
				if err != nil {
					panic(err)
				}
				sum.Add(s)
			}
		}
		return live.DigestOf(sum)
	}
	flags := map[string]string{"format.csv_header": "absent", "retire.topic": following, "model.folds": "0", "snapshot.interval": "20ms"}
	folder := t.TempDir()
	var replicas [2]*instance
	var balancing sync.RWMutex // while a replica is out
	for i := range replicas {
		replicas[i] = start(t, name, filepath.Join(folder, fmt.Sprint(i, ".db")), flags)
	}
	poll := func(i int, known, wait string) (int, string, httpapi.ModelAnswer) {
		balancing.RLock()
		defer balancing.RUnlock()
		return replicas[i].etag("/v1/model?wait="+wait, known)
	}
	ended := make(chan struct{})
	var polling sync.WaitGroup
	end := sync.OnceFunc(func() { close(ended); polling.Wait() })
	defer end()
	var answers int
	polling.Go(func() {
		known := ""
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
			status, tag, a := poll(i%2, known, "20ms")
			if status != http.StatusOK {
				continue
			}
			if tag == known {
				t.Errorf("the model %s is said to have changed", tag)
			}
			if want := digestAt(a.Offsets); a.Digest != want {
				t.Errorf("replica %d: the state at %v has digest %s, want %s; %d blocks, retired %v", i%2, a.Offsets, a.Digest, want, a.LiveBlocks, retired)
				return
			}
			known = tag
			answers++
		}
	})
	for i := range each {
		for p := range rows {
			produce(t, name, rows[p][i])
		}
		switch {
		case i%12 == 7:
			id := fmt.Sprintf("%s/%d/%d", name, r.IntN(partitions), i-r.IntN(3))
			at := replicas[r.IntN(2)]
			at.askWithin(t.Context(), http.MethodGet, "/v1/model?wait=30s&includes="+id)
			mu.Lock()
			retired = append(retired, id) // before a poll can see it
			mu.Unlock()
			if done := at.retire(id); done.Control == "" {
				t.Errorf("%+v", done)
			}
		case i == each/2:
			balancing.Lock()
			replicas[1].stop()
			replicas[1] = start(t, name, filepath.Join(folder, "1.db"), flags)
			balancing.Unlock()
		}
	}
	var last []string
	for _, d := range replicas {
		for p := range rows {
			d.askWithin(t.Context(), http.MethodGet, fmt.Sprintf("/v1/model?wait=30s&includes=%s/%d/%d", name, p, each-1))
		}
		d.askWithin(t.Context(), http.MethodGet, fmt.Sprintf("/v1/model?wait=30s&includes=%s/0/%d", following, len(retired)))
		_, tag, a := d.etag("/v1/model", "")
		if want := digestAt(a.Offsets); a.Digest != want || a.LiveBlocks != partitions*each-len(retired) {
			t.Errorf("at the end %d blocks at %v", a.LiveBlocks, a.Offsets)
		}
		last = append(last, tag)
	}
	if last[0] != last[1] {
		t.Errorf("the ETags are %q", last)
	}
	end()
	if answers < 20 || len(retired) != 5 {
		t.Errorf("%d answers, %d retired: this test would show little", answers, len(retired))
	}
	for i := range 20 { // the topic stands still
		if status, tag, _ := poll(i%2, last[0], "10ms"); status != http.StatusNotModified {
			t.Errorf("status %d, ETag %s", status, tag)
		}
	}
	for _, d := range replicas {
		d.stop()
	}
}
