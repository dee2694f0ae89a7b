package bench

import (
	"context"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"streamd/incremental"
	"streamd/ingest/ndc"
)

// ShareRight returns the share, from 0 to 1, of the first points of a stream that a model puts
// into their class. It uses all cores.
func ShareRight(ctx context.Context, m *incremental.Model, g *ndc.Generator, stream ndc.Stream, points int64) (float64, error) {
	const stretch = 8192
	var next, right atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			sampler := g.NewSampler()
			classes, values := make([]int32, stretch), make([]float64, stretch*len(m.Planes))
			for {
				first := next.Add(stretch) - stretch
				if first >= points {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				rows := int(min(stretch, points-first))
				b := sampler.Block(stream, first, rows)
				m.Classify(classes[:rows], values[:rows*len(m.Planes)], b.Columns)
				hits := int64(0)
				for i, code := range b.Codes {
					if m.Classes[classes[i]] == b.Classes[code] {
						hits++
					}
				}
				right.Add(hits)
			}
		})
	}
	err := group.Wait()
	return float64(right.Load()) / float64(points), err
}
