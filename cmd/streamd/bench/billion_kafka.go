package bench

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"

	"streamd/cmd/streamd/httpapi"
)

// KafkaSource learns as a user would: a replay writes the points to a topic of bounded size,
// while streamd run reads it in a process of its own.
type KafkaSource struct{ Through }

const (
	// logBytes is the least size that the topic keeps, all its partitions together. Brokers
	// check the size every log.retention.check.interval.ms, five minutes by default, so the
	// topic keeps the records of that time in addition.
	logBytes int64 = 2 << 30

	// maxLag is the number of messages of a partition that the daemon may be behind.
	maxLag = 256
)

func (s KafkaSource) parameters() []Parameter {
	broker := "real"
	if len(s.Brokers) == 0 {
		broker = "embedded"
	}
	return []Parameter{{"source", "kafka"}, {"broker", broker}, {"partitions", s.Partitions}}
}

// lag is the number of messages that the daemon may be behind before the replay waits for it.
// It is at most half of a partition, so that no block is lost unread.
func (s KafkaSource) lag(p Points) int {
	const label, float, head = 8, 4, 4096
	block := p.BlockRows*(label+float*p.Features) + head
	return int(max(2, min(maxLag, logBytes/int64(s.Partitions)/2/int64(block))))
}

func (s KafkaSource) learn(ctx context.Context, b *Billion, r *longRun) (done *learnt, err error) {
	if r.fresh {
		r.Topic = newTopicName()
	}
	t, err := openTopic(ctx, s.Brokers, r.dir, r.Topic, s.Partitions, logBytes/int64(s.Partitions))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && ctx.Err() != nil && r.keeps {
			t.close()
			return
		}
		err = errors.Join(err, t.drop(ctx))
	}()
	d, err := b.Program.start(r.dir, b.Log, t.settings("daemon", b.Points.settings(), map[string]string{
		"model.nu":      strconv.FormatFloat(Nu, 'g', -1, 64),
		"snapshot.file": filepath.Join(r.dir, "streamd.db"),
	}))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	working, fail := d.while(ctx)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer fail(nil)
	writing.Go(func() {
		written, err := b.Program.replay(working, t, b.Points, r.NextRow,
			"--wait-group", t.group("daemon"), "--max-lag", strconv.Itoa(s.lag(b.Points)))
		r.NextRow = written.NextRow
		r.Bytes += written.Bytes
		if err != nil {
			fail(err)
		}
	})
	answer, err := s.watch(working, b, r, d)
	if err != nil {
		fail(err)
		return nil, context.Cause(working)
	}
	writing.Wait()
	by, err := answer.Classifier()
	if err != nil {
		return nil, err
	}
	return &learnt{model: by.Model, digest: answer.Digest}, nil
}

// watch polls the daemon until it has a model of all points.
func (s KafkaSource) watch(ctx context.Context, b *Billion, r *longRun, d *process) (*httpapi.ModelAnswer, error) {
	for {
		var m httpapi.ModelAnswer
		status, err := d.ask(ctx, http.MethodGet, "/v1/model", &m)
		if err != nil && status != http.StatusServiceUnavailable { // there is no model yet
			return nil, err
		}
		rss, peak := residentBytes(d.cmd.Process.Pid)
		r.PeakRSS = max(r.PeakRSS, peak)
		if err == nil {
			r.Course.look(m.LiveRows, r.now(), rss)
			b.progress(m.LiveRows)
			if m.LiveRows >= b.Rows {
				return &m, nil
			}
		}
		if err := pause(ctx, lookInterval); err != nil {
			return nil, err
		}
	}
}
