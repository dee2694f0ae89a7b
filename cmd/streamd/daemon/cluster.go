package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"streamd/config"
	"streamd/ingest/kafka"
)

// Cluster is the configured way to the brokers; it reads the files that the
// configuration names.
func Cluster(k config.Kafka) (kafka.Cluster, error) {
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
