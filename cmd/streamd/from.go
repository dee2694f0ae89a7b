package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// fromFlags name a daemon whose snapshot a new replica begins with.
type fromFlags struct {
	From          string `placeholder:"URL" help:"Begin with a copy of the snapshot of the daemon there, if snapshot.file does not exist, and read on at its offsets."`
	FromTokenFile string `placeholder:"FILE" help:"Token of the role admin, for --from."`
	FromCAFile    string `name:"from-ca-file" placeholder:"FILE" help:"Authorities (PEM), for --from."`
	FromCertFile  string `placeholder:"FILE" help:"Client certificate, for --from."`
	FromKeyFile   string `placeholder:"FILE" help:"Its private key, for --from."`
}

// copyOf returns what asks for a copy of the other daemon's snapshot, or nil.
func (f *fromFlags) copyOf(ctx context.Context, s *surroundings) (func() (io.ReadCloser, error), error) {
	if f.From == "" {
		return nil, nil
	}
	other := daemonFlags{URL: f.From, TokenFile: f.FromTokenFile, CAFile: f.FromCAFile, CertFile: f.FromCertFile, KeyFile: f.FromKeyFile, as: "from"}
	from, err := other.client(s)
	if err != nil {
		return nil, err
	}
	return func() (io.ReadCloser, error) {
		answer, err := from.open(ctx, http.MethodGet, "/v1/snapshot?receipts=false", payload{})
		if err != nil {
			return nil, fmt.Errorf("--from %s: %w", from.base, err)
		}
		read := &copying{ReadCloser: answer.Body}
		read.stop = s.watch("copying the snapshot of "+from.base, func() advance {
			n := read.n.Load()
			return advance{bytes: n, done: float64(n) / float64(max(answer.ContentLength, 1))}
		})
		return read, nil
	}, nil
}

// copying counts the bytes of a copy while it is read.
type copying struct {
	io.ReadCloser
	n    atomic.Int64
	stop func() // of the progress
}

func (c *copying) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

func (c *copying) Close() error {
	c.stop()
	return c.ReadCloser.Close()
}
