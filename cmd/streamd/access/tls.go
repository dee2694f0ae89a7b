package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"streamd/config"
)

// readTLS reads certificate, key and authorities. A client needs no certificate, but one
// that it sends must be signed by an authority. Sessions are not resumed, so that every
// connection shows its certificate.
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

// verify checks a client's chain, leaf first, as its connection did when it was opened.
// Since then the authorities may have changed, or the certificate may have expired.
func verify(chain []*x509.Certificate, authorities *x509.CertPool) error {
	options := x509.VerifyOptions{Roots: authorities, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(options)
	return err
}
