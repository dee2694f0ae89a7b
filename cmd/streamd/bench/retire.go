package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"streamd/incremental"
	"streamd/retire"
)

// Retire measures taking a block out of a live set: out of the ledger and the summed state,
// with its summary decoded from the snapshot's bytes. Reading the bytes from the disk is left
// out.
//
// Blocks of all sizes run in turn. flat_ratio is the time over that of blocks of the first
// size: it should be 1, whatever the rows. add_ratio is the time of adding the rows as a
// block, over that of retiring it.
type Retire struct {
	Features []int `default:"10,100" help:"Features."`
	Rows     []int `default:"1000,10000,100000,1000000" help:"Rows of a block."`
	Timed
}

// Check implements Benchmark.
func (c Retire) Check() error {
	return cmp.Or(Within("features", 1, maxFeatures, c.Features...), Within("rows", 1, maxRows, c.Rows...), c.Timed.check())
}

// liveBlocks is the number of live blocks of each size. They are retired for a while before
// they are added again, which is not timed.
const liveBlocks = 64

// Measure implements Benchmark. An operation is the retirement of a block.
func (c Retire) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, c.Time, len(c.Features))
	for _, n := range c.Features {
		// Blocks overlap, so that 64 blocks need little more memory than one.
		const step = 100
		all := normalBlock(rand.New(rand.NewPCG(3, uint64(n))), Float32, slices.Max(c.Rows)+step*liveBlocks, n, 2)
		var sides []side
		for _, rows := range c.Rows {
			set, err := newLiveSet(all, rows, step)
			if err != nil {
				return err
			}
			sides = append(sides, timed(fmt.Sprintf("retire %d rows", rows), set.retire), loop(fmt.Sprintf("add %d rows", rows), set.add))
		}
		samples, err := run.alternate(ctx, fmt.Sprintf("BenchmarkRetire/features=%d", n), sides...)
		if err != nil {
			return err
		}
		for i, rows := range c.Rows {
			r := Result{Benchmark: "retire", Parameters: []Parameter{{"features", n}, {"rows", rows}}, Samples: samples[2*i]}
			r.addSeconds()
			r.addRatio("flat_ratio", Sample.nsPerOp, samples[2*i], samples[0])
			r.addRatio("add_ratio", Sample.nsPerOp, samples[2*i+1], samples[2*i])
			if err := run.Add(r); err != nil {
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

	// For add.
	block *incremental.Block
	z     incremental.Summariser
	sums  *incremental.State
}

func newLiveSet(all *incremental.Block, rows, step int) (*liveSet, error) {
	names := incremental.DefaultFeatures(len(all.Columns))
	s := &liveSet{
		ledger: retire.NewLedger(retire.Policy{}),
		state:  incremental.NewState(names),
		block:  slice(all, 0, rows),
		sums:   incremental.NewState(names),
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

// entry is the ledger's entry of message i of a topic.
func entry(i int, s *incremental.Summary) retire.Entry {
	p := incremental.Position{Topic: "bench", Offset: int64(i)}
	return retire.Entry{ID: p.String(), Position: p, Last: p.Offset, Time: time.UnixMilli(int64(i)), Rows: s.Rows()}
}

// retire retires all blocks but the last, so that classes do not come and go, and adds them
// again. Only retiring is timed.
func (s *liveSet) retire() (ops, rows int64, took time.Duration, err error) {
	summaries := make([]*incremental.Summary, liveBlocks-1)
	began := time.Now()
	for i := range summaries {
		if summaries[i], err = incremental.DecodeSummary(s.encoded[i]); err != nil {
			return 0, 0, 0, err
		}
		s.ledger.Remove(s.entries[i].ID)
		s.state.Remove(summaries[i])
	}
	took = time.Since(began)
	for i, summary := range summaries {
		rows += summary.Rows()
		s.ledger.Add(s.entries[i])
		s.state.Add(summary)
	}
	return int64(len(summaries)), rows, took, nil
}

// add summarises a block and adds it to a state.
func (s *liveSet) add() (int64, error) {
	summary, err := s.z.Summarise(s.block)
	if err != nil {
		return 0, err
	}
	s.sums.Add(summary)
	return summary.Rows(), nil
}
