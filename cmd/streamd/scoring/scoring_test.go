package scoring

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/wire"
)

const (
	patience = 3 * time.Minute
	asStage  = "STREAMD_TEST_AS_SCORING"
)

var shared struct {
	once sync.Once
	dir  string
	*embedded.Broker
	err error
}

// cluster is a real Apache Kafka where STREAMD_TEST_BROKERS names one, and the embedded broker
// elsewhere.
func cluster(t testing.TB) kafka.Cluster {
	t.Helper()
	if real := os.Getenv("STREAMD_TEST_BROKERS"); real != "" {
		return kafka.Cluster{Brokers: strings.Split(real, ","), ClientID: "test"}
	}
	if os.Getenv("STREAMD_REQUIRE_BROKER") != "" {
		t.Fatal("STREAMD_REQUIRE_BROKER is set, but STREAMD_TEST_BROKERS names no broker")
	}
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "streamd-scoring-"); shared.err == nil {
			shared.Broker, shared.err = embedded.Start(shared.dir)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return kafka.Cluster{Brokers: []string{shared.Addr()}, ClientID: "test"}
}

func TestMain(m *testing.M) {
	if os.Getenv(asStage) != "" {
		os.Exit(runAsStage())
	}
	code := m.Run()
	if shared.Broker != nil {
		shared.Close()
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

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
}

func (c *child) options(models Models, log zerolog.Logger) Options {
	return Options{
		Consuming: kafka.Config{
			Cluster: kafka.Cluster{Brokers: c.Brokers, ClientID: "scoring"}, Topic: c.From, Group: c.From + "-group",
			SessionTimeout: c.Session,
		},
		To: c.To, Policy: config.DeadLettersQueue, Letters: c.From + ".dlq", Form: c.Form,
		Decoding: wire.Options{Format: wire.JSON, Label: "label"}, Models: models, Log: log,
	}
}

func runAsStage() int {
	var c child
	err := json.Unmarshal([]byte(os.Getenv(asStage)), &c)
	var z *Stage
	if err == nil {
		models := &changing{}
		models.now.Store(modelOf(1))
		z, err = New(c.options(models, zerolog.New(os.Stderr).With().Timestamp().Logger()))
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println("begins")
		err = z.Run(ctx)
		z.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func topics(t testing.TB, partitions int) *child {
	t.Helper()
	c := &child{Brokers: cluster(t).Brokers, From: fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), rand.Int64()), Session: time.Second}
	if os.Getenv("STREAMD_TEST_BROKERS") != "" {
		c.Session = 6 * time.Second // the least that Apache Kafka allows by default
	}
	c.To = c.From + "-answers"
	for _, name := range []string{c.From, c.From + ".dlq"} {
		if err := kafka.EnsureTopic(t.Context(), cluster(t), name, partitions, map[string]string{"retention.ms": "-1"}); err != nil {
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

func produce(t testing.TB, topic string, all []sent) {
	t.Helper()
	p, err := kafka.OpenProducer(t.Context(), kafka.ProducerConfig{Cluster: cluster(t), Topic: topic}, zerolog.Nop())
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
func read(t testing.TB, topic string) map[int][]kafka.Record {
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
	all := map[int][]kafka.Record{}
	if _, err := r.Read(t.Context(), log, func(_ context.Context, b *kafka.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range b.Records {
			r.Key, r.Value, r.Headers = slices.Clone(r.Key), slices.Clone(r.Value), slices.Clone(r.Headers)
			for i, h := range r.Headers {
				r.Headers[i].Value = slices.Clone(h.Value)
			}
			all[b.Partition] = append(all[b.Partition], r)
		}
		b.Release()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
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
	answers, letters := read(t, c.To), read(t, c.From+".dlq")
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

func count(all map[int][]kafka.Record) (n int) {
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
	c := topics(t, 3)
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
		produce(t, c.From, some)
		if k == 0 { // without a model nothing is answered, and nothing is lost
			time.Sleep(300 * time.Millisecond)
			if n := z.counts.records.Load(); n != 0 {
				t.Errorf("%d records are answered without a model", n)
			}
		}
		m := modelOf(k)
		by[m.Fingerprint] = m
		models.now.Store(m)
		until(t, "the answers", func() bool { return count(read(t, c.To)) == answerable(all) })
	}
	until(t, "the dead letters", func() bool { return z.counts.rejected.Load() == int64(len(all)-answerable(all)) })
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
		a.begin(m)
		rows := wire.Table{Rows: 1, Columns: []gram.Column{gram.ColumnOf([]float64{1}), gram.ColumnOf([]float64{1})}}
		if err := a.make(rows, form); err != nil || !strings.Contains(a.value.String(), want) {
			t.Errorf("%s, %v, want %s", a.value.String(), err, want)
		}
		a.head(&kafka.Record{Offset: 7, Headers: []kafka.Header{{Key: typeHeader}, {Key: "x"}, {Key: modelHeader}}}, "rows", 3, form)
		var keys []string
		for _, h := range a.headers {
			keys = append(keys, h.Key)
		}
		if want := []string{"x", typeHeader, modelHeader, positionsHeader, sourceHeader}; !slices.Equal(keys, want) || string(a.source) != "rows/3/7" {
			t.Errorf("headers %q of %s, want %q", keys, a.source, want)
		}
	}
}

// process is a child that runs.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	stderr bytes.Buffer
}

func spawn(t testing.TB, c *child) *process {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), asStage+"="+string(text)), &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		p.cmd.Wait()
		t.Fatalf("a stage does not begin: %v\n%s", err, p.stderr.String())
	}
	go func() { p.cmd.Wait(); close(p.ended) }()
	return p
}

func (p *process) end(by syscall.Signal) {
	p.cmd.Process.Signal(by)
	<-p.ended
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
			c := topics(t, partitions)
			var all []sent
			running := []*process{spawn(t, c)}
			for range 10 {
				var some []sent
				for range 200 {
					some = append(some, write(t, r, partitions, len(all)+len(some)))
				}
				all = append(all, some...)
				produce(t, c.From, some)
				time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
				at := r.IntN(len(running))
				p := running[at]
				switch r.IntN(5) {
				case 0, 1: // killed
					p.end(syscall.SIGKILL)
					running[at] = spawn(t, c)
				case 2: // stopped in order
					p.end(syscall.SIGTERM)
					if !p.cmd.ProcessState.Success() {
						t.Errorf("a stage ends with %v\n%s", p.cmd.ProcessState, p.stderr.String())
					}
					running[at] = spawn(t, c)
				case 3: // it stands still until another one has its partitions, and wakes up
					p.cmd.Process.Signal(syscall.SIGSTOP)
					running = append(running, spawn(t, c))
					time.Sleep(c.Session + c.Session/4)
					p.cmd.Process.Signal(syscall.SIGCONT)
				case 4:
					running = append(running, spawn(t, c))
				}
			}
			until(t, "the answers", func() bool { return count(read(t, c.To)) >= answerable(all) })
			for _, p := range running {
				p.end(syscall.SIGTERM)
			}
			checkAnswers(t, c, all, map[string]*Model{"model-1": modelOf(1)})
		})
	}
}
