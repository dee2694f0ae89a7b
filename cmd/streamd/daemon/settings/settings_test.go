package settings

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

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

	var log bytes.Buffer
	c, err := Cluster(config.Kafka{
		Brokers:  []string{"a:1", "b:2"},
		ClientID: "me",
		TLS:      config.TLS{Enabled: true, CAFile: certFile, CertFile: certFile, KeyFile: keyFile, ServerName: "kafka"},
		SASL:     config.SASL{Mechanism: config.MechanismScramSHA512, Username: "ann"},
	}, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Brokers) != 2 || c.ClientID != "me" || c.Login.Mechanism() != "SCRAM-SHA-512" ||
		c.TLS == nil || c.TLS().ServerName != "kafka" || c.TLS().RootCAs == nil || c.TLS().GetClientCertificate == nil {
		t.Fatalf("%+v", c)
	}

	// The files are read again when they have changed, and what cannot be used changes nothing.
	// A broker whose certificate is the authority of cert.pem sees the client's certificate.
	handshake := func(cert, key string) ([]byte, error) {
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		sent := make(chan []byte, 1)
		go func() {
			defer close(sent)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			broker := conn.(*tls.Conn)
			if broker.Handshake() == nil {
				sent <- broker.ConnectionState().PeerCertificates[0].Raw
			}
		}()
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", listener.Addr().String(), c.TLS())
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return <-sent, nil
	}
	peer := func(cert, key string) []byte {
		t.Helper()
		sent, err := handshake(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return sent
	}
	first := peer(cert, key)
	newCert, newKey := certificate(t)
	for path, text := range map[string]string{certFile: newCert, keyFile: newKey} {
		if err := os.Rename(file("new", text), path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := handshake(cert, key); !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Errorf("a broker with the certificate of before: %v", err)
	}
	second := peer(newCert, newKey)
	if bytes.Equal(first, second) {
		t.Error("the new certificate is not sent")
	}
	file("cert.pem", "no PEM")
	if !bytes.Equal(peer(newCert, newKey), second) || !strings.Contains(log.String(), "stays in force") {
		t.Errorf("log %s", &log)
	}
	file("cert.pem", newCert)
	t.Setenv("AWS_REGION", "eu-central-1")
	for mechanism, want := range map[config.Mechanism]string{
		config.MechanismPlain: "PLAIN", config.MechanismScramSHA256: "SCRAM-SHA-256",
		config.MechanismOAuthBearer: "OAUTHBEARER", config.MechanismAWSMSKIAM: "OAUTHBEARER",
	} {
		c, err := Cluster(config.Kafka{SASL: config.SASL{Mechanism: mechanism, Username: "u", OAuth: config.OAuth{TokenFile: file("token", "a.b.c\n")}}}, zerolog.Nop())
		if err != nil || c.Login.Mechanism() != want || c.TLS != nil {
			t.Errorf("%s: %+v, %v", mechanism, c, err)
		}
	}
	if c, err := Cluster(config.Kafka{SASL: config.SASL{Mechanism: config.MechanismNone}}, zerolog.Nop()); err != nil || c.Login != nil {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv("AWS_REGION", "")
	for says, sasl := range map[string]config.SASL{
		"kafka.sasl.aws.region: no region":  {Mechanism: config.MechanismAWSMSKIAM},
		"kafka.sasl.oauth.token_file: open": {Mechanism: config.MechanismOAuthBearer, OAuth: config.OAuth{TokenFile: filepath.Join(dir, "none")}},
		"kafka.sasl.oauth: token endpoint":  {Mechanism: config.MechanismOAuthBearer, OAuth: config.OAuth{TokenURL: "ftp://login"}},
	} {
		if _, err := Cluster(config.Kafka{SASL: sasl}, zerolog.Nop()); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
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
		if _, err := Cluster(config.Kafka{TLS: bad.tls}, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), bad.says) {
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
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"kafka"}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IsCA: true, BasicConstraintsValid: true,
	}
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
