package httpapi

import (
	"context"
	"errors"
	"time"

	"streamd/cmd/streamd/model"
)

// Errors of a Service that the API answers with a code of their own. Wrap them
// with the operation and the identity: the text goes to the client. The text of
// any other error stays in the log.
var (
	ErrNotLive     = errors.New("not a live block")      // 404 not_found
	ErrBadID       = errors.New("not the id of a block") // 400 bad_request
	ErrUnavailable = errors.New("not available now")     // 503 unavailable: starting, stopping
	ErrBusy        = errors.New("under way already")     // 409 conflict
	ErrOff         = errors.New("off by configuration")  // 409 conflict
)

// Service is the daemon as seen from HTTP. Every method may be called from
// many goroutines at a time.
type Service interface {
	// Served is what is served now, never nil, and a channel that is closed
	// once something else is. It never waits for a writer.
	Served() (now *model.Served, replaced <-chan struct{})

	// Status is a picture of the daemon that is consistent in itself: its
	// counts were taken together. It never waits for longer than an update of
	// counts takes, and the caller owns the answer.
	Status() Status

	// Blocks lists up to limit live blocks in a fixed order, from the first
	// one after the block with id after, which need not be live any more; ""
	// is before the first. next is the after of the next page, "" at the end.
	// ErrBadID: after cannot be an id.
	Blocks(ctx context.Context, after string, limit int) (page []BlockInfo, next string, err error)

	// Retire takes a block out of the live set and returns once that is
	// durable: the receipt holds after a crash. A ctx that ends may leave the
	// block retired all the same. ErrNotLive, ErrBadID, ErrUnavailable.
	Retire(ctx context.Context, id string) (Receipt, error)

	// Snapshot saves the state and returns once that is durable. With compact the
	// file holds nothing else afterwards; when ctx ends before, that goes on.
	// ErrUnavailable.
	Snapshot(ctx context.Context, compact bool) (SnapshotInfo, error)

	// Refine begins to refine the planes of the live rows and returns once the
	// refined model is Served, with its report. Where ctx ends first, the error
	// is its cause, and the refinement goes on. ErrBusy: another one has not
	// ended, and none was begun. ErrOff, ErrUnavailable.
	Refine(ctx context.Context) (*model.Refinement, error)

	// Reduce begins to choose a basis, and to put the live blocks into its
	// coordinates. ErrBusy: that is under way already. ErrOff,
	// ErrUnavailable.
	Reduce(ctx context.Context) error

	// Abandon gives up what Reduce, or a schedule, has begun and what is not in
	// use yet; it does nothing when there is nothing. ErrUnavailable.
	Abandon(ctx context.Context) error

	// Epoch says which coordinates are in use, and how far others are. The
	// caller owns the answer, but not what it points to.
	Epoch(ctx context.Context) (*EpochAnswer, error)
}

// BlockInfo is one live block.
type BlockInfo struct {
	ID        string    `json:"id"`            // opaque
	Topic     string    `json:"topic"`         // of its first record
	Partition int       `json:"partition"`     // of its first record
	Offset    int64     `json:"offset"`        // of its first record
	Key       []byte    `json:"key,omitempty"` // of the message, where keys name blocks; base64 in JSON
	Time      time.Time `json:"time"`          // event time
	Rows      int64     `json:"rows"`          // those of weight 0 left out
}

// Receipt proves a retirement: adding the block to the state with the digest after
// it gives the one with the digest before it.
type Receipt struct {
	Block        BlockInfo      `json:"block"`               // that was retired
	Offsets      []model.Offset `json:"offsets"`             // the states have the records below these and none beyond
	DigestBefore string         `json:"state_digest_before"` // of the state with the block
	DigestAfter  string         `json:"state_digest_after"`  // of the state without it
	InBasis      bool           `json:"in_basis"`            // whether the basis in use, or one to come, was chosen from the block: its numbers may be among the points until a later basis is in use (see /v1/epoch)
	RetiredAt    time.Time      `json:"retired_at"`          // when that was durable
	Remains      []string       `json:"remains"`             // where else the rows can still be, for people to read
}

// SnapshotInfo is a saved state.
type SnapshotInfo struct {
	MadeAt  time.Time      `json:"made_at"`      // when saving it began
	Seconds float64        `json:"seconds"`      // that saving took
	Bytes   int64          `json:"bytes"`        // size of the file
	Blocks  int            `json:"blocks"`       // live ones
	Rows    int64          `json:"rows"`         // of the live blocks
	Digest  string         `json:"state_digest"` // of the saved state
	Offsets []model.Offset `json:"offsets"`      // the saved state has the records below these and none beyond
	Resume  []model.Offset `json:"resume"`       // where reading goes on after a restart: before these for a block that is still gathering records, which are read once more

	Compacted bool `json:"compacted"` // whether nothing but the saved state was left in the file
}

// Status is what the page, /readyz and /metrics show of the daemon.
type Status struct {
	Version string
	Started time.Time
	// NotReady says why the daemon cannot answer; "" means that it can. Everybody
	// may read it.
	NotReady string
	// Problems are for the operator to act on, the gravest first.
	Problems  []string
	SaveFails bool // the last save has failed

	Rows        model.RowCounts
	Blocks      model.BlockCounts
	Prequential model.Prequential
	// Live counts the live set as of now; the served model may lag behind it.
	LiveRows   int64
	LiveBlocks int

	DeadLetters int64            // written
	Refused     map[string]int64 // records since the start, by the kind of trouble; may be shared
	InGroup     bool             // whether the daemon is a member of the consumer group
	Rebalances  int64            // of the consumer group
	FetchErrors int64

	Partitions []model.Partition // assigned, by topic and number

	// Epoch is how far a kernel's coordinates are, without the basis and lists of
	// blocks; nil: there is no kernel. It may be shared.
	Epoch *EpochAnswer

	LastSolve    time.Time // zero: none yet
	LastSnapshot time.Time // zero: none yet, nor found at the start
}
