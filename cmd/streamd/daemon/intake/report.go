package intake

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/snapshot"
)

// accounts are the counts of records, rows and blocks by their fate. What was read is counted
// when it is read, so that it can be held against the sum of the fates.
type accounts struct {
	counts   snapshot.Counts
	read     tally // of the topic of rows
	labels   int64 // records of the topic of labels, since the start
	tooOld   int   // successive blocks that the policy has retired on arrival
	refusals refusals
}

// records is the number of records of both topics. What is said of the latest records is of both.
func (a *accounts) records() int64 { return a.read.records + a.labels }

// tally is a number of records, and of the rows of those that were decoded.
type tally struct{ records, rows int64 }

// readBy is what must have been read for these fates.
func readBy(c snapshot.Counts) tally {
	return tally{
		records: c.AppliedRecords + c.Tombstones + c.RejectedRecords,
		rows:    c.Rows + c.ZeroWeightRows + c.RejectedRows,
	}
}

func (t *tally) add(of tally) { t.records, t.rows = t.records+of.records, t.rows+of.rows }

func (t *tally) take(of tally) { t.records, t.rows = t.records-of.records, t.rows-of.rows }

// Report is the counts at one moment, including those of open runs.
type Report struct {
	Counts  snapshot.Counts
	Records model.RecordCounts
	Rows    model.RowCounts
	TooOld  int             // successive blocks that the policy has retired on arrival
	Latest  Refusing        // of the latest records
	Refused []model.Refusal // records by reason, since the start, by the reason's name; may be shared
	Applied map[int]int64   // the next offset of each partition
}

// Report returns the present counts.
func (in *Intake) Report() Report {
	a := &in.accounts
	r := Report{
		Counts: a.counts, TooOld: a.tooOld, Refused: a.refusals.list(), Latest: a.refusals.refusing(a.records()),
		Applied: make(map[int]int64, len(in.partitions)),
	}
	var pending tally
	for number, p := range in.partitions {
		r.Applied[number] = p.applied.next
		if p.open != nil {
			c := p.open.counts
			pending.add(tally{c.AppliedRecords, int64(p.open.rows.Len()) + p.open.weightless})
			c.AppliedRecords, c.Rows, c.ZeroWeightRows = 0, 0, 0
			r.Counts.Add(c)
		}
	}
	if in.Labels != nil {
		pending.rows += in.Labels.Pending()
	}
	c := &r.Counts
	r.Records = model.RecordCounts{
		Read: a.read.records, Applied: c.AppliedRecords, Tombstones: c.Tombstones, Rejected: c.RejectedRecords, Pending: pending.records,
		Undecoded: c.UndecodedRecords, Lost: c.LostRecords, Gaps: c.Gaps,
	}
	r.Rows = model.RowCounts{
		Read: a.read.rows, Summarised: c.Rows, ZeroWeight: c.ZeroWeightRows, Rejected: c.RejectedRows, Pending: pending.rows,
	}
	return r
}

// Counts are the counts to save, which exclude open runs.
func (in *Intake) Counts() snapshot.Counts { return in.accounts.counts }

// CountRetired counts blocks that were retired elsewhere.
func (in *Intake) CountRetired(n int) { in.accounts.counts.BlocksRetired += int64(n) }

// CountGivenBack counts a withdrawn block that is live again.
func (in *Intake) CountGivenBack() { in.accounts.counts.BlocksAdded++ }

// Tell logs how many more records were rejected, if it is time.
func (in *Intake) Tell(now time.Time) {
	a := &in.accounts
	a.refusals.remember(now, a.records())
	a.refusals.tell(in.Log, in.Config.DeadLetters, now)
}

// countApplied counts a record that was not rejected, by the count of its fate.
func (in *Intake) countApplied(fate *int64) {
	*fate++
	in.accounts.refusals.end()
}

// countRefused counts a range of records that could not be read.
func (in *Intake) countRefused(c *snapshot.Counts, partition int, r *kafka.Refused) {
	in.accounts.read.add(tally{records: r.Records})
	c.RejectedRecords += r.Records
	c.UndecodedRecords += r.Records
	if in.Config.DeadLetters.Policy == config.DeadLettersQueue {
		c.DeadLetters++
	}
	record := fmt.Sprintf("%s/%d/%d to %d", in.Config.Kafka.Topic, partition, r.First, r.Last)
	in.noteRefusal(record, r.Records, &unusable{kindBatch, r.Reason})
}

func (in *Intake) countRejected(c *snapshot.Counts, partition int, r *kafka.Record, z *result) {
	c.RejectedRecords++
	c.RejectedRows += int64(z.rows)
	if z.rows == 0 {
		c.UndecodedRecords++
	}
	if in.Config.DeadLetters.Policy == config.DeadLettersQueue {
		c.DeadLetters++
	}
	in.noteRefusal(positionOf(in.Config, partition, r).String(), 1, z.bad)
}

func (in *Intake) noteRefusal(record string, n int64, why error) {
	in.accounts.refusals.note(in.Log, in.Config.DeadLetters, time.Now(), record, n, why)
}

// countSummarised counts the rows of a block, by their fate, and how it came.
func (in *Intake) countSummarised(e retire.Entry, o live.Outcome, z *result) {
	c, rows := &in.accounts.counts, z.Summary.Rows()
	rejected := int64(0) // elsewhere
	if z.sums != nil {
		rejected = z.sums.Rows.Rejected
	}
	c.Rows += rows - z.has
	c.RejectedRows += rejected
	c.ZeroWeightRows += int64(z.rows) - (rows - z.has) - rejected
	if z.sums == nil {
		return
	}
	switch {
	case z.has > 0:
		in.record.addSums(model.Sums{Rows: rows - z.has})
	case o.Added:
		in.record.addSums(model.Sums{Blocks: 1, Rows: rows})
	}
	if o.Replaced && o.Added && in.Config.Blocks.Unit != config.UnitKey {
		in.Sampled.Warn().Str("block", in.Logged(e.ID)).Int64("rows", rows).
			Msg("a block that came as sums has replaced another one of the same rows")
	}
}

// refusals counts the rejected records and logs them: the first one at once, and the
// number of further ones at most every refusalPause. Dead letters and counts include all
// of them.
type refusals struct {
	byKind map[string]int64 // records, since the start
	wrote  time.Time        // the last line
	more   int64            // records since then

	all    int64    // records, since the start
	row    Refusing // without Read and Refused
	before []moment // the counts of the last recentTime, the oldest first
}

// end ends a row of refused records, because a record was applied.
func (r *refusals) end() { r.row.Good, r.row.InARow = true, 0 }

// moment is the records read and refused up to a time.
type moment struct {
	time          time.Time
	read, refused int64
}

// Refusing says how many of the latest records were refused, and why.
type Refusing struct {
	Good   bool      // a record was applied since the start
	InARow int64     // refused records since the last one that was applied
	Since  time.Time // the first of these
	Last   time.Time // the latest refused record
	// Reason is that of the latest refused record, for people to read. It may quote what the record
	// has. Meaning says the same in words that quote nothing, so that they may be kept.
	Reason, Meaning string

	settles string // what can be done against the reason

	Read, Refused int64 // records of the last recentTime, or since the start
}

const (
	refusalPause = 10 * time.Second
	recentTime   = 15 * time.Minute
	momentEvery  = time.Minute
	mostReason   = 300 // bytes
	mostRefused  = 200 // of so many recent records one refused one is no problem yet; alerts.yaml names the share
)

// Many reports whether a stream has a problem: nothing but refused records has come for a
// while, or too many of the recent ones were refused.
func (r *Refusing) Many(now time.Time) bool {
	return r.InARow >= 10 || r.InARow > 0 && now.Sub(r.Last) >= refusalPause || mostRefused*r.Refused > r.Read
}

// String says how many of the latest records were refused.
func (r *Refusing) String() string {
	if r.InARow >= 10 || mostRefused*r.Refused <= r.Read {
		at := r.Since.UTC()
		layout := "15:04"
		if day := 24 * time.Hour; !at.Truncate(day).Equal(r.Last.UTC().Truncate(day)) {
			layout = "2 Jan 15:04"
		}
		return fmt.Sprintf("the last %d records since %s UTC were refused", r.InARow, at.Format(layout))
	}
	return fmt.Sprintf("%d of the last %d records were refused", r.Refused, r.Read)
}

// Action says what can be done against the latest reason, and about the records.
func (r *Refusing) Action(policy config.DeadLetters) string {
	if policy.Policy == config.DeadLettersQueue {
		return r.settles + "; streamd letters list shows the records, and streamd letters replay writes them to their topic again"
	}
	return r.settles + "; the records are skipped: produce those again that are wanted"
}

// refusing reports on the latest records, of which read have been read since the start.
func (r *refusals) refusing(read int64) Refusing {
	n := r.row
	n.Read, n.Refused = read, r.all
	if len(r.before) > 0 {
		n.Read, n.Refused = read-r.before[0].read, r.all-r.before[0].refused
	}
	return n
}

// remember keeps the counts of a moment, and forgets those that are no longer recent.
func (r *refusals) remember(now time.Time, read int64) {
	if n := len(r.before); n > 0 && now.Sub(r.before[n-1].time) < momentEvery {
		return
	}
	r.before = append(r.before, moment{now, read, r.all})
	for len(r.before) > 1 && now.Sub(r.before[1].time) >= recentTime {
		r.before = r.before[1:]
	}
}

// list has the reasons for which records were rejected, by name.
func (r *refusals) list() (all []model.Refusal) {
	for _, kind := range slices.Sorted(maps.Keys(r.byKind)) {
		all = append(all, model.Refusal{Reason: kind, Meaning: kinds[kind].meaning, Records: r.byKind[kind]})
	}
	return all
}

// note counts n rejected records.
func (r *refusals) note(log zerolog.Logger, policy config.DeadLetters, now time.Time, record string, n int64, why error) {
	if r.byKind == nil {
		r.byKind = map[string]int64{}
	}
	kind := kindOf(why)
	r.byKind[kind] += n
	r.all += n
	if r.row.InARow == 0 {
		r.row.Since = now
	}
	r.row.InARow, r.row.Last = r.row.InARow+n, now
	r.row.Reason, r.row.Meaning, r.row.settles = shortened(why.Error()), kinds[kind].meaning, settles(kind, why)
	if r.tell(log, policy, now); now.Sub(r.wrote) < refusalPause {
		r.more += n
		return
	}
	r.wrote, r.more = now, n-1
	log.Warn().Str("record", record).Str("reason", kind).Err(why).Msg("record " + fate(policy))
}

// shortened is a text without what exceeds mostReason.
func shortened(text string) string {
	if len(text) <= mostReason {
		return text
	}
	return strings.ToValidUTF8(text[:mostReason], "") + " …"
}

// tell logs how many more records were rejected, if it is time.
func (r *refusals) tell(log zerolog.Logger, policy config.DeadLetters, now time.Time) {
	if r.more == 0 || now.Sub(r.wrote) < refusalPause {
		return
	}
	line := log.Warn().Int64("more", r.more).Interface("since_start", r.byKind)
	if r.row.InARow > r.more { // nothing was applied in between
		line.Msgf("%v and %s: %s", &r.row, fate(policy), r.row.Reason)
	} else {
		line.Msgf("and %d more %s", r.more, fate(policy))
	}
	r.wrote, r.more = now, 0
}
