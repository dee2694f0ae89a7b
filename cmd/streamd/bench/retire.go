package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"streamd/incremental"
	"streamd/retire"
)

// Retire measures taking a block out of a live set: from the ledger, its
// summary from the bytes that the snapshot keeps, and from the summed state.
// Reading those bytes from the disk is left out.
//
// The blocks of all sizes are measured in turn. flat_ratio is the time over that
// of the blocks of the first size: whatever the rows, it should be 1. add_ratio
// is the time of summing up the rows and adding the block over that of retiring
// it.
type Retire struct {
	Features []int
	Rows     []int // of a block
}

// liveBlocks is how many blocks of each size are live: enough to retire for a
// while before they have to be added again, which is not timed.
const liveBlocks = 64

// Measure runs all widths. An op is the retirement of a block.
func (c Retire) Measure(ctx context.Context, plan Plan, report *Report) error {
	for at, n := range c.Features {
		most := 0
		for _, rows := range c.Rows {
			most = max(most, rows)
		}
		// Blocks overlap, so that 64 of a million rows need no more memory
		// than one.
		const step = 100
		all := normalBlock(rand.New(rand.NewPCG(3, uint64(n))), Float32, most+step*liveBlocks, n, 2)
		var sides []side
		for _, rows := range c.Rows {
			set, err := newLiveSet(all, rows, step)
			if err != nil {
				return err
			}
			sides = append(sides,
				side{fmt.Sprintf("retire %d rows", rows), set.retire},
				side{fmt.Sprintf("add %d rows", rows), loop(set.add)})
		}
		samples, err := plan.Case(at, len(c.Features), fmt.Sprintf("BenchmarkRetire/features=%d", n)).alternate(ctx, sides...)
		if err != nil {
			return err
		}
		for i, rows := range c.Rows {
			r := Result{
				Benchmark:  "retire",
				Parameters: []Parameter{{"features", n}, {"rows", rows}},
				Samples:    samples[2*i],
			}
			r.add("seconds", func(round int) float64 { return r.Samples[round].nsPerOp() / 1e9 })
			r.add("flat_ratio", func(round int) float64 { return r.Samples[round].nsPerOp() / samples[0][round].nsPerOp() })
			r.add("add_ratio", func(round int) float64 { return samples[2*i+1][round].nsPerOp() / r.Samples[round].nsPerOp() })
			if err := report.Add(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// liveSet is a state and a ledger of blocks of one size.
type liveSet struct {
	ledger  *retire.Ledger
	state   *incremental.State
	entries []retire.Entry
	encoded [][]byte

	// What add works on.
	block *incremental.Block
	z     incremental.Summariser
	sink  *incremental.State
}

func newLiveSet(all *incremental.Block, rows, step int) (*liveSet, error) {
	names := incremental.DefaultFeatures(len(all.Columns))
	s := &liveSet{
		ledger: retire.NewLedger(retire.Policy{}),
		state:  incremental.NewState(names),
		block:  slice(all, 0, rows),
		sink:   incremental.NewState(names),
	}
	for i := range liveBlocks {
		summary, err := s.z.Summarise(slice(all, i*step, i*step+rows))
		if err != nil {
			return nil, fmt.Errorf("sum up a block: %w", err)
		}
		s.entries = append(s.entries, entry(i, summary))
		s.encoded = append(s.encoded, summary.AppendBinary(nil))
		s.state.Add(summary)
		s.ledger.Add(s.entries[i])
	}
	return s, nil
}

// entry is that of message i of a topic.
func entry(i int, s *incremental.Summary) retire.Entry {
	p := incremental.Position{Topic: "bench", Offset: int64(i)}
	return retire.Entry{ID: p.String(), Position: p, Last: p.Offset, Time: time.UnixMilli(int64(i)), Rows: s.Rows()}
}

// retire takes out all blocks and puts them in again, until taking them out has
// taken the time. The last one stays, lest classes come and go.
func (s *liveSet) retire(ctx context.Context, d time.Duration) (sample Sample, err error) {
	for took := time.Duration(0); sample.Ops == 0 || took < d; sample.Seconds = took.Seconds() {
		if err := ctx.Err(); err != nil {
			return Sample{}, err
		}
		gone := make([]*incremental.Summary, liveBlocks-1)
		began := time.Now()
		for i := range gone {
			summary, err := incremental.DecodeSummary(s.encoded[i])
			if err != nil {
				return Sample{}, err
			}
			s.ledger.Remove(s.entries[i].ID)
			s.state.Remove(summary)
			gone[i] = summary
		}
		took += time.Since(began)
		for i, summary := range gone {
			sample.Ops++
			sample.Rows += summary.Rows()
			s.ledger.Add(s.entries[i])
			s.state.Add(summary)
		}
	}
	return sample, nil
}

// add sums up a block and adds it to a state.
func (s *liveSet) add() (int64, error) {
	summary, err := s.z.Summarise(s.block)
	if err != nil {
		return 0, err
	}
	s.sink.Add(summary)
	return summary.Rows(), nil
}
