package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"streamd/config"
	"streamd/ingest/kafka"
)

// configFile is embedded by the commands that take the daemon's configuration.
type configFile struct {
	Config string `short:"c" placeholder:"FILE" help:"Configuration file. By default what STREAMD_CONFIG names, else streamd.yaml if there is one."`
}

const defaultConfigFile = "streamd.yaml"

// load reads the configuration; all its problems are one usageError. Flags that
// the command calls by other names than the daemon are renamed in it.
func (f *configFile) load(s *surroundings, given, renamed map[string]string) (*config.Config, error) {
	file, required := f.Config, true
	if file == "" {
		file = s.variable(config.FileVariable)
	}
	if file == "" {
		file, required = defaultConfigFile, false
	}
	cfg, err := config.Load(config.Sources{File: file, FileRequired: required, Env: s.env, Flags: given})
	if problems := (*config.Error)(nil); errors.As(err, &problems) {
		for i := range problems.Problems {
			p := &problems.Problems[i]
			for theirs, ours := range renamed {
				p.Message = strings.ReplaceAll(p.Message, theirs, ours)
				if p.Source == theirs {
					p.Source = ours
				}
			}
		}
		return nil, usageError{problems}
	}
	return cfg, err
}

// consoleLog is a log for people.
func consoleLog(w io.Writer) zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{Out: w, NoColor: !isTerminal(w), TimeFormat: time.TimeOnly}).With().Timestamp().Logger()
}

// clusterOf is the configured way to the brokers.
func clusterOf(k config.Kafka) (kafka.Cluster, error) {
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
	c.TLS = &tls.Config{ServerName: k.TLS.ServerName, MinVersion: tls.VersionTLS12}
	if k.TLS.CAFile != "" {
		pem, err := os.ReadFile(k.TLS.CAFile)
		if err != nil {
			return c, fmt.Errorf("kafka.tls.ca_file: %w", err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return c, fmt.Errorf("kafka.tls.ca_file: %s holds no certificate in PEM form", k.TLS.CAFile)
		}
	}
	if k.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(k.TLS.CertFile, k.TLS.KeyFile)
		if err != nil {
			return c, fmt.Errorf("kafka.tls.cert_file and key_file: %w", err)
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
