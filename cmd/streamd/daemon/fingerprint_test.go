package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"streamd/cmd/streamd/httpapi"
)

// etag is the ETag of the served model, and its answer. known is the value of If-None-Match.
func (i *instance) etag(path, known string) (status int, tag string, answer httpapi.ModelAnswer) {
	i.t.Helper()
	req, err := http.NewRequestWithContext(i.t.Context(), http.MethodGet, "http://"+i.Addr().String()+path, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("If-None-Match", known)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			i.t.Fatal(err)
		}
	}
	return res.StatusCode, res.Header.Get("ETag"), answer
}

// Daemons that read one topic serve one ETag, with other histories: one of them had a block more
// and has retired it, and was restarted. A client that has the model from one has it from all, and
// a poll of a topic that stands still never says that the model has changed.
func TestReplicasHaveOneETag(t *testing.T) {
	const blocks = 12
	name := topic(t, 1)
	messages, _ := weightedBlocks(t, blocks+1)
	flags := map[string]string{
		"format.weight": "weight", "model.nu": "auto", "model.refine": "line", "model.refine_interval": "50ms", "sample.rows": "300",
	}
	produce(t, name, messages...)
	last := fmt.Sprintf("%s/0/%d", name, blocks)
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, flags)
	d.waitForOffsetsRead(blocks + 1)
	d.settled()
	_, former, _ := d.etag("/v1/model", "")
	d.retire(last)
	d.settled()
	status, tag, answer := d.etag("/v1/model", former)
	if status != http.StatusOK || tag == former {
		t.Fatalf("status %d, ETag %s after %s: the model without the block is the one with it", status, tag, former)
	}
	if got := answer.Identity().Fingerprint(); got != answer.Fingerprint || tag != `W/"`+got+`"` {
		t.Errorf("the answer has the fingerprint %s, its ETag is %s, and its parts have %s", answer.Fingerprint, tag, got)
	}
	made := answer.MadeAt
	d.stop()

	again := start(t, name, file, flags)
	replica := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	replica.waitForOffsetsRead(blocks + 1)
	replica.retire(last)
	for _, i := range []*instance{again, replica} {
		i.waitForOffsetsRead(blocks + 1)
		i.settled()
		if status, got, _ := i.etag("/v1/model?wait=1s", tag); status != http.StatusNotModified || got != tag {
			t.Errorf("status %d, ETag %s; the model that the other daemon serves has %s", status, got, tag)
		}
		if _, _, other := i.etag("/v1/model", ""); !other.MadeAt.After(made) || len(other.Offsets) == 0 {
			t.Errorf("made at %v with offsets %v, after %v", other.MadeAt, other.Offsets, made)
		}
		i.stop()
	}
}
