package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"streamd/config"
)

func TestCluster(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := certificate(t)
	certFile, keyFile, junk := file("cert.pem", cert), file("key.pem", key), file("junk.pem", "no PEM")

	c, err := Cluster(config.Kafka{
		Brokers:  []string{"a:1", "b:2"},
		ClientID: "me",
		TLS:      config.TLS{Enabled: true, CAFile: certFile, CertFile: certFile, KeyFile: keyFile, ServerName: "kafka"},
		SASL:     config.SASL{Mechanism: config.MechanismScramSHA512, Username: "ann"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Brokers) != 2 || c.ClientID != "me" || c.SASL.Mechanism != "SCRAM-SHA-512" || c.SASL.Username != "ann" ||
		c.TLS.ServerName != "kafka" || c.TLS.RootCAs == nil || len(c.TLS.Certificates) != 1 {
		t.Errorf("%+v, TLS %+v", c, c.TLS)
	}
	for mechanism, want := range map[config.Mechanism]string{
		config.MechanismNone: "", config.MechanismPlain: "PLAIN", config.MechanismScramSHA256: "SCRAM-SHA-256",
	} {
		c, err := Cluster(config.Kafka{SASL: config.SASL{Mechanism: mechanism}})
		if err != nil || c.SASL.Mechanism != want || c.TLS != nil {
			t.Errorf("%s: %+v, %v", mechanism, c, err)
		}
	}
	for _, bad := range []struct {
		tls  config.TLS
		says string
	}{
		{config.TLS{Enabled: true, CAFile: filepath.Join(dir, "none")}, "kafka.tls.ca_file"},
		{config.TLS{Enabled: true, CAFile: junk}, "no certificate"},
		{config.TLS{Enabled: true, CertFile: certFile, KeyFile: junk}, "kafka.tls.cert_file"},
	} {
		if _, err := Cluster(config.Kafka{TLS: bad.tls}); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%+v: %v", bad.tls, err)
		}
	}
}

// certificate makes a self-signed certificate.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}
