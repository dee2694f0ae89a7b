// Package settings says a configuration in the words of the packages that are configured: how
// brokers are reached and read, how payloads are decoded, and what makes a block. The daemon and
// the commands that read topics without one share it.
package settings

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/watched"
	"streamd/config"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/login"
	"streamd/ingest/registry"
	"streamd/ingest/wire"
	"streamd/kernels/rules/document"
	"streamd/snapshot"
)

// Cluster makes the connection settings of the brokers. It reads the files that the
// configuration names. Those of TLS are read again when they have changed: the next connection has
// what they say then.
func Cluster(k config.Kafka, log zerolog.Logger) (kafka.Cluster, error) {
	c := kafka.Cluster{Brokers: k.Brokers, ClientID: k.ClientID}
	var err error
	if c.Login, err = Login(k.SASL, log); err != nil {
		return c, err
	}
	if !k.TLS.Enabled {
		return c, nil
	}
	c.TLS, err = clientTLS("kafka.tls", k.TLS.CAFile, k.TLS.CertFile, k.TLS.KeyFile, k.TLS.ServerName, log)
	return c, err
}

// Registry makes the client of the schema registry; nil: none is configured. It does not connect.
func Registry(r config.Registry, log zerolog.Logger) (*registry.Client, error) {
	if r.URL == "" {
		return nil, nil
	}
	of := registry.Config{URL: r.URL, Username: r.Username, Password: r.Password.Reveal()}
	var err error
	if of.TLS, err = clientTLS("format.registry.tls", r.TLS.CAFile, r.TLS.CertFile, r.TLS.KeyFile, r.TLS.ServerName, log); err != nil {
		return nil, err
	}
	return registry.New(of)
}

// clientTLS makes the TLS settings of each new connection by the keys of a section.
func clientTLS(section, caFile, certFile, keyFile, serverName string, log zerolog.Logger) (func() *tls.Config, error) {
	var roots *watched.Value[*x509.CertPool]
	var pair *watched.Value[*tls.Certificate]
	var err error
	if caFile != "" {
		roots, err = watched.New(section+".ca_file", []string{caFile}, func() (*x509.CertPool, error) {
			pool := x509.NewCertPool()
			pem, err := os.ReadFile(caFile)
			if err == nil && !pool.AppendCertsFromPEM(pem) {
				err = fmt.Errorf("%s holds no certificate in PEM form", caFile)
			}
			return pool, err
		}, log)
		if err != nil {
			return nil, err
		}
	}
	if certFile != "" {
		pair, err = watched.New(section+".cert_file and key_file", []string{certFile, keyFile}, func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		}, log)
		if err != nil {
			return nil, err
		}
	}
	return func() *tls.Config {
		now := &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS12}
		if roots != nil {
			now.RootCAs = roots.Get()
		}
		if pair != nil {
			now.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Get(), nil }
		}
		return now
	}, nil
}

// Login makes the login to the brokers; nil is none. Tokens and AWS credentials are looked for when
// the first connection needs them.
func Login(s config.SASL, log zerolog.Logger) (*login.Login, error) {
	switch s.Mechanism {
	case config.MechanismPlain, config.MechanismScramSHA256, config.MechanismScramSHA512:
		l, err := login.Password(strings.ToUpper(string(s.Mechanism)), s.Username, s.Password.Reveal())
		if err != nil {
			return nil, fmt.Errorf("kafka.sasl: %w", err)
		}
		return l, nil
	case config.MechanismOAuthBearer:
		var tokens login.Tokens
		o := s.OAuth
		if o.TokenFile != "" {
			file := login.TokenFile(o.TokenFile)
			if err := file.Check(); err != nil {
				return nil, fmt.Errorf("kafka.sasl.oauth.token_file: %w", err)
			}
			tokens = file
		} else {
			endpoint, err := login.ClientCredentials{
				URL: o.TokenURL, ClientID: o.ClientID, ClientSecret: o.ClientSecret.Reveal(),
				Scope: o.Scope, Audience: o.Audience, Parameters: o.Parameters, CAFile: o.CAFile, Log: log,
			}.NewTokens()
			if err != nil {
				return nil, fmt.Errorf("kafka.sasl.oauth: %w", err)
			}
			tokens = endpoint
		}
		l, err := login.Bearer(tokens, o.Extensions)
		if err != nil {
			return nil, fmt.Errorf("kafka.sasl.oauth.extensions: %w", err)
		}
		return l, nil
	case config.MechanismAWSMSKIAM:
		tokens, err := login.MSK{Region: s.AWS.Region, Getenv: os.Getenv, Log: log}.NewTokens()
		if err != nil {
			return nil, fmt.Errorf("kafka.sasl.aws.region: %w", err)
		}
		return login.Bearer(tokens, nil)
	}
	return nil, nil
}

// Fetching is the configured sizes of fetches and buffers.
func Fetching(k config.Kafka) kafka.Fetching {
	return kafka.Fetching{
		FetchBytes: int(k.FetchBytes), MaxMessageBytes: int(k.MaxMessageBytes), BufferBytes: int64(k.BufferBytes),
	}
}

// bounded limits fetching to the available memory. total is over all partitions.
func Bounded(m *memory.Budget, f kafka.Fetching, total int64) kafka.Fetching {
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
		Fetching: Bounded(m, Fetching(k), m.Log),
	}
}

// Reading is what a program reads topics with that is no daemon.
type Reading struct {
	Budget   *memory.Budget
	Registry *registry.Client // nil: none is configured
	Decoding wire.Options
	Cluster  kafka.Cluster
}

// NewReading makes it by a configuration. It does not connect.
func NewReading(cfg *config.Config, log zerolog.Logger) (r Reading, err error) {
	if r, err = decodingOf(cfg, log); err == nil {
		r.Cluster, err = Cluster(cfg.Kafka, log)
	}
	return r, err
}

// TopicOptions is the decoding of a topic's messages outside of a daemon.
func TopicOptions(cfg *config.Config, log zerolog.Logger) (wire.Options, error) {
	r, err := decodingOf(cfg, log)
	return r.Decoding, err
}

func decodingOf(cfg *config.Config, log zerolog.Logger) (r Reading, err error) {
	limit, err := memory.Limit(cfg)
	if err != nil {
		return r, err
	}
	r.Budget = memory.New(cfg, limit)
	if r.Registry, err = Registry(cfg.Format.Registry, log); err == nil {
		r.Decoding, err = Decoding(cfg, r.Budget, r.Registry)
	}
	return r, err
}

// Decoding is the decoding of payloads under a configuration, its memory and its registry, which is
// nil if there is none.
func Decoding(cfg *config.Config, m *memory.Budget, asked *registry.Client) (wire.Options, error) {
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
	written, err := writtenBy(cfg.Format)
	if err != nil {
		return wire.Options{}, fmt.Errorf("format.schema_file: %w", err)
	}
	var schemas wire.Schemas
	if asked != nil {
		schemas = asked
	}
	ignore := cfg.Format.Ignore
	if cfg.Labels.ID != "" { // what makes blocks reads it, and all else passes over it
		ignore = append(slices.Clone(ignore), wire.PatternOf(cfg.Labels.ID))
	}
	return wire.Options{
		Schema: schema, Schemas: schemas, Written: written,
		Format: format,
		Label:  cfg.Format.Label, LabelSuffix: cfg.Format.LabelSuffix,
		KeepUnlabelled: cfg.Blocks.Unlabelled == config.UnlabelledKeep, UnlabelledText: cfg.Format.Unlabelled,
		Weight:  cfg.Format.Weight,
		Missing: model.MissingOf(cfg.Format),
		Ignore:  ignore, IgnoreUnknown: cfg.Format.IgnoresUnknown(),
		Header: header, Comment: cfg.Format.CSVComment, Numbers: numbers,
		Limits: wire.Limits{
			Bytes: m.Message, Numbers: m.Largest, Rows: cfg.Limits.Rows, Features: cfg.Limits.Features, Classes: cfg.Limits.Classes,
		},
	}, nil
}

// writtenBy is the schema of format.schema_file; nil: there is none.
func writtenBy(f config.Format) (*registry.Schema, error) {
	if f.SchemaFile == "" {
		return nil, nil
	}
	text, err := document.ReadFile(f.SchemaFile, registry.MaxText)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.SchemaFile, err)
	}
	s := &registry.Schema{Kind: registry.Protobuf, Text: string(text), Message: f.Message}
	if json.Valid(text) {
		s.Kind, s.Message = registry.Avro, ""
	}
	return s, wire.CheckWritten(s)
}

// unit names the rule that makes blocks. It is saved, since another rule would cut the same
// log into other blocks.
func Unit(cfg *config.Config) string {
	b := cfg.Blocks
	switch b.Unit {
	case config.UnitOffsets:
		return fmt.Sprintf("offsets %d", b.Offsets)
	case config.UnitTime:
		return fmt.Sprintf("time %s", b.Period)
	case config.UnitKey:
		// The ids of blocks are then those of keys without their envelope.
		if kind, err := envelope.ParseKind(string(cfg.Format.Envelope)); err == nil && kind.Keys() {
			return joinedUnit(cfg, fmt.Sprintf("%s of %s", b.Unit, kind))
		}
		return joinedUnit(cfg, string(b.Unit))
	}
	return string(b.Unit)
}

// joinedUnit is a unit whose labels may come on a topic of their own.
func joinedUnit(cfg *config.Config, unit string) string {
	if cfg.Labels.Topic != "" {
		unit += " with the labels of " + cfg.Labels.Topic
	}
	if cfg.Labels.ID != "" {
		unit += " by the field " + cfg.Labels.ID
	}
	return unit
}

// SnapshotKey reads the key of the snapshot. It is nil if none is configured.
func SnapshotKey(c config.Snapshot, log zerolog.Logger) (*snapshot.Key, error) {
	if c.KeyFile == "" {
		return nil, nil
	}
	key, loose, err := snapshot.ReadKey(c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("snapshot.key_file: %w", err)
	}
	if loose {
		log.Warn().Str("file", c.KeyFile).Msg("others than its owner can read or change the snapshot's key: chmod 600 it")
	}
	return key, nil
}
