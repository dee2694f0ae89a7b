package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/ndc"
	"streamd/ingest/wire"
)

// Freshness measures the time from the acknowledged produce of a block until a client has a model
// that includes it. Streamd run, in a process of its own and by its default settings, reads a topic
// that this process writes to at a steady rate. A client polls GET /v1/model with a wait. A model
// includes a block when its offset of the partition is beyond the block's.
//
// One goroutine writes each partition, so a block is acknowledged together with those that were due
// at the same time. The client reads the whole answer before it takes the time.
type Freshness struct {
	Rate  int           `default:"10000" help:"Blocks per second."`
	Time  time.Duration `default:"10s" help:"Time to produce blocks and poll in a round."`
	Polls int           `default:"1" help:"Clients that poll. The times are those of the first."`

	Features  int `default:"10" help:"Features of a point."`
	BlockRows int `default:"100" help:"Rows per block."`
	Through
	Repeats
}

// Check implements Benchmark.
func (c Freshness) Check() error {
	if c.Time < time.Second || c.Time > time.Hour {
		return fmt.Errorf("--time %v: must be 1s to 1h", c.Time)
	}
	return cmp.Or(
		Within("rate", 1, 1_000_000, c.Rate), Within("polls", 1, 512, c.Polls), c.points().Check(1), c.Through.Check(), c.Repeats.check())
}

func (c Freshness) points() Points {
	return Points{Features: c.Features, BlockRows: c.BlockRows, Separability: ndc.Easy, Seed: 1}
}

// Measure implements Benchmark.
func (c Freshness) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, c.Time, 1)
	run.cold = true
	return c.with(ctx, func(t *topic) (err error) {
		payloads, err := c.payloads()
		if err != nil {
			return err
		}
		d, err := run.Program.start(t.dir, run.Log, t.settings("daemon", c.points().settings(), map[string]string{
			"snapshot.file": filepath.Join(t.dir, "streamd.db"),
		}))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.stop()) }()
		r := Result{Benchmark: "freshness", Parameters: []Parameter{
			{"broker", t.kind()}, {"partitions", t.partitions}, {"rate", c.Rate}, {"block_rows", c.BlockRows},
			{"features", c.Features}, {"polls", c.Polls},
		}}
		var rounds []freshRound
		f := &freshRun{Freshness: c, topic: t, d: d, payloads: payloads, log: run.Log}
		defer f.close()
		if err := f.open(ctx); err != nil {
			return err
		}
		_, err = run.alternate(ctx, r.name(), side{"produce and poll", func(ctx context.Context, _ time.Duration) (Sample, error) {
			round, err := f.round(ctx)
			rounds = append(rounds, round)
			r.Samples = append(r.Samples, round.sample)
			return round.sample, err
		}})
		if err != nil {
			return err
		}
		var all ages
		for _, round := range rounds {
			round.ages.sort()
			all = append(all, round.ages...)
		}
		all.sort()
		for _, q := range []struct {
			key   string
			share float64
		}{{"p50_ms", 0.5}, {"p90_ms", 0.9}, {"p99_ms", 0.99}, {"max_ms", 1}} {
			r.add(q.key, func(i int) float64 { return 1e3 * rounds[i].ages.quantile(q.share).Seconds() })
		}
		r.add("models_per_second", func(i int) float64 { return float64(rounds[i].models) / rounds[i].sample.Seconds })
		r.add("blocks_per_second", func(i int) float64 { return float64(rounds[i].sample.Ops) / rounds[i].sample.Seconds })
		r.add("cores", func(i int) float64 { return rounds[i].cores })
		r.add("core_us_per_block", func(i int) float64 { return 1e6 * rounds[i].took.Seconds() / float64(rounds[i].sample.Ops) })
		r.Details = []Parameter{{"histogram", all.histogram()}}
		if err := run.Add(r); err != nil {
			return err
		}
		return run.table(all.table())
	})
}

// distinctBlocks is the number of different payloads, which are written in turn. The first number
// of each is another one every time, since equal blocks share what is kept of them.
const distinctBlocks = 256

// unlike marks the number that is replaced in a payload.
const unlike = float32(1.2345678e-7)

// freshPayload is a payload with the place of its first number.
type freshPayload struct {
	bytes []byte
	at    int
}

// next is the payload with another first number, in memory of its own.
func (p *freshPayload) next(n int64) []byte {
	b := slices.Clone(p.bytes)
	binary.LittleEndian.PutUint32(b[p.at:], math.Float32bits(float32(n&(1<<24-1))/(1<<24)))
	return b
}

func (c Freshness) payloads() (payloads []freshPayload, err error) {
	g, err := c.points().generator()
	if err != nil {
		return nil, err
	}
	s, e := g.NewSampler(), wire.NewEncoder(wire.Arrow)
	for i := range int64(distinctBlocks) {
		block := s.Block(ndc.Train, i*int64(c.BlockRows), c.BlockRows)
		first := make([]float32, c.BlockRows)
		for row := range first {
			first[row] = float32(block.Columns[0].At(row))
		}
		first[0] = unlike
		block.Columns[0] = gram.ColumnOf(first)
		payload, err := e.Append(nil, block)
		if err != nil {
			return nil, err
		}
		mark := binary.LittleEndian.AppendUint32(nil, math.Float32bits(unlike))
		at := bytes.Index(payload, mark)
		if at < 0 || at != bytes.LastIndex(payload, mark) {
			return nil, errors.New("the first number is not found in its payload")
		}
		payloads = append(payloads, freshPayload{payload, at})
	}
	return payloads, nil
}

// freshRun is a daemon whose models are awaited.
type freshRun struct {
	Freshness
	*topic
	d        *process
	payloads []freshPayload
	log      zerolog.Logger

	lanes []*freshLane
}

// freshRound is what one round has measured.
type freshRound struct {
	sample Sample // operations are blocks
	ages   ages
	models int
	cores  float64       // of the daemon, while blocks are produced
	took   time.Duration // of a core, of the daemon, until a model has all blocks
}

// freshLane is a partition: the blocks that are acknowledged, and the models that have them.
type freshLane struct {
	producer *kafka.Producer

	mu     sync.Mutex
	acked  int64      // offset after the last acknowledged block
	served int64      // the same of the blocks that a model has
	groups []freshEnd // acknowledged blocks that no model has
	ages   ages
}

// freshEnd is the end of blocks that were acknowledged together.
type freshEnd struct {
	next int64 // offset after the last one
	at   time.Time
}

// acknowledge notes that blocks up to an offset are acknowledged.
func (l *freshLane) acknowledge(next int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if early := min(l.served, next) - l.acked; early > 0 { // a model came before the answer of the broker
		l.ages.add(0, early)
	}
	if l.acked = next; l.served < next {
		l.groups = append(l.groups, freshEnd{next, now})
	}
}

// serve notes that a client has a model of the blocks up to an offset.
func (l *freshLane) serve(next int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.groups) > 0 && l.served < next {
		g := &l.groups[0]
		l.ages.add(now.Sub(g.at), min(next, g.next)-l.served)
		if l.served = min(next, g.next); l.served < g.next {
			return
		}
		l.groups = l.groups[1:]
	}
	l.served = max(l.served, next)
}

// taken returns the ages so far, and whether a model has all blocks.
func (l *freshLane) taken() (a ages, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ages, l.served >= l.acked
}

// open makes the producers, one for each partition.
func (f *freshRun) open(ctx context.Context) error {
	for range f.partitions {
		p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: f.cluster, Topic: f.name}, f.log)
		if err != nil {
			return err
		}
		f.lanes = append(f.lanes, &freshLane{producer: p})
	}
	return nil
}

func (f *freshRun) close() {
	for _, l := range f.lanes {
		l.producer.Close()
	}
}

var arrowHeaders = []kafka.Header{{Key: "content-type", Value: []byte(wire.Arrow.ContentType())}}

// produceEvery is the time between two requests to a partition, unless one takes longer.
const produceEvery = time.Millisecond

// produce writes blocks to a partition at its share of the rate until ctx ends.
func (f *freshRun) produce(ctx context.Context, partition int) error {
	l, began, written, tick := f.lanes[partition], time.Now(), int64(0), time.NewTicker(produceEvery)
	defer tick.Stop()
	rate := float64(f.Rate) / float64(f.partitions)
	phase := float64(partition) / float64(f.partitions) // so that slow rates are spread
	next := l.acked
	for ctx.Err() == nil {
		due := int64(time.Since(began).Seconds()*rate+phase) - written
		for range due {
			payload := f.payloads[int(next)%len(f.payloads)].next(next*int64(f.partitions) + int64(partition))
			if err := l.producer.Write(ctx, partition, nil, payload, arrowHeaders, time.Time{}); err != nil {
				return err
			}
			written, next = written+1, next+1
		}
		if due > 0 {
			if err := l.producer.Flush(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			l.acknowledge(next, time.Now())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// poll waits for a model that the client does not have.
func (f *freshRun) poll(ctx context.Context, known *string) (m freshModel, at time.Time, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.d.base+"/v1/model?wait=10s", nil)
	if err != nil {
		return m, at, err
	}
	if *known != "" {
		request.Header.Set("If-None-Match", *known)
	}
	answer, err := f.d.client.Do(request)
	if err != nil {
		return m, at, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	at = time.Now()
	if err != nil || answer.StatusCode != http.StatusOK {
		return m, at, err
	}
	*known = answer.Header.Get("ETag")
	return m, at, json.Unmarshal(body, &m)
}

// freshModel is the part of the daemon's answer that the benchmark reads.
type freshModel struct {
	Offsets []model.Offset `json:"offsets"`
}

// lastBlocks is how long the last blocks of a round may take.
const lastBlocks = 30 * time.Second

// round produces and polls for the time of a round, and then until a model has every block.
func (f *freshRun) round(ctx context.Context) (r freshRound, err error) {
	ctx, fail := f.d.while(ctx)
	defer fail(nil)
	producing, enough := context.WithTimeout(ctx, f.Time)
	defer enough()
	polling, done := context.WithCancel(ctx)
	defer done()
	began, cpu := time.Now(), processTime(f.d.cmd.Process.Pid)
	var writers, readers sync.WaitGroup
	defer readers.Wait()
	defer done()
	for i := range f.partitions {
		writers.Go(func() {
			if err := f.produce(producing, i); err != nil && producing.Err() == nil {
				fail(err)
			}
		})
	}
	for i := range f.Polls {
		readers.Go(func() {
			known := ""
			for polling.Err() == nil {
				m, at, err := f.poll(polling, &known)
				switch {
				case err != nil && polling.Err() == nil:
					fail(err)
				case i == 0 && err == nil && len(m.Offsets) > 0:
					r.models++
					for _, o := range m.Offsets {
						f.lanes[o.Partition].serve(o.Next, at)
					}
				}
			}
		})
	}
	writers.Wait()
	took := time.Since(began)
	used := processTime(f.d.cmd.Process.Pid) - cpu
	for end := time.Now().Add(lastBlocks); ; {
		all := true
		for _, l := range f.lanes {
			_, has := l.taken()
			all = all && has
		}
		if all {
			break
		}
		if time.Now().After(end) {
			return r, fmt.Errorf("the model lacks blocks %v after the last one", lastBlocks)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return r, err
		}
	}
	r.took = processTime(f.d.cmd.Process.Pid) - cpu
	done()
	readers.Wait()
	for _, l := range f.lanes {
		a, _ := l.taken()
		r.ages = append(r.ages, a...)
		l.ages = nil
	}
	blocks := r.ages.count()
	r.sample = Sample{Ops: blocks, Rows: blocks * int64(f.BlockRows), Seconds: took.Seconds()}
	r.cores = used.Seconds() / took.Seconds()
	return r, nil
}

// ages are the ages of blocks when a client has them.
type ages []age

// age is that of so many blocks.
type age struct {
	of     time.Duration
	blocks int64
}

func (a *ages) add(of time.Duration, blocks int64) { *a = append(*a, age{max(0, of), blocks}) }

func (a ages) count() (n int64) {
	for _, x := range a {
		n += x.blocks
	}
	return n
}

// quantile is the least age that at least a share of the blocks do not exceed. a is sorted.
func (a ages) quantile(share float64) time.Duration {
	wanted, n := int64(math.Ceil(share*float64(a.count()))), int64(0)
	for _, x := range a {
		if n += x.blocks; n >= wanted {
			return x.of
		}
	}
	return 0
}

func (a ages) sort() { slices.SortFunc(a, func(x, y age) int { return cmp.Compare(x.of, y.of) }) }

// bucket is the blocks of an age up to a bound, and above that of the bucket before.
type bucket struct {
	UpTo   float64 `json:"up_to_ms"`
	Blocks int64   `json:"blocks"`
}

// histogram divides the ages by powers of two of milliseconds. a is sorted.
func (a ages) histogram() (buckets []bucket) {
	bound := time.Millisecond / 4
	buckets = append(buckets, bucket{UpTo: bound.Seconds() * 1e3})
	for _, x := range a {
		for x.of > bound {
			bound *= 2
			buckets = append(buckets, bucket{UpTo: bound.Seconds() * 1e3})
		}
		buckets[len(buckets)-1].Blocks += x.blocks
	}
	return buckets
}

// table is the histogram for people.
func (a ages) table() (rows [][]string) {
	rows = append(rows, []string{"up to", "blocks", "share"})
	all := float64(a.count())
	for _, b := range a.histogram() {
		share := float64(b.Blocks) / all
		rows = append(rows, []string{fmt.Sprintf("%g ms", b.UpTo), fmt.Sprint(b.Blocks), fmt.Sprintf("%5.2f %% %s", 100*share, strings.Repeat("#", int(math.Round(50*share))))})
	}
	return rows
}
