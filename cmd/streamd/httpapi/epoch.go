package httpapi

import (
	"net/http"
	"time"

	"streamd/cmd/streamd/model"
)

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
	Unread  int           `json:"unread"`            // blocks that the log did not give back
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

func (s *Server) epoch(w http.ResponseWriter, r *http.Request) error {
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSON(w, answer)
}

// reduce begins a reduction and answers at once. GET /v1/epoch has its progress.
func (s *Server) reduce(w http.ResponseWriter, r *http.Request) error {
	if err := s.service.Reduce(r.Context()); err != nil {
		return err
	}
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSONWith(w, http.StatusAccepted, answer)
}

// abandon ends a reduction or a rebuild that is under way.
func (s *Server) abandon(w http.ResponseWriter, r *http.Request) error {
	if err := s.service.Abandon(r.Context()); err != nil {
		return err
	}
	return s.epoch(w, r)
}
