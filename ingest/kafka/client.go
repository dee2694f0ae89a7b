package kafka

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"streamd/ingest/kafka/protocol"
)

const (
	dialTimeout  = 10 * time.Second
	adminTimeout = 15 * time.Second
	metadataTTL  = time.Second
)

// client is a connection pool to the cluster, with the metadata of the given topics only.
type client struct {
	transport *kafkago.Transport
	encrypted bool     // by TLS
	login     bool     // connections log in
	seeds     []string // the brokers configured

	mu           sync.Mutex
	brokers      []string // asked for metadata: the seeds and the brokers discovered
	leaders      map[topicPartition]leadership
	coordinators map[coordinated]int // ids of brokers
}

// coordinated is a group, or a transactional.id.
type coordinated struct {
	group bool
	key   string
}

type topicPartition struct {
	topic     string
	partition int
}

func newClient(c *Cluster, topics ...string) *client {
	t := &kafkago.Transport{
		Dial:           c.dial(),
		DialTimeout:    dialTimeout,
		MetadataTTL:    metadataTTL,
		MetadataTopics: topics,
		ClientID:       c.ClientID,
	}
	return &client{transport: t, encrypted: c.TLS != nil, login: c.Login != nil, seeds: c.Brokers, brokers: c.Brokers, leaders: make(map[topicPartition]leadership), coordinators: make(map[coordinated]int)}
}

// known returns the brokers that are asked for metadata.
func (cl *client) known() []string {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.brokers
}

func (cl *client) addr() net.Addr { return kafkago.TCP(cl.known()...) }

func (cl *client) api() *kafkago.Client {
	return &kafkago.Client{Addr: cl.addr(), Timeout: adminTimeout, Transport: cl.transport}
}

func (cl *client) close() { cl.transport.CloseIdleConnections() }

// topic returns the cluster's metadata of a topic, at most metadataTTL old. It never
// creates the topic. A missing one is kafkago.UnknownTopicOrPartition.
func (cl *client) topic(ctx context.Context, name string) (metadata.ResponseTopic, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	r, err := cl.transport.RoundTrip(ctx, cl.addr(), &metadata.Request{TopicNames: []string{name}})
	if err != nil {
		return metadata.ResponseTopic{}, err
	}
	m := r.(*metadata.Response)
	cl.discovered(m.Brokers)
	for _, t := range m.Topics {
		if t.Name == name && t.ErrorCode != 0 {
			return t, kafkago.Error(t.ErrorCode)
		} else if t.Name == name {
			return t, nil
		}
	}
	return metadata.ResponseTopic{}, kafkago.UnknownTopicOrPartition
}

// partitions returns the number of partitions of a topic.
func (cl *client) partitions(ctx context.Context, name string) (int, error) {
	t, err := cl.topic(ctx, name)
	return len(t.Partitions), err
}

// discovered adds brokers to those asked for metadata. kafka-go asks the seeds only,
// which may die while other brokers stay.
func (cl *client) discovered(brokers []metadata.ResponseBroker) {
	all := slices.Clone(cl.seeds)
	for _, b := range brokers {
		all = append(all, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if slices.ContainsFunc(all, func(b string) bool { return !slices.Contains(cl.brokers, b) }) {
		slices.Sort(all)
		cl.brokers = slices.Compact(all)
		cl.transport.CloseIdleConnections() // the transport has a pool for each list of brokers
	}
}

// fetch requests committed records from offset on. It does not believe a leader whose
// epoch is older than a known one. A broker's error is returned as kafkago.Error.
func (cl *client) fetch(ctx context.Context, topic string, partition int, offset int64, maxBytes, limit int, wait time.Duration) (*protocol.Fetched, error) {
	if err := cl.current(ctx, topic, partition, metadataTTL/2); err != nil {
		return nil, err
	}
	a, err := cl.callLeader(ctx, topic, partition, protocol.NewFetch(topic, partition, offset, maxBytes, limit, wait))
	if err != nil {
		return nil, err
	}
	f, err := a.Fetched()
	if err != nil {
		putBuffer(a.Buf)
	}
	return f, err
}

// produce writes an encoded record batch and waits until all in-sync replicas have it. A
// broker's error is returned as kafkago.Error. base is the offset of its first record; -1: the
// broker does not say.
func (cl *client) produce(ctx context.Context, topic string, partition int, transaction string, batch []byte) (base int64, err error) {
	a, err := cl.callLeader(ctx, topic, partition, protocol.NewProduce(topic, partition, transaction, batch))
	if err != nil {
		return -1, err
	}
	defer putBuffer(a.Buf)
	return a.Produced()
}

// producerID requests an id under which a producer numbers its batches.
func (cl *client) producerID(ctx context.Context) (id int64, epoch int16, err error) {
	a, err := protocol.NewProducerID().RoundTrip(ctx, cl.transport, cl.addr(), getBuffer)
	if err != nil {
		return 0, 0, err
	}
	defer putBuffer(a.Buf)
	return a.ProducerID()
}

// callLeader sends a call to the leader of a partition, for as long as it leads.
func (cl *client) callLeader(ctx context.Context, topic string, partition int, c *protocol.Call) (*protocol.Answer, error) {
	ctx, done := cl.whileLed(ctx, topic, partition, c.Leader)
	defer done()
	return c.RoundTrip(ctx, cl.transport, cl.addr(), getBuffer)
}

// callCoordinator sends a call of a transaction to the coordinator of a group or of transactions,
// and reads the answer. It asks who that is once, and again after an error: kafka-go would ask
// before each call.
func (cl *client) callCoordinator(ctx context.Context, of coordinated, call func(coordinator int) *protocol.Call) error {
	cl.mu.Lock()
	broker, known := cl.coordinators[of]
	cl.mu.Unlock()
	if !known {
		a, err := protocol.NewFindCoordinator(of.group, of.key).RoundTrip(ctx, cl.transport, cl.addr(), getBuffer)
		if err == nil {
			broker, err = a.Coordinator()
			putBuffer(a.Buf)
		}
		if err != nil {
			return err
		}
		cl.mu.Lock()
		cl.coordinators[of] = broker
		cl.mu.Unlock()
	}
	a, err := call(broker).RoundTrip(ctx, cl.transport, cl.addr(), getBuffer)
	if err == nil {
		err = a.Transacted()
		putBuffer(a.Buf)
	}
	if err != nil && !errors.Is(err, kafkago.ConcurrentTransactions) { // which a coordinator alone says
		cl.mu.Lock()
		delete(cl.coordinators, of)
		cl.mu.Unlock()
	}
	return err
}
