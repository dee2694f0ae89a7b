package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/watched"
	"streamd/config"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// Cluster makes the connection settings of the brokers. It reads the files that the
// configuration names. Those of TLS are read again when they have changed: the next connection has
// what they say then.
func Cluster(k config.Kafka, log zerolog.Logger) (kafka.Cluster, error) {
	c := kafka.Cluster{Brokers: k.Brokers, ClientID: k.ClientID}
	switch k.SASL.Mechanism {
	case config.MechanismPlain:
		c.SASL.Mechanism = "PLAIN"
	case config.MechanismScramSHA256:
		c.SASL.Mechanism = "SCRAM-SHA-256"
	case config.MechanismScramSHA512:
		c.SASL.Mechanism = "SCRAM-SHA-512"
	}
	c.SASL.Username, c.SASL.Password = k.SASL.Username, k.SASL.Password.Reveal()
	if !k.TLS.Enabled {
		return c, nil
	}
	var roots *watched.Value[*x509.CertPool]
	var pair *watched.Value[*tls.Certificate]
	var err error
	if file := k.TLS.CAFile; file != "" {
		roots, err = watched.New("kafka.tls.ca_file", []string{file}, func() (*x509.CertPool, error) {
			pool := x509.NewCertPool()
			pem, err := os.ReadFile(file)
			if err == nil && !pool.AppendCertsFromPEM(pem) {
				err = fmt.Errorf("%s holds no certificate in PEM form", file)
			}
			return pool, err
		}, log)
		if err != nil {
			return c, err
		}
	}
	if k.TLS.CertFile != "" {
		pair, err = watched.New("kafka.tls.cert_file and key_file", []string{k.TLS.CertFile, k.TLS.KeyFile}, func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(k.TLS.CertFile, k.TLS.KeyFile)
			return &pair, err
		}, log)
		if err != nil {
			return c, err
		}
	}
	c.TLS = func() *tls.Config {
		now := &tls.Config{ServerName: k.TLS.ServerName, MinVersion: tls.VersionTLS12}
		if roots != nil {
			now.RootCAs = roots.Get()
		}
		if pair != nil {
			now.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Get(), nil }
		}
		return now
	}
	return c, nil
}

// Fetching is the configured sizes of fetches and buffers.
func Fetching(k config.Kafka) kafka.Fetching {
	return kafka.Fetching{
		FetchBytes: int(k.FetchBytes), MaxMessageBytes: int(k.MaxMessageBytes), BufferBytes: int64(k.BufferBytes),
	}
}

// bounded limits fetching to the available memory. total is over all partitions.
func bounded(m *memory.Budget, f kafka.Fetching, total int64) kafka.Fetching {
	f.FetchBytes, f.MaxMessageBytes, f.TotalBytes = min(f.FetchBytes, int(total/2)), m.Message, total
	return f
}

// ConsumerConfig is the configuration of a consumer of the topic.
func ConsumerConfig(k config.Kafka, cluster kafka.Cluster, m *memory.Budget) kafka.Config {
	return kafka.Config{
		Cluster:  cluster,
		Topic:    k.Topic,
		Group:    k.Group,
		Start:    map[config.Start]kafka.Start{config.StartEarliest: kafka.Earliest, config.StartLatest: kafka.Latest}[k.Start],
		OnGap:    map[config.OnGap]kafka.OnGap{config.OnGapStop: kafka.StopOnGap, config.OnGapEarliest: kafka.GapToEarliest, config.OnGapLatest: kafka.GapToLatest}[k.OnGap],
		Fetching: bounded(m, Fetching(k), m.Log),
	}
}

// TopicOptions is the decoding of a topic's messages outside of a daemon.
func TopicOptions(cfg *config.Config) (wire.Options, error) {
	limit, err := memory.Limit(cfg)
	if err != nil {
		return wire.Options{}, err
	}
	return Decoding(cfg, memory.New(cfg, limit))
}

// Decoding is the decoding of payloads under a configuration and its memory.
func Decoding(cfg *config.Config, m *memory.Budget) (wire.Options, error) {
	format, err := wire.ParseFormat(string(cfg.Format.Default))
	if err != nil {
		return wire.Options{}, err
	}
	if err := wire.CheckUnlabelledText(cfg.Format.Unlabelled); err != nil {
		return wire.Options{}, fmt.Errorf("format.unlabelled: %w", err)
	}
	header, err := wire.ParseHeader(string(cfg.Format.CSVHeader))
	if err != nil {
		return wire.Options{}, err
	}
	numbers, err := cfg.Format.Notation()
	if err != nil {
		return wire.Options{}, err
	}
	var schema wire.Schema
	if cfg.Format.Schema != nil { // a nil pointer is no nil interface
		schema = cfg.Format.Schema
	}
	return wire.Options{
		Schema: schema,
		Format: format,
		Label:  cfg.Format.Label, LabelSuffix: cfg.Format.LabelSuffix,
		KeepUnlabelled: cfg.Blocks.Unlabelled == config.UnlabelledKeep, UnlabelledText: cfg.Format.Unlabelled,
		Weight:  cfg.Format.Weight,
		Missing: model.MissingOf(cfg.Format),
		Ignore:  cfg.Format.Ignore, IgnoreUnknown: cfg.Format.IgnoresUnknown(),
		Header: header, Comment: cfg.Format.CSVComment, Numbers: numbers,
		Limits: wire.Limits{
			Bytes: m.Message, Numbers: m.Largest, Rows: cfg.Limits.Rows, Features: cfg.Limits.Features, Classes: cfg.Limits.Classes,
		},
	}, nil
}

// unit names the rule that makes blocks. It is saved, since another rule would cut the same
// log into other blocks.
func unit(cfg *config.Config) string {
	b := cfg.Blocks
	switch b.Unit {
	case config.UnitOffsets:
		return fmt.Sprintf("offsets %d", b.Offsets)
	case config.UnitTime:
		return fmt.Sprintf("time %s", b.Period)
	case config.UnitKey:
		// The ids of blocks are then those of keys without their envelope.
		if kind, err := envelope.ParseKind(string(cfg.Format.Envelope)); err == nil && kind.Keys() {
			return fmt.Sprintf("%s of %s", b.Unit, kind)
		}
	}
	return string(b.Unit)
}
