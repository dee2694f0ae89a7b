package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/wire"
)

// Predict measures classifying rows: in process, from columns in memory, and over HTTP on
// loopback, from the request to the last byte of the answer. Each client has a connection of
// its own.
//
// The baselines are reading the same bytes, and a server that reads the same request and
// answers with as many bytes without looking at either (http_ratio).
type Predict struct {
	Features []int  `default:"10,100" help:"Features of a row."`
	Classes  int    `default:"2" help:"Classes of the model."`
	Type     Type   `default:"float32" enum:"float32,float64" help:"Type of the numbers: ${enum}."`
	Rows     []int  `default:"1,10000" help:"Rows of a request."`
	Format   string `default:"arrow" enum:"arrow,json,csv,libsvm" help:"Format of a request: ${enum}."`
	Threads
	Timed
}

// Check implements Benchmark.
func (c Predict) Check() error {
	return cmp.Or(
		Within("features", 1, maxFeatures, c.Features...), Within("classes", 2, maxClasses, c.Classes),
		Within("rows", 1, maxRows, c.Rows...), c.Threads.check(), c.Timed.check())
}

// Measure implements Benchmark. An operation is a request, or as many rows in process.
func (c Predict) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, c.Time, 2*len(c.Features)*len(c.Rows)*len(c.list()))
	for _, n := range c.Features {
		state, err := summed(normalBlock(rand.New(rand.NewPCG(5, uint64(n))), c.Type, 2*n+100*c.Classes, n, c.Classes))
		if err != nil {
			return err
		}
		m, err := state.Moments().Solve(incremental.Options{Nu: 1})
		if err != nil {
			return err
		}
		for _, rows := range c.Rows {
			block := normalBlock(rand.New(rand.NewPCG(6, uint64(n))), c.Type, rows, n, c.Classes)
			for _, clients := range c.list() {
				if err := c.inProcess(ctx, run, m, block, clients); err != nil {
					return err
				}
				if err := c.overHTTP(ctx, run, m, block, clients); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// result has the parameters of a case, the path first.
func (c Predict) result(b *incremental.Block, clients int, path ...Parameter) Result {
	return Result{Benchmark: "predict", Parameters: append(path,
		Parameter{"features", len(b.Columns)}, Parameter{"classes", c.Classes}, Parameter{"type", string(c.Type)},
		Parameter{"threads", clients}, Parameter{"rows", b.Rows()})}
}

func (c Predict) inProcess(ctx context.Context, run *Run, m *incremental.Model, b *incremental.Block, goroutines int) error {
	rows, perRow := b.Rows(), c.Type.size()*len(b.Columns)
	sides := []side{
		parallel("classify", goroutines, func(int) work {
			class, values := make([]int32, rows), make([]float64, rows*len(m.Planes))
			return func() (int64, error) {
				m.Classify(class, values, b.Columns)
				return int64(rows), nil
			}
		}),
		parallel("read", goroutines, func(int) work {
			bytes := make([]byte, rows*perRow)
			return func() (int64, error) {
				readBytes(bytes)
				return int64(rows), nil
			}
		}),
	}
	return run.measure(ctx, c.result(b, goroutines, Parameter{"path", "process"}), sides, func(r *Result, samples [][]Sample) {
		r.addRows()
		r.addBytes(float64(perRow))
		if rows*perRow >= 8*readPiece { // there is enough to read
			r.addRatio("read_ratio", Sample.nsPerRow, samples[0], samples[1])
		}
	})
}

func (c Predict) overHTTP(ctx context.Context, run *Run, m *incremental.Model, b *incremental.Block, clients int) (err error) {
	format, err := wire.ParseFormat(c.Format)
	if err != nil {
		return err
	}
	request, err := wire.Encode(nil, format, b)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	guard, err := access.New(config.HTTP{}, zerolog.Nop())
	if err != nil {
		return err
	}
	api, err := serve(httpapi.New(httpapi.Config{Access: guard, MaxBodyBytes: len(request) + 1, MaxRows: b.Rows()}, servedModel{model: m}, httpapi.NewMetrics(), zerolog.Nop()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	answer, err := post(ctx, http.DefaultClient, api, format, request)
	if err != nil {
		return err
	}
	echo, err := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			w.Header().Set("Content-Type", "application/json")
			w.Write(answer)
		}
	}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, echo.Close()) }()

	var sides []side
	for _, of := range []struct {
		name   string
		server *http.Server
	}{{"predict", api}, {"echo", echo}} {
		sides = append(sides, parallel(of.name, clients, func(int) work {
			client := &http.Client{Transport: &http.Transport{}}
			return func() (int64, error) {
				got, err := post(ctx, client, of.server, format, request)
				if err == nil && len(got) != len(answer) {
					err = fmt.Errorf("an answer of %d bytes, the first had %d", len(got), len(answer))
				}
				return int64(b.Rows()), err
			}
		}))
	}
	r := c.result(b, clients, Parameter{"path", "http"}, Parameter{"format", c.Format})
	return run.measure(ctx, r, sides, func(r *Result, samples [][]Sample) {
		r.addRows()
		r.add("requests_per_second", func(i int) float64 { return 1e9 / samples[0][i].nsPerOp() })
		r.addRatio("http_ratio", Sample.nsPerRow, samples[0], samples[1])
	})
}

// serve starts a server on a free port of loopback, its Addr.
func serve(h http.Handler) (*http.Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Addr: listener.Addr().String(), Handler: h, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) // ends with Close, whose error says more
	return server, nil
}

func post(ctx context.Context, client *http.Client, server *http.Server, format wire.Format, body []byte) ([]byte, error) {
	to := url.URL{Scheme: "http", Host: server.Addr, Path: "/v1/predict"}
	request, err := http.NewRequestWithContext(ctx, "POST", to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", format.ContentType())
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST %s: %s: %.200s", to.Path, answer.Status, text)
	}
	return text, err
}

// servedModel is a service that serves a model. Only Served may be called.
type servedModel struct {
	httpapi.Service
	model *incremental.Model
}

func (s servedModel) Served() (*model.Served, <-chan struct{}) {
	return &model.Served{Fingerprint: "bench", Model: s.model}, nil
}
