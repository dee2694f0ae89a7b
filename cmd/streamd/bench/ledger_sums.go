package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"streamd/incremental"
	"streamd/retire"
)

// sumsBlocks is the number of live blocks of each size. They are retired for a while before
// they are added again, which is not timed.
const sumsBlocks = 64

// sums measures taking a block out of a ledger and the summed state alone, with its summary
// decoded from the snapshot's bytes. Reading the bytes from the disk is left out. An operation is
// the retirement of a block.
//
// Blocks of all sizes run in turn. flat_ratio is the time over that of blocks of the first
// size: it should be 1, whatever the rows. add_ratio is the time of adding the rows as a
// block, over that of retiring it.
func (c Ledger) sums(ctx context.Context, run *Run) error {
	// Blocks overlap, so that 64 blocks need little more memory than one.
	const step = 100
	all := normalBlock(rand.New(rand.NewPCG(3, uint64(c.Features))), Float32, slices.Max(c.Rows)+step*sumsBlocks, c.Features, 2)
	var sides []side
	for _, rows := range c.Rows {
		live := newLiveSums(c.Features)
		for i := range sumsBlocks {
			if err := live.add(slice(all, i*step, i*step+rows)); err != nil {
				return err
			}
		}
		block, sums := slice(all, 0, rows), newLiveSums(c.Features)
		sides = append(sides, timed(fmt.Sprintf("retire %d rows", rows), live.retireAndRestore), loop(fmt.Sprintf("add %d rows", rows), func() (int64, error) {
			summary, err := sums.z.Summarise(block)
			if err != nil {
				return 0, err
			}
			sums.state.Add(summary)
			return summary.Rows(), nil
		}))
	}
	samples, err := run.alternate(ctx, "BenchmarkLedger/part=sums", sides...)
	if err != nil {
		return err
	}
	for i, rows := range c.Rows {
		r := Result{Benchmark: "ledger", Parameters: []Parameter{{"part", "sums"}, {"features", c.Features}, {"rows", rows}}, Samples: samples[2*i]}
		r.addSeconds()
		r.addRatio("flat_ratio", Sample.nsPerOp, samples[2*i], samples[0])
		r.addRatio("add_ratio", Sample.nsPerOp, samples[2*i+1], samples[2*i])
		if err := run.Add(r); err != nil {
			return err
		}
	}
	return nil
}

// liveSums are a ledger and the summed state of its blocks. Their summaries are kept in the bytes
// of the snapshot.
type liveSums struct {
	z       incremental.Summariser
	ledger  *retire.Ledger
	state   *incremental.State
	entries []retire.Entry
	encoded [][]byte
}

func newLiveSums(features int) *liveSums {
	return &liveSums{ledger: retire.NewLedger(retire.Policy{}), state: incremental.NewState(incremental.DefaultFeatures(features))}
}

// add adds the next block.
func (s *liveSums) add(b *incremental.Block) error {
	summary, err := s.z.Summarise(b)
	if err != nil {
		return fmt.Errorf("sum up a block: %w", err)
	}
	i := len(s.entries)
	s.entries, s.encoded = append(s.entries, entry(i, summary.Rows())), append(s.encoded, summary.AppendBinary(nil))
	s.ledger.Add(s.entries[i])
	s.state.Add(summary)
	return nil
}

// retire retires blocks from one number to another, which is not included.
func (s *liveSums) retire(from, to int) error {
	for i := from; i < to; i++ {
		summary, err := incremental.DecodeSummary(s.encoded[i])
		if err != nil {
			return err
		}
		s.ledger.Remove(s.entries[i].ID)
		s.state.Remove(summary)
	}
	return nil
}

// retireAndRestore retires all blocks but the last, so that classes do not come and go, and adds
// them again. Only retiring is timed.
func (s *liveSums) retireAndRestore() (ops, rows int64, took time.Duration, err error) {
	few := len(s.entries) - 1
	began := time.Now()
	if err := s.retire(0, few); err != nil {
		return 0, 0, 0, err
	}
	took = time.Since(began)
	for i, e := range s.entries[:few] {
		summary, err := incremental.DecodeSummary(s.encoded[i])
		if err != nil {
			return 0, 0, 0, err
		}
		rows += e.Rows
		s.ledger.Add(e)
		s.state.Add(summary)
	}
	return int64(few), rows, took, nil
}
