package embedded_test

import (
	"context"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
)

// TestRetention passes 160 MiB of old records through a topic that keeps 32 MiB, and
// measures the log on disk.
func TestRetention(t *testing.T) {
	const keep, record, records = 32 << 20, 1 << 20, 160
	dir := t.TempDir()
	b, err := embedded.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic("topic", 1, keep); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cluster := kafka.Cluster{Brokers: []string{b.Addr()}}
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: cluster, Topic: "topic"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range records {
		// Retention does not drop a record for its age.
		if err := p.Write(ctx, 0, nil, make([]byte, record), nil, time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	lag, err := kafka.NewLagMonitor(cluster, "topic", "group")
	if err != nil {
		t.Fatal(err)
	}
	defer lag.Close()
	if err := lag.WaitBelow(ctx, 2*keep/record); err != nil {
		t.Fatal(err)
	}
	lags, err := lag.Lag(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if kept := lags[0].End - lags[0].Start; kept < keep/record-1 {
		t.Errorf("%d records are left, of which %d fit", kept, keep/record)
	}
	size := int64(0)
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil { // it may have been deleted by now
				size += info.Size()
			}
		}
		return nil
	})
	if size > 3*keep {
		t.Errorf("%d MiB are on disk", size>>20)
	}
}
