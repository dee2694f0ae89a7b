package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/ndc"
	"streamd/ingest/wire"
	"streamd/retire"
	"streamd/snapshot"
)

// liveNow asks the loop for the live set.
func (d *Daemon) liveNow(ctx context.Context) (*live.Blocks, error) {
	return loop.Ask(ctx, d.Loop, func() (*live.Blocks, error) {
		return d.Live.Moment(d.Live.Page(retire.Lowest, math.MaxInt)), nil
	})
}

// rereader returns an archive, which the caller closes, and the live blocks.
func (i *instance) rereader(ctx context.Context) (*passes.Log, *live.Blocks) {
	i.t.Helper()
	r, err := i.OpenTopic()
	if err != nil {
		i.t.Fatal(err)
	}
	live, err := i.liveNow(ctx)
	if err != nil {
		r.Close()
		i.t.Fatal(err)
	}
	return r, live
}

// passed counts the blocks of a pass: visited, left out because they have changed, or
// unread.
type passed struct {
	visited, left int
	unread        []live.Unread
}

func passOver(ctx context.Context, r *passes.Log, live *live.Blocks, verify bool, visit func(retire.Entry, *incremental.Block) error) (passed, error) {
	var visited atomic.Int64
	unread, err := r.Pass(ctx, live, verify, func(_ *passes.Worker, e retire.Entry, b *incremental.Block, _ *incremental.Summary) error {
		visited.Add(1)
		return visit(e, b)
	})
	n := int(visited.Load())
	return passed{n, len(live.Entries) - n - len(unread), unread}, err
}

// reread makes a pass over the live blocks of d. It returns the counts, the sum of the
// visited blocks, and each block's summary.
func (i *instance) reread(verify bool) (passed, *incremental.State, map[string][]byte) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), patience)
	defer cancel()
	r, live := i.rereader(ctx)
	defer r.Close()
	var mu sync.Mutex
	var z incremental.Summariser
	state := incremental.NewState(*i.Live.Target().Features)
	summaries := map[string][]byte{}
	p, err := passOver(ctx, r, live, verify, func(e retire.Entry, b *incremental.Block) error {
		mu.Lock()
		defer mu.Unlock()
		s, err := z.Summarise(b)
		if err != nil {
			return err
		}
		state.Add(s)
		summaries[e.ID] = s.AppendBinary(nil)
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	if len(summaries) != p.visited || p.left < 0 {
		i.t.Errorf("%d blocks, of %d: %+v", len(summaries), len(live.Entries), p)
	}
	return p, state, summaries
}

// rereadsAll checks that a pass returns every live block, bit for bit.
func (i *instance) rereadsAll() {
	i.t.Helper()
	if _, err := i.Snapshot(i.t.Context(), false); err != nil { // so that the store has all blocks
		i.t.Fatal(err)
	}
	before := i.Status()
	p, state, summaries := i.reread(true)
	served, _ := i.Served()
	for _, u := range p.unread {
		i.t.Errorf("block %s: %v", u.ID, u.Reason)
	}
	if p.left != 0 || p.visited != served.Blocks || live.DigestOf(state) != served.Digest {
		i.t.Errorf("%d blocks with digest %s; live are %d with %s", p.visited, live.DigestOf(state), served.Blocks, served.Digest)
	}
	for id, got := range summaries {
		want, err := i.Store.Summary(snapshot.Features, id)
		if err != nil {
			i.t.Fatal(err)
		}
		if !bytes.Equal(got, want.AppendBinary(nil)) {
			i.t.Errorf("block %s: another summary than the stored one", id)
		}
	}
	after := i.Status()
	if after.Rows != before.Rows || after.Blocks != before.Blocks || after.DeadLetters != before.DeadLetters {
		i.t.Errorf("counts before %+v %+v, after %+v %+v", before.Rows, before.Blocks, after.Rows, after.Blocks)
	}
}

// A pass returns the blocks of every unit and format, also with broken messages among the
// good ones, rows of weight 0, and retired ranges.
func TestRereadGivesTheBlocksBack(t *testing.T) {
	const n, partitions = 210, 3
	for _, unit := range []string{"message", "key", "offsets", "time"} {
		for _, format := range []wire.Format{wire.Arrow, wire.JSON, wire.CSV} {
			t.Run(fmt.Sprintf("%s %v", unit, format), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(5, 6))
				name := topic(t, partitions)
				var messages []message
				var bad []message
				for i := range n {
					m := message{partition: i % partitions, key: fmt.Appendf(nil, "k%d", i*7%180), time: time.UnixMilli(1_700_000_000_000 + 100*int64(i)), contentType: format.ContentType()}
					if i%17 == 3 {
						m.value = []byte(`{"label"`)
						bad = append(bad, m)
					} else {
						var rs rowsOf
						var weights []float64
						for range 1 + r.IntN(4) {
							rs.add([]float64{float64(r.IntN(3)), r.NormFloat64(), r.NormFloat64() * 1e3, r.Float64()})
							weights = append(weights, float64(r.IntN(4))/2)
						}
						b := rs.block()
						b.Features, b.Weights = []string{"a", "b", "c"}, weights
						var err error
						if m.value, err = wire.Encode(nil, format, b); err != nil {
							t.Fatal(err)
						}
					}
					messages = append(messages, m)
				}
				produce(t, name, messages...)
				flags := map[string]string{"blocks.unit": unit, "format.weight": "weight", "limits.rows": "64"}
				if unit == "offsets" {
					flags["blocks.offsets"] = "20"
				}
				if unit == "time" {
					flags["blocks.period"] = "3s"
				}
				d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
				d.waitForOffsets(n)
				d.rereadsAll()
				live, err := d.liveNow(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				gone := 0
				for i, e := range live.Entries {
					if i%10 < 6 {
						d.retire(e.ID)
						gone++
					}
				}
				d.wait("retirement", func(s *model.Served) bool { return s.Blocks == len(live.Entries)-gone })
				if gone < 3 {
					t.Errorf("%d blocks only are retired", gone)
				}
				d.rereadsAll()
				d.stop()
				checkDeadLetters(t, name, bad, true)
			})
		}
	}
}

// A record that was refused for its class stays refused when the class is accepted now.
func TestRereadKnowsWhatClassesWereRefused(t *testing.T) {
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"limits.classes": "2", "blocks.unit": "offsets", "blocks.offsets": "4"})
	produce(t, name, message{value: jsonRow(1, 1, 2)}, message{value: jsonRow(2, 2, 2)}, message{value: jsonRow(3, 9, 9)}, message{value: jsonRow(1, 4, 5)},
		message{value: jsonRow(1, 7, 7)}, message{value: jsonRow(1, 8, 7)})
	d.waitForOffsets(6)
	if s := d.Status(); s.DeadLetters != 1 {
		t.Fatalf("the third class is not refused: %+v", s)
	}
	d.rereadsAll()
	d.stop()
}

// A pass names the blocks that the log no longer has, and visits the rest.
func TestRereadNamesWhatTheLogHasForgotten(t *testing.T) {
	for _, unit := range []string{"message", "offsets"} {
		t.Run(unit, func(t *testing.T) {
			const n = 20
			name := topic(t, 2)
			var messages []message
			for i := range n {
				messages = append(messages, message{value: jsonRow(i%2, i, i*i)}, message{partition: 1, value: jsonRow(i%2, i, 1)})
			}
			produce(t, name, messages...)
			d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"blocks.unit": unit, "blocks.offsets": "5"})
			d.waitForOffsets(2 * n)
			deleteRecords(t, name, 7)
			p, _, _ := d.reread(false)
			var unread []string
			for _, u := range p.unread {
				unread = append(unread, u.ID)
				if !strings.Contains(u.Reason.Error(), "the log starts at 7") {
					t.Errorf("block %s: %v", u.ID, u.Reason)
				}
			}
			var want []string
			for o := int64(0); o < 7; o++ {
				if unit == "message" || o%5 == 0 {
					want = append(want, incremental.Position{Topic: name, Offset: o}.String())
				}
			}
			if !slices.Equal(unread, want) || p.left > 0 {
				t.Errorf("unread: %q, want %q; %d left out", unread, want, p.left)
			}
			d.stop()
		})
	}
}

// other is a broker of the test's own.
type other struct {
	t *testing.T
	*embedded.Broker
	dir string
}

func otherBroker(t *testing.T) *other {
	t.Helper()
	b := &other{t: t, dir: t.TempDir()}
	var err error
	if b.Broker, err = embedded.Start(b.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// restart stops the broker and starts it on the same port, which another process may hold
// for a moment.
func (b *other) restart() {
	b.t.Helper()
	_, port, _ := net.SplitHostPort(b.Addr())
	n, _ := strconv.Atoi(port)
	b.Close()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		again, err := embedded.Start(b.dir, kfake.Ports(n))
		if err == nil {
			b.Broker = again
			return
		}
		if time.Now().After(deadline) {
			b.t.Error(err) // not the test's goroutine
			return
		}
	}
}

func (b *other) produce(topic string, configs map[string]string, messages ...message) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	c := kafka.Cluster{Brokers: []string{b.Addr()}}
	for _, each := range []string{topic, topic + ".dlq"} {
		if err := kafka.EnsureTopic(ctx, c, each, 1, configs); err != nil {
			b.t.Fatal(err)
		}
		configs = nil
	}
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: c, Topic: topic}, zerolog.Nop())
	if err != nil {
		b.t.Fatal(err)
	}
	defer p.Close()
	for _, m := range messages {
		if err := p.Write(ctx, 0, m.key, m.value, nil, time.Now()); err != nil {
			b.t.Fatal(err)
		}
		// One record batch each, so that compaction and fetches have a choice.
		if err := p.Flush(ctx); err != nil {
			b.t.Fatal(err)
		}
	}
}

// A compacted topic keeps the records of live blocks and drops others. With another unit
// than keys it drops those of live blocks, too.
func TestRereadOfACompactedTopic(t *testing.T) {
	b := otherBroker(t)
	row := func(key string, value []byte) message { return message{key: []byte(key), value: value} }
	messages := []message{row("stays", jsonRow(1, 0, 0))}
	for i := range 50 {
		messages = append(messages, row(fmt.Sprintf("k%d", i%7), jsonRow(i%2, i, 3)))
	}
	messages = append(messages, row("k3", nil), row("spoilt", jsonRow(1, 6, 6)), row("spoilt", []byte("x")), row("k4", nil), row("last", jsonRow(0, 1, 1)))
	b.produce("t", map[string]string{"cleanup.policy": "compact"}, messages...)
	d := start(t, "t", filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"blocks.unit": "key", "kafka.brokers": b.Addr()})
	n := int64(len(messages))
	if served := d.waitForOffsets(n); served.Blocks != 1+5+1 {
		t.Fatalf("%d blocks", served.Blocks)
	}
	d.rereadsAll()
	byMessage := start(t, "t", filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"kafka.brokers": b.Addr()})
	byMessage.waitForOffsets(n)
	b.produce("t", nil, row("roll", jsonRow(1, 2, 2)))
	b.Cluster().Compact()
	d.waitForOffsets(n + 1)
	if p, _, _ := d.reread(true); len(p.unread) != 0 || p.visited != 8 {
		t.Errorf("%+v", p)
	}
	d.stop()
	byMessage.waitForOffsets(n + 1)
	// 8 of 54 blocks are left.
	p, _, _ := byMessage.reread(true)
	if len(p.unread) != 46 || !strings.Contains(p.unread[0].Reason.Error(), "compacted") || p.visited != 8 {
		t.Errorf("%+v", p)
	}
	byMessage.stop()
}

// A pass waits for a broker that is away.
func TestRereadOverABrokerRestart(t *testing.T) {
	const n = 60
	b := otherBroker(t)
	var messages []message
	for i := range n {
		messages = append(messages, message{value: jsonRow(i%2, i, i*i)})
	}
	b.produce("t", nil, messages...)
	d := start(t, "t", filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
		"kafka.brokers": b.Addr(), "kafka.fetch_bytes": "1KiB"})
	d.waitForOffsets(n)
	r, live := d.rereader(t.Context())
	defer r.Close()
	var once sync.Once
	var seen sync.Map
	p, err := passOver(t.Context(), r, live, true, func(e retire.Entry, _ *incremental.Block) error {
		once.Do(b.restart)
		if _, twice := seen.LoadOrStore(e.ID, true); twice {
			t.Errorf("block %s is visited twice", e.ID)
		}
		return nil
	})
	if err != nil || p.visited != n {
		t.Fatalf("%+v, %v", p, err)
	}
	if s := r.Stats(); s.FetchErrors == 0 {
		t.Errorf("the restart was not noticed: %+v", s)
	}
	d.stop()
}

// A pass leaves out blocks that are retired or replaced meanwhile.
func TestRereadWhileBlocksGo(t *testing.T) {
	const n = 30
	name := topic(t, 1)
	var messages []message
	for i := range n {
		messages = append(messages, message{key: fmt.Appendf(nil, "k%d", i), value: jsonRow(i%2, i, 1)})
	}
	produce(t, name, messages...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"blocks.unit": "key", "workers": "2"})
	d.waitForOffsets(n)
	r, live := d.rereader(t.Context())
	defer r.Close()
	for i := 20; i < n; i++ {
		d.retire(fmt.Sprintf("key:k%d", i))
	}
	produce(t, name, message{key: []byte("k7"), value: jsonRow(0, 1, 1)})
	d.waitForOffsets(n + 1)
	if _, err := d.Snapshot(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	live.Unsaved = nil // as if they had been saved before the pass
	p, err := passOver(t.Context(), r, live, true, func(retire.Entry, *incremental.Block) error { return nil })
	if err != nil || p.visited != 19 || p.left != 11 || len(p.unread) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
	d.stop()
}

// A gathered block may have grown since it was listed. It is read as it was. It is left out
// where only the larger one is known.
func TestRereadWhileABlockGrows(t *testing.T) {
	name := topic(t, 1)
	var messages []message
	for i := range 13 {
		messages = append(messages, message{value: jsonRow(i%2, i, 1)})
	}
	produce(t, name, messages[:12]...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"blocks.unit": "offsets", "blocks.offsets": "5", "workers": "1"})
	d.waitForOffsets(12)
	live, err := d.liveNow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	growing := live.Entries[len(live.Entries)-1]
	if len(live.Entries) != 3 || growing.Last != 11 {
		t.Fatalf("live are %+v", live.Entries)
	}
	was, err := live.Summary(growing.ID)
	if err != nil {
		t.Fatal(err)
	}
	produce(t, name, messages[12])
	d.waitForOffsets(13)
	if _, err := d.Snapshot(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r, err := d.OpenTopic()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, known := range []bool{true, false} {
		live.Unsaved = map[string]*incremental.Summary{}
		if known {
			live.Unsaved[growing.ID] = was
		}
		var visited []string
		p, err := passOver(t.Context(), r, live, true, func(e retire.Entry, b *incremental.Block) error {
			visited = append(visited, fmt.Sprintf("%d+%d", e.Position.Offset, b.Rows()))
			return nil
		})
		want := []string{"0+5", "10+2", "5+5"}
		if !known {
			want = []string{"0+5", "5+5"}
		}
		slices.Sort(visited)
		if err != nil || !slices.Equal(visited, want) || p.left != 3-len(want) || len(p.unread) > 0 {
			t.Errorf("known: %t: visited %q, want %q; %+v, %v", known, visited, want, p, err)
		}
	}
	d.stop()
}

// Under changed settings blocks come out differently. A pass names them.
func TestRereadNamesWhatComesOutDifferently(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	row := func(label int, weight string) string {
		return fmt.Sprintf(`{"label":%d,"a":%d,"b":3,"v":%s}`, label, 7+label, weight)
	}
	produce(t, name, message{value: []byte(row(1, "1"))}, message{value: []byte(row(1, "2"))}, message{value: []byte(row(0, "1"))},
		message{value: []byte("[" + strings.Repeat(row(1, "1")+",", 5) + row(0, "1") + "]")})
	d := start(t, name, file, map[string]string{"format.features": "a,b", "format.weight": "v"})
	d.waitForOffsets(4)
	d.rereadsAll()
	d.stop()
	// Labels and weights are swapped, and the last block is too large.
	d = start(t, name, file, map[string]string{"format.features": "a,b", "format.weight": "label", "format.label": "v", "limits.rows": "5"})
	p, _, _ := d.reread(true)
	reasons := []string{"its rows are others", "there are 0 rows that count; there were 1", "more than 5 rows"}
	if p.visited != 1 || len(p.unread) != len(reasons) {
		t.Fatalf("%+v", p)
	}
	for i, u := range p.unread {
		if u.Position.Offset != int64(i+1) || !strings.Contains(u.Reason.Error(), reasons[i]) {
			t.Errorf("block %s: %v", u.ID, u.Reason)
		}
	}
	// The number of rows alone does not reveal every difference.
	if p, _, _ := d.reread(false); p.visited != 2 {
		t.Errorf("%+v", p)
	}
	d.stop()
}

// A slow visit slows the reading down, and its error ends the pass.
func TestRereadIsHeldBackByItsVisits(t *testing.T) {
	const n, size = 200, 64 << 10
	name := topic(t, 4)
	var messages []message
	for i := range n {
		value := append(jsonRow(i%2, i, 1), bytes.Repeat([]byte(" "), size)...)
		messages = append(messages, message{partition: i % 4, value: value})
	}
	produce(t, name, messages...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"workers": "4", "kafka.fetch_bytes": "128KiB"})
	d.waitForOffsets(n)
	r, live := d.rereader(t.Context())
	defer r.Close()
	var inside, most, visits atomic.Int64
	var mostAhead atomic.Int64
	p, err := passOver(t.Context(), r, live, false, func(retire.Entry, *incremental.Block) error {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		time.Sleep(2 * time.Millisecond)
		mostAhead.Store(max(mostAhead.Load(), r.Stats().Fetched-visits.Add(1)*size))
		return nil
	})
	if err != nil || p.visited != n {
		t.Fatalf("%+v, %v", p, err)
	}
	// Two partitions with three fetches each, and the workers' blocks. A response that ends
	// within a batch fetches that batch twice: a half more.
	if limit := int64(2*3*128<<10+4*size) + n*size/2; mostAhead.Load() > limit || most.Load() > 2 || most.Load() < 1 {
		t.Errorf("%d bytes were fetched ahead, at most %d are allowed; %d visits at the same time", mostAhead.Load(), limit, most.Load())
	}
	// Passes run one after another, so together they use no more workers.
	most.Store(0)
	var all errgroup.Group
	for range 3 {
		all.Go(func() error {
			_, err := r.Pass(t.Context(), live, false, func(*passes.Worker, retire.Entry, *incremental.Block, *incremental.Summary) error {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
				return nil
			})
			return err
		})
	}
	if err := all.Wait(); err != nil || most.Load() > 2 {
		t.Errorf("%v; %d visits at the same time", err, most.Load())
	}
	refused := errors.New("refused")
	if _, err := r.Pass(t.Context(), live, false, func(*passes.Worker, retire.Entry, *incremental.Block, *incremental.Summary) error { return refused }); !errors.Is(err, refused) || !strings.Contains(err.Error(), name+"/") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := r.Pass(ctx, live, false, func(*passes.Worker, retire.Entry, *incremental.Block, *incremental.Summary) error {
		cancel(refused)
		return nil
	}); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	d.stop()
}

// BenchmarkReread passes over Arrow blocks of 2,000 rows of 20 features.
func BenchmarkReread(b *testing.B) {
	const blocks, rows, features = 200, 2000, 20
	broker, err := embedded.Start(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	if err := broker.CreateTopic("t", 2, -1); err != nil {
		b.Fatal(err)
	}
	if err := broker.CreateTopic("t.dlq", 2, -1); err != nil {
		b.Fatal(err)
	}
	cluster := kafka.Cluster{Brokers: []string{broker.Addr()}}
	p, err := kafka.OpenProducer(b.Context(), kafka.ProducerConfig{Cluster: cluster, Topic: "t"}, zerolog.Nop())
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	g, err := ndc.New(ndc.Config{Features: features, Separability: ndc.Expansion(3), Seed: 7})
	if err != nil {
		b.Fatal(err)
	}
	s := g.NewSampler()
	headers := []kafka.Header{{Key: "content-type", Value: []byte(wire.Arrow.ContentType())}}
	for i := range blocks {
		value, err := wire.Encode(nil, wire.Arrow, s.Block(ndc.Train, int64(i)*rows, rows))
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Write(b.Context(), i%2, nil, value, headers, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	d, err := New(Options{Config: load(b, map[string]string{
		"kafka.brokers": broker.Addr(), "kafka.topic": "t", "snapshot.file": filepath.Join(b.TempDir(), "streamd.db"),
	}), Log: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	for served, replaced := d.Served(); served.Blocks < blocks; served, replaced = d.Served() {
		<-replaced
	}
	live, err := d.liveNow(ctx)
	if err != nil {
		b.Fatal(err)
	}
	r, err := d.OpenTopic()
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for _, verify := range []bool{false, true} {
		b.Run(fmt.Sprintf("verify=%t", verify), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, err := passOver(ctx, r, live, verify, func(retire.Entry, *incremental.Block) error { return nil })
				if err != nil || p.visited != blocks {
					b.Fatalf("%+v, %v", p, err)
				}
			}
			b.ReportMetric(float64(b.N)*blocks*rows/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
