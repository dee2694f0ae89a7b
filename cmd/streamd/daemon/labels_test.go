package daemon

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
	"streamd/snapshot"
)

// A daemon that is killed at any time while rows and labels come has the state of the rows with
// their labels, and has counted each row and each label once: the positions in both topics, the
// rows that wait and the blocks are saved together.
func TestKillWhileLabelsCome(t *testing.T) { labelHistories(t, killWhileLabelsCome) }

// labelHistories runs histories of rows and labels: STREAMD_HISTORIES, of which the first has the
// seed STREAMD_HISTORY, or one with the time as its seed. Which system call a kill meets is chance.
func labelHistories(t *testing.T, run func(t *testing.T, seed uint64)) {
	first, histories := someHistories(t, 1)
	if os.Getenv("STREAMD_HISTORY") == "" {
		first = uint64(time.Now().UnixNano())
	}
	if histories == 1 {
		run(t, first)
		return
	}
	var passed atomic.Uint64
	for i := range histories {
		t.Run(fmt.Sprint(first+i), func(t *testing.T) {
			t.Parallel()
			run(t, first+i)
			t.Logf("%d of %d histories have ended", passed.Add(1), histories)
		})
	}
}

// removeTopics deletes topics and those of their dead letters: brokers keep files for each
// partition.
func removeTopics(t *testing.T, names ...string) {
	for _, name := range names {
		removeTopic(t, name)
		removeTopic(t, name+".dlq")
	}
}

func killWhileLabelsCome(t *testing.T, seed uint64) {
	const ids, rounds = 120, 8
	r := rand.New(rand.NewPCG(seed, 1))
	rows, labels := topic(t, 3), topic(t, 2)
	defer removeTopics(t, rows, labels)
	file := filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": rows, "labels.topic": labels, "blocks.unit": "key", "format.features": "a,b",
		"labels.horizon": "1h", "labels.default": "good", "labels.late": "drop", "retire.max_future": "2400h",
		"http.listen": "127.0.0.1:0", "snapshot.file": file, "snapshot.interval": "10ms",
	}
	began := time.UnixMilli(1_700_000_000_000).UTC()
	type row struct {
		at   time.Time
		a, b float64
	}
	type label struct {
		at    time.Time
		class string
	}
	lastRow, lastLabel := map[int]*row{}, map[int]*label{}
	var nRows, nLabels int64
	putRow := func(id int, at time.Time) {
		x := &row{at, r.NormFloat64(), float64(r.IntN(5))}
		lastRow[id] = x
		nRows++
		produce(t, rows, message{
			partition: id % 3, key: fmt.Append(nil, id), contentType: wire.JSON.ContentType(), time: at,
			value: fmt.Appendf(nil, `{"a":%v,"b":%v}`, x.a, x.b),
		})
	}
	putLabel := func(id int, at time.Time) {
		y := &label{at, []string{"good", "bad"}[r.IntN(2)]}
		lastLabel[id] = y
		nLabels++
		produce(t, labels, message{
			partition: id % 2, key: fmt.Append(nil, id), contentType: wire.JSON.ContentType(), time: at,
			value: fmt.Appendf(nil, `{"label":%q}`, y.class),
		})
	}
	for round := range rounds {
		p := spawn(t, flags)
		for range 2 * ids / rounds {
			id, at := r.IntN(ids), began.Add(time.Duration(r.IntN(1000))*time.Second)
			switch r.IntN(12) {
			case 0:
				delete(lastRow, id)
				produce(t, rows, message{partition: id % 3, key: fmt.Append(nil, id), time: at})
			case 1:
				delete(lastLabel, id)
				produce(t, labels, message{partition: id % 2, key: fmt.Append(nil, id), time: at})
			case 2:
				putLabel(id, at.Add(2*time.Hour)) // late
			case 3, 4, 5:
				putLabel(id, at)
			default:
				putRow(id, at)
			}
		}
		time.Sleep(time.Duration(r.IntN(40)) * 10 * time.Millisecond)
		p.kill()
		if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
			t.Fatalf("seed %d, round %d: verified as %+v, %v", seed, round, report, err)
		}
	}
	for i := range 3 { // all horizons pass
		id := ids + 3*i
		lastLabel[id] = &label{began.Add(10 * time.Hour), "bad"}
		putRow(id, began.Add(10*time.Hour))
		putLabel(id, began.Add(10*time.Hour))
	}

	var z incremental.Summariser
	state := incremental.NewState([]string{"a", "b"})
	for id, x := range lastRow {
		class := "good"
		if y := lastLabel[id]; y != nil && !y.at.After(x.at.Add(time.Hour)) {
			class = y.class
		}
		s, err := z.Summarise(&incremental.Block{
			Classes: []string{class}, Codes: []int32{0}, Columns: []gram.Column{gram.ColumnOf([]float64{x.a}), gram.ColumnOf([]float64{x.b})},
		})
		if err != nil {
			t.Fatal(err)
		}
		state.Add(s)
	}
	want := live.DigestOf(state)
	p := spawn(t, flags)
	var s httpapi.StatusAnswer
	got := ""
	deadline := time.Now().Add(time.Minute)
	p.until(t, "the rows with their labels", func() bool {
		var err error
		got, _, _, err = p.model()
		if err := json.Unmarshal([]byte(p.get(t, "/v1/status")), &s); err != nil || s.Labels == nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("seed %d: %d rows and %d labels were written; the digest is %s, not %s: %+v", seed, nRows, nLabels, got, want, s.Labels)
		}
		return err == nil && got == want && s.Labels.Labels.Read >= nLabels && s.Labels.Rows.Read >= nRows
	})
	b := s.Labels
	if b.Rows.Read != nRows || b.Labels.Read != nLabels || b.Rows.Joined+b.Rows.Defaulted != int64(len(lastRow)) || b.Rows.Waiting != 0 || b.Rows.LetGo != 0 ||
		b.Rows.Read != b.Rows.Joined+b.Rows.Defaulted+b.Rows.Waiting+b.Rows.Expired+b.Rows.Superseded ||
		b.Labels.Read != b.Labels.Joined+b.Labels.Early+b.Labels.Unmatched+b.Labels.Superseded {
		t.Errorf("seed %d: %d rows and %d labels were written: %+v", seed, nRows, nLabels, b)
	}
	if n := s.Rows; n.Read != nRows || n.Read != n.Summarised+n.ZeroWeight+n.Rejected+n.Pending {
		t.Errorf("seed %d: %+v", seed, n)
	}
	t.Logf("%+v", *b)
}
