package bench

import (
	"bytes"
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

// Predict measures classifying rows: in process, of columns that are there, and
// over HTTP on loopback, from the request to the last byte of the answer, by
// clients that each have one connection.
//
// The baselines are reading the same bytes, and a server that reads the same
// request and answers with as many bytes without looking at either (http_ratio).
type Predict struct {
	Features []int
	Classes  int
	Type     Type
	Rows     []int // of a request, and of what is classified in process at a time
	Format   wire.Format
	Threads  []int // clients
}

// Measure runs all combinations. An op is a request, or as many rows in process.
func (c Predict) Measure(ctx context.Context, plan Plan, report *Report) error {
	at, cases := 0, 2*len(c.Features)*len(c.Rows)*len(c.Threads)
	for _, n := range c.Features {
		train := normalBlock(rand.New(rand.NewPCG(5, uint64(n))), c.Type, 2*n+100*c.Classes, n, c.Classes)
		state, err := summed(train)
		if err != nil {
			return err
		}
		model, err := state.Moments().Solve(incremental.Options{Nu: 1})
		if err != nil {
			return err
		}
		for _, rows := range c.Rows {
			block := normalBlock(rand.New(rand.NewPCG(6, uint64(n))), c.Type, rows, n, c.Classes)
			for _, threads := range c.Threads {
				parameters := []Parameter{{"features", n}, {"classes", c.Classes}, {"type", string(c.Type)}, {"threads", threads}, {"rows", rows}}
				r := Result{Benchmark: "predict", Parameters: append([]Parameter{{"path", "process"}}, parameters...)}
				if err := c.inProcess(ctx, plan.Case(at, cases, r.name()), &r, model, block, threads); err != nil {
					return err
				}
				if err := report.Add(r); err != nil {
					return err
				}
				r = Result{Benchmark: "predict", Parameters: append([]Parameter{{"path", "http"}, {"format", c.Format.String()}}, parameters...)}
				if err := c.overHTTP(ctx, plan.Case(at+1, cases, r.name()), &r, model, block, threads); err != nil {
					return err
				}
				if err := report.Add(r); err != nil {
					return err
				}
				at += 2
			}
		}
	}
	return nil
}

func (c Predict) inProcess(ctx context.Context, plan Plan, r *Result, m *incremental.Model, b *incremental.Block, threads int) error {
	rows, perRow := b.Rows(), c.Type.size()*len(b.Columns)
	classify, read := make([]work, threads), make([]work, threads)
	for i := range threads {
		class, values := make([]int32, rows), make([]float64, rows*len(m.Planes))
		classify[i] = func() (int64, error) {
			m.Classify(class, values, b.Columns)
			return int64(rows), nil
		}
		bytes := make([]byte, rows*perRow)
		read[i] = func() (int64, error) {
			readBytes(bytes)
			return int64(rows), nil
		}
	}
	samples, err := plan.alternate(ctx, side{"classify", loop(classify...)}, side{"read", loop(read...)})
	if err != nil {
		return err
	}
	r.Samples = samples[0]
	r.addRows()
	r.addBytes(float64(perRow))
	if rows*perRow >= 8*readPiece { // else there is not much to read
		r.addBound("read_ratio", samples[1])
	}
	return nil
}

func (c Predict) overHTTP(ctx context.Context, plan Plan, r *Result, m *incremental.Model, b *incremental.Block, threads int) (err error) {
	request, err := wire.Encode(nil, c.Format, b)
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
	first, err := post(ctx, http.DefaultClient, api, c.Format, request)
	if err != nil {
		return err
	}
	echo, err := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			w.Header().Set("Content-Type", "application/json")
			w.Write(first)
		}
	}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, echo.Close()) }()

	predict, bare := make([]work, threads), make([]work, threads)
	for i := range threads {
		for of, server := range map[*work]*http.Server{&predict[i]: api, &bare[i]: echo} {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			*of = func() (int64, error) {
				answer, err := post(ctx, client, server, c.Format, request)
				if err == nil && len(answer) != len(first) {
					err = fmt.Errorf("an answer of %d bytes, the first had %d", len(answer), len(first))
				}
				return int64(b.Rows()), err
			}
		}
	}
	samples, err := plan.alternate(ctx, side{"predict", loop(predict...)}, side{"echo", loop(bare...)})
	if err != nil {
		return err
	}
	r.Samples = samples[0]
	r.addRows()
	r.add("requests_per_second", func(i int) float64 { return 1e9 / samples[0][i].nsPerOp() })
	r.addBound("http_ratio", samples[1])
	return nil
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

// servedModel is a service that has a model, and nothing else: only Served may be
// called.
type servedModel struct {
	httpapi.Service
	model *incremental.Model
}

func (s servedModel) Served() (*model.Served, <-chan struct{}) {
	return &model.Served{Fingerprint: "bench", Model: s.model}, nil
}
