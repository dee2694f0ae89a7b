package httpapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"streamd/cmd/streamd/model"
)

// ProblemKind is a kind of problem: a stable word to count and to alert by.
type ProblemKind string

// The kinds of problems.
const (
	ProblemReady      ProblemKind = "ready"
	ProblemStopping   ProblemKind = "stopping"
	ProblemSave       ProblemKind = "save"
	ProblemLetters    ProblemKind = "letters"
	ProblemReading    ProblemKind = "reading"
	ProblemRegistry   ProblemKind = "registry"
	ProblemControl    ProblemKind = "control"
	ProblemPredict    ProblemKind = "predict"
	ProblemModelTopic ProblemKind = "model_topic"
	ProblemModel      ProblemKind = "model"
	ProblemRetired    ProblemKind = "retired"
	ProblemRefused    ProblemKind = "refused"
	ProblemGap        ProblemKind = "gap"
	ProblemDrift      ProblemKind = "drift"
	ProblemUseless    ProblemKind = "useless"
	ProblemBaseline   ProblemKind = "baseline"
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
	ProblemSettings   ProblemKind = "settings"
	ProblemValues     ProblemKind = "values"
	ProblemLabels     ProblemKind = "labels"
)

type problemKind struct {
	kind   ProblemKind
	level  Level
	action string // what to do where nothing more is known
}

// problemKinds are all kinds, the gravest first.
var problemKinds = []problemKind{
	// the daemon is not ready
	{ProblemReady, LevelFailure, "wait while it reads; records of two classes or more make a model; other reasons have their own entry"},
	// the daemon stops because of an error
	{ProblemStopping, LevelFailure, "remove the cause; the next start goes on from the last save"},
	// the state cannot be saved
	{ProblemSave, LevelFailure, "make room where snapshot.file lies, and see that the daemon may write there"},
	// dead letters cannot be written
	{ProblemLetters, LevelFailure, "see why the brokers do not take them; they are tried again by themselves, and nothing is lost. With dead_letters.policy: skip it goes on without"},
	// the topic cannot be read
	{ProblemReading, LevelFailure, "see that the brokers can be reached and let the daemon in; it is tried again by itself"},
	// the registry does not answer for a message's schema
	{ProblemRegistry, LevelFailure, "see that format.registry.url can be reached and lets the daemon in; it is asked again by itself, and no message is lost"},
	// the control topic cannot be read, or lacks records
	{ProblemControl, LevelFailure, "see that the brokers return the topic; it is tried again by itself"},
	// there are rows, and no model
	{ProblemModel, LevelFailure, "give it labelled rows of two classes or more; GET /v1/model says what they lack"},
	// the snapshot lacks retirements
	{ProblemRetired, LevelFailure, "retire them once more (tombstones that the log still has count again by themselves)"},
	// rows of predict.topic are not answered
	{ProblemPredict, LevelWarning, "see that the brokers can be reached and let the daemon read predict.topic and write predict.output in transactions; it is tried again by itself, and no row is lost"},
	// served models are not written to model.topic
	{ProblemModelTopic, LevelWarning, "see that the brokers can be reached, let the daemon make and write the topic, and let its records be as large as a model; it is tried again by itself"},
	// records are refused
	{ProblemRefused, LevelWarning, "remove the reason, and produce the records again that are wanted"},
	// records were gone from the log before they were read
	{ProblemGap, LevelWarning, "produce the records again that the model should have, and let the topic keep them longer; POST /v1/status/seen ends this"},
	// the stream has changed for the worse
	{ProblemDrift, LevelWarning, "GET /v1/prequential says which classes are confused; POST /v1/retire with a time retires what is older"},
	// new rows are classified no better than by giving all of them one class
	{ProblemUseless, LevelWarning, "see whether labels are wrong or exchanged, and whether the features say anything of them; GET /v1/prequential says which classes are confused"},
	// new or held-out rows are classified no better than by a baseline
	{ProblemBaseline, LevelWarning, "GET /v1/prequential and GET /v1/quality have the baselines; other features, or the label before as a feature, may tell more than these do"},
	// work beside the loop fails
	{ProblemJob, LevelWarning, "report it with the stack in the log"},
	// the row sample lacks rows of live blocks
	{ProblemSample, LevelWarning, "retire the blocks that the log no longer has, or produce them again"},
	// labels that come later match no rows, or cannot be read
	{ProblemLabels, LevelWarning, "see whether rows and labels have the same keys, and whether labels come in time"},
	// event times that make blocks too old
	{ProblemTime, LevelWarning, "retire the newest block if its time is wrong"},
	// records of the control topic that have no effect
	{ProblemWithdrawn, LevelWarning, "produce the blocks again that should come back"},
	// the planes are not refined
	{ProblemRefinement, LevelWarning, "it is tried again by itself; where the reason stays, set model.refine or its parameters otherwise"},
	// classes that are never or seldom found
	{ProblemQuality, LevelWarning, "more rows of these classes, model.decision: cost, model.balanced, sample.balanced or another kernel may find more"},
	// a basis cannot be chosen, or waits
	{ProblemBasis, LevelWarning, "it is tried again by itself, and streamd reduce tries at once; a reason that stays needs another kernel setting"},
	// the features change
	{ProblemFeatures, LevelWarning, "wait until all have been read"},
	// retired blocks can still be read from the file
	{ProblemCompaction, LevelWarning, "make room where snapshot.file lies; it is tried again by itself"},
	// a witness does not cosign
	{ProblemWitness, LevelWarning, "see that the witness runs, can be reached and knows the key of this log; it is asked again by itself"},
	// values of categories that the schema does not declare
	{ProblemValues, LevelWarning, "add them to format.schema; streamd schema infer on new rows says which are frequent, and with values: {most: K} POST /v1/features/learn learns them from the live rows"},
	// other settings classify held-out blocks better
	{ProblemSettings, LevelHint, "set them if that is worth a restart"},
}

// Level is how grave a problem is.
type Level string

// The levels.
const (
	LevelFailure Level = "failure" // the daemon does not do its work until somebody acts
	LevelWarning Level = "warning" // it works, but not as it should
	LevelHint    Level = "hint"    // it works, and something would serve better
)

// Known reports whether k is one of the kinds above.
func (k ProblemKind) Known() bool { return k.rank() >= 0 }

func (k ProblemKind) rank() int {
	return slices.IndexFunc(problemKinds, func(x problemKind) bool { return x.kind == k })
}

// Level is the level of all problems of a kind.
func (k ProblemKind) Level() Level { return problemKinds[k.rank()].level }

// Action is what to do about a problem of the kind where its own Action does not say more.
func (k ProblemKind) Action() string { return problemKinds[k.rank()].action }

// Problem is something that an operator should know or act on. Kind and Subject tell it from
// others. Text goes into the log and into events, which outlive blocks: it names no block, key
// or label. Detail may.
type Problem struct {
	Kind    ProblemKind `json:"kind"`              // word to count by, as the label of streamd_problems
	Subject string      `json:"subject,omitempty"` // the job, witness or topic that it is about, where there are several
	Since   time.Time   `json:"since"`             // time when it appeared
	Last    time.Time   `json:"last,omitzero"`     // time when it happened last; absent: it holds now, and cannot be seen away
	Count   int64       `json:"count,omitempty"`   // number of times that it has happened, or of things that it is about
	Text    string      `json:"text"`              // sentence that says what is wrong, for people to read
	Detail  string      `json:"detail,omitempty"`  // names or a reason that belong to the text
	Lasting string      `json:"-"`                 // the Detail after a restart: it names no block, key or label, and quotes no value
	Action  string      `json:"action"`            // what to do
}

// Level is that of the problem's kind.
func (p Problem) Level() Level { return p.Kind.Level() }

// String is the text, with the detail and what to do.
func (p Problem) String() string {
	s := p.Text
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	return s + "; " + p.Action
}

// StatusAnswer is the body of GET /v1/status.
type StatusAnswer struct {
	AsOf     time.Time          `json:"as_of"`               // time of the answer
	Ready    bool               `json:"ready"`               // whether the daemon is ready, as GET /readyz says
	NotReady string             `json:"not_ready,omitempty"` // why it is not
	Answers  []StatusReply      `json:"answers"`             // is it learning, is it right, is it behind, what needs you
	Problems []StatusProblem    `json:"problems"`            // what an operator should know or act on, the gravest first
	Records  model.RecordCounts `json:"records"`             // records since the snapshot was made, by what became of them
	Rows     model.RowCounts    `json:"rows"`                // rows of the records that could be decoded
	Labels   *Labels            `json:"labels,omitempty"`    // what has become of rows and labels that come on topics of their own; only with labels.topic
	Predict  *model.Predicting  `json:"predict,omitempty"`   // the rows of predict.topic that are answered; absent where there is no such topic
	Models   *model.Announced   `json:"models,omitempty"`    // the served models that are written to model.topic; absent where there is no such topic
}

// StatusReply answers one of the questions of the page's first screen.
type StatusReply struct {
	ID       string     `json:"id"`       // learning, right, behind or needs
	Question string     `json:"question"` // for people
	State    ReplyState `json:"state"`    // good, warn, bad, or idle for an answer that is not known or of no rows
	Text     string     `json:"text"`     // answer in a word, or its figure
	Notes    []string   `json:"notes"`    // what it rests on: the baseline, the rate, the reason
}

// ReplyState says how good an answer is.
type ReplyState string

// The states.
const (
	ReplyGood ReplyState = "good"
	ReplyWarn ReplyState = "warn"
	ReplyBad  ReplyState = "bad"
	ReplyIdle ReplyState = "idle"
)

// StatusProblem is a problem with its level.
type StatusProblem struct {
	Level Level `json:"level"` // failure: the daemon does not do its work until somebody acts; warning: it works, but not as it should
	Problem
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) error {
	v := s.newPageView(viewOverview)
	now, minutes := v.Status, s.service.History(model.SpanMinutes)
	var replies []StatusReply
	for _, a := range newAnswers(v, s.service.Prequential(), minutes, busiest(minutes, s.service.History)) {
		a.Notes = append([]string{}, a.Notes...) // an empty list is no null
		replies = append(replies, a.StatusReply)
	}
	a := StatusAnswer{AsOf: v.Now.UTC(), Answers: replies, Ready: now.NotReady == "", NotReady: now.NotReady, Problems: []StatusProblem{}, Records: now.Records, Rows: now.Rows, Labels: now.Labels, Predict: now.Predicting, Models: now.Announced}
	for _, p := range now.listed() {
		a.Problems = append(a.Problems, StatusProblem{p.Level(), p})
	}
	return answerJSON(w, a)
}

var seenUntil = &parameter[time.Time]{
	name: "until", kind: moment,
	meaning: "Only what has happened last at or before this time: `as_of` of the answer that was seen. Without it, all until now.",
}

func (s *Server) seen(w http.ResponseWriter, r *http.Request) error {
	until := time.Now()
	if at := momentOf(r, seenUntil); at != nil && at.Before(until) {
		until = *at
	}
	if err := s.service.Seen(r.Context(), until); err != nil {
		return err
	}
	return s.status(w, r)
}

// empty says why no row is live. reason is that of the latest refusal, if it is known.
func (s *Status) empty(withReason bool) string {
	c := &s.Records
	var why string
	switch {
	case c.Read == 0:
		why = "no record has been read yet"
	case c.Rejected == c.Read:
		why = fmt.Sprintf("all records that have been read were refused, %d of them", c.Rejected)
		for _, p := range s.Problems {
			if withReason && p.Kind == ProblemRefused && p.Detail != "" {
				why += ", the last one because of this: " + p.Detail
			}
		}
	case c.Pending == c.Read-c.Rejected:
		why = fmt.Sprintf("the rows of the %d records that were not refused wait for the rest of their block", c.Pending)
	case s.Rows.Summarised == 0:
		why = "no row that has been read has a weight above 0"
	default:
		return "no block is live: all have been retired"
	}
	if s.Featureless {
		why += "; the features are not known before the first block"
	}
	return why
}

// listed are the problems that page, answers and metrics list: not being ready is the first.
func (s *Status) listed() []Problem {
	if s.NotReady == "" {
		return s.Problems
	}
	is := Problem{Kind: ProblemReady, Since: s.NotReadySince, Text: "not ready: " + s.NotReady, Action: ProblemReady.Action()}
	return append([]Problem{is}, s.Problems...)
}

// SortProblems sorts problems, the gravest first, and of one kind the oldest first.
func SortProblems(all []Problem) {
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Kind.rank(), b.Kind.rank()), a.Since.Compare(b.Since), cmp.Compare(a.Subject, b.Subject))
	})
}
