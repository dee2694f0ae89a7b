// Package daemon is the daemon: it wires the rooms together and is the only
// place where they meet.
//
// # The path of a record
//
//	consumer ──Deliver──> order ─────────────────> loop ──> live set ──> snapshot
//	               └────> tasks ──> workers ──┘      │          │
//	                          decode, summarise      │          └─> solve ──> served model
//	                                                 └─> dead letters
//
//	start.go       a daemon is made, restored, runs and stops
//	sink.go        the consumer's calls
//	intake/        a record becomes a block, and a block a part of the live set
//	live/          the ledger, the exact sums of every space, the row sample
//	memory/        limits.memory is divided, and the live set is priced
//	passes/        live blocks come from the log again
//	loop/          what the loop works with and owns, the ways into it, and work beside it
//	loop.go        one goroutine does one thing after the other
//	receipts/      blocks that leave or come back have a leaf in the log of receipts
//	witness/       witnesses cosign that log
//	replaying.go   the topic is read again without a daemon, to check a snapshot
//	saving/        the state goes to the snapshot, and retired blocks leave its file
//	planes/        planes are solved, served and studied; which rows should be labelled next
//	bases/         the way from one basis to the next, in all replicas, and the rows of the sample
//	features/      the way from one set of features to the next; lists of values are learned
//	watching/      drift of the stream is found, and events are told
//	history/       samples of the status, for the page
//	windows/       the models of windows of the live blocks
//	output/        rows of a topic are answered, models announced, predictions remembered
//	service.go     the calls of HTTP
//	conditions.go  what the operator should know
//	retiring/      blocks are retired on request, and by the control topic
//	labels/        the topic of labels that come later; joining/ joins them with their rows
//	control/       the control topic, which retires blocks as long as it says so
//	watchdog.go    a stop that hangs ends, too
//	settings/      the configuration in the words of the other packages
//
// Workers decode and summarise records side by side (package intake). The loop, one
// goroutine, applies the results in the order of the log. It also retires, and begins jobs,
// which work beside it on copies: none of them needs a lock. A reader of the model waits
// for nothing: the model is an immutable value behind an atomic pointer.
//
// Everything in flight is bounded, and all of it together by limits.memory (package
// memory). The loop stops applying records while the disk is full or slow.
//
// # The path of a retirement
//
//	Ask ─────> Choose ─────> takePlaces ──> takeSums ──> save ──────> retired ──> scrub
//	loop       caller        loop, in slices             its job      loop        a job, later
//
// A request (package retiring) is about the blocks of the moment at which the loop takes it: Ask
// ends the open ones. The caller's goroutine chooses among them. Then the blocks leave, in slices
// between which deliveries are applied: first the ledger, so that no policy and no record counts
// them any more, then, each slice with a leaf of the log, the sums, folds, sample, spaces, weights,
// timeline and tree. One save has all slices and all leaves. After it the caller is answered, and
// the next solve and study make a model without the blocks, which names the leaves
// (receipts.Stamp). The file's free pages lose the rows by a compaction, and a basis that has
// points of theirs is chosen again. A tombstone, the control topic and the policy come in by other
// ways (intake, Withdrawing, the ledger), and take the same steps in package live: note what
// leaves, take it out of everything, and give the save the contents of its leaves. Package receipts
// has all places, and what an answer and a leaf say of each.
//
// # Blocks that come as sums
//
// A block may come summed (ingest/summary, intake/sums.go). It has the id, the position and the
// event time of its rows, in a log or a file of their own, and the ledger has the place of the
// record that brought it beside them (retire.Carrier). By the former it is ranked, chosen and
// retired. By the latter it is read again (passes.Carried) and found among the records that
// have been applied. Its rows are in no log that the daemon reads: what needs them does without,
// and says so. A request that retires such a block forgets it; if its record is written again, the
// block comes back. A selection of the control topic keeps it away.
//
// # Words
//
//	block        rows that come, and leave, together
//	live set     the blocks that the model is made of
//	features     the columns of a row
//	basis        points Z, which give a row the coordinates K(x, Z)
//	coordinates  what the columns of a space are: the features, or those of a basis
//	space        the sums of the live blocks in some coordinates
//	target       the spaces that workers make summaries for
//	reduction    the choice of a basis
//	rebuild      the way of the live blocks into the space of a new basis
//	epoch        the time of the space in use
//	archive      summaries of blocks that the policy has let go
//	pass         live blocks are read from the log again
//
// # Exactly once
//
// State, ledger, counts and the offsets that belong to them are saved in one transaction,
// and a restart reads from these offsets. A record that was delivered before is
// recognised by its offset. Offsets are committed to kafka.group after a save, so that lag
// can be monitored.
//
// A daemon reads all partitions of its topic, whoever else does, so its model is that of the
// whole topic. Replicas are more daemons, each with its own snapshot.
//
// A block that gathers records is saved before it is complete, with two positions.
// Reading continues before its first record, and the state includes its records up to the
// second position. After a restart they are read again. Until then the state stays as it
// was saved, and answers name the offsets that it includes.
//
// # Spaces
//
// With a kernel, planes are in the coordinates of a basis. Its space has the sums of the
// live blocks in them, beside those of their features (package live). Workers put new
// blocks into the space in use and into the one that is being built. An epoch is the time
// of one space. With a control topic all replicas go to the same basis (package bases).
//
// # Studies
//
// A solve takes milliseconds and is repeated as the live set changes. The choice of ν,
// refinement, calibration and the measurement of quality take longer. A study does them on
// copies, and its result is served as a whole.
//
// # Start and stop
//
// Start: open the snapshot, restore, listen, start workers and loop, serve, read the control topic
// and the topic of labels up to their ends, and consume last. Stop is the reverse. The consumer
// stops first, so that nothing new comes. Then pending deliveries are applied, which needs the
// workers. Then comes the last save and the commit. HTTP answers until then, so that a load
// balancer sees "stopping" and not a refused connection. The store is closed last.
package daemon

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/bases"
	"streamd/cmd/streamd/daemon/events"
	"streamd/cmd/streamd/daemon/features"
	"streamd/cmd/streamd/daemon/history"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/labels"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/output"
	"streamd/cmd/streamd/daemon/planes"
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/daemon/retiring"
	"streamd/cmd/streamd/daemon/saving"
	"streamd/cmd/streamd/daemon/watching"
	"streamd/cmd/streamd/daemon/windows"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/ingest/kafka"
)

// Options are the settings of a daemon.
type Options struct {
	Config  *config.Config
	Log     zerolog.Logger
	Version string
	// Copy is asked for a copy of another daemon's snapshot, as GET /v1/snapshot answers it, if
	// snapshot.file does not exist. Nil: the state begins empty.
	Copy func() (io.ReadCloser, error)

	events   *events.Log     // of the daemon that this one succeeds, or nil
	problems *problems.Board // of the daemon that this one succeeds, or nil
	serving  *serving        // of the daemon that this one succeeds, or nil
	notUntil time.Time       // when a change of features that could not be completed is tried again
}

// sampledLines is the number of lines a second that Daemon.sampled writes.
const sampledLines = 10

// Daemon is a running streamd. Make it with New and call Run once.
type Daemon struct {
	*loop.Loop

	// The parts that answer calls of HTTP themselves.
	*windows.Windows
	*receipts.Proofs
	*planes.Studies
	*bases.Bases
	*saving.Saver
	*retiring.Departures
	*features.Features
	*history.Recorder

	options Options // of a successor
	version string
	started time.Time
	sampled zerolog.Logger // log, limited to a few lines a second, for events that every record may cause

	consumer *kafka.Consumer
	letters  *kafka.DeadLetters
	api      *httpapi.Server
	serving  *serving
	labels   *labels.Labels      // nil: rows have their labels
	resumes  map[int]kafka.Saved // the saved positions of partitions, for the consumer

	// The parts of the loop.
	parts       []part // that have work which becomes due, in this order
	receipts    *receipts.Receipts
	publisher   *planes.Publisher
	withdrawing *retiring.Withdrawing
	filling     *bases.Filling
	lists       *features.Lists
	watching    *watching.Watching
	output      *output.Output

	held *intake.Delivery // a call that comes after the slices

	watchdog *watchdog
	board    statusBoard
}

// statusBoard is the status that the loop has published.
type statusBoard struct {
	mu            sync.Mutex
	status        httpapi.Status
	offsets       map[int]int64 // the next offset of each partition; replaced, never changed
	notReadySince time.Time     // zero: it is ready
	hasCaughtUp   atomic.Bool   // at most http.ready_lag records were left to read at some time
}

// topics are the topic, and those of labels and of control if there are any.
func (d *Daemon) topics() []string {
	all := []string{d.Config.Kafka.Topic}
	for _, topic := range []string{d.Config.Labels.Topic, d.Config.Retire.Topic} {
		if topic != "" {
			all = append(all, topic)
		}
	}
	return all
}

// Addr is the address that HTTP is served on.
func (d *Daemon) Addr() net.Addr { return d.serving.listener.Addr() }
