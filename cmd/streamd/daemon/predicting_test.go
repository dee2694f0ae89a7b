package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"streamd/cmd/streamd/stage/stagetest"
	"streamd/ingest/kafka"
)

// answersIn returns the committed records of a topic of one partition.
func answersIn(t testing.TB, topic string) []kafka.Record {
	return stagetest.Read(t, cluster(t), topic)[0]
}

// TestTopicIsAnswered: the rows of predict.topic are answered as POST /v1/predict answers them, by
// the model that is named, also after a restart and with other features, and each once.
func TestTopicIsAnswered(t *testing.T) {
	name, asked := topic(t, 1), topic(t, 1)
	flags := map[string]string{
		"predict.topic": asked, "predict.form": "rows", "format.schema": "{city: {kind: category, values: [graz, wien]}, age: number}",
	}
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, flags)
	var rows []string
	ask := func(n int) {
		var some []message
		for range n {
			row := fmt.Sprintf(`{"city":%q,"age":%d}`, []string{"graz", "wien"}[len(rows)%2], 20+len(rows))
			rows = append(rows, row)
			some = append(some, message{key: fmt.Appendf(nil, "row %d", len(rows)), value: []byte(row)})
		}
		produce(t, asked, some...)
	}
	ask(20) // before there is a model: they wait
	var learned []message
	for i := range 40 {
		label, city := "low", "graz"
		if i%3 == 0 {
			label, city = "high", "wien"
		}
		learned = append(learned, message{value: fmt.Appendf(nil, `{"label":%q,"city":%q,"age":%d}`, label, city, 20+i)})
	}
	produce(t, name, learned...)
	d.waitForOffsets(40)
	wait := func() {
		t.Helper()
		d.eventually("the answers", func() bool { return len(answersIn(t, asked+".answers")) == len(rows) })
	}
	wait()
	produce(t, asked, message{key: []byte("bad"), value: []byte(`{"city":"graz"}`)})
	ask(20)
	wait()
	d.eventually("the counts", func() bool {
		p := d.Status().Predicting
		return p.Answered == 40 && p.Rejected == 1 && p.Rows == 40 && p.Delivery == "transactions"
	})
	d.stop()
	d = start(t, name, file, flags)
	d.waitForOffsets(40)
	ask(5)
	wait()
	served := d.settled()
	resp, err := http.Post("http://"+d.Addr().String()+"/v1/predict?form=rows", "application/json", strings.NewReader(strings.Join(rows, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	var want, got struct{ Rows []json.RawMessage }
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err == nil {
		err = json.Unmarshal(body, &want)
	}
	if err != nil || len(want.Rows) != len(rows) {
		t.Fatalf("%v: %s", err, body)
	}
	for i, r := range answersIn(t, asked+".answers") {
		if want := fmt.Sprintf("row %d", i+1); string(r.Key) != want {
			t.Fatalf("answer %d is of %q, want %q", i, r.Key, want)
		}
		var fingerprint string
		for _, h := range r.Headers {
			if h.Key == "streamd.model" {
				fingerprint = string(h.Value)
			}
		}
		if fingerprint != served.Fingerprint { // the model was another one then
			continue
		}
		if err := json.Unmarshal(r.Value, &got); err != nil || string(got.Rows[0]) != string(want.Rows[i]) {
			t.Errorf("row %d is answered by %s, want %s (%v)", i, r.Value, want.Rows[i], err)
		}
	}
	if letters := answersIn(t, asked+".dlq"); len(letters) != 1 || string(letters[0].Key) != "bad" {
		t.Errorf("%d dead letters, want one", len(letters))
	}
	d.stop()
}
