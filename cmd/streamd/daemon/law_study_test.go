package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// studied counts what the live sets of studies were, so that a test can tell that it reaches
// all of them.
type studied map[string]int

// needs fails the test where some of the names were never counted.
func (s studied) needs(t *testing.T, names ...string) {
	t.Helper()
	t.Logf("%v", map[string]int(s))
	for _, name := range names {
		if s[name] == 0 {
			t.Errorf("no study: %s", name)
		}
	}
}

// studyFlags are random settings of everything that a study does.
func studyFlags(r *rand.Rand) map[string]string {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	flags := map[string]string{
		"model.nu": one("auto", "auto", "auto", "0.5"), "model.folds": one("2", "3"), "sample.rows": one("3", "40"),
		"model.refine":      one("none", "line", "full", "logistic", "hinge", "sparse", "minimal", "features", "nlp", "auto", "unlabelled"),
		"model.standardise": one("true", "false", "auto"), "model.balanced": one("true", "false", "auto"),
		"model.calibration": one("auto", "platt", "isotonic", "softmax", "none"), "model.objective": one("accuracy", "balanced"),
		"model.decision": one("probability", "value", "cost"), "model.method": one("psvm", "psvm", "psvm", "means", "lasso"),
		"sample.balanced": one("true", "false"),
	}
	if r.IntN(3) == 0 {
		maps.Copy(flags, map[string]string{
			"kernel.function": one("gaussian", "gaussian(gamma=0.1)", "polynomial(a=1,b=1,degree=2)"), "kernel.basis": one("2", "5"),
			"kernel.reduce": one("kmeans", "kmedian", "random", "stratified", "lda", "cholesky", "slmc", "rs", "skfd", "cs", "eigen"),
			"kernel.rows":   one("1", "6"), "kernel.regulariser": one("identity", "kernel"), "kernel.on_retire": one("reduce", "keep"),
		})
	}
	if flags["model.decision"] == "cost" {
		flags["model.costs"] = "0>1=5"
	}
	return flags
}

// studySettings are the flags of a history's daemon with random settings of studies. Settings that
// do not go together are drawn again.
func (h *logHistory) studySettings(t *testing.T) map[string]string {
	t.Helper()
	for range 1000 {
		flags := maps.Clone(h.flags)
		delete(flags, "retire.topic")
		maps.Copy(flags, studyFlags(h.r))
		if flags["model.refine"] == "unlabelled" {
			flags["blocks.unlabelled"] = "keep"
		}
		if _, err := config.Load(config.Sources{Flags: flags}); err == nil {
			return flags
		}
	}
	t.Fatal("no settings go together")
	return nil
}

// study lets everything beside the loop work on the live set once: the sample, the basis, the
// study and the planes.
func (o *offline) study() {
	o.t.Helper()
	await := func(busy func() bool) {
		for busy() {
			(<-o.Calls)()
		}
	}
	o.filling.Retry()
	o.filling.WhenDue(time.Now())
	await(o.filling.IsUnderWay)
	r := o.Bases
	for range 3 { // choose, build, switch
		r.RetryAt(time.Time{})
		r.WhenDue(time.Now())
		await(r.IsUnderWay)
	}
	o.Studies.BeginStudy(time.Now())
	await(o.Studies.IsUnderWay)
	o.publisher.Solve(time.Now())
	await(func() bool { return o.Solving != nil })
	o.updateStatus()
	if o.Failure != nil || o.Failing() > 0 {
		o.t.Fatalf("%v, %d failed jobs", o.Failure, o.Failing())
	}
}

// count notes what the live set and the last study are.
func (s studied) count(o *offline) {
	served := o.Front.Served()
	some, labelled := o.Live.Rows() > 0, o.Live.Rows()-o.Live.Unlabelled() > 0
	for name, is := range map[string]bool{
		"of an empty live set": !some, "of rows without labels alone": some && !labelled,
		"of one class": labelled && !o.Live.Parted(), "of several classes": o.Live.Parted(),
		"ν was chosen": served.Tuning != nil, "no ν could be chosen": o.Learner.Tunes() && served.Tuning == nil && served.Model != nil,
		"in a basis": served.Basis != nil, "calibrated": served.Calibration != nil, "judged": served.Quality != nil,
		"planes of " + o.flags["model.refine"]: served.Refinement != nil,
	} {
		if is {
			s[name]++
		}
	}
}

// answers asks for everything that is read off a study, and for the page. No answer is an internal
// error, and all of JSON is JSON: it has no NaN.
func (o *offline) answers() {
	o.t.Helper()
	o.consume()
	guard, err := access.New(o.Config.HTTP, zerolog.Nop())
	if err != nil {
		o.t.Fatal(err)
	}
	api := httpapi.New(httpapi.Config{Access: guard, Rows: o.Decoding}, o.Daemon, httpapi.NewMetrics(), zerolog.New(zerolog.NewTestWriter(o.t)).Level(zerolog.ErrorLevel))
	for _, path := range []string{
		"/v1/model", "/v1/tuning", "/v1/quality", "/v1/prequential", "/v1/status", "/v1/epoch", "/v1/label-requests", "/v1/regions",
		"/", "/?view=model", "/?view=quality", "/?view=stream", "/?view=blocks", "/?view=past",
	} {
		w := httptest.NewRecorder()
		o.play(func() { api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)) }, func() {})
		body := w.Body.String()
		isJSON := strings.HasPrefix(path, "/v1/") && w.Header().Get("Content-Type") == "application/json"
		if w.Code == http.StatusInternalServerError || isJSON && !json.Valid([]byte(body)) || strings.Contains(body, "NaN") || strings.Contains(body, "Inf<") {
			o.t.Fatalf("%s: %d: %s", path, w.Code, body)
		}
	}
}

// Studies of the live sets of random histories: with rows without labels, of one class, of weight 0
// and in small blocks, as they come and as they go, and of no rows at all. ν, scaling, every
// refinement, calibration, rule and basis are chosen. No study fails because of a bug, and what
// is answered has no NaN. STREAMD_HISTORIES and STREAMD_HISTORY choose the histories, as of
// TestLaw.
func TestStudiesOfHistories(t *testing.T) {
	first, histories := someHistories(t, 100)
	seen := studied{}
	for seed := first; seed < first+histories; seed++ {
		h := newHistory(seed)
		flags := h.studySettings(t)
		flags["snapshot.file"] = filepath.Join(t.TempDir(), "s")
		o := h.begin(t, flags, false)
		ran := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("%v", o.flags)
				}
			}()
			o.t = t
			for range 4 {
				for partition := range h.log {
					h.read(o, partition, 1+h.r.IntN(12))
				}
				o.study()
				seen.count(o)
				gone := h.r.IntN(6)
				if h.r.IntN(3) == 0 {
					gone = o.Live.Blocks() // all of them
				}
				for range gone {
					o.FlushRuns()
					o.retireAny(h.r)
				}
				o.study()
				seen.count(o)
				o.answers()
			}
		})
		o.Store.Close()
		if !ran {
			break
		}
	}
	if histories >= 100 {
		want := []string{
			"of an empty live set", "of rows without labels alone", "of one class", "of several classes",
			"ν was chosen", "no ν could be chosen", "in a basis", "judged", // too few rows for calibration
		}
		for _, method := range []string{"line", "full", "logistic", "hinge", "sparse", "minimal", "features", "nlp", "unlabelled"} {
			want = append(want, "planes of "+method)
		}
		seen.needs(t, want...)
	}
}

// The daemon as a whole studies the live sets of random histories, whose records a broker has: a
// real one where STREAMD_TEST_BROKERS names it. Blocks are retired, planes refined and bases chosen
// on request, and the daemon is started again, while it reads. None of it ends the daemon, and no
// job fails because of a bug.
func TestStudiesThroughKafka(t *testing.T) {
	first, histories := someHistories(t, 20)
	for seed := first; seed < first+histories; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { studyThroughKafka(t, newHistory(seed)) })
	}
}

func studyThroughKafka(t *testing.T, h *logHistory) {
	name := topic(t, len(h.log))
	flags := h.studySettings(t)
	for _, key := range []string{"kafka.brokers", "kafka.topic", "snapshot.file"} {
		delete(flags, key)
	}
	flags["model.refine_interval"] = "20ms"
	file := filepath.Join(t.TempDir(), "streamd.db")
	i := start(t, name, file, flags)
	defer func() {
		if t.Failed() {
			t.Logf("%v", flags)
		}
	}()
	var produced int64
	for len(slices.Concat(h.log...)) > 0 {
		for partition, rest := range h.log {
			some := rest[:min(len(rest), 1+h.r.IntN(20))]
			h.log[partition] = rest[len(some):]
			produce(t, name, onBroker(partition, some)...)
			produced += int64(len(some))
		}
		i.studied(produced)
		switch h.r.IntN(5) {
		case 0:
			i.stop()
			i = start(t, name, file, flags)
		case 1:
			i.Reduce(t.Context()) // an error says that there is no kernel, or too few rows
		case 2:
			if i.Learner.Refines() {
				i.Refine(t.Context()) // an error is the study's
			}
		default:
			i.retireSome(h.r)
		}
		i.studied(produced)
	}
	i.stop()
}

// onBroker are records as messages, without the times that a broker refuses.
func onBroker(partition int, records []kafka.Record) (all []message) {
	for _, r := range records {
		if !retire.ValidTime(r.Time) || r.Time.After(time.Now()) {
			r.Time = time.Time{}
		}
		all = append(all, message{partition: partition, key: r.Key, value: r.Value, headers: r.Headers, time: r.Time})
	}
	return all
}

// retireSome retires some live blocks, or all of them.
func (i *instance) retireSome(r *rand.Rand) {
	i.t.Helper()
	blocks, _, err := i.Blocks(i.t.Context(), false, "", 1000)
	if err != nil {
		i.t.Fatal(err)
	}
	var s retire.Selector
	all := r.IntN(3) == 0
	for _, b := range blocks {
		if all || r.IntN(3) == 0 {
			s.IDs = append(s.IDs, b.ID)
		}
	}
	if len(s.IDs) == 0 {
		return
	}
	if _, err := i.Retire(i.t.Context(), s, httpapi.RetireOptions{}); err != nil {
		i.t.Fatal(err)
	}
}

// studied waits until the daemon has read so many records and has studied what is live.
func (i *instance) studied(records int64) {
	i.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		var read, rows int64
		var done bool
		err := i.Call(i.t.Context(), func() error {
			read, rows = i.Intake.Report().Records.Read, i.Live.Rows()
			done = read == records && (rows == 0 || i.Studies.IsCurrent())
			return i.Failure
		})
		failed := i.Failing()
		select {
		case err = <-i.done:
			i.t.Fatalf("the daemon has ended: %v", err)
		default:
		}
		switch {
		case err != nil || failed > 0:
			i.t.Fatalf("%v, %d jobs have failed", err, failed)
		case done:
			return
		case time.Now().After(deadline):
			i.t.Fatalf("%d of %d records are read, %d rows live, and not studied: %+v", read, records, rows, i.Status())
		}
	}
}
