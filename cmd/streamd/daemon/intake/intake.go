// Package intake turns the batches of the log into live blocks.
//
//	             ┌──────────> order ─────────────> Apply ──> live set
//	Deliver ─────┤                                   │
//	             └──> tasks ──> workers ──> results ─┴─────> dead letters
//	                            decode, summarise
//
//	deliver.go    a batch becomes tasks, and a place in the order
//	decoder.go    a record becomes a block
//	rows.go       rows of several records, in columns
//	worker.go     a task becomes results: blocks, kept for every space
//	sums.go       a block comes as sums, in place of rows
//	judge.go      the served model is scored on rows before it learns from them
//	progress.go   planes of the blocks before are scored on each block, in the order of the log
//	repeats.go    which rows have the label of the row before them in the log
//	reject.go     a record is rejected: dead letters, and lines in the log
//	joined.go     rows wait for labels that come later, on a topic of their own
//	alone.go      a label that is on the topic of rows
//	letters.go    dead letters that cannot be written at once
//	partition.go  the positions in a partition
//	apply.go      results are applied in the order of the log
//	gather.go     several records become a block
//	report.go     counts and positions, for the snapshot and for the status
//
// # Order
//
// The consumer delivers the batches of each partition in offset order. Workers decode and
// summarise their records side by side; a summary has one value whichever worker makes
// it. One goroutine, the loop, takes the deliveries in their order and applies them to
// the live set. A record that was delivered before is recognised by its offset.
//
// # Bounds
//
// The consumer's budget bounds the fetched bytes, inOrder bounds the deliveries, and the
// room for results bounds the summaries that workers make. A worker leaves a block
// without room to the loop. The loop makes such blocks itself, one by one, and stops
// while unsaved blocks have no room. A block that there is no memory for is rejected
// before its sums are made.
//
// # Features
//
// Without format.features the features are those of the first block, ordered by name, as
// long as a block is live. Then they are free again. Workers decode for the present
// features. If the features change before a record is applied, the loop decodes the
// record again.
//
// # Counts
//
// Records and rows are counted apart, since nobody knows the rows of a record that cannot be
// decoded. Records read are records applied, rejected, tombstones, and those of open runs. Rows
// read are rows summarised, rejected, of weight 0, and of open runs.
// The counts of an open run become final with its block: until then the saved position is
// before it, and its records are read again after a restart.
//
// A row that waits for its label counts as pending, and so does one for which none ever came: the
// books of package joining tell them apart.
//
// A block that comes as sums counts with the rows that were read, rejected and of weight 0 where
// it was summed. A record of a block that is there already counts as applied, and with no rows.
//
// Deliver and InTurn may be called from other goroutines, and each call of Work is one
// worker. Everything else belongs to the loop. An error is final: nothing is applied
// after one.
package intake

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/joining"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental/drift"
	"streamd/incremental/prequential"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// Letters writes dead letters of a partition's records, as kafka.DeadLetters does.
type Letters interface {
	Write(ctx context.Context, partition int, letters []kafka.Letter) error
}

// Settings are the rooms and functions that an intake works with.
type Settings struct {
	Config   *config.Config
	Log      zerolog.Logger
	Sampled  zerolog.Logger // for lines that every record may cause
	Live     *live.Set
	Budget   *memory.Budget
	Decoding wire.Options
	Letters  Letters // used where dead_letters.policy is dlq

	Labels       *joining.Table // of labels that come later; nil: rows have their labels
	LabelLetters Letters        // of the topic of labels

	LabelPartitions func() int // of the topic of labels

	Served  func(features *[]string) *model.Served // the served model, or an empty one if its features differ
	HasRoom func(bytes int64) bool                 // reports whether so many bytes may wait for a save
	Logged  func(id string) string                 // the name of a block in the log
	Freed   func()                                 // called when the features become free

	Partitions func() int // of the topic, for a TRUNCATE

	Ahead, TooOld prometheus.Counter // records ahead of the clock, and blocks below retire.keep
}

// Intake applies the deliveries of the log to the live set.
type Intake struct {
	*pool
	own        *worker // the loop's worker, for records that the others have left to it
	order      chan *Delivery
	partitions map[int]*partition
	labels     joined
	applying   *Delivery // a delivery whose rest waits for room, or nil
	wants      int64     // bytes of the block that waits for room
	gathered   int64     // bytes of rows in open runs
	accounts   accounts
	failed     bool // nothing more is applied
	sending    *sending
}

// pool is the state that the workers share. They use only the target of the live set.
type pool struct {
	Settings
	tasks   chan *task
	spare   sync.Pool    // empty *Rows, whose memory is used for the next tasks
	results sync.Pool    // empty *[]result, for the next tasks
	inHand  atomic.Int64 // bytes of results that have not been applied, beyond those of their payloads
	room    atomic.Int64 // the limit of inHand, set by the loop

	rowsOnly bool      // the model needs the rows of each block
	doubted  sync.Once // for the line in the log

	allowance allowance // of the judges
	record    record    // of their judgements
}

// New makes an intake of a live set without positions (see Restore).
func New(s Settings) *Intake {
	p := &pool{Settings: s, tasks: make(chan *task), rowsOnly: s.Config.Kernel.Function != config.KernelNone}
	in := &Intake{pool: p, own: newWorker(p), order: make(chan *Delivery, inOrder), partitions: map[int]*partition{}}
	in.own.admits = s.Live.Admits
	if s.Labels != nil {
		s.Live.Left = in.left
	}
	if s.Config.Drift.Detect {
		in.record.errors = drift.NewADWIN(drift.Delta)
	}
	in.record.progress = map[int]*prequential.Progressive{}
	in.grantRoom()
	return in
}

// grantRoom lets workers hold as many bytes as may wait for a save.
func (in *Intake) grantRoom() { in.room.Store(in.Live.RoomBytes()) }

// Room is the bytes of results that workers may hold.
func (in *Intake) Room() int64 { return in.room.Load() }

// RowsOnly has the intake refuse blocks that come as sums, as those of a model with a kernel are.
func (in *Intake) RowsOnly() { in.rowsOnly = true }

// Fail makes the intake apply nothing more. Deliveries are received and dropped.
func (in *Intake) Fail() { in.failed = true }

// Gathers reports whether several records become one block.
func Gathers(b config.Blocks) bool {
	return b.Unit == config.UnitOffsets || b.Unit == config.UnitTime
}
