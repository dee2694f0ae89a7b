package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon"
	"streamd/config"
)

// fromFlags name a daemon whose snapshot a new replica begins with.
type fromFlags struct {
	From          string `placeholder:"URL" help:"Begin with a copy of the snapshot of the daemon there, if snapshot.file does not exist, and read on at its offsets."`
	FromTokenFile string `placeholder:"FILE" help:"Token of the role admin, for --from."`
	FromCAFile    string `name:"from-ca-file" placeholder:"FILE" help:"Authorities (PEM), for --from."`
	FromCertFile  string `placeholder:"FILE" help:"Client certificate, for --from."`
	FromKeyFile   string `placeholder:"FILE" help:"Its private key, for --from."`
}

// begin takes a copy of the other daemon's snapshot, if there is none here.
func (f *fromFlags) begin(ctx context.Context, s *surroundings, cfg *config.Config, log zerolog.Logger) error {
	if f.From == "" {
		return nil
	}
	if has, err := daemon.HasSnapshot(cfg); err != nil {
		return err
	} else if has {
		log.Info().Str("file", cfg.Snapshot.File).Msg("there is a snapshot, so --from is not asked for one")
		return nil
	}
	other := daemonFlags{URL: f.From, TokenFile: f.FromTokenFile, CAFile: f.FromCAFile, CertFile: f.FromCertFile, KeyFile: f.FromKeyFile, as: "from"}
	from, err := other.client(s)
	if err != nil {
		return err
	}
	answer, err := from.open(ctx, http.MethodGet, "/v1/snapshot?receipts=false", payload{})
	if err != nil {
		return fmt.Errorf("--from %s: %w", from.base, err)
	}
	defer answer.Body.Close()
	read := &countingReader{Reader: answer.Body}
	stop := s.watch("copying the snapshot of "+from.base, func() advance {
		n := read.n.Load()
		return advance{bytes: n, done: float64(n) / float64(max(answer.ContentLength, 1))}
	})
	defer stop()
	if err := daemon.BeginWith(read, cfg, log); err != nil {
		return fmt.Errorf("--from %s: %w", from.base, err)
	}
	return nil
}

// countingReader counts the bytes that are read.
type countingReader struct {
	io.Reader
	n atomic.Int64
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.n.Add(int64(n))
	return n, err
}
