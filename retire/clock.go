package retire

import (
	"slices"
	"time"
)

// Limits of an event time, in ms since 1970: the years 1 to 9999, which RFC 3339 can
// write.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC).UnixMilli()
)

// ValidTime reports whether t can be an event time: it lies in the years 1 to 9999.
func ValidTime(t time.Time) bool {
	ms := t.UnixMilli()
	return earliest <= ms && ms <= latest
}

// NearestTime returns t, or the nearest valid time where t is not valid. Ledgers that were
// saved before times were checked may have such times.
func NearestTime(t time.Time) time.Time {
	if ValidTime(t) {
		return t
	}
	return time.UnixMilli(min(max(t.UnixMilli(), earliest), latest)).UTC()
}

// A Clock is the current event time of a partition: the third-latest of the last 16
// records, the present one included. There is none for the first three records: a wrong time
// among so few cannot be told from a right one, and would bound those after it.
//
// The clock depends on the partition's log alone, so reading the log again gives the
// same event times. One record with a wrong time, or two, do not move it. After a pause
// the first two records are ahead of the clock, and the third one sets it.
//
// The zero Clock has seen nothing.
type Clock struct {
	recent [clockRecords]int64 // ms since 1970; a ring
	seen   int                 // records; from clockRecords on, the place of the oldest modulo that
}

// A wrong time moves the clock if clockRank of clockRecords records have it. With more
// records the clock would follow a jump of honest times later. With fewer it would trust
// fewer producers.
const (
	clockRecords = 16
	clockRank    = 3
)

// ClockAt returns the clock after these times, of which the last is the latest record's.
func ClockAt(times []int64) (c Clock) {
	for _, ms := range times {
		c.Add(NearestTime(time.UnixMilli(ms)))
	}
	return c
}

// Add passes a record's event time to the clock.
func (c *Clock) Add(t time.Time) {
	c.recent[c.seen%clockRecords] = t.UnixMilli()
	if c.seen++; c.seen == 2*clockRecords {
		c.seen = clockRecords
	}
}

// Bound returns the time by which a record of event time t counts: t, but at most ahead
// after the clock, which includes t, if there is one. Add does not bound times: call it after
// Bound.
func (c *Clock) Bound(t time.Time, ahead time.Duration) time.Time {
	if c.seen < clockRank {
		return t
	}
	ms := t.UnixMilli()
	least := ms - ahead.Milliseconds()
	n := min(c.seen, clockRecords-1) // with t they are clockRecords
	var times [clockRecords]int64
	near := 1 // of the times, t among them, are not before least
	for i := range n {
		times[i] = c.recent[(c.seen-1-i)%clockRecords]
		if times[i] >= least {
			near++
		}
		if near == clockRank {
			return t // the clock is not before least
		}
	}
	times[n] = ms
	last := times[:n+1]
	slices.Sort(last)
	if now := last[len(last)-clockRank]; least > now {
		return time.UnixMilli(now + ahead.Milliseconds()).UTC()
	}
	return t
}

// Now is the clock, in ms since 1970. ok is false before there is one.
func (c *Clock) Now() (ms int64, ok bool) {
	if c.seen < clockRank {
		return 0, false
	}
	times := c.recent
	n := min(c.seen, clockRecords)
	slices.Sort(times[:n])
	return times[n-clockRank], true
}

// Times returns the times for ClockAt: at most 16, in ms since 1970.
func (c *Clock) Times() []int64 {
	n := min(c.seen, clockRecords)
	if n == 0 {
		return nil
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = c.recent[(c.seen-n+i)%clockRecords]
	}
	return out
}
