package model

import (
	"time"

	"streamd/retire"
)

// Window chooses live and archived blocks by event time, by position, or by both, that is the
// blocks that both choose. The zero Window chooses all.
type Window struct {
	From      *time.Time     `json:"from,omitempty"`      // event time of the first blocks; absent: the earliest
	To        *time.Time     `json:"to,omitempty"`        // event time that all blocks are before; absent: none
	Positions []retire.Range `json:"positions,omitempty"` // ranges TOPIC/PARTITION/FIRST-LAST of offsets, both ends included: the blocks that have an offset of one between their first and last record
}

// Windowed says what the model of a window is made of, and what it does not have.
type Windowed struct {
	Window
	Absent []string `json:"absent_classes"` // classes of the served model that have no rows in the window
	Lacks  []string `json:"lacks"`          // parts of the served model that the model of a window cannot have, with the reasons; and blocks that were live, and that no window has any more
}
