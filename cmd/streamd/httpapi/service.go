package httpapi

import (
	"context"
	"errors"
	"time"

	"streamd/cmd/streamd/model"
)

// Errors of a Service with an error code of their own. Wrap them with the operation and
// the identity: their text goes to the client. The text of any other error stays in the
// log.
var (
	ErrNotLive     = errors.New("not a live block")      // 404 not_found
	ErrBadID       = errors.New("not the id of a block") // 400 bad_request
	ErrUnavailable = errors.New("not available now")     // 503 unavailable: starting, stopping
	ErrBusy        = errors.New("under way already")     // 409 conflict
	ErrOff         = errors.New("off by configuration")  // 409 conflict
)

// Service is the daemon as seen from HTTP. Its methods are safe for concurrent use.
type Service interface {
	// Served is the served value, never nil, and a channel that closes once another
	// value is served. It never waits for a writer.
	Served() (now *model.Served, replaced <-chan struct{})

	// Status is consistent in itself: its counts were taken together. It waits for an
	// update of counts at most, and the caller owns the answer.
	Status() Status

	// Blocks lists up to limit live blocks in a fixed order, beginning behind the block
	// with the id after, which need not be live any more; "" is before the first. next
	// is the after of the next page, "" at the end. ErrBadID: after cannot be an id.
	Blocks(ctx context.Context, after string, limit int) (page []BlockInfo, next string, err error)

	// Retire takes a block out of the live set and returns once that is durable: the
	// receipt holds after a crash. If ctx ends first, the block may still be retired.
	// ErrNotLive, ErrBadID, ErrUnavailable.
	Retire(ctx context.Context, id string) (Receipt, error)

	// Snapshot saves the state and returns once that is durable. With compact the file
	// then has nothing else; compaction goes on when ctx ends first. ErrUnavailable.
	Snapshot(ctx context.Context, compact bool) (SnapshotInfo, error)

	// Refine refines the planes of the live rows and returns the report once the refined
	// model is served. If ctx ends first, the error is its cause, and the refinement
	// goes on. ErrBusy: another one is under way, and none was begun. ErrOff,
	// ErrUnavailable.
	Refine(ctx context.Context) (*model.Refinement, error)

	// Reduce begins to choose a basis and to map the live blocks to its coordinates.
	// ErrBusy: that is under way already. ErrOff, ErrUnavailable.
	Reduce(ctx context.Context) error

	// Abandon gives up a reduction or a rebuild that is under way. It does nothing when
	// there is none. ErrUnavailable.
	Abandon(ctx context.Context) error

	// Epoch says which coordinates are in use, and how far the next ones are. The caller
	// owns the answer, but not the values behind its pointers.
	Epoch(ctx context.Context) (*EpochAnswer, error)
}

// Status is the state of the daemon that the page, /readyz and /metrics show.
type Status struct {
	Version string
	Started time.Time
	// NotReady says why the daemon cannot answer, for anybody to read; "": it can.
	NotReady string
	// Problems for the operator to act on, the gravest first.
	Problems  []string
	SaveFails bool // whether the last save failed

	Rows        model.RowCounts
	Blocks      model.BlockCounts
	Prequential model.Prequential
	// The live set now. The served model may lag behind it.
	LiveRows   int64
	LiveBlocks int

	DeadLetters int64            // dead letters written
	Refused     map[string]int64 // records refused since the start, by reason; may be shared
	InGroup     bool             // whether the daemon is a member of the consumer group
	Rebalances  int64            // rebalances of the consumer group
	FetchErrors int64

	Partitions []model.Partition // assigned, by topic and number

	// Epoch has the progress of a kernel's coordinates, without the basis and lists of
	// blocks. Nil: there is no kernel. It may be shared.
	Epoch *EpochAnswer

	LastSolve    time.Time // zero before the first
	LastSnapshot time.Time // zero before the first, unless the start found one
}
