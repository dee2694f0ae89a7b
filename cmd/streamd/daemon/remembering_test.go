package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/cmd/streamd/stage/stagetest"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// readTopic reads all records of a topic, those of each partition in order.
func readTopic(t *testing.T, topic string) (all []kafka.Record) {
	t.Helper()
	r, err := kafka.NewRangeReader(kafka.RangeConfig{Cluster: cluster(t), Topic: topic}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	log, err := r.Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	_, err = r.Read(t.Context(), log, func(_ context.Context, b *kafka.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, x := range b.Records {
			k := kafka.Record{Key: append([]byte(nil), x.Key...), Offset: x.Offset}
			if x.Value != nil {
				k.Value = append([]byte{}, x.Value...)
			}
			for _, h := range x.Headers {
				k.Headers = append(k.Headers, kafka.Header{Key: h.Key, Value: append([]byte(nil), h.Value...)})
			}
			all = append(all, k)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A daemon is killed at any time while predictions are remembered, of calls and of a topic, labels
// come and are corrected, and rows are deleted. Each answer that a client has is in the topic of
// rows, and each row of the topic that is answered is there once. The live set, and the figures of
// the answers that were given, are those that the two topics give without a daemon.
func TestKillWhilePredictionsAreRemembered(t *testing.T) {
	labelHistories(t, killWhilePredictionsAreRemembered)
}

func killWhilePredictionsAreRemembered(t *testing.T, seed uint64) {
	const rounds, ids = 4, 60
	r := rand.New(rand.NewPCG(seed, 1))
	rows, labels, asked := topic(t, 3), topic(t, 2), topic(t, 3)
	defer removeTopics(t, rows, labels, asked)
	flags := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": rows, "labels.topic": labels, "blocks.unit": "key", "format.features": "a,b",
		"predict.output": rows, "predict.topic": asked, "http.listen": "127.0.0.1:0", "snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "10ms",
	}
	partitionOf := func(key string) int {
		return kafkago.Murmur2Balancer{Consistent: true}.Balance(kafkago.Message{Key: []byte(key)}, 0, 1, 2)
	}
	label := func(key, value string) {
		produce(t, labels, message{partition: len(key) % 2, key: []byte(key), contentType: wire.JSON.ContentType(), value: []byte(value)})
	}
	for i := range 20 {
		key, class, x := fmt.Sprint("first-", i), []string{"good", "bad"}[i%2], float64(4*(i%2))+r.NormFloat64()
		produce(t, rows, message{partition: partitionOf(key), key: []byte(key), contentType: wire.JSON.ContentType(), value: fmt.Appendf(nil, `{"a":%v,"b":%v}`, x, r.NormFloat64())})
		label(key, fmt.Sprintf(`{"label":%q}`, class))
	}
	var mu sync.Mutex
	answers, failed, questions := map[string]bool{}, 0, 0
	for round := range rounds {
		p := spawn(t, flags)
		p.until(t, "a model", func() bool { _, n, _, err := p.model(); return err == nil && n >= 10 })
		var clients sync.WaitGroup
		for client := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(2+4*round+client)))
			clients.Go(func() {
				for n := 0; ; n++ {
					id := fmt.Sprint("id-", random.IntN(ids))
					body := fmt.Sprintf(`[{"id":%q,"a":%v,"b":%v},{"inference_id":"%s-%d-%d-%d","a":%v,"b":1}]`, id, 4*random.Float64(), random.NormFloat64(), id, round, client, n, 4*random.Float64())
					answer, err := http.Post("http://"+p.addr+"/v1/predict?form=rows", "application/json", strings.NewReader(body))
					if err != nil {
						return // it was killed
					}
					text, err := io.ReadAll(answer.Body)
					answer.Body.Close()
					if err != nil {
						return
					}
					var a predictions.PredictRowsAnswer
					mu.Lock()
					if json.Unmarshal(text, &a) != nil || answer.StatusCode != 200 || len(a.Rows) != 2 {
						failed++
					} else {
						answers[fmt.Sprintf("%s-%d-%d-%d %s %s %v", id, round, client, n, a.Model, a.Rows[1].Label, a.Rows[1].Values)] = true
					}
					mu.Unlock()
				}
			})
		}
		for range 12 {
			key := fmt.Sprint("id-", r.IntN(ids))
			switch r.IntN(9) {
			case 0, 1, 2:
				questions++
				produce(t, asked, message{partition: partitionOf(key), key: []byte(key), contentType: wire.JSON.ContentType(), value: fmt.Appendf(nil, `{"a":%v,"b":%v}`, 4*r.Float64(), r.NormFloat64())})
			case 3:
				produce(t, rows, message{partition: partitionOf(key), key: []byte(key)})
			case 4:
				produce(t, labels, message{partition: len(key) % 2, key: []byte(key)})
			default:
				label(key, fmt.Sprintf(`{"label":%q}`, []string{"good", "bad"}[r.IntN(2)]))
			}
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
		}
		if round == 0 {
			for line := range strings.Lines(p.get(t, "/metrics")) {
				if strings.HasPrefix(line, "streamd_remember_seconds_sum") || strings.HasPrefix(line, "streamd_remember_seconds_count") {
					t.Log(strings.TrimSpace(line))
				}
			}
		}
		p.kill()
		clients.Wait()
	}

	answered := func() bool {
		sources, n := map[string]bool{}, 0
		for _, k := range readTopic(t, rows) {
			for _, h := range k.Headers {
				if h.Key == "streamd.source" {
					sources[string(h.Value)], n = true, n+1
				}
			}
		}
		if n > len(sources) {
			t.Fatalf("seed %d: %d rows of the topic have %d answers", seed, len(sources), n)
		}
		return n == questions
	}
	// The embedded broker gives partitions to a member that died while it joined, until the next
	// one joins. So another daemon is started now and then.
	for again := 0; !answered(); again++ {
		if again == 10 {
			t.Fatalf("seed %d: rows of the topic have no answer", seed)
		}
		p := spawn(t, flags)
		for began := time.Now(); !answered() && time.Since(began) < 20*stagetest.Session(); {
			time.Sleep(50 * time.Millisecond)
		}
		p.kill()
	}

	// The two topics without a daemon.
	last, classes := map[string]kafka.Record{}, map[string]string{}
	for _, k := range readTopic(t, rows) {
		if last[string(k.Key)] = k; k.Value == nil {
			delete(last, string(k.Key))
		}
		for _, h := range k.Headers {
			if h.Key == intake.AnswerHeader {
				var a predictions.PredictRowsAnswer
				if err := json.Unmarshal(h.Value, &a); err != nil {
					t.Fatal(err)
				}
				delete(answers, fmt.Sprintf("%s %s %s %v", k.Key, a.Model, a.Rows[0].Label, a.Rows[0].Values))
			}
		}
	}
	for answer := range answers {
		t.Errorf("seed %d: the answer %s was given, and is not remembered", seed, answer)
	}
	for _, k := range readTopic(t, labels) {
		var l struct{ Label string }
		if delete(classes, string(k.Key)); k.Value != nil {
			if err := json.Unmarshal(k.Value, &l); err != nil {
				t.Fatal(err)
			}
			classes[string(k.Key)] = l.Label
		}
	}
	want, models := model.Given{}, map[string]bool{}
	var z incremental.Summariser
	state := incremental.NewState([]string{"a", "b"})
	for key, k := range last {
		var x struct{ A, B float64 }
		var a predictions.PredictRowsAnswer
		for _, h := range k.Headers {
			if h.Key == intake.AnswerHeader {
				json.Unmarshal(h.Value, &a)
			}
		}
		class, ok := classes[key]
		switch {
		case a.Rows != nil && !ok:
			want.Waiting++
		case a.Rows != nil:
			want.Rows++
			models[a.Model] = true
			if a.Rows[0].Label == class {
				want.Right++
			}
		}
		if !ok {
			continue
		}
		if err := json.Unmarshal(k.Value, &x); err != nil {
			t.Fatal(err)
		}
		s, err := z.Summarise(&incremental.Block{Classes: []string{class}, Codes: []int32{0}, Columns: []gram.Column{gram.ColumnOf([]float64{x.A}), gram.ColumnOf([]float64{x.B})}})
		if err != nil {
			t.Fatal(err)
		}
		state.Add(s)
	}
	want.Models = len(models)
	for _, file := range []string{flags["snapshot.file"], filepath.Join(t.TempDir(), "replica.db")} {
		flags["snapshot.file"] = file
		p := spawn(t, flags)
		p.until(t, "the state of the topics", func() bool {
			got, _, _, err := p.model()
			return err == nil && got == live.DigestOf(state)
		})
		var got model.Prequential
		p.until(t, "the figures of the topics", func() bool {
			if err := json.Unmarshal([]byte(p.get(t, "/v1/prequential")), &got); err != nil {
				t.Fatal(err)
			}
			g := got.Given
			return g != nil && g.Waiting == want.Waiting && g.Rows == want.Rows && g.Right == want.Right && g.Models == want.Models
		})
		var s httpapi.StatusAnswer
		if err := json.Unmarshal([]byte(p.get(t, "/v1/status")), &s); err != nil {
			t.Fatal(err)
		}
		if b := s.Labels; b.Rows.Read != b.Rows.Joined+b.Rows.Waiting+b.Rows.Superseded || b.Labels.Read != b.Labels.Joined+b.Labels.Early+b.Labels.Unmatched+b.Labels.Superseded {
			t.Errorf("seed %d: the books do not balance: %+v", seed, b)
		}
		p.kill()
	}
	t.Logf("%d rows wait, %d of %d answers are right, of %d models; %d calls were refused", want.Waiting, want.Right, want.Rows, want.Models, failed)
}
