package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/reduce"
)

// onBasis makes f serve a classifier on a basis of two points.
func onBasis(t *testing.T, f *fake) {
	t.Helper()
	kernel, err := kernels.Gaussian(0.5)
	if err != nil {
		t.Fatal(err)
	}
	m, err := kernels.NewMap(kernel, 2, []float64{0, 1, 2, -1})
	if err == nil {
		m, err = m.Scaled([]float64{1, 2}, []float64{1, 0.5})
	}
	if err != nil {
		t.Fatal(err)
	}
	block := &incremental.Block{
		Columns: []gram.Column{gram.ColumnOf([]float64{1, 2, -1, 0}), gram.ColumnOf([]float64{2, 3, 1, 2})},
		Classes: []string{"ham", "spam"}, Codes: []int32{0, 0, 1, 1},
	}
	var z incremental.Summariser
	in := *block
	in.Columns = kernels.NewMapper(m).Map(block.Columns)
	s, err := z.Summarise(&in)
	if err != nil {
		t.Fatal(err)
	}
	state := incremental.NewState(m.Names())
	state.Add(s)
	solved, hat, err := state.Moments().SolveWithHat(incremental.Options{Nu: 10})
	if err != nil {
		t.Fatal(err)
	}
	f.serve(func(s *model.Served) {
		s.Model, s.Hat, s.Absent.Hat = solved, hat, ""
		s.Basis = &model.Basis{ID: "b1", Map: m, Features: []string{"len", "caps"}, Regulariser: config.RegulariserIdentity}
	})
}

// Rows have features while the model is in the coordinates of its basis. A client that
// reads the model back gives the same answers as the daemon.
func TestKernelModel(t *testing.T) {
	f := newFake()
	onBasis(t, f)
	s := newServer(f)
	m := decodeJSON[ModelAnswer](t, do(s, "GET", "/v1/model", ""))
	if m.BasisID != "b1" || len(m.Basis.Points) != 2 || !reflect.DeepEqual(m.Features, []string{"len", "caps"}) || len(m.Planes[0].W) != 2 {
		t.Errorf("the model is %+v", m)
	}
	c, err := m.Classifier()
	if err != nil {
		t.Fatal(err)
	}
	const rows = 2500 // several stretches
	var body strings.Builder
	x, y := make([]float64, rows), make([]float64, rows)
	for i := range rows {
		x[i], y[i] = float64(i%13)-6, float64(i%7)
		body.WriteString(fmt.Sprintf("%g,%g\n", x[i], y[i]))
	}
	columns := []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	class, values := make([]int32, rows), make([]float64, rows)
	c.Classify(class, values, columns)
	leverage := make([]float64, rows)
	f.served.Hat.Leverage(leverage, kernels.NewMapper(f.served.Basis.Map).Map(columns))
	a := decodeJSON[predictions.PredictAnswer](t, do(s, "POST", "/v1/predict?leverage=true", body.String(), "Content-Type: text/csv"))
	for i := range rows {
		if a.Labels[i] != m.Classes[class[i]] || a.Values[i][0] != values[i] || math.Abs(a.Leverage.Rows[i][0]-leverage[i]) > 1e-12 {
			t.Fatalf("row %d: %s, %v, leverage %v; want %s, %v, %v", i, a.Labels[i], a.Values[i], a.Leverage.Rows[i], m.Classes[class[i]], values[i], leverage[i])
		}
	}
	w := do(s, "POST", "/v1/predict?contributions=true", "1,2\n", "Content-Type: text/csv")
	if w.Code != 400 || !strings.Contains(w.Body.String(), "kernel's basis") {
		t.Errorf("contributions: %d %s", w.Code, w.Body)
	}
	if page := viewOf(f, viewModel); !strings.Contains(page, "gaussian(gamma=0.5)") || !strings.Contains(page, "b1") {
		t.Error("the page does not show the basis")
	}
}

// A stage reports its last classifier. With fewer points than wanted, that is the one that
// chose them.
func TestStageOfTheLastClassifier(t *testing.T) {
	chosen := reduce.Step{Points: 3, SupportVectors: 5, Training: 0.75, Testing: 0.5}
	reduced := reduce.Step{Points: 2, SupportVectors: 7, Training: 0.625, Testing: 0.25}
	for _, c := range []struct {
		stage reduce.Stage
		want  reduce.Step
	}{
		{reduce.Stage{Classifier: chosen}, chosen},
		{reduce.Stage{Classifier: chosen, Reduced: reduced}, reduced},
		{reduce.Stage{Reduced: reduce.Step{Training: 0.5}}, reduce.Step{Training: 0.5}}, // no point has a coefficient
	} {
		s := model.NewStage(c.stage, []string{"ham"})
		if got := (reduce.Step{Points: s.Points, SupportVectors: s.SupportVectors, Training: s.Training, Testing: s.Testing}); got != c.want {
			t.Errorf("%+v, not %+v", got, c.want)
		}
	}
}

// The page has a picture of two features behind a kernel, and no other.
func TestRegions(t *testing.T) {
	f := newFake()
	f.status.Epoch = rebuilding()
	s := newServer(f)
	if w := do(s, "GET", "/v1/regions", ""); w.Code != http.StatusNotFound {
		t.Errorf("planes of features: %d %s", w.Code, w.Body)
	}
	if strings.Contains(viewOf(f, viewModel), "/v1/regions") {
		t.Error("the page shows regions of planes of features")
	}
	onBasis(t, f)
	w := do(s, "GET", "/v1/regions", "")
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "image/svg+xml" || !strings.HasPrefix(w.Body.String(), "<svg") {
		t.Errorf("%d %v %.100s", w.Code, w.Header(), w.Body)
	}
	for _, name := range f.served.Basis.Features {
		if !strings.Contains(w.Body.String(), ">"+name+"<") {
			t.Errorf("the picture does not name %s", name)
		}
	}
	narrow := do(s, "GET", "/v1/regions?narrow=true", "")
	if narrow.Code != http.StatusOK || !strings.Contains(narrow.Body.String(), `viewBox="0 0 400 `) || strings.Contains(w.Body.String(), `viewBox="0 0 400 `) {
		t.Errorf("the picture for a phone: %d %.100s", narrow.Code, narrow.Body)
	}
	page := viewOf(f, viewModel)
	if !strings.Contains(page, `src="/v1/regions?`) {
		t.Error("the page does not show the regions")
	}
	if !strings.Contains(page, "<dd>2</dd>") {
		t.Error("the page does not count the features")
	}
	m, err := f.served.Basis.Map.Scaled([]float64{1, 2}, []float64{3, 4})
	if err != nil {
		t.Fatal(err)
	}
	f.served.Basis.Map = m
	if !strings.Contains(viewOf(f, viewModel), "<dd>2, scaled</dd>") {
		t.Error("the page does not say that features are scaled")
	}
}

// A pruning is asked for with its size. Whatever else is in the query is refused, and nothing
// begins.
func TestPruneQuery(t *testing.T) {
	f := newFake()
	f.epoch = &EpochAnswer{}
	s := newServer(f)
	for query, want := range map[string]string{
		"": "", "?prune=lda&basis=20": "lda 20", "?basis=1&prune=cholesky": "cholesky 1", "?prune=fisher&basis=2147483647": "fisher 2147483647", "?prune=eigen&basis=7": "eigen 7",
	} {
		f.pruned = ""
		if w := do(s, "POST", "/v1/reduce"+query, ""); w.Code != 202 || f.pruned != want {
			t.Errorf("%q: %d, pruned %q: %s", query, w.Code, f.pruned, w.Body)
		}
	}
	for query, says := range map[string]string{
		"?prune=lda":                  "goes with basis",
		"?basis=20":                   "goes with prune",
		"?prune=kmeans&basis=20":      "one of lda, fisher, cholesky, eigen",
		"?prune=&basis=20":            "one of lda",
		"?prune=lda&basis=0":          "whole number",
		"?prune=lda&basis=-3":         "whole number",
		"?prune=lda&basis=2e1":        "whole number",
		"?prune=lda&basis=1&basis=2":  "2 times",
		"?prune=lda&basis=1&points=2": "unknown",
	} {
		f.pruned = ""
		if w := do(s, "POST", "/v1/reduce"+query, ""); w.Code != 400 || f.pruned != "" || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%q: %d, pruned %q: %s", query, w.Code, f.pruned, w.Body)
		}
	}
	f.err = fmt.Errorf("prune: the basis has no such part: %w", ErrUnfit)
	if w := do(s, "POST", "/v1/reduce?prune=lda&basis=20", ""); w.Code != 409 || !strings.Contains(w.Body.String(), "no such part") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// A query either names a pruning and its size, or nothing, or it is refused.
func FuzzPruneQuery(f *testing.F) {
	for _, query := range []string{"", "prune=lda&basis=20", "prune=lda", "basis=3", "prune=eigen&basis=0", "prune=lda;basis=1", "prune=%6cda&basis=+1", "basis=9&prune=cholesky"} {
		f.Add(query)
	}
	service := newFake()
	service.epoch = &EpochAnswer{}
	s := newServer(service)
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("POST", "/v1/reduce", nil)
		r.URL.RawQuery = query
		service.pruned = ""
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		given, err := url.ParseQuery(query)
		want := ""
		how, basis := given.Get("prune"), given.Get("basis")
		if n, bad := strconv.ParseInt(basis, 10, 32); bad == nil && n > 0 && slices.Contains(reduce.Prunings(), reduce.Pruning(how)) {
			want = fmt.Sprint(how, " ", n)
		}
		switch {
		case w.Code == 400 && service.pruned == "":
		case w.Code == 202 && err == nil && len(given) == 2 && service.pruned == want && want != "":
		case w.Code == 202 && err == nil && len(given) == 0 && service.pruned == "":
		default:
			t.Errorf("%q: %d, pruned %q, want %q", query, w.Code, service.pruned, want)
		}
	})
}
