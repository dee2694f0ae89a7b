package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/daemon/live"
	"streamd/incremental"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

// people makes a message of rows with texts, numbers that may be missing, and times.
func people(r *rand.Rand, rows int) message {
	var text strings.Builder
	for i := range rows {
		if i > 0 {
			text.WriteByte('\n')
		}
		country := []string{`"at"`, `"ch"`, `"de"`, `"fr"`, "null"}[r.IntN(5)]
		age := fmt.Sprint(20 + r.IntN(60))
		if r.IntN(4) == 0 {
			age = "null"
		}
		label := "no"
		if country == `"at"` || country == `"fr"` {
			label = "yes"
		}
		fmt.Fprintf(&text, `{"label":%q,"at":{"country":%s},"age":%s,"title":"a %s thing","since":"20%02d-03-01"}`, label, country, age, []string{"good", "bad"}[r.IntN(2)], 10+r.IntN(15))
	}
	return message{value: []byte(text.String())}
}

const peopleSchema = `{
	country: {kind: category, from: at.country, values: [at, ch, de], other: true, missing: own},
	age: {kind: number, missing: mean%s},
	title: {kind: hash, bits: 2, words: true},
	since: {kind: time, parts: [month]}
}`

// A daemon with a schema has the sums of the features that the schema makes, predicts rows as they
// are, and is the same after a restart. Another function under the same name is another feature:
// the live blocks are read again.
func TestSchema(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 1))
	plain, clipped := fmt.Sprintf(peopleSchema, ""), fmt.Sprintf(peopleSchema, ", clip: [30, 50]")
	name, file := topic(t, 2), filepath.Join(t.TempDir(), "streamd.db")
	var messages []message
	for i := range 40 {
		m := people(r, 1+r.IntN(30))
		m.partition = i % 2
		messages = append(messages, m)
	}
	produce(t, name, messages...)
	flags := func(text string) map[string]string {
		return map[string]string{"format.schema": text, "sample.rows": "300", "model.folds": "3", "model.nu": "auto"}
	}
	digestBy := func(text string) string {
		s, err := schema.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		decoder, err := wire.NewDecoder(wire.Options{Schema: s})
		if err != nil {
			t.Fatal(err)
		}
		all := incremental.NewState(s.Columns())
		var z incremental.Summariser
		for _, m := range messages {
			b, err := decoder.Decode(wire.JSON.ContentType(), m.value)
			if err != nil {
				t.Fatal(err)
			}
			sums, err := z.Summarise(b)
			if err != nil {
				t.Fatal(err)
			}
			all.Add(sums)
		}
		return live.DigestOf(all)
	}

	d := start(t, name, file, flags(plain))
	d.waitForOffsets(int64(len(messages)))
	served := d.settled()
	if want := digestBy(plain); served.Digest != want {
		t.Fatalf("digest %s, want %s", served.Digest, want)
	}
	row := `{"at":{"country":"fr"},"age":null,"title":"a good thing","since":"2024-03-01"}`
	predict := func(d *instance) string {
		resp, err := http.Post("http://"+d.Addr().String()+"/v1/predict", "application/json", strings.NewReader(row))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := make([]byte, 4096)
		n, _ := resp.Body.Read(body)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("predict: %s %s", resp.Status, body[:n])
		}
		return string(body[:n])
	}
	answer := predict(d)
	if !strings.Contains(answer, `"labels":["yes"]`) {
		t.Errorf("the answer for %s is %s", row, answer)
	}
	status, text := d.ask(http.MethodGet, "/v1/model")
	if status != http.StatusOK || !strings.Contains(text, `"schema":{"age":{"kind":"number","missing":"mean"}`) {
		t.Errorf("the model has no schema: %.2000s", text)
	}
	rows, french := 0, 0
	for _, m := range messages {
		rows += strings.Count(string(m.value), `"label"`)
		french += strings.Count(string(m.value), `"fr"`)
	}
	share := float64(french) / float64(rows)
	if want := fmt.Sprintf(`"undeclared":[{"feature":"country","share":%v}]`, share); !strings.Contains(text, want) {
		t.Errorf("the model has no %s: %.2000s", want, text)
	}
	if _, text := d.ask(http.MethodGet, "/metrics"); !strings.Contains(text, fmt.Sprintf(`streamd_undeclared_share{feature="country"} %v`, share)) {
		t.Error("the metrics have no share of undeclared values")
	}
	d.until("a problem for a fifth of values that are not declared", func() bool {
		_, text := d.ask(http.MethodGet, "/v1/status")
		return strings.Contains(text, fmt.Sprintf(`%.1f %% of the live rows have values of category \"country\"`, 100*share))
	})
	d.stop()
	d = start(t, name, file, flags(plain))
	if again := d.settled(); again.Fingerprint != served.Fingerprint || predict(d) != answer {
		t.Errorf("after a restart the fingerprint is %s, before it was %s", again.Fingerprint, served.Fingerprint)
	}
	d.stop()

	d = start(t, name, file, flags(clipped))
	p := pollModels(d.Addr().String())
	want := digestBy(clipped)
	d.until("the clipped ages", func() bool {
		m, err := getModel(d.Addr().String())
		return err == nil && m.Digest == want
	})
	p.stop(t)
	d.stop()
	if _, err := os.Stat(file + ".features"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the change is still there: %v", err)
	}
	d = start(t, name, file, flags(clipped))
	fresh := start(t, name, filepath.Join(t.TempDir(), "fresh.db"), flags(clipped))
	fresh.waitForOffsets(int64(len(messages)))
	if got, want := d.settled(), fresh.settled(); got.Fingerprint != want.Fingerprint || !slices.Equal(got.Model.Features, want.Model.Features) {
		t.Errorf("after the change the fingerprint is %s, from the start %s", got.Fingerprint, want.Fingerprint)
	}
	d.rereadsAll()
	d.stop()
	fresh.stop()
}
