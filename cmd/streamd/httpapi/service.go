package httpapi

import (
	"context"
	"errors"
	"io"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/kernels/reduce"
	"streamd/retire"
)

// Errors of a Service with an error code of their own. Wrap them with the operation and
// the identity: their text goes to the client. The text of any other error stays in the
// log.
var (
	ErrNotLive     = errors.New("not a live block")                   // 404 not_found
	ErrNoneChosen  = errors.New("the selector chooses no live block") // 404 not_found
	ErrNoWindow    = errors.New("no block is in the window")          // 404 not_found
	ErrNoPlanes    = errors.New("there are no planes to compare")     // 404 not_found
	ErrManySteps   = errors.New("too many steps")                     // 413 too_large
	ErrBadID       = errors.New("not the id of a block")              // 400 bad_request
	ErrOtherTopic  = errors.New("of another topic")                   // 400 bad_request
	ErrNoReceipt   = errors.New("no such receipt")                    // 404 not_found
	ErrUnavailable = errors.New("not available now")                  // 503 unavailable: starting, stopping
	ErrBusy        = errors.New("under way already")                  // 409 conflict
	ErrOff         = errors.New("off by configuration")               // 409 conflict
	ErrUnfit       = errors.New("not for the basis in use")           // 409 conflict
)

// Service is the daemon as seen from HTTP. Its methods are safe for concurrent use.
type Service interface {
	// Served is the served value, never nil, and a channel that closes once another
	// value is served. It never waits for a writer.
	Served() (now *model.Served, replaced <-chan struct{})

	// Window solves the planes of the live blocks that w chooses, with ν = nu or, for 0, that of
	// the served planes. The value is a function of these blocks and of the settings. Its
	// model is nil, with the problem, where they make none. What is summed stays for later
	// calls, also when ctx ends first. ErrNoWindow, ErrOtherTopic, ErrUnavailable.
	Window(ctx context.Context, w model.Window, nu float64) (*model.Served, error)

	// Compare compares the planes of two windows, with ν = nu as in Window. The zero window is
	// that of all blocks, live or archived. ErrNoWindow, ErrOtherTopic, ErrNoPlanes,
	// ErrUnavailable.
	Compare(ctx context.Context, a, b model.Window, nu float64) (*model.Comparison, error)

	// Steps solves the planes of successive windows. ErrNoWindow, ErrManySteps, ErrUnavailable.
	Steps(ctx context.Context, q StepsQuery) (*model.Steps, error)

	// Status is consistent in itself: its counts were taken together. It waits for an
	// update of counts at most, and the caller owns the answer.
	Status() Status

	// History has some figures over a span that ends now. The caller owns it.
	History(span model.Span) *model.History

	// Prequential reports how good answers for arriving rows were, and what the drift
	// detectors say. The caller owns it.
	Prequential() *model.Prequential

	// Events returns the events that are kept after the one with an id, and a channel that
	// closes once there are more. missed counts those in between that are no longer kept.
	// Without an id it knows, all that are kept come. The caller does not change them.
	Events(after string) (events []Event, missed int64, more <-chan struct{})

	// Seen ends the problems that have happened last at or before a time, and do not hold any
	// more. The next save has that. ErrUnavailable.
	Seen(ctx context.Context, until time.Time) error

	// Blocks lists up to limit live blocks in a fixed order, beginning behind the block
	// with the id after, which need not be live any more; "" is before the first. next
	// is the after of the next page, "" at the end. ErrBadID: after cannot be an id.
	// With archived they are the archived blocks in place of the live ones.
	Blocks(ctx context.Context, archived bool, after string, limit int) (page []BlockInfo, next string, err error)

	// Retire takes the chosen blocks out of the live set, all or none, and returns once
	// that is durable: the answer holds after a crash. If ctx ends first, they may still
	// be retired. A dry run changes nothing and says which blocks would go. ErrNotLive for
	// a selector of one id and nothing else, ErrNoneChosen for another,
	// retire.ErrHeaders, ErrOtherTopic, ErrUnavailable.
	Retire(ctx context.Context, s retire.Selector, how RetireOptions) (Retirement, error)

	// CopySnapshot saves the state and copies the snapshot: without what was retired, and without
	// the log of receipts unless the caller wants it. The caller closes the copy, which is gone
	// then. ErrBusy, ErrUnavailable.
	CopySnapshot(ctx context.Context, receipts bool) (copied io.ReadCloser, bytes int64, err error)

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

	// LearnLists counts the values of the live rows, and returns the lists of the categories that
	// learn them once they are saved. Then live blocks are read again in the features that the
	// lists make. If ctx ends first, the counting goes on. ErrBusy: it is under way already, or a
	// change of features is. ErrOff, ErrUnavailable.
	LearnLists(ctx context.Context) (*LearnedLists, error)

	// Prune begins to choose a part of the basis in use, of up to that many coordinates, and to
	// take its sums from those in use. It reads no row. ErrBusy: a reduction is under way
	// already. ErrUnfit: the basis has no such part. ErrOff, ErrUnavailable.
	Prune(ctx context.Context, how reduce.Pruning, points int) error

	// Abandon gives up a reduction or a rebuild that is under way. It does nothing when
	// there is none. ErrUnavailable.
	Abandon(ctx context.Context) error

	// LabelRequests clusters the live rows about up to count centres and names the rows
	// without a label that lie nearest to a centre. ErrBusy: it is doing so for another
	// caller. ErrOff, ErrUnavailable.
	LabelRequests(ctx context.Context, count int) (*LabelRequestsAnswer, error)

	// Checkpoint is the signed tree head of the log of receipts. Receipt is the proof of a
	// leaf, and Tile the contents of the tile or the bundle of entries of that path, behind
	// "tile/". ErrNoReceipt.
	Checkpoint(ctx context.Context) ([]byte, error)
	Receipt(ctx context.Context, leaf int64) ([]byte, error)
	Tile(ctx context.Context, path string) ([]byte, error)

	// Epoch says which coordinates are in use, and how far the next ones are. The caller
	// owns the answer, but not the values behind its pointers.
	Epoch(ctx context.Context) (*EpochAnswer, error)
}

// Status is the state of the daemon that the page, /readyz and /metrics show.
type Status struct {
	Version string
	Started time.Time
	Name    string // name of the model
	Topic   string // topic that is read
	Group   string // that offsets are committed to
	Keys    bool   // whether keys name blocks
	// NotReady says why the daemon cannot answer, for anybody to read; "": it can.
	NotReady      string
	NotReadySince time.Time
	Problems      []Problem // others than not being ready, the gravest first
	SaveFails     bool      // whether the last save failed
	LettersFail   bool      // whether reading waits for dead letters that cannot be written

	Records     model.RecordCounts
	Rows        model.RowCounts
	Blocks      model.BlockCounts
	Featureless bool // the features are not known before the first block
	// The live set now. The served model may lag behind it.
	LiveRows   int64
	Unlabelled int64 // of these, the rows without a label
	LiveBlocks int
	Withdrawn  int // blocks that the control topic keeps out of the live set or the archive
	Unreadable int // keys of the control topic whose latest record cannot be read
	Archived   int // blocks that the retention policy has let go, and that windows have

	DeadLetters int64           // dead letters written
	Refused     []model.Refusal // records refused since the start, by reason; may be shared
	Reading     bool            // whether all partitions can be read
	FetchErrors int64

	Partitions []model.Partition // all of the topic, by number

	Labels *Labels // that come later than their rows; nil: rows have their labels. It may be shared

	// Epoch has the progress of a kernel's coordinates, without the basis and lists of
	// blocks. Nil: there is no kernel. It may be shared.
	Epoch *EpochAnswer

	Receipts  int64     // leaves of the log of receipts
	Witnesses []Witness // that are asked to cosign it

	Predicting *model.Predicting // rows of a topic that are answered; nil: there is no such topic
	Announced  *model.Announced  // served models that are written to a topic; nil: there is no such topic

	LastSolve    time.Time // zero before the first
	LastSnapshot time.Time // zero before the first, unless the start found one
}

// Labels is what has become of rows and labels that come on topics of their own (labels.topic).
type Labels struct {
	Topic   string         `json:"topic"`   // the topic of labels
	Rows    JoinedRows     `json:"rows"`    // what has become of the rows that were read: they are joined, defaulted, waiting, expired and superseded together
	Labels  JoinedLabels   `json:"labels"`  // what has become of the labels that were read: they are joined, early, unmatched and superseded together
	Bytes   int64          `json:"bytes"`   // memory of what waits
	Offsets []model.Offset `json:"offsets"` // the next offset of each partition of the topic of labels

	MedianWait *float64 `json:"median_wait"` // median of the event time from a row to its label, in seconds, up to an eighth below it; null before the first label since the start
}

// JoinedRows are rows by their fate.
type JoinedRows struct {
	Read       int64 `json:"read"`       // rows that were read, since the snapshot was made
	Joined     int64 `json:"joined"`     // rows that are live with their labels
	Defaulted  int64 `json:"defaulted"`  // rows that are live with the class labels.default
	Waiting    int64 `json:"waiting"`    // rows that wait for their labels
	Expired    int64 `json:"expired"`    // rows that got no label before labels.horizon, or were let go
	Superseded int64 `json:"superseded"` // rows that a later row of their key, a deletion or a retirement has ended
	LetGo      int64 `json:"let_go"`     // of the expired rows, those that were let go before their horizon, since there was no room
}

// JoinedLabels are labels by their fate.
type JoinedLabels struct {
	Read       int64 `json:"read"`       // labels that were read, since the snapshot was made
	Joined     int64 `json:"joined"`     // labels of live rows
	Early      int64 `json:"early"`      // labels that wait for their rows
	Unmatched  int64 `json:"unmatched"`  // labels without a row for longer than labels.horizon, late ones that do not count, and those that were let go
	Superseded int64 `json:"superseded"` // labels that a later label of their key, or a null value, has ended

	Late        int64 `json:"late"`        // labels that came for a row and were later than labels.horizon
	Duplicates  int64 `json:"duplicates"`  // labels of the class that their key had already. They supersede
	Withdrawals int64 `json:"withdrawals"` // records that withdraw a label
	Rejected    int64 `json:"rejected"`    // records that could not be used
}

// RefusedBefore is the number of records that were refused before the start.
func (s *Status) RefusedBefore() int64 {
	n := s.Records.Rejected
	for _, r := range s.Refused {
		n -= r.Records
	}
	return max(n, 0)
}

// Witness is a witness of the log of receipts.
type Witness struct {
	Name     string
	Cosigned int64 // leaves of the log that it has cosigned last
	Failures int64 // calls since the start that have brought no cosignature
}

// Lag is an upper bound on the records of the partitions that are not yet
// processed. It is −1 while it is not known for all of them.
func (s *Status) Lag() (lag int64) {
	if !s.Reading {
		return -1
	}
	for _, p := range s.Partitions {
		of := p.Lag()
		if of < 0 {
			return -1
		}
		lag += of
	}
	return lag
}

// StepsQuery chooses windows of event time that end at whole steps since 1970.
type StepsQuery struct {
	From, To *time.Time // of the blocks; nil: all live ones
	Step     time.Duration
	Window   time.Duration // length of a window
	Nu       float64       // 0: that of the served planes
}

// Limits of the answer of Steps.
const (
	MaxSteps       = 400
	MaxStepNumbers = 1 << 20 // of all planes together
)

// BlockInfo is one live block.
type BlockInfo struct {
	ID        string    `json:"id"`            // opaque id
	Topic     string    `json:"topic"`         // topic of its first record
	Partition int       `json:"partition"`     // partition of its first record
	Offset    int64     `json:"offset"`        // offset of its first record
	Key       []byte    `json:"key,omitempty"` // key of the message in base64, where keys name blocks
	Time      time.Time `json:"time"`          // event time
	Rows      int64     `json:"rows"`          // rows of weight above 0
	// Whether retire.archive keeps the block, which is not live; absent if it is live.
	Archived bool `json:"archived,omitempty"`
	// Proof of the key of the item that the receipts have of the id, in hex; only in the answer to
	// a retirement, and only of a block that a message key names.
	Proof string `json:"proof,omitempty"`
}

// RetireOptions say how blocks are retired.
type RetireOptions struct {
	DryRun bool // only say which blocks would go
	Here   bool // in this replica alone, though there is a control topic
}

// Retirement proves that blocks were retired together: adding them to the state of the later
// digest gives the state of the earlier one. That of a dry run says which blocks would go.
type Retirement struct {
	DryRun       bool           `json:"dry_run"`                      // whether nothing was retired
	Blocks       int            `json:"blocks"`                       // number of blocks
	Archived     int            `json:"archived,omitempty"`           // number of them that were archived, and not live: the state does not have them
	Withdrawn    int            `json:"withdrawn,omitempty"`          // number of them that the control topic had taken out before: now it cannot give them back
	Rows         int64          `json:"rows"`                         // number of their rows
	Earliest     time.Time      `json:"earliest"`                     // event time of the first of them
	Latest       time.Time      `json:"latest"`                       // event time of the last of them
	Positions    []retire.Range `json:"positions"`                    // first and last offset of them in each partition
	First        []BlockInfo    `json:"first"`                        // the first hundred of them by event time
	NotLive      int            `json:"not_live"`                     // number of the selector's ids and keys that no block has
	NotLiveIDs   []string       `json:"not_live_ids"`                 // the first hundred of these, keys as the ids of their blocks
	NoHeader     int            `json:"no_header,omitempty"`          // where the selector has headers, number of blocks that it spares because they have no value of the header: their record lacks it, or was read before retire.header was set
	Offsets      []model.Offset `json:"offsets"`                      // offsets of both states: they have the records below, and none beyond
	DigestBefore string         `json:"state_digest_before"`          // digest of the state with the blocks
	DigestAfter  string         `json:"state_digest_after,omitempty"` // digest of the state without them; absent from a dry run
	InBasis      bool           `json:"in_basis"`                     // whether one of them is a source of the basis in use or of the next one: its numbers may be among the points until a later basis is in use (see /v1/epoch)
	RetiredAt    *time.Time     `json:"retired_at,omitempty"`         // time when the retirement was durable; absent from a dry run
	Remains      []string       `json:"remains,omitempty"`            // other places that may still have the rows, for people to read; absent from a dry run
	LogUntil     *time.Time     `json:"log_until,omitempty"`          // time by which the topic drops the latest record, by retention.ms, segment.ms and its event time; absent if unknown or none
	Control      string         `json:"control,omitempty"`            // name of the records of the control topic that retire the blocks in every replica; absent: they are retired in this one alone
	Receipts     []int64        `json:"receipts,omitempty"`           // leaves of the log of receipts, several where the blocks are many; absent where receipts are off
	Request      string         `json:"request,omitempty"`            // text that the receipts have a hash of as the request
	RequestSalt  string         `json:"request_salt,omitempty"`       // salt of that hash, in hex
	Settings     string         `json:"settings,omitempty"`           // text whose SHA-256 the receipts have as the settings: number of the algorithm, features and options
}

// SnapshotInfo describes a saved state.
type SnapshotInfo struct {
	MadeAt  time.Time      `json:"made_at"`      // time when saving began
	Seconds float64        `json:"seconds"`      // time it took to save
	Bytes   int64          `json:"bytes"`        // size of the file
	Blocks  int            `json:"blocks"`       // live blocks
	Rows    int64          `json:"rows"`         // rows of the live blocks
	Digest  string         `json:"state_digest"` // digest of the saved state
	Offsets []model.Offset `json:"offsets"`      // offsets of the saved state: it has the records below, and none beyond
	Resume  []model.Offset `json:"resume"`       // offsets where reading resumes after a restart; they are lower for a block that still gathers records, which are read again

	Compacted bool `json:"compacted"` // whether the file has nothing but the saved state
}

// EpochAnswer says which coordinates the live blocks are summed in, and how far the next
// ones are. A part that is missing is null.
type EpochAnswer struct {
	Epoch    uint32           `json:"epoch"`             // number of the epoch in use; later epochs have higher numbers, and 0 is the features
	InUse    *model.Reduction `json:"in_use"`            // report of the basis in use; null for the features
	Stale    bool             `json:"stale"`             // whether source blocks of the basis in use have been retired or replaced since: their numbers may be among its points until another basis is in use
	Served   string           `json:"served,omitempty"`  // id of the basis of the served planes: that of the basis in use, once planes have been solved in it
	Reducing *ReducingAnswer  `json:"reducing"`          // reduction under way
	Rebuild  *RebuildAnswer   `json:"rebuild"`           // epoch that is being built
	Problem  string           `json:"problem,omitempty"` // why the last reduction failed
	Skipped  []UnreadBlock    `json:"skipped,omitempty"` // blocks that the last switch retired, at most a hundred
	Basis    *model.BasisJSON `json:"basis,omitempty"`   // basis in use
}

// ReducingAnswer reports a reduction under way.
type ReducingAnswer struct {
	Began  time.Time     `json:"began"`  // time of its beginning
	Stages []model.Stage `json:"stages"` // stages done so far
}

// RebuildAnswer reports an epoch that is being built: live blocks are read from the log
// again.
type RebuildAnswer struct {
	Reduction *model.Reduction `json:"reduction"` // report of its basis
	Blocks    int              `json:"blocks"`    // live blocks that it has
	Missing   int              `json:"missing"`   // live blocks that it does not have yet
	Rows      int64            `json:"rows"`      // rows of the blocks that it has
	LiveRows  int64            `json:"live_rows"` // rows of all live blocks
	// Seconds left at the pace of this process so far; null if not known.
	Seconds *float64      `json:"seconds_left"`
	Unread  int           `json:"unread"`            // blocks that the log no longer has unchanged
	Stale   bool          `json:"stale"`             // whether source blocks of its basis have been retired or replaced since: then another basis is chosen after it
	Reasons []UnreadBlock `json:"reasons,omitempty"` // reasons for the first hundred of them
}

// Percent is the share of live rows that it has, 0 to 100.
func (r *RebuildAnswer) Percent() int {
	if r.LiveRows == 0 {
		return 100
	}
	return int(100 * float64(r.Rows) / float64(r.LiveRows))
}

// All counts the live blocks.
func (r *RebuildAnswer) All() int { return r.Blocks + r.Missing }

// UnreadBlock is a block that cannot be mapped to new coordinates.
type UnreadBlock struct {
	ID     string `json:"id"`     // id of the block
	Rows   int64  `json:"rows"`   // rows of the block
	Reason string `json:"reason"` // why the log does not give it back as it was
}
