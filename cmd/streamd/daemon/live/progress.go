package live

import (
	"fmt"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/incremental"
	"streamd/retire"
)

// progress has what progressive figures need of the live blocks that came as rows: the sums of each
// partition, in the features. It is nil where there are no such figures.
type progress struct {
	sums      map[int]*incremental.State
	left      map[int]struct{} // partitions of blocks that have left, other than by a newer value
	replacing bool             // a newer value takes a block's place
}

// SumsOf is the sum of the live blocks of a partition, nil if there are none or no such sums. It is
// valid until the set changes.
func (l *Set) SumsOf(partition int) *incremental.State {
	if l.progress == nil {
		return nil
	}
	return l.progress.sums[partition]
}

// TakeLeft returns the partitions of blocks that have left since the last call, and that no newer
// value of their key has replaced.
func (l *Set) TakeLeft() map[int]struct{} {
	if l.progress == nil || len(l.progress.left) == 0 {
		return nil
	}
	left := l.progress.left
	l.progress.left = map[int]struct{}{}
	return left
}

func newProgress(every int) *progress {
	if every == 0 {
		return nil
	}
	return &progress{sums: map[int]*incremental.State{}, left: map[int]struct{}{}}
}

func (p *progress) add(e *retire.Entry, s *incremental.Summary, names []string) {
	if p == nil || e.Carrier.Sums {
		return
	}
	of := p.sums[e.Position.Partition]
	if of == nil {
		of = incremental.NewState(names)
		p.sums[e.Position.Partition] = of
	}
	of.Add(s)
}

func (p *progress) remove(e *retire.Entry, s *incremental.Summary) {
	if p == nil || e.Carrier.Sums {
		return
	}
	if !p.replacing {
		p.left[e.Position.Partition] = struct{}{}
	}
	of := p.sums[e.Position.Partition]
	if of == nil { // its rows were of no weight
		return
	}
	if of.Remove(s); of.Rows() == 0 {
		delete(p.sums, e.Position.Partition) // the features may be others then
	}
}

// bytes is the most memory of the sums, if another block comes.
func (p *progress) bytes(features memory.Shape) float64 {
	if p == nil {
		return 0
	}
	return float64(max(1, len(p.sums))) * features.Sum()
}

// sumPartitions sums the live blocks of a snapshot anew. It reads all summaries.
func (l *Set) sumPartitions(entries []retire.Entry) error {
	if l.progress == nil {
		return nil
	}
	for i := range entries {
		e := &entries[i]
		if _, ok := l.ledger.Get(e.ID); !ok || e.Carrier.Sums {
			continue
		}
		s, err := l.features.summary(l.store, e.ID)
		if err != nil {
			return fmt.Errorf("sum the partitions: block %s: %w", e.ID, err)
		}
		if s != nil {
			l.progress.add(e, s, l.features.Names())
		}
	}
	return nil
}
