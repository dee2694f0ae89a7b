package daemon

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental/exact"
)

// memory divides limits.memory.
//
// A share of it is fixed: for the program, for what is read of the log, for blocks
// while they are decoded, for a study's decision values, and for predictions. The rest is for the live
// set: its sums with the copies that saves, solves and studies make, the row sample and
// the ledger (see price), and blocks on their way into the snapshot.
//
// A block is refused when the live set with it, and the block several times over, would
// not fit: while it waits for a save, as it is encoded, in the pages of the file, as the
// next one of its size, and read again. Whether it is refused depends on the block
// and on the live set, not on what else is under way. That waits: blocks are left to
// the loop, one after the other, while summaries in hand take more than a share, and the
// loop waits for a save while unsaved blocks do.
type memory struct {
	cfg   *config.Config
	limit int64

	message  int // bytes of the largest message, also decompressed
	log      int64
	reread   int64 // of the log, for blocks that are read again
	numbers  int   // bytes that a worker may decode a message to; larger ones are the loop's
	largest  int   // bytes that any message may be decoded to
	gathered int64 // bytes of rows in open runs
	values   int   // decision values of a study
	predict  int64 // predictions over HTTP
	body     int   // bytes of the largest one's rows
	fixed    int64 // all of these
}

const (
	program  = 44 << 20 // the runtime, stacks, connections and clients
	spare    = 8        // one part in so many is left for what the collector has not freed yet
	inMemory = 7        // times that a block may be in memory
	perBlock = 512      // of the ledger, of the sample and of epochs, beside summaries

	codeAndFiles = 32 << 20 // of the program, which the runtime does not count
)

// newMemory divides a limit.
func newMemory(cfg *config.Config, limit int64) *memory {
	workers := int64(max(cfg.Workers, 1))
	m := &memory{cfg: cfg, limit: limit}
	m.message = int(min(int64(cfg.Kafka.MaxMessageBytes), limit/32))
	m.log = min(limit/16, 256<<20)
	m.reread = min(limit/32, 64<<20)
	m.largest = int(min(2*int64(m.message), limit/32))
	m.numbers = min(m.message, max(int(limit/32/workers), 1<<20))
	m.predict = min(limit/32, httpapi.Memory)
	m.body = int(min(int64(cfg.HTTP.MaxBodyBytes), max(m.predict/4, 1)))
	m.fixed = program + m.log + m.reread + m.predict
	m.fixed += 2 * 5 * int64(m.message) / 4       // of each, a batch that is decompressed beyond it
	m.fixed += workers * 3 / 2 * int64(m.numbers) // workers, and those of a pass over the log
	m.fixed += 2 * 5 * int64(m.largest) / 4       // a block in the loop, and one of a pass
	if cfg.Blocks.Unit == config.UnitOffsets || cfg.Blocks.Unit == config.UnitTime {
		m.gathered = limit / 32
		m.fixed += 3 * m.gathered // and a block that is read again, while it is put together
	}
	if cfg.Model.Folds > 0 && cfg.Sample.Rows > 0 {
		m.values = int(min(judgedValues, limit/512))
		m.fixed += 8 * int64(m.values)
	}
	return m
}

// memoryLimit is limits.memory. Where that is 0 it is GOMEMLIMIT, or else a quarter of
// the memory that the cgroup or the machine has.
func memoryLimit(cfg *config.Config) (int64, error) {
	if limit := int64(cfg.Limits.Memory); limit > 0 {
		return limit, nil
	}
	if given := debug.SetMemoryLimit(-1); os.Getenv("GOMEMLIMIT") != "" && given < math.MaxInt64 {
		return given, nil
	}
	all, err := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil {
		return 0, fmt.Errorf("limits.memory is 0, and how much memory there is cannot be found out: %w", err)
	}
	return int64(min(all, 1<<62) / 4), nil
}

// tellRuntime makes the collector work harder near the limit, or near GOMEMLIMIT where
// that is lower. The runtime does not count the program's code and the pages of files.
func (m *memory) tellRuntime() {
	limit := m.limit - max(m.limit/spare, codeAndFiles)
	if os.Getenv("GOMEMLIMIT") != "" {
		limit = min(limit, debug.SetMemoryLimit(-1))
	}
	debug.SetMemoryLimit(limit)
}

// room is what there is for the live set, and for blocks on their way to it.
func (m *memory) room() float64 { return float64(m.limit - m.limit/spare - m.fixed) }

// A shape is what exact sums take their memory from.
type shape struct {
	features, classes int
	window            exact.Window
}

// numbers is what a class has in a summary, or in a sum.
func numbers(features int) float64 {
	n := float64(features)
	return 1 + n + n*(n+1)/2
}

// summary is the bytes of a summary of that shape.
func (s shape) summary() float64 { return 8 * float64(s.classes) * numbers(s.features) }

// leastWindow is what the sums of ordinary numbers take.
const leastWindow = 4

// sum is the bytes of a sum of that shape.
func (s shape) sum() float64 {
	return float64(max(s.window.Width, leastWindow)) * s.summary()
}

// price is the most bytes that a live set of these shapes, of so many blocks, takes:
// that in the features first, and then those of epochs.
func (m *memory) price(shapes []shape, blocks int) float64 {
	c := m.cfg
	total := perBlock * float64(blocks)
	workers := float64(c.Workers + c.Workers/2 + 2)
	for _, s := range shapes {
		n, all := float64(s.features), s.sum()
		if c.Model.Folds > 0 {
			all *= float64(c.Model.Folds + 1)
		}
		total += 3 * all // they are encoded for a save, and are in pages of the file
		matrix := 8 * n * n
		hats := 1.0
		if c.Model.Balanced {
			hats = float64(s.classes)
		}
		total += 4*s.summary() + (6+2*hats)*matrix // a solve: moments, systems, factors
		if studies(c) {
			total += all + s.sum() + 6*s.summary() + (8+hats)*matrix
			total += 8 * 41 * float64(max(c.Model.Folds, 1)) * float64(s.classes) * n // planes of each ν
		}
		// Tiles, and rings where classes are few, of whoever sums blocks.
		total += workers * (5<<10*n + 5<<10*min(float64(s.classes)*n, 8192))
		// The sample, and a study's copies of it.
		total += 5 * float64(c.Sample.Rows) * 8 * n
	}
	return total
}

// studies says whether there are studies (see studyIsDue).
func studies(c *config.Config) bool {
	return c.Model.Refine != config.RefineNone || c.Model.Nu == config.NuAuto || c.Model.Folds > 0 && c.Sample.Rows > 0
}

// refusal says that there is no memory for a block whose summary takes so many bytes, and
// a live set with it.
func (m *memory) refusal(s shape, block, live float64) error {
	return unusablef(kindMemory, "the live set with this block, of %d features and %d classes, would take %s and the block on its way into the snapshot %s; "+
		"limits.memory, %s, leaves %s for both: raise it, send fewer features or classes, or lower model.folds or sample.rows",
		s.features, s.classes, size(live), size(inMemory*block), size(float64(m.limit)), size(m.room()))
}

// size writes bytes in the unit that suits them.
func size(bytes float64) string {
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.3g TiB", bytes)
}
