package httpapi

import (
	"net/http"
	"time"

	"streamd/cmd/streamd/model"
)

// EpochAnswer is the body of GET /v1/epoch: which coordinates live blocks are
// summed in, and what is being done about others. What there is none of is null.
type EpochAnswer struct {
	Epoch    uint32           `json:"epoch"`             // in use, the later the higher; 0: the features
	InUse    *model.Reduction `json:"in_use"`            // null: the features
	Stale    bool             `json:"stale"`             // whether blocks that the basis in use was chosen from have been retired or replaced since: their numbers may be among its points until another basis is in use
	Served   string           `json:"served,omitempty"`  // the id of the basis that what is served is in: that in use, once planes have been solved
	Reducing *ReducingAnswer  `json:"reducing"`          // a reduction under way
	Rebuild  *RebuildAnswer   `json:"rebuild"`           // an epoch that is being built
	Problem  string           `json:"problem,omitempty"` // why the last reduction came to nothing
	Skipped  []UnreadBlock    `json:"skipped,omitempty"` // retired by the last switch, a hundred at most
	Basis    *model.BasisJSON `json:"basis,omitempty"`   // in use
}

// ReducingAnswer is a reduction under way.
type ReducingAnswer struct {
	Began  time.Time     `json:"began"`  // when
	Stages []model.Stage `json:"stages"` // that are done
}

// RebuildAnswer is an epoch that is being built: live blocks are read from the log
// again.
type RebuildAnswer struct {
	Reduction *model.Reduction `json:"reduction"` // how its basis was chosen
	Blocks    int              `json:"blocks"`    // live ones that it has
	Missing   int              `json:"missing"`   // live blocks that it does not have yet
	Rows      int64            `json:"rows"`      // of the blocks that it has
	LiveRows  int64            `json:"live_rows"` // of all live blocks
	// Seconds that are left at the pace of this process so far; null: not known.
	Seconds *float64      `json:"seconds_left"`
	Unread  int           `json:"unread"`            // blocks that the log did not give back
	Stale   bool          `json:"stale"`             // whether blocks that its basis was chosen from have been retired or replaced since: after it another basis is chosen
	Reasons []UnreadBlock `json:"reasons,omitempty"` // of the first hundred of them
}

// Percent is how much of the live rows it has, 0 to 100.
func (r *RebuildAnswer) Percent() int {
	if r.LiveRows == 0 {
		return 100
	}
	return int(100 * float64(r.Rows) / float64(r.LiveRows))
}

// All counts the live blocks.
func (r *RebuildAnswer) All() int { return r.Blocks + r.Missing }

// UnreadBlock is a block that could not be put into new coordinates.
type UnreadBlock struct {
	ID     string `json:"id"`     // the block's
	Rows   int64  `json:"rows"`   // the block's
	Reason string `json:"reason"` // why the log does not give it back as it was
}

func (s *Server) epoch(w http.ResponseWriter, r *http.Request) error {
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSON(w, answer)
}

// reduce begins a reduction and answers at once: GET /v1/epoch tells how it goes.
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
