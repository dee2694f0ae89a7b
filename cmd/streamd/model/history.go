package model

// Span is a stretch of time that History covers.
type Span string

// The spans of History.
const (
	SpanMinutes Span = "minutes" // half an hour in intervals of 5 seconds
	SpanHours   Span = "hours"   // a day in intervals of 4 minutes
	SpanDays    Span = "days"    // 30 days in intervals of 2 hours
)

// History has some figures over time. Entry i of each list is of the interval that
// begins at times[i]. A figure that was not measured is null: the daemon did not run, no
// row was judged, or the lag was not known.
type History struct {
	Span        Span  `json:"span"`         // minutes, hours or days
	Seconds     int64 `json:"seconds"`      // length of an interval
	MemoryLimit int64 `json:"memory_limit"` // limits.memory, in bytes

	Times               []int64    `json:"times"`                // beginnings of the intervals in seconds since 1970 UTC, ascending without gaps, from the first one that is known
	RowsPerSecond       []*float64 `json:"rows_per_second"`      // rows read a second
	Correctness         []*float64 `json:"correctness"`          // share classified right of the rows judged in the interval
	BalancedCorrectness []*float64 `json:"balanced_correctness"` // mean of the classes' shares among the latest judged rows, those of `window` in /v1/prequential, at the end of an interval in which rows were judged
	LargestClass        []*float64 `json:"largest_class"`        // baseline: share of the largest class among the rows judged in the interval
	LastLabel           []*float64 `json:"last_label"`           // baseline: share of them with the label of the row before
	Lag                 []*int64   `json:"lag"`                  // records not yet processed, the most seen
	Memory              []*int64   `json:"memory"`               // bytes that the Go runtime holds, the most seen: what memory_limit bounds, without pages of files
}
