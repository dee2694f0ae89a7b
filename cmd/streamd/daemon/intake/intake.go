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
//	judge.go      the served model is scored on rows before it learns from them
//	reject.go     a record is rejected: dead letters, and lines in the log
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
// The consumer's budget bounds the bytes that are fetched, inOrder the deliveries, and
// the room for results the summaries that workers make. A worker leaves a block to the loop
// when there is no room for it. The loop makes such blocks itself, one after the other,
// and stops while unsaved blocks have no room. A block that there is no memory for is
// rejected before its sums are made.
//
// # Features
//
// Without format.features the features are those of the first block, in the order of
// their names, as long as a block is live; then they are free again. Workers decode for
// the features of the moment. The loop has a record decoded again that was decoded for
// others.
//
// # Counts
//
// Rows read are rows summarised, rows rejected, rows of weight 0, and rows of open runs.
// The counts of an open run become final with its block: until then the saved position is
// before it, and its records are read again after a restart.
//
// # Concurrency
//
// Deliver and InTurn may be called from other goroutines, and Work is one worker. All
// else belongs to the loop. An error is final: nothing more is applied after one.
package intake

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// Settings are the rooms and functions that an intake works with.
type Settings struct {
	Config   *config.Config
	Log      zerolog.Logger
	Sampled  zerolog.Logger // for lines that every record may bring
	Live     *live.Set
	Budget   *memory.Budget
	Decoding wire.Options
	Letters  *kafka.DeadLetters // nil: dead_letters.policy is not queue

	Served  func(features *[]string) *model.Served // the served model, empty if it is of other features
	HasRoom func(bytes int64) bool                 // says whether so many bytes may wait for a save
	Logged  func(id string) string                 // how the log names a block
	Freed   func()                                 // is called when the features are free again

	Ahead, TooOld prometheus.Counter // records ahead of the clock, and blocks below retire.keep
}

// Intake applies the deliveries of the log to the live set.
type Intake struct {
	*pool
	own        *worker // the loop's, for records that the others have left to it
	order      chan *Delivery
	partitions map[int]*partition
	applying   *Delivery // whose records have not all been applied, for want of room; nil: none
	wants      int64     // bytes of the block that waits for room
	gathered   int64     // bytes of rows in open runs
	accounts   accounts
	failed     bool // nothing more is applied
}

// pool is the state that the workers share. Of the live set they use the target only.
type pool struct {
	Settings
	tasks  chan *task
	spare  sync.Pool    // *Rows, empty: memory for the next tasks
	inHand atomic.Int64 // bytes of results that have not been applied, beyond those of their payloads
	room   atomic.Int64 // the most that may be; the loop's to say

	prequential prequential
}

// New makes an intake of a live set without positions (see Restore).
func New(s Settings) *Intake {
	p := &pool{Settings: s, tasks: make(chan *task)}
	in := &Intake{pool: p, own: newWorker(p), order: make(chan *Delivery, inOrder), partitions: map[int]*partition{}}
	in.own.admits = s.Live.Admits
	in.grantRoom()
	return in
}

// grantRoom lets workers hold as much as may wait for a save.
func (in *Intake) grantRoom() { in.room.Store(in.Live.RoomBytes()) }

// Room is the bytes of results that workers may hold.
func (in *Intake) Room() int64 { return in.room.Load() }

// Fail makes the intake apply nothing more. Deliveries are taken and dropped.
func (in *Intake) Fail() { in.failed = true }

// Gathers says whether several records become a block.
func Gathers(b config.Blocks) bool {
	return b.Unit == config.UnitOffsets || b.Unit == config.UnitTime
}
