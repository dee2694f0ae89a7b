package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"

	"streamd/incremental"
	"streamd/ingest/ndc"
	"streamd/ingest/wire"
)

// GeneratorSource learns from the points as they are made, without Kafka. It measures the
// generator and the arithmetic.
type GeneratorSource struct{}

func (GeneratorSource) parameters() []Parameter { return []Parameter{{"source", "generator"}} }

func (GeneratorSource) learn(ctx context.Context, b *Billion, r *longRun) (*learnt, error) {
	generator, err := b.generator()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.dir, "state")
	state := incremental.NewState(incremental.DefaultFeatures(b.Features))
	if !r.fresh {
		saved, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if state, err = incremental.DecodeState(saved); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	samplers := make([]*ndc.Sampler, runtime.GOMAXPROCS(0))
	for i := range samplers {
		samplers[i] = generator.NewSampler()
	}
	// A worker adds every block that it has taken, so that after an interruption the state is
	// that of all points before the next.
	var mu sync.Mutex
	err = b.sum(ctx, r, state, len(samplers), func(worker int) (*incremental.Block, error) {
		mu.Lock()
		first := r.NextRow
		rows := min(int64(b.BlockRows), b.Rows-first)
		r.NextRow += rows
		mu.Unlock()
		if rows == 0 {
			return nil, io.EOF
		}
		return samplers[worker].Block(ndc.Train, first, int(rows)), nil
	})
	if err != nil && ctx.Err() != nil && r.keeps {
		err = errors.Join(err, os.WriteFile(path, state.AppendBinary(nil), 0o644))
	}
	if err != nil {
		return nil, err
	}
	return solved(state)
}

// FileSource learns from files, one for each CPU. It writes them first, which is not timed.
type FileSource struct{ Format string } // arrow or csv

func (s FileSource) parameters() []Parameter {
	return []Parameter{{"source", "file"}, {"format", s.Format}}
}

func (s FileSource) learn(ctx context.Context, b *Billion, r *longRun) (*learnt, error) {
	r.keeps = false // some of the files are of no use
	files, bytes, err := b.Points.write(ctx, r.dir, "train", ndc.Train, s.Format, runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, err
	}
	r.Bytes = bytes
	r.restart()
	return b.learnFiles(ctx, r, files)
}

// learnFiles learns from files, all of them at the same time.
func (b *Billion) learnFiles(ctx context.Context, r *longRun, files []string) (*learnt, error) {
	state := incremental.NewState(incremental.DefaultFeatures(b.Features))
	readers := make([]*wire.Reader, len(files))
	for i, file := range files {
		reader, err := wire.OpenFile(file, wire.Options{Features: state.Features()}, b.BlockRows)
		if err != nil {
			return nil, err
		}
		defer reader.Close()
		readers[i] = reader
	}
	err := b.sum(ctx, r, state, len(readers), func(worker int) (*incremental.Block, error) { return readers[worker].Next() })
	if err != nil {
		return nil, err
	}
	return solved(state)
}

// sum adds the blocks that next returns to each worker until io.EOF. A block is valid until
// the worker's next call. After an interruption all blocks that next has returned are added.
func (b *Billion) sum(ctx context.Context, r *longRun, state *incremental.State, workers int,
	next func(worker int) (*incremental.Block, error),
) error {
	var mu sync.Mutex
	group, working := errgroup.WithContext(ctx)
	for worker := range workers {
		group.Go(func() error {
			var summariser incremental.Summariser
			for working.Err() == nil {
				block, err := next(worker)
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				summary, err := summariser.Summarise(block)
				if err != nil {
					return err
				}
				mu.Lock()
				state.Add(summary)
				rows := state.Rows()
				if r.Course.due(rows) {
					rss, peak := residentBytes(os.Getpid())
					r.PeakRSS = max(r.PeakRSS, peak)
					r.Course.look(rows, r.now(), rss)
				}
				b.progress(rows)
				mu.Unlock()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// solved returns the model of a state.
func solved(state *incremental.State) (*learnt, error) {
	model, err := state.Moments().Solve(incremental.Options{Nu: Nu})
	if err != nil {
		return nil, err
	}
	return &learnt{model: model, digest: fmt.Sprintf("%x", state.Digest())}, nil
}

// write writes the points into count files, or as many as there are blocks. Blocks go around
// the files. It returns their paths and their size.
func (p Points) write(ctx context.Context, dir, name string, stream ndc.Stream, format string, count int) (paths []string, bytes int64, err error) {
	generator, err := p.generator()
	if err != nil {
		return nil, 0, err
	}
	count = int(min(int64(count), (p.Rows-1)/int64(p.BlockRows)+1))
	group, ctx := errgroup.WithContext(ctx)
	sizes := make([]int64, count)
	for i := range count {
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.%s", name, i, format))
		paths = append(paths, path)
		group.Go(func() (err error) {
			file, err := os.Create(path)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			out := bufio.NewWriterSize(file, 1<<20)
			write, end, err := pointWriter(out, generator, stream, format)
			if err != nil {
				return err
			}
			for first := int64(i) * int64(p.BlockRows); first < p.Rows; first += int64(count) * int64(p.BlockRows) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := write(first, int(min(int64(p.BlockRows), p.Rows-first))); err != nil {
					return fmt.Errorf("write %s: %w", path, err)
				}
			}
			if err := errors.Join(end(), out.Flush()); err != nil {
				return fmt.Errorf("write %s: %w", path, err)
			}
			info, err := file.Stat()
			if err == nil {
				sizes[i] = info.Size()
			}
			return err
		})
	}
	err = group.Wait()
	for _, size := range sizes {
		bytes += size
	}
	return paths, bytes, err
}

// pointWriter returns functions that write blocks to a file, and its end: CSV without a
// header, or one Arrow stream with a record batch for each block.
func pointWriter(out io.Writer, g *ndc.Generator, stream ndc.Stream, format string) (write func(first int64, rows int) error, end func() error, err error) {
	sampler := g.NewSampler()
	switch format {
	case "csv":
		encoder := wire.NewEncoder(wire.CSV)
		var text []byte
		return func(first int64, rows int) (err error) {
			if text, err = encoder.Append(text[:0], sampler.Block(stream, first, rows)); err != nil {
				return err
			}
			_, err = out.Write(text)
			return err
		}, func() error { return nil }, nil
	case "arrow":
		fields := []arrow.Field{{Name: "label", Type: arrow.PrimitiveTypes.Int64}}
		for _, name := range incremental.DefaultFeatures(g.Features()) {
			fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Float32})
		}
		schema := arrow.NewSchema(fields, nil)
		writer := ipc.NewWriter(out, ipc.WithSchema(schema))
		return func(first int64, rows int) error {
			columns, codes, labels := make([][]float32, g.Features()), make([]int32, rows), make([]int64, rows)
			for j := range columns {
				columns[j] = make([]float32, rows)
			}
			sampler.Fill(columns, codes, stream, first)
			for i, code := range codes {
				labels[i] = int64(2*code) - 1 // ndc.Classes
			}
			arrays := []arrow.Array{primitive(arrow.PrimitiveTypes.Int64, rows, arrow.Int64Traits.CastToBytes(labels))}
			for _, column := range columns {
				arrays = append(arrays, primitive(arrow.PrimitiveTypes.Float32, rows, arrow.Float32Traits.CastToBytes(column)))
			}
			return writer.Write(array.NewRecordBatch(schema, arrays, int64(rows)))
		}, writer.Close, nil
	}
	return nil, nil, fmt.Errorf("files of format %q: want arrow or csv", format)
}

func primitive(t arrow.DataType, rows int, bytes []byte) arrow.Array {
	return array.MakeFromData(array.NewData(t, rows, []*memory.Buffer{nil, memory.NewBufferBytes(bytes)}, nil, 0, 0))
}
