// Package memory divides limits.memory among the parts of the daemon, and prices the
// live set.
package memory

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"streamd/cmd/streamd/daemon/joining"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental/exact"
	"streamd/incremental/newton"
	"streamd/retire"
)

// Budget divides limits.memory.
//
// A share is fixed: for the program, for fetched records, for blocks while they are
// decoded, for a study's decision values, and for predictions. The rest is for the live
// set: its sums with the copies that saves, solves and studies make, the row sample and
// the ledger (see Price), and blocks on their way into the snapshot.
//
// A block is refused when the live set with it, and the block several times over, would
// not fit: the block waits for a save, is encoded, lies in the pages of the file, and is
// read again, and the next one of its size may come meanwhile. The decision depends on
// the block and on the live set alone. Other work waits: blocks are left to the loop, one
// after the other, while pending summaries take more than their share, and the loop waits
// for a save while unsaved blocks do.
type Budget struct {
	Limit    int64 // bytes of everything
	Message  int   // bytes of the largest message, also decompressed
	Log      int64 // bytes of fetched records
	Reread   int64 // bytes of records that are read again
	Numbers  int   // bytes that a worker may decode a message to; the loop decodes larger ones
	Largest  int   // bytes that any message may be decoded to
	Gathered int64 // bytes of rows in open runs
	Values   int   // decision values of a study
	Predict  int64 // bytes of predictions over HTTP
	Body     int   // bytes of the rows of the largest prediction
	Joining  int64 // bytes of rows and labels that wait for each other
	Asked    int64 // bytes of fetched records of predict.topic
	Basis    int   // bytes of the basis of a control topic; 0: there is no such topic

	cfg   *config.Config
	fixed int64 // all shares together
}

const (
	program = 44 << 20 // the runtime, stacks, connections and clients
	spare   = 8        // 1/spare is left for garbage that is not freed yet

	// PerBlock is the bytes of a block in the ledger, in the sample and in spaces, beside
	// summaries.
	PerBlock = 512

	perReceipt = 128 // of a block in the tree of receipts
	perWeight  = 160 // of a block in the index of weights

	perProgramRow = 20 // numbers that a program of package lp has for a row, beside its columns

	codeAndFiles = 32 << 20 // of the program, which the runtime does not count

	// judgedValues bounds the decision values of a study (512 MiB). A row has one for
	// each plane.
	judgedValues = 1 << 26
)

// New divides a limit in bytes.
func New(cfg *config.Config, limit int64) *Budget {
	workers := int64(max(cfg.Workers, 1))
	m := &Budget{cfg: cfg, Limit: limit}
	m.Message = int(min(int64(cfg.Kafka.MaxMessageBytes), limit/32))
	m.Log = min(limit/16, 256<<20)
	m.Reread = min(limit/32, 64<<20)
	m.Largest = int(min(2*int64(m.Message), limit/32))
	m.Numbers = min(m.Message, max(int(limit/32/workers), 1<<20))
	m.Predict = min(limit/32, httpapi.Memory)
	m.Body = int(min(int64(cfg.HTTP.MaxBodyBytes), max(m.Predict/4, 1)))
	m.fixed = program + m.Log + m.Reread + m.Predict
	m.fixed += 2 * 5 * int64(m.Message) / 4       // of each, a batch that decompresses to more
	m.fixed += workers * 3 / 2 * int64(m.Numbers) // workers, and those of a pass over the log
	m.fixed += 2 * 5 * int64(m.Largest) / 4       // a block in the loop, and one of a pass
	if cfg.Blocks.Unit == config.UnitOffsets || cfg.Blocks.Unit == config.UnitTime {
		m.Gathered = limit / 32
		m.fixed += 3 * m.Gathered // and a block that is read again, while it is put together
	}
	if cfg.Labels.Topic != "" {
		m.Joining = limit / 4
		m.fixed += m.Joining + m.Reread
	}
	if cfg.Predict.Topic != "" {
		m.Asked = min(limit/32, 64<<20)
		m.fixed += m.Asked + 5*int64(m.Message)/4 + 2*int64(m.Largest) // a batch that decompresses, its rows and their answers
	}
	if cfg.Retire.Topic != "" {
		m.Basis = min(m.Message, int(limit/128))
		m.fixed += 4 * int64(m.Basis) // its parts, together, and decoded
	}
	if cfg.Model.Folds > 0 && cfg.Sample.Rows > 0 {
		m.Values = int(min(judgedValues, limit/512))
		m.fixed += 8 * int64(m.Values)
	}
	return m
}

// Limit is limits.memory in bytes. Where that is 0 it is GOMEMLIMIT, or else a quarter of
// the memory that the cgroup or the machine has.
func Limit(cfg *config.Config) (int64, error) {
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

// TellRuntime sets the collector's limit, or GOMEMLIMIT where that is lower. The runtime
// does not count the program's code and the mapped pages of files.
func (m *Budget) TellRuntime() {
	limit := m.Limit - max(m.Limit/spare, codeAndFiles)
	if os.Getenv("GOMEMLIMIT") != "" {
		limit = min(limit, debug.SetMemoryLimit(-1))
	}
	debug.SetMemoryLimit(limit)
}

// Copies is the number of times that a block may be in memory.
const Copies = 7

// Room is the bytes for the live set, and for blocks on their way to it.
func (m *Budget) Room() float64 { return float64(m.Limit - m.Limit/spare - m.fixed) }

// A Shape determines the memory of exact sums.
type Shape struct {
	Features, Classes int
	Window            exact.Window
}

// numbers counts the numbers of a class in a summary, or in a sum.
func numbers(features int) float64 {
	n := float64(features)
	return 1 + n + n*(n+1)/2
}

// Summary is the bytes of a summary of that shape.
func (s Shape) Summary() float64 { return 8 * float64(s.Classes) * numbers(s.Features) }

// leastWindow is the width of the sums of ordinary numbers, in words.
const leastWindow = 4

// Sum is the bytes of a sum of that shape.
func (s Shape) Sum() float64 {
	return float64(max(s.Window.Width, leastWindow)) * s.Summary()
}

// Price is the most bytes that a live set takes: shapes are those of its spaces.
func (m *Budget) Price(shapes []Shape, blocks int) float64 {
	c := m.cfg
	total := PerBlock * float64(blocks)
	if c.Receipts.KeyFile != "" {
		total += perReceipt * float64(blocks)
	}
	if c.Labels.Topic != "" {
		total += joining.Overhead * float64(blocks)
	}
	if c.Retire.HalfLife > 0 || c.Retire.HalfLifeRows > 0 {
		total += perWeight * float64(blocks)
		var largest float64
		for _, s := range shapes { // only one space has weighted sums
			largest = max(largest, m.weighted(s))
		}
		total += largest
	}
	workers := float64(c.Workers + c.Workers/2 + 2)
	for _, s := range shapes {
		n, all := float64(s.Features), s.Sum()
		if c.Model.Folds > 0 {
			all *= float64(c.Model.Folds + 1)
		}
		total += 3 * all // they are encoded for a save, and are in pages of the file
		matrix := 8 * n * n
		hats := m.hats(s)
		total += m.solve(s)
		if Studies(c) {
			total += all + s.Sum() + 6*s.Summary() + (8+hats)*matrix
			total += 8 * 83 * float64(max(c.Model.Folds, 1)) * float64(s.Classes) * n // planes of each ν, solved and refined
			if how := c.Model.Refine; how == config.RefineAuto || how == config.RefineLogistic {
				together := min(float64(s.Classes)*(n+1), newton.MostLogistic)
				total += 2 * 8 * together * together // the Hessian, as integers and as a matrix
			}
		}
		// Tiles, and rings where classes are few, of those that sum blocks.
		total += workers * (5<<10*n + 5<<10*min(float64(s.Classes)*n, 8192))
		// The sample, and a study's copies of it.
		rows := float64(c.Sample.Rows)
		if c.Blocks.Unlabelled == config.UnlabelledKeep {
			rows *= 2 // as many without a label
		}
		total += 5 * rows * 8 * n
		if how := c.Model.Refine; how.Program() {
			programmed := float64(c.Sample.Rows)
			if how == config.RefineUnlabelled {
				programmed *= 3 // rows without a label are there with either label
			}
			total += programmed * 8 * (2*n + perProgramRow)
		}
	}
	return total
}

// weighted is the most bytes of sums weighted by a half-life: the parts of each fold, and the sums
// of a solve and of a study, which have up to one limb and two limbs more than plain ones.
func (m *Budget) weighted(s Shape) float64 {
	folds := float64(m.cfg.Model.Folds)
	s.Window.Width = max(s.Window.Width, leastWindow) + 1
	parts := retire.StepsPerHalving * max(folds, 1) * s.Sum()
	s.Window.Width++
	return parts + 2*(folds+1)*s.Sum()
}

// hats is the number of matrices that the planes of a shape have.
func (m *Budget) hats(s Shape) float64 {
	if m.cfg.Model.Balanced != config.SwitchOff {
		return float64(s.Classes)
	}
	return 1
}

// solve is the most bytes that a solve takes: moments, systems, factors.
func (m *Budget) solve(s Shape) float64 {
	n := float64(s.Features)
	return 4*s.Summary() + (6+2*m.hats(s))*8*n*n
}

// Window is the most bytes that the model of a window takes while it is computed: sums of its
// parts, and a solve.
func (m *Budget) Window(s Shape) float64 { return 4*s.Sum() + m.solve(s) }

// Studies reports whether there are studies: planes are refined or judged, ν is chosen, or its
// choice is looked at.
func Studies(c *config.Config) bool {
	return c.Model.Refine != config.RefineNone || c.Model.Nu == config.NuAuto || c.Model.Folds > 0 && c.Sample.Rows > 0 || Looks(c)
}

// Looks reports whether the given settings of proximal planes are compared with those that auto
// would choose.
func Looks(c *config.Config) bool {
	m := c.Model
	return m.Refine == config.RefineNone && m.Nu != config.NuAuto && m.Folds > 0 && m.Method == config.MethodPSVM && m.Knowledge == ""
}

// Fits says why there is no memory for a live set of these shapes with so many blocks,
// the last of which has summaries of so many bytes in all spaces. The error is a
// LimitError.
func (m *Budget) Fits(shapes []Shape, blocks int, block float64) error {
	live, room := m.Price(shapes, blocks), m.Room()
	if Copies*block+live <= room {
		return nil
	}
	return LimitError(fmt.Sprintf("the live set with this block, of %d features and %d classes, would take %s and the block on its way into the snapshot %s; "+
		"limits.memory, %s, leaves %s for both: raise it, send fewer features or classes, or lower model.folds or sample.rows",
		shapes[0].Features, shapes[0].Classes, Size(live), Size(Copies*block), Size(float64(m.Limit)), Size(room)))
}

// A LimitError says that something would take more than limits.memory leaves.
type LimitError string

func (e LimitError) Error() string { return string(e) }

// Size writes bytes in the unit that suits them.
func Size(bytes float64) string {
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.3g TiB", bytes)
}
