// Package embedded runs a Kafka broker inside the process, for demonstrations and tests:
// franz-go's kfake on a folder, reachable on loopback only. Retention bounds its log, so
// that any amount of data can pass through little memory and disk. It is no production
// broker: it has one node, no replication and no fsync, and compaction moves the beginning of a
// log, which Kafka's does not.
package embedded

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// maxMessageBytes bounds a record batch. Blocks of 20,000 rows are around 1 MiB, and users
// try larger ones.
const maxMessageBytes = 32 << 20

// segmentBytes is the unit in which retention deletes.
const segmentBytes = 32 << 20

// Broker is a running broker.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
}

// Start starts a broker on a free port with its log in dir, which it makes when missing. It
// continues a log that is there. opts are further options for kfake, such as listeners with
// TLS.
func Start(dir string, opts ...kfake.Opt) (*Broker, error) {
	opts = append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.DataDir(filepath.Join(dir, "kafka")),
		// Members of demonstrations and tests come and go within seconds.
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
		kfake.BrokerConfigs(map[string]string{
			"message.max.bytes":      strconv.Itoa(maxMessageBytes),
			"log.cleaner.backoff.ms": "1000", // how often retention is applied
		}),
	}, opts...)
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, fmt.Errorf("start the embedded broker in %s: %w", dir, err)
	}
	return &Broker{cluster: c, addr: c.ListenAddrs()[0]}, nil
}

// WithoutTransactions is a broker that knows no transactions, as those before Kafka 0.11 and some
// that speak Kafka's protocol. numbered says whether it still knows numbered batches.
func WithoutTransactions(numbered bool) kfake.Opt {
	known := kversion.Stable()
	unknown := []kmsg.Key{
		kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.WriteTxnMarkers,
	}
	if !numbered {
		unknown = append(unknown, kmsg.InitProducerID)
	}
	for _, key := range unknown {
		known.SetMaxKeyVersion(key.Int16(), -1)
	}
	return kfake.MaxVersions(known)
}

// Addr is the broker's host:port.
func (b *Broker) Addr() string { return b.addr }

// Cluster is kfake's own handle, for tests that delete records or compact.
func (b *Broker) Cluster() *kfake.Cluster { return b.cluster }

// CreateTopic creates a topic. Each partition keeps about the last retentionBytes bytes, but
// at least one segment of 32 MiB. Below 0 it keeps everything.
func (b *Broker) CreateTopic(name string, partitions int, retentionBytes int64) error {
	configs := map[string]string{
		"segment.bytes":     strconv.Itoa(segmentBytes),
		"max.message.bytes": strconv.Itoa(maxMessageBytes),
		// Records may have the times of events long past.
		"retention.ms": "-1",
	}
	if retentionBytes >= 0 {
		// kfake applies retention only to topics that set it themselves.
		configs["retention.bytes"] = strconv.FormatInt(retentionBytes, 10)
	}
	if err := b.cluster.CreateTopic(name, int32(partitions), configs); err != nil {
		return fmt.Errorf("create topic %s with %d partitions on the embedded broker: %w", name, partitions, err)
	}
	return nil
}

// Close stops the broker. The log stays.
func (b *Broker) Close() { b.cluster.Close() }
