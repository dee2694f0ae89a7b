package summarise

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/stage/stagetest"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
	"streamd/retire"
)

// balancer polls replicas in turn, 20 times a second, as a client does that has a balancer before
// them, and keeps what they answer.
type balancer struct {
	replicas []*reader
	out      sync.RWMutex // while a replica is stopped
	stop     func()

	// Of the goroutine that polls, until stop returns.
	answers []state
	same    []string // answers that say "changed" of a model that the client has
}

func balance(replicas ...*reader) *balancer {
	b := &balancer{replicas: replicas}
	ended, done := make(chan struct{}), make(chan struct{})
	b.stop = sync.OnceFunc(func() { close(ended); <-done })
	go func() {
		defer close(done)
		known := ""
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
			s, err := b.poll(i%len(replicas), known)
			if err != nil || s.ETag == "" { // no model yet, or the same
				continue
			}
			if s.ETag == known {
				b.same = append(b.same, known)
			}
			known, b.answers = s.ETag, append(b.answers, s)
		}
	}()
	return b
}

// poll asks a replica for a model that is not the known one. Without one the state is zero.
func (b *balancer) poll(replica int, known string) (s state, err error) {
	b.out.RLock()
	defer b.out.RUnlock()
	req, err := http.NewRequest(http.MethodGet, "http://"+b.replicas[replica].at+"/v1/model?wait=20ms", nil)
	if err != nil {
		return s, err
	}
	if known != "" {
		req.Header.Set("If-None-Match", known)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, nil
	}
	if err = json.NewDecoder(resp.Body).Decode(&s); err == nil {
		s.ETag = resp.Header.Get("ETag")
	}
	return s, err
}

// restart stops a replica and starts it again. The balancer asks it nothing meanwhile.
func (b *balancer) restart(replica int) {
	b.out.Lock()
	defer b.out.Unlock()
	b.replicas[replica].stop()
	b.replicas[replica].start()
}

// check says which answer is not the model of a prefix of each partition of the topic of blocks,
// less what a prefix of the control topic retires.
func (b *balancer) check(t testing.TB, n names, cfg *config.Config) error {
	t.Helper()
	if len(b.same) > 0 {
		return fmt.Errorf("%d polls say that the model has changed, and it has not: %q", len(b.same), b.same[0])
	}
	if len(b.answers) < 2 {
		return fmt.Errorf("%d answers: they would show nothing", len(b.answers))
	}
	p := newPrefixes(t, n, cfg)
	seen := map[string]bool{}
	for i := range b.answers {
		a := &b.answers[i]
		if at := fmt.Sprint(a.Digest, a.Offsets); seen[at] {
			continue
		} else {
			seen[at] = true
		}
		want, err := p.digest(a)
		if err != nil {
			return err
		}
		if want != a.Digest {
			return fmt.Errorf("answer %d of %d, with %d blocks and %d rows at %+v, has the digest %s: the records before these offsets have %s",
				i, len(b.answers), a.Blocks, a.Rows, a.Offsets, a.Digest, want)
		}
	}
	return nil
}

// prefixes computes the sums of the first records of each partition, from the records alone.
type prefixes struct {
	names           names
	cfg             *config.Config
	blocks, control [][]kafka.Record // by partition
	decoder         *wire.Decoder
	decoded         map[*kafka.Record]*block
}

// block is what a record of the topic of blocks says of its block. Without sums it has no rows.
type block struct {
	retire.Entry
	features []string
	sums     *incremental.Summary
}

func newPrefixes(t testing.TB, n names, cfg *config.Config) *prefixes {
	t.Helper()
	limit, err := memory.Limit(cfg)
	if err != nil {
		t.Fatal(err)
	}
	options, err := settings.Decoding(cfg, memory.New(cfg, limit), nil)
	if err != nil {
		t.Fatal(err)
	}
	options.Features = cfg.Format.Features
	p := &prefixes{names: n, cfg: cfg, blocks: readTopic(t, n.blocks), control: readTopic(t, n.control()), decoded: map[*kafka.Record]*block{}}
	if p.decoder, err = wire.NewDecoder(options); err != nil {
		t.Fatal(err)
	}
	return p
}

// digest is that of the sums at an answer's offsets.
func (p *prefixes) digest(a *state) (string, error) {
	live, chosen := map[string]*block{}, map[string]*retire.Selection{}
	for _, o := range a.Offsets {
		from, apply := p.blocks, func(r *kafka.Record) error {
			b, err := p.decode(o.Partition, r)
			if err == nil {
				live[b.ID] = b
			}
			return err
		}
		if o.Topic == p.names.control() {
			from, apply = p.control, func(r *kafka.Record) error {
				chosen[string(r.Key)] = nil
				var c struct{ Retire json.RawMessage }
				if r.Value == nil {
					return nil
				} else if err := json.Unmarshal(r.Value, &c); err != nil {
					return err
				}
				s, err := retire.ParseSelector(c.Retire)
				if err == nil {
					chosen[string(r.Key)], err = s.Selection(p.cfg.Retire.Header)
				}
				return err
			}
		}
		for i := range from[o.Partition] {
			r := &from[o.Partition][i]
			if r.Offset >= o.Next {
				break
			}
			if err := apply(r); err != nil {
				return "", fmt.Errorf("%s/%d/%d: %w", o.Topic, o.Partition, r.Offset, err)
			}
		}
	}
	for _, s := range chosen {
		if s == nil {
			continue
		}
		meets := s.Meets()
		for id, b := range live {
			if meets(&b.Entry) {
				delete(live, id)
			}
		}
	}
	var sum *incremental.State
	for _, b := range live {
		if b.sums == nil || b.sums.Rows() == 0 {
			continue
		}
		if sum == nil {
			sum = incremental.NewState(b.features)
		}
		sum.Add(b.sums)
	}
	if sum == nil {
		return "", nil
	}
	digest := sum.Digest()
	return hex.EncodeToString(digest[:]), nil
}

// decode reads a record of the topic of blocks: sums, rows, or a key's null value.
func (p *prefixes) decode(partition int, r *kafka.Record) (*block, error) {
	if b := p.decoded[r]; b != nil {
		return b, nil
	}
	b, contentType := &block{}, ""
	b.Time, b.Last = r.Time, r.Offset
	for _, h := range r.Headers {
		switch h.Key {
		case "content-type":
			contentType = string(h.Value)
		case p.cfg.Retire.Header:
			b.Header = retire.HashHeader(h.Key, h.Value)
		}
	}
	b.Position = incremental.Position{Topic: p.names.blocks, Partition: partition, Offset: r.Offset}
	b.ID = b.Position.String()
	if p.cfg.Blocks.Unit == config.UnitKey {
		b.ID = retire.KeyID(string(r.Key))
	}
	switch {
	case summary.Is(contentType):
		var decoder summary.Decoder
		of, err := decoder.Decode(context.Background(), r.Value)
		if err != nil {
			return nil, err
		}
		b.ID, b.Position, b.Last, b.Time, b.features, b.sums = of.ID, of.Position, of.Last, of.Time, of.Features, of.Summary
	case r.Value != nil:
		rows, err := p.decoder.Decode(contentType, r.Value)
		if err != nil {
			return nil, err
		}
		if b.sums, err = new(incremental.Summariser).Summarise(rows); err != nil {
			return nil, err
		}
		b.features = slices.Clone(rows.FeatureNames())
	}
	p.decoded[r] = b
	return b, nil
}

// readTopic returns the committed records of a topic, by partition.
func readTopic(t testing.TB, topic string) [][]kafka.Record {
	t.Helper()
	outage.RLock()
	defer outage.RUnlock()
	return stagetest.Read(t, cluster(t), topic)
}
