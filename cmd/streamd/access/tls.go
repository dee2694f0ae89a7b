package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"streamd/config"
)

// readTLS reads certificate, key and authorities. A client may go without a
// certificate; one that it sends must be of an authority. Sessions are not
// resumed, so that every connection meets the authorities of its time.
func readTLS(files config.HTTPTLS) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cert_file and key_file: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true}
	if files.ClientCAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(files.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("client_ca_file: %w", err)
	}
	c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client_ca_file: %s holds no certificate in PEM form", files.ClientCAFile)
	}
	return c, nil
}
