package daemon

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/retire"
	"streamd/retire/receipt"
)

// Where there is a control topic, a request to one replica retires blocks in every replica, and in
// those that come later. It does not retire later blocks, such as the next value of a key, and
// writes no key into the topic.
func TestRetireEverywhere(t *testing.T) {
	for unit, flags := range map[string]map[string]string{
		"key": {}, "message": {}, "offsets": {"blocks.offsets": "2"}, "time": {"blocks.period": "1s"},
	} {
		t.Run(unit, func(t *testing.T) {
			const n = 12
			name := topic(t, 1)
			flags := maps.Clone(flags)
			maps.Copy(flags, map[string]string{"blocks.unit": unit, "retire.topic": controlTopic(t, name), "model.folds": "0"})
			add := func(from, to int) {
				var messages []message
				for i := from; i < to; i++ {
					period := i / 4
					if i%4 == 1 && period > 0 {
						period-- // blocks of two periods lie within each other
					}
					messages = append(messages, message{
						key: fmt.Append(nil, "name-", i%n), value: jsonRow(2*(i%2)-1, i, i*i), time: plantedTime.Add(time.Duration(period) * time.Second),
					})
				}
				produce(t, name, messages...)
			}
			start := func() *instance {
				flags := maps.Clone(flags)
				flags["receipts.key_file"] = filepath.Join(t.TempDir(), "key")
				return start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
			}
			add(0, n)
			a, b := start(), start()
			all := []*instance{a, b}
			for _, d := range all {
				d.waitForOffsetsRead(n)
			}
			page, _, err := a.Blocks(t.Context(), false, "", 100)
			if err != nil {
				t.Fatal(err)
			}
			gone := page[len(page)/2]
			if status, _, _ := a.etag(fmt.Sprintf("/v1/model?wait=30s&includes=%s/0/%d", name, n-1), ""); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
			before := a.Daemon.published()
			s := retire.Selector{IDs: []string{gone.ID}}
			if dry, err := a.Retire(t.Context(), s, httpapi.RetireOptions{DryRun: true}); err != nil || dry.Blocks != 1 || dry.Control != "" {
				t.Fatalf("a dry run: %+v, %v", dry, err)
			}
			r, err := a.Retire(t.Context(), s, httpapi.RetireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Control == "" || r.Blocks != 1 || r.Rows != gone.Rows || r.First[0].ID != gone.ID || r.RetiredAt == nil ||
				r.DigestBefore != before.Digest || r.DigestAfter == r.DigestBefore || len(r.Receipts) != 1 || len(r.Remains) == 0 {
				t.Errorf("%+v", r)
			}
			proof, err := a.Receipt(t.Context(), r.Receipts[0])
			if err != nil {
				t.Fatal(err)
			}
			of, err := receipt.Check(proof, a.receipts.Key.Public())
			if err != nil || of.Leaf.Kind != receipt.Withdrawn || len(of.Items) != 1 || of.Items[0].Key != a.receipts.Key.ItemKey(gone.ID) {
				t.Errorf("the receipt is %+v, %v", of, err)
			}
			for _, d := range all {
				d.wait("the retirement", func(s *model.Served) bool { return s.Digest == r.DigestAfter })
			}
			if _, err := b.Retire(t.Context(), s, httpapi.RetireOptions{}); unit != "key" && err != nil { // it keeps its place
				t.Errorf("at the other replica: %v", err)
			}

			add(n, 2*n) // each key again
			all = append(all, start())
			var tags []string
			for _, d := range all {
				d.waitForOffsetsRead(2 * n)
				status, tag, answer := d.etag("/v1/model?wait=30s&includes="+fmt.Sprintf("%s/0/%d", name, 2*n-1), "")
				if status != http.StatusOK {
					t.Fatalf("status %d", status)
				}
				if unit == "key" && answer.LiveRows != n {
					t.Errorf("%d rows are live, want %d: a later value is another block", answer.LiveRows, n)
				}
				tags = append(tags, tag)
			}
			if tags[1] != tags[0] || tags[2] != tags[0] {
				t.Errorf("the ETags are %q", tags)
			}
			for _, d := range all {
				if d.Daemon.published().Digest == r.DigestBefore {
					t.Error("the block is back")
				}
				d.stop()
			}
		})
	}
}

// published is the served value.
func (d *Daemon) published() *model.Served { s, _ := d.Served(); return s }
