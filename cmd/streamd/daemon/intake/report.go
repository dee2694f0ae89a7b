package intake

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/snapshot"
)

// accounts are the counts of records, rows and blocks by their fate.
type accounts struct {
	counts   snapshot.Counts
	rowsRead int64
	tooOld   int // successive blocks that the policy has retired on arrival
	refusals refusals
}

// Report is the counts at one moment, including those of open runs.
type Report struct {
	Counts   snapshot.Counts
	RowsRead int64
	Open     int64           // rows of open runs
	TooOld   int             // successive blocks that the policy has retired on arrival
	Refused  []model.Refusal // records by reason, since the start, by the reason's name; may be shared
	Applied  map[int]int64   // the next offset of each partition
}

// Report returns the present counts.
func (in *Intake) Report() Report {
	a := &in.accounts
	r := Report{
		Counts: a.counts, RowsRead: a.rowsRead, TooOld: a.tooOld, Refused: a.refusals.list(),
		Applied: make(map[int]int64, len(in.partitions)),
	}
	for number, p := range in.partitions {
		r.Applied[number] = p.applied.next
		if p.open != nil {
			c := p.open.counts
			c.Rows, c.ZeroWeightRows = 0, 0
			r.Counts.Add(c)
			r.Open += int64(p.open.rows.Len()) + p.open.weightless
		}
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
func (in *Intake) Tell(now time.Time) { in.accounts.refusals.tell(in.Log, in.Config.DeadLetters, now) }

// countRefused counts a range of records that could not be read.
func (in *Intake) countRefused(c *snapshot.Counts, partition int, r *kafka.Refused) {
	in.accounts.rowsRead += r.Records
	c.Records += r.Records
	c.RejectedRecords += r.Records
	c.RejectedRows += r.Records
	switch in.Config.DeadLetters.Policy {
	case config.DeadLettersQueue:
		c.DeadLetters++
	case config.DeadLettersSkip:
		c.SkippedRecords += r.Records
	}
	record := fmt.Sprintf("%s/%d/%d to %d", in.Config.Kafka.Topic, partition, r.First, r.Last)
	in.noteRefusal(record, r.Records, &unusable{kindBatch, r.Reason})
}

func (in *Intake) countRejected(c *snapshot.Counts, partition int, r *kafka.Record, z result) {
	c.RejectedRecords++
	c.RejectedRows += int64(z.rowsRead())
	switch in.Config.DeadLetters.Policy {
	case config.DeadLettersQueue:
		c.DeadLetters++
	case config.DeadLettersSkip:
		c.SkippedRecords++
	}
	in.noteRefusal(positionOf(in.Config, partition, r).String(), 1, z.bad)
}

func (in *Intake) noteRefusal(record string, n int64, why error) {
	in.accounts.refusals.note(in.Log, in.Config.DeadLetters, time.Now(), record, n, why)
}

func countSummarised(c *snapshot.Counts, rows int, s *incremental.Summary) {
	c.Rows += s.Rows()
	c.ZeroWeightRows += int64(rows) - s.Rows()
}

// refusals counts the rejected records and logs them: the first one at once, and the
// number of further ones at most every refusalPause. Dead letters and counts include all
// of them.
type refusals struct {
	byKind map[string]int64 // records, since the start
	wrote  time.Time        // the last line
	more   int64            // records since then
}

const refusalPause = 10 * time.Second

// list has the reasons for which records were rejected, by name.
func (r *refusals) list() (all []model.Refusal) {
	for _, kind := range slices.Sorted(maps.Keys(r.byKind)) {
		all = append(all, model.Refusal{Reason: kind, Meaning: kinds[kind], Records: r.byKind[kind]})
	}
	return all
}

// note counts n rejected records.
func (r *refusals) note(log zerolog.Logger, policy config.DeadLetters, now time.Time, record string, n int64, why error) {
	if r.byKind == nil {
		r.byKind = map[string]int64{}
	}
	r.byKind[kindOf(why)] += n
	if r.tell(log, policy, now); now.Sub(r.wrote) < refusalPause {
		r.more += n
		return
	}
	r.wrote, r.more = now, n-1
	log.Warn().Str("record", record).Str("reason", kindOf(why)).Err(why).Msg("record " + fate(policy))
}

// tell logs how many more records were rejected, if it is time.
func (r *refusals) tell(log zerolog.Logger, policy config.DeadLetters, now time.Time) {
	if r.more == 0 || now.Sub(r.wrote) < refusalPause {
		return
	}
	log.Warn().Int64("more", r.more).Interface("since_start", r.byKind).Msgf("and %d more %s", r.more, fate(policy))
	r.wrote, r.more = now, 0
}
