package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/ingest/wire"
	"streamd/retire"
)

// A model is served before its blocks are saved, and says so. After the save it is the same, bit
// for bit, and so it is after a restart.
func TestServedBeforeTheSave(t *testing.T) {
	for name, flags := range map[string]map[string]string{
		"plain":    {},
		"a sample": {"sample.rows": "1000", "model.folds": "3", "model.calibration": "platt"},
		"a run":    {"blocks.unit": "offsets", "blocks.offsets": "3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const blocks = 20
			topic, file := topic(t, 2), filepath.Join(t.TempDir(), "streamd.db")
			given := map[string]string{"snapshot.interval": "1h", "sample.rows": "0", "model.folds": "0"}
			for k, v := range flags {
				given[k] = v
			}
			payloads, _ := ndcBlocks(t, blocks)
			d := start(t, topic, file, given)
			if s, _ := d.Served(); !s.Durable {
				t.Error("what the snapshot has is not durable")
			}
			for i, payload := range payloads {
				produce(t, topic, message{partition: i % 2, value: payload, contentType: wire.Arrow.ContentType()})
			}
			d.waitForOffsets(blocks)
			if given["sample.rows"] != "0" {
				d.settled()
			}
			d.waitForSolve()
			early, _ := d.Served()
			if early.Durable || early.Model == nil {
				t.Fatalf("served before the save: durable %v, %s", early.Durable, planesOf(early))
			}
			if _, _, a := d.etag("/v1/model", ""); a.Durable == nil || *a.Durable {
				t.Errorf("GET /v1/model says durable: %v", a.Durable)
			}
			if status, body := d.ask(http.MethodPost, "/v1/snapshot"); status != http.StatusOK {
				t.Fatal(body)
			}
			late := d.wait("a durable model", func(s *model.Served) bool { return s.Durable })
			same := func(when string, s *model.Served) {
				t.Helper()
				if s.Fingerprint != early.Fingerprint || s.Digest != early.Digest || planesOf(s) != planesOf(early) {
					t.Errorf("%s it is another model:\n%s\nserved early:\n%s", when, planesOf(s), planesOf(early))
				}
			}
			same("after the save", late)
			if !reflect.DeepEqual(late.Model, early.Model) || !reflect.DeepEqual(late.Offsets, early.Offsets) {
				t.Error("after the save the model has other parts")
			}
			d.stop()
			d = start(t, topic, file, given)
			d.waitForOffsets(blocks)
			if given["sample.rows"] != "0" {
				d.settled()
			}
			d.waitForSolve()
			s := d.wait("the model", func(s *model.Served) bool { return s.Model != nil })
			same("after a restart", s)
			if !s.Durable && flags["blocks.unit"] == "" { // records of an open run are read again
				t.Error("what the snapshot has is not durable after a restart")
			}
			d.stop()
		})
	}
}

// A daemon is killed (kill -9) after it has served a model and before it has saved its blocks. The
// next one reads them again and serves the same model.
func TestKilledBetweenServingAndSaving(t *testing.T) {
	const blocks, saved = 40, 25
	name := topic(t, 2)
	payloads, _ := ndcBlocks(t, blocks)
	write := func(payloads [][]byte) {
		for i, payload := range payloads {
			produce(t, name, message{partition: i % 2, value: payload, contentType: wire.Arrow.ContentType()})
		}
	}
	flags := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name,
		"http.listen": "127.0.0.1:0", "snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "1h",
		"sample.rows": "0", "model.folds": "0",
	}
	p := spawn(t, flags)
	answer := func(seen int64) (a httpapi.ModelAnswer) {
		t.Helper()
		p.until(t, fmt.Sprintf("%d records", seen), func() bool {
			var n int64
			if json.Unmarshal([]byte(p.get(t, "/v1/model")), &a) != nil || a.Durable == nil {
				return false
			}
			for _, o := range a.Offsets {
				n += o.Next
			}
			return n == seen
		})
		return a
	}
	write(payloads[:saved])
	answer(saved)
	res, err := http.Post("http://"+p.addr+"/v1/snapshot", "", nil)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", res, err)
	}
	res.Body.Close()
	if a := answer(saved); !*a.Durable {
		t.Error("a saved model is not durable")
	}
	write(payloads[saved:])
	early := answer(blocks)
	if *early.Durable {
		t.Error("the model is durable, and nothing has saved its blocks")
	}
	p.kill()
	p = spawn(t, flags)
	again := answer(blocks)
	if again.Fingerprint != early.Fingerprint || !reflect.DeepEqual(again.Planes, early.Planes) {
		t.Errorf("after the crash %s, served before %s", again.Fingerprint, early.Fingerprint)
	}
}

// While a save hangs, models are served, also without a block that is being retired. The retirement
// is answered only after the save.
func TestRetirementIsAnsweredAfterTheSave(t *testing.T) {
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"snapshot.interval": "1h", "sample.rows": "0", "model.folds": "0"})
	produce(t, name, message{value: jsonRow(1, 1, 2)}, message{value: jsonRow(0, 3, 2)}, message{value: jsonRow(1, 5, 2)}, message{value: jsonRow(0, 4, 1)})
	d.waitForOffsets(4)
	release := holdSaves(d.Store)
	held := true
	defer func() {
		if held {
			release()
		}
	}()
	answered := make(chan error, 1)
	go func() {
		_, err := d.Retire(context.Background(), retire.Selector{IDs: []string{fmt.Sprintf("%s/0/0", name)}}, httpapi.RetireOptions{})
		answered <- err
	}()
	if s := d.wait("a model without the block", func(s *model.Served) bool { return s.Blocks == 3 }); s.Durable {
		t.Error("it is durable, and the save hangs")
	}
	produce(t, name, message{value: jsonRow(1, 7, 7)})
	if s := d.waitForOffsets(5); s.Durable || s.Blocks != 4 {
		t.Errorf("while the save hangs: durable %v, %d blocks", s.Durable, s.Blocks)
	}
	select {
	case err := <-answered:
		t.Fatalf("it is answered before the save: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	release()
	held = false
	if err := <-answered; err != nil {
		t.Error(err)
	}
	d.stop()
}

// While blocks come, solves begin no oftener than their share allows, and the loop goes on between
// them. Without the share, the copies of the sums would allow twenty times as many.
func TestSolvesTakeTheirShare(t *testing.T) {
	const features, classes, for_ = 100, 4, 3 * time.Second
	const share, least = 0.001, 250 * time.Microsecond // of a solve of this size
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
		"model.solve_share": fmt.Sprint(share), "sample.rows": "0", "model.folds": "0", "drift.detect": "false", "snapshot.interval": "1h",
		"format.default": "csv", "format.csv_header": "absent", "format.label": "first",
	})
	r := rand.New(rand.NewPCG(5, 5))
	var text bytes.Buffer
	for i := range 2 * classes {
		fmt.Fprintf(&text, "c%d", i%classes)
		for range features {
			fmt.Fprintf(&text, ",%.3f", r.NormFloat64())
		}
		text.WriteByte('\n')
	}
	began, blocks := time.Now(), int64(0)
	for time.Since(began) < for_ {
		produce(t, name, message{value: text.Bytes()})
		blocks++
		time.Sleep(2 * time.Millisecond)
	}
	took := time.Since(began)
	var m dto.Metric
	if err := d.Metrics.SolveSeconds.Write(&m); err != nil {
		t.Fatal(err)
	}
	solves := int(m.GetHistogram().GetSampleCount())
	t.Logf("%d blocks, %d solves of %.1f ms", blocks, solves, 1e3*m.GetHistogram().GetSampleSum()/float64(solves))
	// The first solves are not known to take long, and after a pause of the stream the next waits
	// for none.
	if most := 8 + int(share*took.Seconds()/least.Seconds()); solves == 0 || solves > most {
		t.Errorf("%d solves in %v, want 1 to %d", solves, took, most)
	}
	d.waitForOffsets(blocks)
	d.stop()
}

// The metrics tell how fresh the served models are.
func TestFreshnessIsMeasured(t *testing.T) {
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), nil)
	produce(t, name, message{value: jsonRow(1, 1, 2)}, message{value: jsonRow(0, 3, 2)})
	d.waitForOffsets(2)
	d.until("a measurement", func() bool {
		_, body := d.ask(http.MethodGet, "/metrics")
		return strings.Contains(body, "streamd_freshness_seconds_count") && !strings.Contains(body, "streamd_freshness_seconds_count 0\n")
	})
	d.stop()
}
