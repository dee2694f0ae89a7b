package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/confusion"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/incremental/prequential"
	"streamd/incremental/tuning"
	"streamd/ingest/schema"
	"streamd/kernels/reduce"
	"streamd/retire"
)

// fake is a Service in memory.
type fake struct {
	mu       sync.Mutex
	served   *model.Served
	replaced chan struct{}
	status   Status
	ids      []string        // live blocks, sorted
	selector retire.Selector // of the last retirement
	err      error           // of every call that can fail
	panics   bool
	slow     time.Duration // duration of a snapshot
	epoch    *EpochAnswer
	empty    bool                            // there is no history yet
	past     func(model.Span) *model.History // in the place of one with gaps
	pruned   string                          // by the last Prune
	seen     time.Time

	prequential model.Prequential
	events      []Event
}

var testTime = time.Date(2026, 3, 4, 5, 6, 7, 800, time.UTC)

func newFake() *fake {
	f := &fake{replaced: make(chan struct{})}
	f.served = &model.Served{
		Fingerprint: "f1",
		Model: &incremental.Model{
			Features: []string{"len", "caps"},
			Classes:  []string{"ham", "spam"},
			Rows:     []int64{30, 12},
			Mean:     []float64{1, 0.25},
			Planes:   []incremental.Plane{{Class: "spam", W: []float64{1, -2}, Gamma: 0.5, Condition: 3}},
			Options:  incremental.Options{Nu: 1},
		},
		Rows: 42, Blocks: 3, Digest: "d1",
		Forgetting: &model.Forgetting{HalfLifeRows: 30, Rows: 41, Weight: 24.5, Digest: "w1"},
		Offsets:    []model.Offset{{Topic: "orders", Partition: 3, Next: 1842}},
		MadeAt:     testTime,
		Durable:    true,
		Absent: model.Absent{
			Tuning: "nu is set", Refinement: "refinement is off", Calibration: "calibration is off", Quality: "no row is held out", Hat: "no factor is kept",
		},
	}
	judged := confusion.New(2)
	judged.Add(0, 0, 12)
	judged.Add(0, 1, 4)
	judged.Add(1, 1, 3)
	judged.Add(1, 0, 1)
	f.prequential = model.Prequential{
		Rows: 40, Right: 31,
		Window: model.NewStretch(decision.Value, []string{"ham", "spam"}, prequential.Figures{Matrix: judged, SquaredLoss: 0.5, LastLabel: 0.625}),
		Fading: model.NewStretch(decision.Value, []string{"ham", "spam"}, prequential.Figures{Matrix: judged, SquaredLoss: 0.25, LastLabel: 0.5}),
		Drift: &model.Drift{
			Delta: 0.002,
			Error: model.ErrorDrift{Rows: 30, Share: new(0.2), Rises: 2, Falls: 1},
			Sums:  model.SumsDrift{Blocks: 8, Newest: new(0.75), Rest: new(0.5), P: new(1e-7), Holds: true, Rises: 1},
			Alarms: []model.Alarm{
				{Time: testTime, Detector: model.DetectorSums, Before: 0.5, After: 0.75, Rows: 12},
				{Time: testTime, Detector: model.DetectorError, Before: 0.1, After: 0.3, Rows: 64},
			},
		},
	}
	f.events = []Event{{ID: "p-0", Time: testTime, Type: EventEpoch, Text: "epoch 3 is in use", Epoch: new(uint32(3))}}
	f.epoch = &EpochAnswer{Problem: "rows are few"}
	f.ids = []string{"key:a+b//8=", "orders/3/1841", "orders/3/7"}
	f.status = Status{
		Version: "v0", Started: testTime, Name: "default", Topic: "orders", Group: "streamd.orders.default",
		Records:  model.RecordCounts{Read: 19, Applied: 8, Tombstones: 4, Rejected: 5, Pending: 2, Undecoded: 3, Lost: 21, Gaps: 2},
		Rows:     model.RowCounts{Read: 50, Summarised: 42, ZeroWeight: 3, Rejected: 4, Pending: 1},
		Blocks:   model.BlockCounts{Added: 5, Retired: 1, Replaced: 1},
		LiveRows: 42, Unlabelled: 7, LiveBlocks: 3, Withdrawn: 2, Unreadable: 1, Archived: 8, DeadLetters: 4, Refused: []model.Refusal{{Reason: "batch", Meaning: "its record batch cannot be read", Records: 2}, {Reason: "format", Meaning: "the payload cannot be decoded", Records: 3}}, FetchErrors: 7,
		Partitions: []model.Partition{
			{Topic: "orders", Partition: 3, Next: 1842, LogStart: 10, HighWatermark: 1900},
			{Topic: "orders", Partition: 4, Next: -1, LogStart: -1, HighWatermark: -1},
		},
		Epoch:     rebuilding(),
		LastSolve: testTime, LastSnapshot: testTime,
	}
	return f
}

// rebuilding has a basis in use, another one that is being chosen, and a third that waits
// for blocks.
func rebuilding() *EpochAnswer {
	left := 150.0
	return &EpochAnswer{
		Epoch:    3,
		InUse:    &model.Reduction{Basis: "b3", Kernel: "gaussian(gamma=0.5)", Points: 40, Method: "kmeans", Rows: 40, Live: 42, MadeAt: testTime, Seconds: 1.25},
		Reducing: &ReducingAnswer{Began: testTime, Stages: make([]model.Stage, 2)},
		Rebuild: &RebuildAnswer{
			Reduction: &model.Reduction{Basis: "b4", Kernel: "gaussian(gamma=2)", Points: 39, Method: "cs", Seconds: 2.5},
			Blocks:    1, Missing: 2, Rows: 14, LiveRows: 42, Seconds: &left, Unread: 1,
		},
	}
}

// LabelRequests names a row for each cluster but the first.
func (f *fake) LabelRequests(_ context.Context, count int) (*LabelRequestsAnswer, error) {
	if f.err != nil {
		return nil, f.err
	}
	a := &LabelRequestsAnswer{Digest: "d1", Rows: 42, Clusters: count, Labelled: 1, Features: []string{"len", "caps"}}
	for i := 1; i < count; i++ {
		a.Requests = append(a.Requests, LabelRequest{Block: f.ids[i%len(f.ids)], Row: i, Values: []float64{1.5, float64(i)}, Share: 1 / float64(count)})
	}
	return a, nil
}

// Window is the served model, of the window, with another ν if one is asked for.
func (f *fake) Window(_ context.Context, w model.Window, nu float64) (*model.Served, error) {
	if f.err != nil {
		return nil, f.err
	}
	now, _ := f.Served()
	next := *now
	next.Window, next.Offsets, next.MadeAt = &model.Windowed{Window: w, Absent: []string{"eggs"}, Lacks: []string{"calibration: it is of other rows"}}, nil, time.Time{}
	if next.Model != nil && nu > 0 {
		m := *next.Model
		m.Options.Nu = nu
		next.Model = &m
	}
	next.Fingerprint = next.Identity().Fingerprint()
	return &next, nil
}

func (f *fake) Compare(_ context.Context, a, b model.Window, nu float64) (*model.Comparison, error) {
	one := new(1.5)
	side := model.Compared{Digest: "d1", Blocks: 1, Rows: 42, Classes: []string{"ham", "spam"}, ClassRows: []int64{30, 12}, Options: model.NewOptionsJSON(incremental.Options{Nu: 1})}
	c := &model.Comparison{A: side, B: side, BasisID: f.served.BasisID(), Scaled: f.served.Basis == nil, Lacks: []string{"refinement: it takes the rows"}}
	c.A.Window, c.B.Window = a, b
	c.Planes = []model.ComparedPlanes{{Class: "spam", Angle: one, AOnA: one, AOnB: nil, BOnA: one, BOnB: one}}
	right := &model.Correctness{Estimate: 0.9, AtLeast: 0.5, AtMost: 1}
	c.Planes[0].Correctness = model.PlanesCorrectness{AOnA: right, BOnA: right, BOnB: right}
	return c, f.err
}

func (f *fake) Steps(_ context.Context, q StepsQuery) (*model.Steps, error) {
	plane := model.NewPlanesJSON([]incremental.Plane{{Class: "spam", W: []float64{1, -2}, Gamma: 0.5, Condition: 3}})[0]
	return &model.Steps{
		StepSeconds: q.Step.Seconds(), WindowSeconds: q.Window.Seconds(), From: testTime, To: testTime.Add(q.Step), Features: []string{"len", "caps"}, BasisID: f.served.BasisID(), Options: model.NewOptionsJSON(incremental.Options{Nu: 1}),
		Steps: []model.Step{
			{From: testTime, To: testTime.Add(q.Step), Classes: []string{}, ClassRows: []int64{}, Planes: []model.StepPlane{}, Problem: "there are no blocks"},
			{From: testTime, To: testTime.Add(q.Step), Digest: "d1", Blocks: 1, Rows: 2, Classes: []string{"ham", "spam"}, ClassRows: []int64{1, 1}, Planes: []model.StepPlane{{PlaneJSON: plane, ToFirst: new(0.0)}}},
		},
		Lacks: []string{},
	}, f.err
}

func (f *fake) Seen(_ context.Context, until time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = until
	if f.err == nil {
		f.status.Problems = nil
	}
	return f.err
}

func (f *fake) Prequential() *model.Prequential {
	p := f.prequential
	return &p
}

// Events returns all after the one with the id, and wakes those who wait with each one.
func (f *fake) Events(after string) (events []Event, missed int64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after == "long-ago" {
		missed = 7
	}
	at := slices.IndexFunc(f.events, func(e Event) bool { return e.ID == after })
	return slices.Clone(f.events[at+1:]), missed, f.replaced
}

func (f *fake) Served() (*model.Served, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.served, f.replaced
}

// serve replaces the served value.
func (f *fake) serve(change func(*model.Served)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := *f.served
	change(&next)
	f.served = &next
	close(f.replaced)
	f.replaced = make(chan struct{})
}

// burst is the history of a stream whose rows all came in one interval an hour ago, as the
// daemon keeps it. Charts of lines would show nothing.
func burst(span model.Span) *model.History {
	seconds := map[model.Span]int64{model.SpanMinutes: 5, model.SpanHours: 240, model.SpanDays: 7200}[span]
	h := &model.History{Span: span, Seconds: seconds, MemoryLimit: 256 << 20}
	now := time.Now().Unix() / seconds * seconds
	for i := range int64(360) {
		at := now - (359-i)*seconds
		rate, lag, memory := 0.0, int64(0), int64(80<<20)
		var correctness, balanced, largest, last *float64
		if hour := now - 3600; at <= hour && hour < at+seconds {
			rate, correctness, balanced, largest, last = 3e6/float64(seconds), new(0.9375), new(0.875), new(0.625), new(0.5)
		}
		h.Times = append(h.Times, at)
		h.RowsPerSecond, h.Correctness, h.BalancedCorrectness = append(h.RowsPerSecond, &rate), append(h.Correctness, correctness), append(h.BalancedCorrectness, balanced)
		h.LargestClass, h.LastLabel = append(h.LargestClass, largest), append(h.LastLabel, last)
		h.Lag, h.Memory = append(h.Lag, &lag), append(h.Memory, &memory)
	}
	return h
}

// History has gaps: a restart, rows that nobody judges, a lag that is not known.
func (f *fake) History(span model.Span) *model.History {
	if f.past != nil {
		return f.past(span)
	}
	h := &model.History{Span: span, Seconds: 5, MemoryLimit: 256 << 20}
	if f.empty {
		h.Times, h.RowsPerSecond, h.Correctness, h.BalancedCorrectness = []int64{}, []*float64{}, []*float64{}, []*float64{}
		h.Lag, h.Memory, h.LargestClass, h.LastLabel = []*int64{}, []*int64{}, []*float64{}, []*float64{}
		return h
	}
	for i := range int64(360) {
		var rate, correctness, balanced, largest, last *float64
		var lag, memory *int64
		if i < 100 || i > 120 {
			x := float64(i)
			rate, memory = new(2e6*math.Abs(math.Sin(x/40))), new(int64(64<<20+i<<18))
			if i > 30 {
				correctness, balanced = new(0.95-0.1*math.Exp(-x/50)+0.01*math.Sin(x)), new(0.85)
				largest, last = new(0.625), new(0.5+0.1*math.Sin(x/60))
			}
			if i < 300 {
				lag = new(1_000_000 - 3000*i)
			}
		}
		h.Times = append(h.Times, testTime.Unix()/5*5+5*i)
		h.RowsPerSecond, h.Correctness, h.BalancedCorrectness = append(h.RowsPerSecond, rate), append(h.Correctness, correctness), append(h.BalancedCorrectness, balanced)
		h.LargestClass, h.LastLabel = append(h.LargestClass, largest), append(h.LastLabel, last)
		h.Lag, h.Memory = append(h.Lag, lag), append(h.Memory, memory)
	}
	return h
}

func (f *fake) Reduce(context.Context) error { return f.err }

func (f *fake) LearnLists(context.Context) (*LearnedLists, error) {
	of, err := schema.Parse([]byte("town: {kind: category, values: [graz], other: true}"))
	if err != nil {
		return nil, err
	}
	return &LearnedLists{
		Lists:  []schema.Learned{{Feature: "town", Most: 1, Values: []schema.ValueRows{{Value: "graz", Rows: 3}}, Distinct: 2, Rows: 4, Share: 0.75}},
		Blocks: 2, Rows: 5, Changes: true, Schema: of,
	}, f.err
}

func (f *fake) Prune(_ context.Context, how reduce.Pruning, points int) error {
	f.pruned = fmt.Sprintf("%s %d", how, points)
	return f.err
}

func (f *fake) Abandon(context.Context) error { return f.err }

func (f *fake) Checkpoint(context.Context) ([]byte, error) {
	return []byte("streamd/orders/0\n1\nAAAA\n\n— streamd/orders/0 AAAA\n"), f.err
}

func (f *fake) Receipt(_ context.Context, leaf int64) ([]byte, error) {
	if leaf != 7 {
		return nil, fmt.Errorf("receipt %d of 8: %w", leaf, ErrNoReceipt)
	}
	return []byte("c2sp.org/tlog-proof@v1\n"), f.err
}

func (f *fake) Tile(_ context.Context, path string) ([]byte, error) {
	if path != "0/000.p/1" {
		return nil, fmt.Errorf("tile %q: %w", path, ErrNoReceipt)
	}
	return make([]byte, 32), f.err
}

func (f *fake) Epoch(context.Context) (*EpochAnswer, error) { return f.epoch, f.err }

func (f *fake) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("status")
	}
	return f.status
}

func (f *fake) Blocks(_ context.Context, _ bool, after string, limit int) (page []BlockInfo, next string, err error) {
	if f.err != nil {
		return nil, "", f.err
	}
	if after == "bad" {
		return nil, "", fmt.Errorf("list blocks after %q: %w", after, ErrBadID)
	}
	for _, id := range f.ids {
		if id <= after {
			continue
		}
		if len(page) == limit {
			return page, page[limit-1].ID, nil
		}
		page = append(page, BlockInfo{ID: id, Topic: "orders", Partition: 3, Time: testTime, Rows: 14})
	}
	return page, "", nil
}

// Retire goes by ids alone.
func (f *fake) Retire(_ context.Context, s retire.Selector, how RetireOptions) (Retirement, error) {
	f.selector = s
	if f.err != nil {
		return Retirement{}, f.err
	}
	r := Retirement{DryRun: how.DryRun, Earliest: testTime, Latest: testTime, DigestBefore: "d1"}
	for _, id := range s.IDs {
		if i := slices.Index(f.ids, id); i < 0 {
			r.NotLive++
			r.NotLiveIDs = append(r.NotLiveIDs, id)
		} else {
			r.Blocks++
			r.First = append(r.First, BlockInfo{ID: id, Rows: 14})
			if !how.DryRun {
				f.ids = slices.Delete(f.ids, i, i+1)
			}
		}
	}
	if id, one := s.Single(); r.Blocks == 0 && one {
		return r, fmt.Errorf("retire block %q: %w", id, ErrNotLive)
	} else if r.Blocks == 0 {
		return r, fmt.Errorf("retire blocks: %w", ErrNoneChosen)
	}
	if !how.DryRun {
		r.DigestAfter, r.RetiredAt = "d2", &testTime
		r.Remains = []string{"copies of the snapshot file"}
	}
	return r, nil
}

func (f *fake) Snapshot(ctx context.Context, compact bool) (SnapshotInfo, error) {
	if f.slow > 0 {
		select {
		case <-time.After(f.slow):
		case <-ctx.Done():
			return SnapshotInfo{}, ctx.Err()
		}
	}
	return SnapshotInfo{MadeAt: testTime, Blocks: 3, Rows: 42, Digest: "d1", Compacted: compact}, f.err
}

func (f *fake) CopySnapshot(_ context.Context, receipts bool) (io.ReadCloser, int64, error) {
	text := fmt.Sprint("a copy, receipts: ", receipts)
	return io.NopCloser(strings.NewReader(text)), int64(len(text)), f.err
}

func (f *fake) Refine(ctx context.Context) (*model.Refinement, error) {
	if f.slow > 0 {
		select {
		case <-time.After(f.slow):
		case <-ctx.Done():
			return nil, fmt.Errorf("refine: %w", context.Cause(ctx))
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	return testRefinement(), nil
}

func testRefinement() *model.Refinement {
	return &model.Refinement{
		Method: "full", Digest: "d1", MadeAt: testTime, Seconds: 0.25, Source: "sample", Rows: 40, Live: 42, Complete: true,
		Planes: model.PlaneRefinements(&newton.Result{
			Model:  &incremental.Model{Planes: []incremental.Plane{{W: []float64{1, 0, 3}}}},
			Planes: []newton.Report{{Class: "spam", Objective: 1.5, Gradient: 1e-9, Iterations: 4, SupportVectors: 9, Gap: math.NaN(), LeaveOneOut: math.NaN()}},
		}),
	}
}

// calibrate has the curve of the one plane, and the rule that goes by it.
func (f *fake) calibrate(c calibration.Curve) {
	f.served.Calibration = []calibration.Curve{c}
	f.served.Rule = decision.ByProbability(f.served.Calibration)
}

// price has expected costs decide.
func (f *fake) price() {
	f.served.Rule = decision.ByCost(f.served.Model.Classes, f.served.Calibration, []decision.Price{{Class: "spam", Answer: "ham", Cost: 5}})
}

// testConfusion is the matrix of four rows, of which one is misclassified.
func testConfusion() *confusion.Matrix {
	m := confusion.New(2)
	m.Add(0, 1, 1)
	m.Add(1, 1, 3)
	return m
}

// answers adds every part that a model may have to the served value.
func (f *fake) answers(t testing.TB) {
	t.Helper()
	f.served.Refinement = testRefinement()
	curve := func(standardise bool, rows int64, figures ...[4]float64) model.TuningCurve {
		c := model.TuningCurve{Method: "psvm", Standardise: standardise, Rows: rows}
		for i := range figures {
			p := model.TuningPoint{Nu: math.Ldexp(0.5, i), Loss: &figures[i][0]}
			if !math.IsInf(figures[i][1], 0) {
				p.BalancedLoss = &figures[i][1]
			}
			if rows > 0 {
				p.Correctness, p.BalancedCorrectness = &figures[i][2], &figures[i][3]
			}
			c.Points = append(c.Points, p)
		}
		return c
	}
	figures := [][4]float64{{0.75, 0.875, 0.75, 0.5}, {0.5, math.Inf(1), 0.875, 0.75}}
	f.served.Tuning = &model.Tuning{
		Digest: "d1", ChosenAt: testTime,
		Choice: model.Choice{
			Folds: 2, Criterion: tuning.Correctness.String(), Nu: 1, Method: "psvm", Best: 0.875,
			Curves: []model.TuningCurve{curve(false, 42, figures...), curve(true, 0, figures...)},
			Finals: []model.TuningFinal{{Nu: 1, Method: "psvm", Correctness: 0.875, BalancedCorrectness: 0.75}},
		},
	}
	f.calibrate(calibration.Sigmoid{A: -2, B: 0})
	reliability := func(p ...float64) *model.Reliability {
		r, err := calibration.Measure(p, []bool{false, true, true, true}, nil, 2)
		if err != nil {
			t.Fatal(err)
		}
		r.LogLoss = math.Round(r.LogLoss*64) / 64 // the same on every processor
		return model.NewReliability(r)
	}
	before, after := reliability(0, 0.25, 0.5, 1), reliability(0.25, 0.75, 0.75, 1)
	f.served.Quality = &model.Quality{
		Digest: "d1", MeasuredAt: testTime, Source: "sample", Rows: 4, Folds: 2, Method: "full",
		Answers:     model.NewAnswers(decision.Probability, f.served.Model.Classes, testConfusion(), []float64{0.75, 0.75}),
		Calibration: config.CalibrationPlatt, Before: before, After: after,
		Planes: []model.PlaneQuality{{Class: "spam", Before: before, After: after}},
	}
	solved, hat, err := solvable(t, f.served.Model.Features, f.served.Model.Classes)
	if err != nil {
		t.Fatal(err)
	}
	solved.Planes = f.served.Model.Planes
	solved.Mean = f.served.Model.Mean
	f.served.Model, f.served.Hat, f.served.Absent = solved, hat, model.Absent{}
}

// solvable solves for four rows of two features.
func solvable(t testing.TB, features, classes []string) (*incremental.Model, *incremental.Hat, error) {
	t.Helper()
	var z incremental.Summariser
	summary, err := z.Summarise(&incremental.Block{
		Features: features, Classes: classes, Codes: []int32{0, 0, 1, 1},
		Columns: []gram.Column{gram.ColumnOf([]float64{1, -1, 0, 0}), gram.ColumnOf([]float64{0, 0, 1, -1})},
	})
	if err != nil {
		t.Fatal(err)
	}
	state := incremental.NewState(features)
	state.Add(summary)
	return state.Moments().SolveWithHat(incremental.Options{Nu: 1})
}

// newServer makes a server where everybody has every role. Requests of httptest are for
// example.com.
func newServer(f *fake) *Server {
	guard, err := access.New(config.HTTP{Hosts: []string{"example.com", "streamd"}}, zerolog.Nop())
	if err != nil {
		panic(err) // it reads no file
	}
	return New(Config{Access: guard, Name: "default"}, f, NewMetrics(), zerolog.Nop())
}

// Tokens of a guarded server, one for each role.
const (
	readToken    = "read-0123456789abcdef"
	predictToken = "predict-0123456789abcdef"
	retireToken  = "retire-0123456789abcdef"
	adminToken   = "admin-0123456789abcdef"
)

// guard has a token for each role, and anonymous callers with the given roles.
func guard(t testing.TB, anonymous config.Roles) *access.Guard {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	lines := "reader read " + readToken + "\npredictor predict " + predictToken + "\nprivacy retire " + retireToken + "\nops admin " + adminToken + "\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := access.New(config.HTTP{TokensFile: file, Anonymous: anonymous, Hosts: []string{"example.com"}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// do answers one request; headers are "Name: value".
func do(s http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func decodeJSON[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode %q: %v", w.Body, err)
	}
	return v
}
