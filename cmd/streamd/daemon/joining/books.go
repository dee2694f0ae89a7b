package joining

import "math/bits"

// Books are the fates of all rows and labels that were taken, since the snapshot was made. Some are
// counted here when they happen, and the others are counted in the table (Report).
type Books struct {
	Rows           int64 `json:"rows"`            // that were taken
	SupersededRows int64 `json:"superseded_rows"` // by a later row of their id, a deletion or a retirement
	Expired        int64 `json:"expired"`         // rows that were let go after their horizon
	LetGo          int64 `json:"let_go"`          // rows that were let go while they waited, since there was no room
	Pending        int64 `json:"pending"`         // rows that have never been live

	Labels           int64 `json:"labels"`            // that were taken
	SupersededLabels int64 `json:"superseded_labels"` // by a later label of their id, or a withdrawal
	Unmatched        int64 `json:"unmatched"`         // labels that were let go without a row

	Duplicates int64 `json:"duplicates"` // labels of the class that their id had; they supersede
	Late       int64 `json:"late"`       // labels that came for a row after its horizon

	Withdrawals int64 `json:"withdrawals"` // records of labels without a value
	Rejected    int64 `json:"rejected"`    // records of labels that could not be used
}

// Report is the books with what is in the table. They balance:
//
//	rows   = joined + defaulted + waiting + expired + superseded
//	labels = joined + early + unmatched + superseded
type Report struct {
	Books
	Joined    int64 // rows with their labels
	Defaulted int64 // rows of the default class
	Waiting   int64 // rows that wait
	Expired   int64 // rows whose horizon has passed, and those that were let go
	Early     int64 // labels that wait for a row
	Unmatched int64 // labels that were let go, whose horizon has passed, or that are late and dropped

	Bytes int64 // of what waits
	Wait  int64 // median of the time from a row to its label, ms; −1: none has been joined since the start
}

// Report is the books of this moment.
func (t *Table) Report() Report {
	w, b := &t.waiting, &t.books
	return Report{
		Books: *b, Joined: w.all[Joined], Defaulted: w.all[Defaulted], Waiting: w.all[Waiting],
		Expired: w.all[Expired] + b.Expired + b.LetGo, Early: w.all[Early] - w.over,
		Unmatched: w.over + w.late + b.Unmatched, Bytes: w.bytes, Wait: t.waits.median(),
	}
}

// Pending is the number of rows that have never been live: they wait, or no label came for them.
func (t *Table) Pending() int64 { return t.books.Pending }

// waits counts the times from rows to their labels, in eight steps to an octave.
type waits struct {
	steps [64 * 8]int64
	all   int64
}

func (w *waits) add(ms int64) {
	w.steps[stepOf(max(0, ms))]++
	w.all++
}

// stepOf is the step of a time. Times below 8 ms have steps of their own.
func stepOf(ms int64) int {
	n := bits.Len64(uint64(ms))
	if n <= 3 {
		return int(ms)
	}
	return (n-3)<<3 | int(ms>>(n-4)&7)
}

// timeOf is the least time of a step.
func timeOf(step int) int64 {
	if step < 8 {
		return int64(step)
	}
	return int64(8|step&7) << (step>>3 - 1)
}

// median is at most an eighth below the median.
func (w *waits) median() int64 {
	if w.all == 0 {
		return -1
	}
	var n int64
	for step, more := range w.steps {
		if n += more; 2*n >= w.all {
			return timeOf(step)
		}
	}
	return -1
}
