package httpapi

import (
	"cmp"
	"slices"
	"time"
)

// ProblemKind is a kind of problem: a stable word to count and to alert by.
type ProblemKind string

// The kinds of problems.
const (
	ProblemStopping   ProblemKind = "stopping"
	ProblemSave       ProblemKind = "save"
	ProblemGroup      ProblemKind = "group"
	ProblemControl    ProblemKind = "control"
	ProblemModel      ProblemKind = "model"
	ProblemRetired    ProblemKind = "retired"
	ProblemRefused    ProblemKind = "refused"
	ProblemGap        ProblemKind = "gap"
	ProblemDrift      ProblemKind = "drift"
	ProblemJob        ProblemKind = "job"
	ProblemSample     ProblemKind = "sample"
	ProblemTime       ProblemKind = "time"
	ProblemWithdrawn  ProblemKind = "withdrawn"
	ProblemRefinement ProblemKind = "refinement"
	ProblemQuality    ProblemKind = "quality"
	ProblemBasis      ProblemKind = "basis"
	ProblemFeatures   ProblemKind = "features"
	ProblemCompaction ProblemKind = "compaction"
	ProblemWitness    ProblemKind = "witness"
)

// problemKinds are all kinds, the gravest first.
var problemKinds = []struct {
	kind  ProblemKind
	level Level
}{
	{ProblemStopping, LevelFailure},   // the daemon stops because of an error
	{ProblemSave, LevelFailure},       // the state cannot be saved
	{ProblemGroup, LevelFailure},      // out of the consumer group, so nothing is read
	{ProblemControl, LevelFailure},    // the control topic cannot be read, or lacks records
	{ProblemModel, LevelFailure},      // there are rows, and no model
	{ProblemRetired, LevelFailure},    // the snapshot lacks retirements
	{ProblemRefused, LevelWarning},    // records are refused
	{ProblemGap, LevelWarning},        // records were gone from the log before they were read
	{ProblemDrift, LevelWarning},      // the stream has changed for the worse
	{ProblemJob, LevelWarning},        // work beside the loop fails
	{ProblemSample, LevelWarning},     // the row sample lacks rows of live blocks
	{ProblemTime, LevelWarning},       // event times that make blocks too old
	{ProblemWithdrawn, LevelWarning},  // records of the control topic that have no effect
	{ProblemRefinement, LevelWarning}, // the planes are not refined
	{ProblemQuality, LevelWarning},    // classes that are never or seldom found
	{ProblemBasis, LevelWarning},      // a basis cannot be chosen, or waits
	{ProblemFeatures, LevelWarning},   // the features change
	{ProblemCompaction, LevelWarning}, // retired blocks can still be read from the file
	{ProblemWitness, LevelWarning},    // a witness does not cosign
}

// Level is how grave a problem is.
type Level string

// The levels.
const (
	LevelFailure Level = "failure" // the daemon does not do its work until somebody acts
	LevelWarning Level = "warning" // it works, but not as it should
)

func (k ProblemKind) rank() int {
	return slices.IndexFunc(problemKinds, func(x struct {
		kind  ProblemKind
		level Level
	}) bool {
		return x.kind == k
	})
}

// Level is the level of all problems of a kind.
func (k ProblemKind) Level() Level { return problemKinds[k.rank()].level }

// Problem is something that an operator should know or act on. Kind and Subject tell it from
// others. Text goes into the log and into events, which outlive blocks: it names no block, key
// or label. Detail may.
type Problem struct {
	Kind    ProblemKind
	Subject string    // the job, witness or topic that it is about, where there are several
	Since   time.Time // when it appeared
	Last    time.Time // when it happened last; zero: it holds now
	Count   int64     // how often it has happened, or the number of things that it is about; 0: does not apply
	Text    string    // one sentence: what is wrong
	Detail  string    // the names that belong to it; "" where there are none
	Action  string    // what to do; "" where there is nothing
}

// Level is that of the problem's kind.
func (p Problem) Level() Level { return p.Kind.Level() }

// String is the text, with the detail and what to do.
func (p Problem) String() string {
	s := p.Text
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	if p.Action != "" {
		s += "; " + p.Action
	}
	return s
}

// SortProblems sorts problems, the gravest first, and of one kind the oldest first.
func SortProblems(all []Problem) {
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Kind.rank(), b.Kind.rank()), a.Since.Compare(b.Since), cmp.Compare(a.Subject, b.Subject))
	})
}
