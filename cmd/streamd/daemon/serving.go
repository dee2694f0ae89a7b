package daemon

import (
	"context"
	"net"
	"time"

	"streamd/cmd/streamd/httpapi"
)

// serving is HTTP. It goes on when one daemon takes over from another.
type serving struct {
	listener net.Listener
	first    *httpapi.Server // of the daemon that made it; later ones answer for it
	stop     context.CancelFunc
	ended    chan struct{}
	err      error // once it has ended
}

func newServing(first *httpapi.Server, address string) (*serving, error) {
	ln, err := net.Listen("tcp", address)
	return &serving{listener: ln, first: first, ended: make(chan struct{})}, err
}

// begin begins to serve. The daemon that made it calls it once.
func (s *serving) begin(ctx context.Context) {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.ended)
		s.err = s.first.Serve(ctx, s.listener)
	}()
}

// modelTimeout is how long a daemon has until it has a model, while the one before it
// answers.
const modelTimeout = time.Minute

// takeOver has the daemon answer as soon as it has a model.
func (s *serving) takeOver(ctx context.Context, d *Daemon) {
	ctx, cancel := context.WithTimeout(ctx, modelTimeout)
	defer cancel()
	for {
		served, replaced := d.Served()
		if served.Model == nil {
			select {
			case <-replaced:
				continue
			case <-ctx.Done():
			}
		}
		s.first.HandOver(d.api)
		return
	}
}

// end ends it, and returns its error.
func (s *serving) end() error {
	s.stop()
	<-s.ended
	return s.err
}
