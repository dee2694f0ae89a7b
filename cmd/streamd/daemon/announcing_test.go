package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"testing"

	"streamd/ingest/kafka"
)

// TestModelsAreWritten: the last record of model.topic is the model of GET /v1/model, also after a
// restart, and each record is another model than the one before.
func TestModelsAreWritten(t *testing.T) {
	name, models := topic(t, 1), topic(t, 1) // not compacted: the embedded broker drops what is being read
	flags := map[string]string{"model.topic": models, "model.name": "orders"}
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, flags)
	records := func() []kafka.Record {
		t.Helper()
		var all []kafka.Record
		var last kafka.Record
		var want, got map[string]any
		d.eventually("the model", func() bool { // a study may make another one meanwhile
			if d.Status().Announced.Written == 0 {
				return false
			}
			all = answersIn(t, models)
			last = all[len(all)-1]
			resp, err := http.Get("http://" + d.Addr().String() + "/v1/model")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			want, got = nil, nil
			if err = errors.Join(err, json.Unmarshal(body, &want), json.Unmarshal(last.Value, &got)); err != nil {
				t.Fatal(err)
			}
			return got["fingerprint"] == want["fingerprint"]
		})
		// The same model may be served again, at later positions and with other reports.
		for _, key := range []string{"fingerprint", "state_digest", "features", "classes", "class_rows", "planes", "options", "mean", "calibration", "live_rows"} {
			if !reflect.DeepEqual(got[key], want[key]) {
				t.Errorf("%s of the record is %v, GET /v1/model answers %v", key, got[key], want[key])
			}
		}
		if string(last.Key) != "orders" {
			t.Errorf("the record has the key %q", last.Key)
		}
		for i, r := range all {
			if h := r.Headers; len(h) != 2 || string(h[1].Value) != want["fingerprint"] && i == len(all)-1 ||
				i > 0 && string(h[1].Value) == string(all[i-1].Headers[1].Value) {
				t.Errorf("record %d has the headers %q, after %q", i, h, all[max(0, i-1)].Headers)
			}
		}
		return all
	}
	for i := range 5 {
		var some []message
		for j := range 20 {
			some = append(some, message{value: fmt.Appendf(nil, `{"label":%q,"x":%d,"y":%d}`, []string{"a", "b"}[j%2], j%2*3+i, j%7)})
		}
		produce(t, name, some...)
		d.waitForOffsets(int64(20 * (i + 1)))
		records()
	}
	d.settled()
	all := records()
	former := string(all[len(all)-1].Headers[1].Value)
	if n := d.Status().Announced.Written; n < 2 {
		t.Errorf("%d models were written", n)
	}
	d.stop()
	d = start(t, name, file, flags)
	d.settled()
	d.eventually("the model of the new start", func() bool { return d.Status().Announced.Fingerprint == former })
	all = answersIn(t, models)
	if last := string(all[len(all)-1].Headers[1].Value); last != former {
		t.Errorf("after a restart the model is %q, before it was %q", last, former)
	}
	d.stop()

	flags["model.topic"] = name + ".made"
	d = start(t, name, file, flags)
	d.eventually("a topic that is made", func() bool { return d.Status().Announced.Written > 0 })
	if made, err := kafka.ReadRetention(t.Context(), cluster(t), name+".made"); err != nil || !made.Compact || made.Deletes() {
		t.Errorf("the topic is made with %+v (%v), want one that is compacted", made, err)
	}
	d.stop()
}
