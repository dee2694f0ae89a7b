package sample

import "streamd/incremental"

// Settings determine the rows of a sample.
type Settings struct {
	Rows     int // rows of the sample, at least 1
	Seed     uint64
	Balanced bool // the same number of rows of each class
}

// allClasses is the stratum of all classes of a sample that is not balanced.
const allClasses = "all"

// stratum names the stratum of a class. Rows without a label have one of their own.
func (s *Settings) stratum(label string) string {
	if s.Balanced || label == incremental.Unlabelled {
		return label
	}
	return allClasses
}

// quota is the number of sampled rows of each stratum. classes is the number of strata
// with labels.
func (s *Settings) quota(classes int) int64 {
	return int64(max(1, s.Rows/max(1, classes)))
}

// room is the number of rows that may be held.
func (s *Settings) room(quota int64, unlabelled bool) int {
	if unlabelled {
		return most * (s.Rows + int(quota))
	}
	return most * s.Rows
}

const (
	top    = 63 // the highest level
	levels = top + 1
)

// Levels holds the floors from which a Taker takes rows. It is immutable.
type Levels struct {
	settings Settings
	floors   map[string]int // by stratum; 0 for a new one
}

func (l *Levels) of(label string) int { return l.floors[l.settings.stratum(label)] }

// Floors rise when more than most times the sample's rows are held. About half of them
// stay.
const most = 3

// enough is the number of rows of a stratum that a risen floor leaves. Rows beyond the
// quota can be retired before rows are missing.
func enough(quota int64) int64 { return (3*quota + 1) / 2 }

// highest is the highest level from which on there are enough rows.
func highest(counts *[levels]int64, quota int64) int {
	var sum int64
	for l := top; l > 0; l-- {
		if sum += counts[l]; sum >= enough(quota) {
			return l
		}
	}
	return 0
}

// lower is the highest level below a floor from which on 2q+8 of the rows are expected,
// for a quota q. For any q, the probability of fewer than q is below 1 in 10,000.
func lower(floor int, rows, quota int64) int {
	l := 0
	for l < floor-1 && rows>>(l+1) >= 2*quota+8 {
		l++
	}
	return l
}
