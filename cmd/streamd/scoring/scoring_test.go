package scoring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/cmd/streamd/stage"
	"streamd/cmd/streamd/stage/stagetest"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/wire"
)

func TestMain(m *testing.M) { stagetest.Main(m, runAsStage) }

// models are those of the test: number k has planes of its own, and a missing x is 0.
func modelOf(k int) *Model {
	planes := []incremental.Plane{
		{Class: "a", W: []float64{1, float64(k)}, Gamma: 0.25},
		{Class: "b", W: []float64{-1, 0.5}, Gamma: 0},
		{Class: "c", W: []float64{0.125, -1}, Gamma: float64(-k)},
	}
	c, err := model.New([]string{"x", "y"}, []string{"a", "b", "c"}, planes, nil)
	if err != nil {
		panic(err)
	}
	c.Missing = wire.Missing{Features: map[string]wire.MissingPolicy{"x": wire.MissingZero}}
	return &Model{Classifier: c, Fingerprint: fmt.Sprint("model-", k), Method: model.MethodPSVM, Offsets: []model.Offset{{Topic: "learned", Next: int64(10 * k)}}}
}

// changing has one model after the other.
type changing struct{ now atomic.Pointer[Model] }

// Model implements Models.
func (c *changing) Model(ctx context.Context) (*Model, error) {
	for c.now.Load() == nil {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	return c.now.Load(), nil
}

// child is a stage as a process of its own.
type child struct {
	Brokers  []string
	From, To string
	Session  time.Duration
	Form     predictions.Form
	Forgets  bool // it does not find what was written before
}

func (c *child) cluster() kafka.Cluster {
	return kafka.Cluster{Brokers: c.Brokers, ClientID: "scoring"}
}

func (c *child) options(models Models, log zerolog.Logger) Options {
	return Options{
		adjust: func(running *stage.Config) {
			if c.Forgets {
				running.Transaction.SourceHeader = "another"
			}
		},
		Consuming: kafka.Config{
			Cluster: c.cluster(), Topic: c.From, Group: c.From + "-group",
			SessionTimeout: c.Session,
		},
		To: c.To, Policy: config.DeadLettersQueue, Letters: c.From + ".dlq", Form: c.Form,
		Decoding: wire.Options{Format: wire.JSON, Label: "label"}, Models: models, Log: log,
	}
}

func runAsStage(text []byte) error {
	var c child
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	models := &changing{}
	models.now.Store(modelOf(1))
	z, err := New(c.options(models, zerolog.New(os.Stderr).With().Timestamp().Logger()))
	if err != nil {
		return err
	}
	defer z.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("begins")
	return z.Run(ctx)
}

func topics(t testing.TB, on kafka.Cluster, partitions int) *child {
	t.Helper()
	c := &child{Brokers: on.Brokers, From: fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), rand.Int64()), Session: stagetest.Session()}
	c.To = c.From + "-answers"
	for _, name := range []string{c.From, c.From + ".dlq"} {
		if err := kafka.EnsureTopic(t.Context(), on, name, partitions, map[string]string{"retention.ms": "-1"}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// sent is a record to be answered. It is the value of x that tells one from another.
type sent struct {
	partition   int
	key, value  []byte
	contentType string
	x           []float64 // of its rows; nil: it cannot be answered, unless it has no value
	y           float64
}

// write makes a record in one of the formats: sometimes one that cannot be read, or without a
// value, and with a label, which is not looked at.
func write(t testing.TB, r *rand.Rand, partitions, number int) sent {
	s := sent{partition: r.IntN(partitions), key: fmt.Appendf(nil, "key-%d", number), y: float64(r.IntN(5))}
	for i := range 1 + r.IntN(3) {
		s.x = append(s.x, float64(number)+float64(i)/4)
	}
	switch r.IntN(12) {
	case 0:
		s.x = nil
		return s
	case 1:
		s.value, s.x = []byte(`{"x":"text","y":1}`), nil
	case 2:
		s.value, s.x = []byte(`{"y":1`), nil
	case 3, 4:
		s.contentType = "text/csv; header=present"
		s.value = []byte("y,label,x\n")
		for _, x := range s.x {
			s.value = fmt.Appendf(s.value, "%v,a,%v\n", s.y, x)
		}
	case 5, 6:
		b := &incremental.Block{Features: []string{"x", "y"}, Classes: []string{"b"}, Codes: make([]int32, len(s.x))}
		y := make([]float64, len(s.x))
		for i := range y {
			y[i] = s.y
		}
		b.Columns = []gram.Column{gram.ColumnOf(s.x), gram.ColumnOf(y)}
		var err error
		if s.value, err = wire.Encode(nil, wire.Arrow, b); err != nil {
			t.Fatal(err)
		}
		s.contentType = wire.Arrow.ContentType()
	case 7:
		s.x = []float64{0} // it is missing
		s.value = fmt.Appendf(nil, `{"x":null,"y":%v,"city":"graz"}`, s.y)
	default:
		for _, x := range s.x {
			s.value = fmt.Appendf(s.value, "{\"x\":%v,\"y\":%v}\n", x, s.y)
		}
	}
	return s
}

func produce(t testing.TB, c *child, all []sent) {
	t.Helper()
	p, err := kafka.OpenProducer(t.Context(), kafka.ProducerConfig{Cluster: c.cluster(), Topic: c.From}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, s := range all {
		headers := []kafka.Header{{Key: "tenant", Value: s.key}}
		if s.contentType != "" {
			headers = append(headers, kafka.Header{Key: typeHeader, Value: []byte(s.contentType)})
		}
		if err := p.Write(t.Context(), s.partition, s.key, s.value, headers, time.UnixMilli(1_700_000_000_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// read returns the committed records of a topic, by partition.
func read(t testing.TB, c *child, topic string) [][]kafka.Record {
	return stagetest.Read(t, c.cluster(), topic)
}

// readAnswers returns the answers by the partition of their records. again is how many of them come
// once more, which are left out: their positions say so.
func readAnswers(t testing.TB, c *child, partitions int) (answers [][]kafka.Record, again int) {
	t.Helper()
	answers = make([][]kafka.Record, partitions)
	last := make([]int64, partitions)
	to := read(t, c, c.To)
	for at, records := range to {
		for _, r := range records {
			var partition int
			var offset int64
			text, ours := strings.CutPrefix(headerOf(&r, sourceHeader), c.From+"/")
			if n, err := fmt.Sscanf(text, "%d/%d", &partition, &offset); !ours || n != 2 || err != nil {
				t.Fatalf("the answer to %s has the source %q", r.Key, headerOf(&r, sourceHeader))
			}
			if at != partition%len(to) {
				t.Errorf("the answer to %s is on partition %d", text, at)
			}
			if offset < last[partition] {
				again++
				continue
			}
			last[partition] = offset + 1
			answers[partition] = append(answers[partition], r)
		}
	}
	return answers, again
}

func headerOf(r *kafka.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// checkAnswers checks that each record has one answer by a model, in order, or a dead letter.
func checkAnswers(t *testing.T, c *child, all []sent, by map[string]*Model) {
	t.Helper()
	letters := read(t, c, c.From+".dlq")
	answers, again := readAnswers(t, c, len(letters))
	if again > 0 {
		t.Errorf("%d answers are written again", again)
	}
	checkEach(t, c, all, by, answers, letters)
}

func checkEach(t *testing.T, c *child, all []sent, by map[string]*Model, answers, letters [][]kafka.Record) {
	t.Helper()
	lettered := map[string]bool{}
	for _, records := range letters {
		for _, r := range records {
			lettered[string(r.Key)] = true
			if class := headerOf(&r, "__connect.errors.class.name"); class != "format" {
				t.Errorf("dead letter %s: class %q", r.Key, class)
			}
		}
	}
	next := map[int]int{}
	for _, s := range all {
		if s.x == nil && s.value != nil {
			if !lettered[string(s.key)] {
				t.Errorf("%s has no dead letter", s.key)
			}
			continue
		}
		i := next[s.partition]
		if next[s.partition]++; i >= len(answers[s.partition]) {
			t.Fatalf("partition %d has %d answers, none for %s", s.partition, i, s.key)
		}
		r := &answers[s.partition][i]
		if string(r.Key) != string(s.key) || headerOf(r, "tenant") != string(s.key) || r.Time.UnixMilli() != 1_700_000_000_000 {
			t.Fatalf("answer %d of partition %d is of %s at %v, want one of %s", i, s.partition, r.Key, r.Time, s.key)
		}
		if s.value == nil {
			if r.Value != nil {
				t.Errorf("%s: %s, want no value", s.key, r.Value)
			}
			continue
		}
		m := by[headerOf(r, modelHeader)]
		if m == nil {
			t.Fatalf("%s: answered by %q", s.key, headerOf(r, modelHeader))
		}
		if got, want := headerOf(r, positionsHeader), fmt.Sprintf(`[{"topic":"learned","partition":0,"next":%d}]`, m.Offsets[0].Next); got != want {
			t.Errorf("%s: positions %s, want %s", s.key, got, want)
		}
		if got := headerOf(r, sourceHeader); !strings.HasPrefix(got, fmt.Sprintf("%s/%d/", c.From, s.partition)) {
			t.Errorf("%s: source %s", s.key, got)
		}
		var a predictions.PredictAnswer
		if err := json.Unmarshal(r.Value, &a); err != nil || headerOf(r, typeHeader) != predictions.Columns.ContentType() {
			t.Fatalf("%s: %v, of type %s: %s", s.key, err, headerOf(r, typeHeader), r.Value)
		}
		if len(a.Labels) != len(s.x) || a.Model != m.Fingerprint {
			t.Fatalf("%s: %s, want %d rows by %s", s.key, r.Value, len(s.x), m.Fingerprint)
		}
		for row, x := range s.x {
			best, label := 0., ""
			for p, plane := range m.Classifier.Model.Planes {
				value := plane.W[0]*x + plane.W[1]*s.y - plane.Gamma
				if a.Values[row][p] != value {
					t.Errorf("%s: row %d has the value %v for %s, want %v", s.key, row, a.Values[row][p], plane.Class, value)
				}
				if label == "" || value > best {
					best, label = value, plane.Class
				}
			}
			if a.Labels[row] != label {
				t.Errorf("%s: row %d is %s, want %s", s.key, row, a.Labels[row], label)
			}
		}
	}
	for partition, records := range answers {
		if len(records) != next[partition] {
			t.Errorf("partition %d has %d answers, want %d", partition, len(records), next[partition])
		}
	}
}

func count(all [][]kafka.Record) (n int) {
	for _, records := range all {
		n += len(records)
	}
	return n
}

// answerable is how many records have an answer.
func answerable(all []sent) (n int) {
	for _, s := range all {
		if s.x != nil || s.value == nil {
			n++
		}
	}
	return n
}

// TestAnswers: rows in all formats are answered by the model of the time.
func TestAnswers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := topics(t, stagetest.Cluster(t), 3)
	models, by := &changing{}, map[string]*Model{}
	z, err := New(c.options(models, zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- z.Run(ctx) }()
	var all []sent
	for k := range 4 {
		var some []sent
		for range 60 {
			some = append(some, write(t, r, 3, len(all)+len(some)))
		}
		all = append(all, some...)
		produce(t, c, some)
		if k == 0 { // without a model nothing is answered, and nothing is lost
			time.Sleep(300 * time.Millisecond)
			if n := z.counts.records.Load(); n != 0 {
				t.Errorf("%d records are answered without a model", n)
			}
		}
		m := modelOf(k)
		by[m.Fingerprint] = m
		models.now.Store(m)
		stagetest.Until(t, "the answers", func() bool { return count(read(t, c, c.To)) == answerable(all) })
	}
	if z.Delivery() != kafka.InTransactions {
		t.Errorf("delivery %q", z.Delivery())
	}
	stagetest.Until(t, "the dead letters", func() bool { return z.counts.rejected.Load() == int64(len(all)-answerable(all)) })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	z.Close()
	checkAnswers(t, c, all, by)
}

// TestForms: answers have the bytes of the other ways to ask.
func TestForms(t *testing.T) {
	for form, want := range map[predictions.Form]string{
		predictions.Rows: `"rows":[{"label":"a"`,
		predictions.CSV:  "label,value_a,value_b,value_c\na,1.75,",
	} {
		var a answer
		m := modelOf(1)
		a.begin(m, form, false)
		rows := wire.Table{Rows: 1, Columns: []gram.Column{gram.ColumnOf([]float64{1}), gram.ColumnOf([]float64{1})}}
		if err := a.make(rows); err != nil || !strings.Contains(a.value.String(), want) {
			t.Errorf("%s, %v, want %s", a.value.String(), err, want)
		}
		a.head(&kafka.Record{Offset: 7, Value: []byte("x"), Headers: []kafka.Header{{Key: typeHeader}, {Key: "x"}, {Key: modelHeader}}}, "rows", 3)
		var keys []string
		for _, h := range a.headers {
			keys = append(keys, h.Key)
		}
		if want := []string{"x", typeHeader, modelHeader, positionsHeader, sourceHeader}; !slices.Equal(keys, want) || string(a.source) != "rows/3/7" {
			t.Errorf("headers %q of %s, want %q", keys, a.source, want)
		}
		a.head(&kafka.Record{Offset: 8, Value: nil, Headers: []kafka.Header{{Key: typeHeader}, {Key: sourceHeader}}}, "rows", 3)
		if len(a.headers) != 2 || a.headers[0].Key != typeHeader || string(a.headers[1].Value) != "rows/3/8" {
			t.Errorf("headers %+v of a tombstone", a.headers)
		}
	}
}

// TestRememberedAnswers: rows that wait for their labels are written as they came, with the answer
// beside them, and those that cannot wait are dead letters.
func TestRememberedAnswers(t *testing.T) {
	c := topics(t, stagetest.Cluster(t), 2)
	models := &changing{}
	models.now.Store(modelOf(1))
	o := c.options(models, zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel))
	o.Remember = func(r *kafka.Record) error {
		if bytes.HasSuffix(r.Key, []byte("3")) {
			return errors.New("it cannot wait")
		}
		return nil
	}
	z, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- z.Run(ctx) }()
	var all []sent
	for i := range 40 {
		s := sent{partition: i % 2, key: fmt.Appendf(nil, "key-%d", i), y: 1, x: []float64{float64(i)}}
		switch i % 4 {
		case 0:
			s.value, s.contentType = fmt.Appendf(nil, "x,y\n%d,1\n", i), "text/csv; header=present"
		case 1:
			s.value = nil
		default:
			s.value = fmt.Appendf(nil, `{"x":%d, "y":1, "other":"text"}`, i)
		}
		all = append(all, s)
	}
	produce(t, c, all)
	stagetest.Until(t, "the answers", func() bool { return count(read(t, c, c.To)) == len(all)-2 && z.counts.rejected.Load() == 2 }) // 23 and 3 wait for nothing
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got, _ := readAnswers(t, c, 2)
	for _, records := range got {
		for i := range records {
			r := &records[i]
			number, err := strconv.Atoi(strings.TrimPrefix(string(r.Key), "key-"))
			if err != nil {
				t.Fatal(err)
			}
			s := all[number]
			if !bytes.Equal(r.Value, s.value) || (r.Value == nil) != (s.value == nil) || headerOf(r, typeHeader) != s.contentType || headerOf(r, "tenant") != string(s.key) {
				t.Errorf("%s has the value %q of type %q", r.Key, r.Value, headerOf(r, typeHeader))
			}
			text := headerOf(r, intake.AnswerHeader)
			if s.value == nil {
				if text != "" {
					t.Errorf("%s has no row, and the answer %s", r.Key, text)
				}
				continue
			}
			var a predictions.PredictRowsAnswer
			if err := json.Unmarshal([]byte(text), &a); err != nil || len(a.Rows) != 1 || a.Model != "model-1" || headerOf(r, modelHeader) != "model-1" {
				t.Fatalf("%s has the answer %q of %q: %v", r.Key, text, headerOf(r, modelHeader), err)
			}
			best, label := math.Inf(-1), ""
			for _, plane := range modelOf(1).Classifier.Model.Planes {
				if value := plane.W[0]*s.x[0] + plane.W[1]*s.y - plane.Gamma; value > best {
					best, label = value, plane.Class
				}
			}
			if a.Rows[0].Label != label {
				t.Errorf("%s is %s, want %s", r.Key, a.Rows[0].Label, label)
			}
		}
	}
}

// TestAnsweredOnce: whatever becomes of the processes of a stage, a reader of committed records
// finds one answer to each record, in order.
func TestAnsweredOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes for several seconds")
	}
	for _, seed := range []uint64{rand.Uint64(), 3} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			const partitions = 3
			r := rand.New(rand.NewPCG(seed, 6))
			c := topics(t, stagetest.Cluster(t), partitions)
			all, _ := trouble(t, r, c, partitions, 10)
			checkAnswers(t, c, all, map[string]*Model{"model-1": modelOf(1)})
		})
	}
}

// trouble has rows answered by processes that are killed, stopped, stand still and join, in so many
// rounds. stood says that one has stood still.
func trouble(t *testing.T, r *rand.Rand, c *child, partitions, rounds int) (all []sent, stood bool) {
	t.Helper()
	running := []*stagetest.Process{stagetest.Spawn(t, c)}
	for range rounds {
		var some []sent
		for range 200 {
			some = append(some, write(t, r, partitions, len(all)+len(some)))
		}
		all = append(all, some...)
		produce(t, c, some)
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		at := r.IntN(len(running))
		p := running[at]
		switch r.IntN(5) {
		case 0, 1: // killed
			p.Kill()
			running[at] = stagetest.Spawn(t, c)
		case 2: // stopped in order
			p.Stop(t, false)
			running[at] = stagetest.Spawn(t, c)
		case 3: // it stands still until another one has its partitions, and wakes up
			p.Signal(syscall.SIGSTOP)
			running = append(running, stagetest.Spawn(t, c))
			time.Sleep(c.Session + c.Session/4)
			p.Signal(syscall.SIGCONT)
			stood = true
		case 4:
			running = append(running, stagetest.Spawn(t, c))
		}
	}
	t.Cleanup(func() {
		for i, p := range running {
			if t.Failed() {
				t.Logf("process %d:\n%s", i, p.Stderr.String())
			}
		}
	})
	rebalanced := time.Now()
	stagetest.Until(t, "the answers", func() bool {
		// The embedded broker keeps a member that was killed while it joined, with its partitions,
		// until a rebalance has taken its whole time. It begins that time anew whenever a member
		// joins, so nobody may.
		if time.Since(rebalanced) > 30*time.Second {
			t.Log("all processes are killed, as a partition seems to belong to nobody")
			for _, p := range running {
				p.Kill()
			}
			time.Sleep(2*c.Session + time.Second) // members are waited for to join, and then to ask for partitions
			running, rebalanced = []*stagetest.Process{stagetest.Spawn(t, c)}, time.Now()
		}
		for i, p := range running {
			select {
			case <-p.Ended:
				t.Fatalf("process %d has ended", i)
			default:
			}
		}
		answers, _ := readAnswers(t, c, partitions)
		return count(answers) >= answerable(all)
	})
	for _, p := range running {
		p.Stop(t, false)
	}
	return all, stood
}

// TestAnsweredByPositions: without transactions, too, each record has one answer, also where
// several partitions are answered on one. Commits are slow, so that whoever is killed has nearly
// always written answers that are not committed.
func TestAnsweredByPositions(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes for several seconds")
	}
	const partitions = 3
	for _, test := range []struct {
		name     string
		numbered bool
		to       int // partitions of the answers
	}{{"numbered", true, partitions}, {"not numbered", false, 1}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 7))
			c := topics(t, withoutTransactions(t, test.numbered, func(asked int, _ bool) bool { return asked%3 > 0 }), partitions)
			makeAnswers(t, c, test.to)
			all, stood := trouble(t, r, c, partitions, 6)
			letters := read(t, c, c.From+".dlq")
			answers, again := readAnswers(t, c, partitions)
			// One that stood still between the question to the group and the answers writes them.
			if t.Logf("seed %d: %d answers are written again", seed, again); again > 0 && !stood {
				t.Errorf("%d answers are written again, and no process has stood still", again)
			}
			checkEach(t, c, all, map[string]*Model{"model-1": modelOf(1)}, answers, letters)
		})
	}
}

// TestAnsweredBeforeACommit: a process is killed that has answered and committed nothing since, not
// even once. Without reading back, each of its answers comes twice.
func TestAnsweredBeforeACommit(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		t.Run(fmt.Sprint("forgets ", forgets), func(t *testing.T) {
			t.Parallel()
			var holding atomic.Bool
			holding.Store(true)
			c := topics(t, withoutTransactions(t, true, func(_ int, answered bool) bool { return answered && holding.Load() }), 1)
			makeAnswers(t, c, 1)
			c.Forgets = forgets
			r := rand.New(rand.NewPCG(1, 8))
			var all []sent
			ask := func() {
				var some []sent
				for range 50 {
					some = append(some, write(t, r, 1, len(all)+len(some)))
				}
				all = append(all, some...)
				produce(t, c, some)
			}
			wait := func() (again int) {
				stagetest.Until(t, "the answers", func() bool {
					answers, n := readAnswers(t, c, 1)
					again = n
					return count(answers) == answerable(all)
				})
				return again
			}
			ask()
			first := stagetest.Spawn(t, c)
			answered := wait() + answerable(all)
			first.Kill()
			holding.Store(false)
			ask()
			second := stagetest.Spawn(t, c)
			again := wait()
			second.Stop(t, false)
			if want := map[bool]int{false: 0, true: answered}[forgets]; again != want {
				t.Errorf("%d answers are written again, want %d", again, want)
			}
		})
	}
}

// makeAnswers makes the topic of the answers.
func makeAnswers(t *testing.T, c *child, partitions int) {
	t.Helper()
	if err := kafka.EnsureTopic(t.Context(), c.cluster(), c.To, partitions, map[string]string{"retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
}

// withoutTransactions is a broker without transactions whose groups put off the commits that late
// chooses, by how many have been asked for and whether answers have been written.
func withoutTransactions(t *testing.T, numbered bool, late func(asked int, answered bool) bool) kafka.Cluster {
	t.Helper()
	b, err := embedded.Start(t.TempDir(), embedded.WithoutTransactions(numbered))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	asked, answered := 0, false // both functions run on the broker's loop
	b.Cluster().ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		answered = answered || strings.HasSuffix(r.(*kmsg.ProduceRequest).Topics[0].Topic, "-answers")
		return nil, nil, false
	})
	b.Cluster().ControlKey(kmsg.OffsetCommit.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		if asked++; !late(asked, answered) {
			return nil, nil, false
		}
		answer := r.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, topic := range r.(*kmsg.OffsetCommitRequest).Topics {
			refused := kmsg.NewOffsetCommitResponseTopic()
			refused.Topic = topic.Topic
			for _, p := range topic.Partitions {
				refused.Partitions = append(refused.Partitions, kmsg.OffsetCommitResponseTopicPartition{
					Partition: p.Partition, ErrorCode: kerr.CoordinatorLoadInProgress.Code,
				})
			}
			answer.Topics = append(answer.Topics, refused)
		}
		return answer, nil, true
	})
	return kafka.Cluster{Brokers: []string{b.Addr()}, ClientID: "test"}
}
