package bench

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// An answer without a model is a gap, but not before the first model.
func TestModelGaps(t *testing.T) {
	const refused, none, model = 500, 503, 200
	answered := []int{none, none, model, model, none, refused, model}
	ctx, enough := context.WithCancel(t.Context())
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked == len(answered) {
			enough()
			<-r.Context().Done()
			return
		}
		w.WriteHeader(answered[asked])
		asked++
	}))
	defer server.Close()
	w := &working{d: &process{base: server.URL, client: server.Client()}, first: make(chan struct{})}
	got := w.ask(ctx)
	if got.models != 3 || got.gaps != 2 {
		t.Errorf("%d models and %d gaps, want 3 and 2", got.models, got.gaps)
	}
	if got.longest < 3*modelPoll {
		t.Errorf("the longest time without a model was %v, and two requests lie between two models", got.longest)
	}
	select {
	case <-w.first:
	default:
		t.Error("the first model is not announced")
	}
}

func TestMoment(t *testing.T) {
	text := `# HELP streamd_rows_read_total Rows read.
streamd_rows_read_total 6e+07
streamd_rows_total{outcome="rejected"} 3
streamd_rows_total{outcome="summarised"} 5
process_cpu_seconds_total 1.25
`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) }))
	defer server.Close()
	d := &process{base: server.URL, client: server.Client()}
	got, err := d.moment(t.Context())
	if want := (moment{at: got.at, rows: 60_000_000, rejected: 3, cpu: 1.25}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	text = "process_cpu_seconds_total 1.25\n"
	if _, err := d.moment(t.Context()); err == nil {
		t.Error("no error without the number of rows")
	}
}

func TestStudyShare(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	run := backgroundRun{
		sample: Sample{Ops: 1, Rows: 1, Seconds: 10}, from: moment{at: at(0)}, to: moment{at: at(10)},
		studies: []studied{{at(1), at(3)}, {at(9), at(13)}},
	}
	if got := run.studyShare(); got != 0.3 {
		t.Errorf("a share of %v, want 0.3: what is after the rows does not count", got)
	}
	if got := run.studySeconds(); got != 3 {
		t.Errorf("a study took %v s, want 3", got)
	}
}

func TestAtInterval(t *testing.T) {
	const interval = 10 * time.Second
	for _, c := range []struct{ ratio, share, seconds, want float64 }{
		{0.5, 1, 0.1, 1 - 0.5*0.1/10.1}, // all the time, and then once in the interval
		{0.9, 0.2, 0.1, 1 - 0.5*0.1/10.1},
		{0.5, 1, 2, 1 - 0.5/21},                 // a twentieth of the time
		{0.99, 0.1 / 10.1, 0.1, 0.99},           // as far apart as they are
		{1.02, 0.5, 0.1, 1 + 0.02*0.1/10.1/0.5}, // noise stays noise
	} {
		if got := atInterval(c.ratio, c.share, c.seconds, interval); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
