package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
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

// A served model is checked with a copy of the snapshot: planes are solved again from the sums, in
// the features and in a basis, with every option and with weights by age. A daemon that serves
// other planes is found, even if its fingerprint is that of what it serves.
func TestServedModelIsThatOfItsSums(t *testing.T) {
	const blocks = 10
	messages, _ := weightedBlocks(t, blocks)
	for i := range messages {
		messages[i].time = time.UnixMilli(1_700_000_000_000 + 1000*int64(i*i%13))
	}
	for name, test := range map[string]struct {
		flags  map[string]string
		stated string // why planes are not proved; "": they are
	}{
		"plain":     {},
		"options":   {flags: map[string]string{"model.standardise": "true", "model.balanced": "true", "model.nu": "0.3"}},
		"missing":   {flags: map[string]string{"format.missing": "mean"}},
		"weights":   {flags: map[string]string{"model.class_weights": "one=2"}},
		"means":     {flags: map[string]string{"model.method": "means"}},
		"chosen ν":  {flags: map[string]string{"model.nu": "auto", "sample.rows": "200", "model.folds": "3"}},
		"half-life": {flags: map[string]string{"retire.half_life": "4s"}},
		"by rows":   {flags: map[string]string{"retire.half_life_rows": "100", "model.standardise": "true"}},
		"basis":     {flags: map[string]string{"kernel.function": "gaussian(gamma=0.01)", "kernel.basis": "8", "kernel.rows": "100", "kernel.regulariser": "kernel", "sample.rows": "200"}},
		"refined":   {flags: map[string]string{"model.refine": "line", "sample.rows": "200"}, stated: "planes: they are refined (line)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := map[string]string{"format.weight": "weight", "model.refine_interval": "50ms", "sample.rows": "0", "model.folds": "0"}
			maps.Copy(flags, test.flags)
			topic, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
			produce(t, topic, messages...)
			d := start(t, topic, file, flags)
			d.waitForOffsetsRead(blocks)
			switch {
			case name == "basis":
				d.wait("a basis", func(s *model.Served) bool { return s.Basis != nil && s.Model != nil })
			case flags["sample.rows"] != "0":
				d.settled()
			default:
				d.waitForSolve()
			}
			_, _, a := d.etag("/v1/model", "")
			d.stop()
			served := func() *audit.Served {
				return &audit.Served{Identity: a.Identity(), Fingerprint: a.Fingerprint, Basis: a.Basis, Forgetting: a.Forgetting}
			}
			report, err := audit.Model(file, served())
			if err != nil {
				t.Fatal(err)
			}
			if proved := report.Planes == len(a.Planes); proved != (test.stated == "") || test.stated != "" && !strings.HasPrefix(report.Stated[0], test.stated) {
				t.Errorf("%+v", report)
			}
			{
				s := served()
				s.Planes[0].Gamma++
				if _, err := audit.Model(file, s); err == nil || !strings.Contains(err.Error(), "it has been changed") {
					t.Errorf("another γ under the same fingerprint: %v", err)
				}
				s.Fingerprint = s.Identity.Fingerprint()
				if _, err := audit.Model(file, s); (err == nil) != (test.stated != "") || err != nil && !strings.Contains(err.Error(), "the model is not that of the blocks") {
					t.Errorf("another γ with its fingerprint: %v", err)
				}
				s.Planes[0].Gamma--
			}
			s := served()
			s.Digest = strings.Repeat("0", 64)
			s.Fingerprint = s.Identity.Fingerprint()
			if _, err := audit.Model(file, s); err == nil || !strings.Contains(err.Error(), "its blocks add up to the digest") {
				t.Errorf("another digest: %v", err)
			}
		})
	}
}
