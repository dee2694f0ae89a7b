package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/config"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Clients depend on these bodies.
func TestGoldenAnswers(t *testing.T) {
	for name, request := range map[string]struct{ method, target, body string }{
		"model":   {"GET", "/v1/model", ""},
		"predict": {"POST", "/v1/predict?contributions=true", "2,0.5\n0,1\n"},
		"refine":  {"POST", "/v1/refine", ""},
		"tuning":  {"GET", "/v1/tuning", ""},
		"quality": {"GET", "/v1/quality", ""},
	} {
		f := newFake()
		f.answers(t)
		// Exact on every processor, unlike exp and log.
		f.calibrate(calibration.Isotonic{Values: []float64{-3, 1}, Probabilities: []float64{0, 1}})
		f.price()
		w := do(newServer(f), request.method, request.target, request.body, "Content-Type: text/csv")
		if w.Code != 200 {
			t.Fatalf("%s: status %d: %s", name, w.Code, w.Body)
		}
		var got bytes.Buffer
		if err := json.Indent(&got, w.Body.Bytes(), "", "  "); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file := "testdata/" + name + ".golden.json"
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s is not %s (-update writes it anew):\n%s", name, file, got.Bytes())
		}
	}
}

// A prediction agrees with the packages that compute its parts.
func TestPredictAgreesWithItsParts(t *testing.T) {
	f := newFake()
	f.answers(t)
	m := f.served.Model
	columns := []gram.Column{gram.ColumnOf([]float64{2, 0, -3}), gram.ColumnOf([]float64{0.5, 1, 7})}
	w := do(newServer(f), "POST", "/v1/predict?contributions=true&leverage=true", "2,0.5\n0,1\n-3,7\n", "Content-Type: text/csv")
	a := decodeJSON[predictions.PredictAnswer](t, w)
	const rows = 3
	leverage := make([]float64, rows)
	f.served.Hat.Leverage(leverage, columns)
	if a.Method != "full" || a.Calibration != config.CalibrationPlatt || !reflect.DeepEqual(a.Leverage.Typical, f.served.Hat.Typical()) {
		t.Errorf("answer %+v", a)
	}
	for i := range rows {
		raw := make([]float64, 1)
		m.Classify(make([]int32, 1), raw, []gram.Column{columns[0].Slice(i, i+1), columns[1].Slice(i, i+1)})
		p := make([]float64, 2)
		calibration.Probabilities(p, f.served.Calibration, raw)
		if !reflect.DeepEqual(a.Probabilities[i], p) {
			t.Errorf("row %d: probabilities %v, want %v", i, a.Probabilities[i], p)
		}
		if odds := math.Log(p[1] / p[0]); math.Abs(a.Values[i][0]-odds) > 1e-12 || (a.Labels[i] == m.Planes[0].Class) != (odds >= 0) {
			t.Errorf("row %d: label %s and value %v by log odds of %v", i, a.Labels[i], a.Values[i], odds)
		}
		if got := a.Leverage.Rows[i]; len(got) != 1 || got[0] != leverage[i] {
			t.Errorf("row %d: leverage %v, want %v", i, got, leverage[i])
		}
		sum := a.Contributions.AtMean[0]
		for _, c := range a.Contributions.Rows[i][0] {
			sum += c
		}
		if len(a.Contributions.Rows[i][0]) != len(m.Features) || math.Abs(sum-raw[0]) > 1e-12 {
			t.Errorf("row %d: contributions %v add up to %v, not %v", i, a.Contributions.Rows[i], sum, raw[0])
		}
	}
}

// Requests are bounded, and the error states the bound.
func TestAnswersAreBounded(t *testing.T) {
	f := newFake()
	f.answers(t)
	wide := *f.served
	wide.Model = wideModel(10, 256)
	wide.Rule = decision.ByProbability(slices.Repeat([]calibration.Curve{calibration.Sigmoid{A: -1}}, 10))
	s := newServer(f)
	for _, test := range []struct {
		served *model.Served
		rows   int
		ask    asked
		want   string // part of the error; "": allowed
	}{
		{&wide, MaxRows, asked{}, ""},
		{&wide, MaxRows + 1, asked{}, "takes at most 100000"},
		{&wide, MaxRows, asked{contributions: 256}, "send at most 1625 rows, or ask for fewer contributions with top=N"},
		{&wide, 1625, asked{contributions: 256}, ""},
		{&wide, 1626, asked{contributions: 256}, "1626 rows with 2580 numbers each"},
		{f.served, MaxRows, asked{contributions: 2, leverage: true}, ""},
	} {
		err := s.checkSize(test.rows, test.served, test.ask)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d rows, %+v: %v, want %q", test.rows, test.ask, err, test.want)
		}
	}
	far := *f.served
	far.Model = wideModel(2, 4096)
	if err := s.checkSize(513, &far, asked{leverage: true}); err == nil || !strings.Contains(err.Error(), "takes at most 512") {
		t.Errorf("leverage of 513 rows by 4096 features: %v", err)
	}
	if err := s.checkSize(512, &far, asked{leverage: true}); err != nil {
		t.Error(err)
	}
}

// A refinement that outlasts the client's wait goes on, and the answer says so.
func TestRefineThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			query  string
			slow   time.Duration
			status int
			waited time.Duration
		}{
			{"", MaxWait - 1, 200, MaxWait - 1},
			{"", MaxWait + 1, 202, MaxWait},
			{"?wait=1h", time.Hour, 202, MaxWait},
			{"?wait=2s", time.Hour, 202, 2 * time.Second},
			{"?wait=0s", time.Hour, 202, 0},
		} {
			f := newFake()
			f.slow = test.slow
			began := time.Now()
			w := do(newServer(f), "POST", "/v1/refine"+test.query, "")
			a := decodeJSON[RefineAnswer](t, w)
			if w.Code != test.status || a.Done != (w.Code == 200) || a.Done != (a.Refinement != nil) || time.Since(began) != test.waited {
				t.Errorf("%+v: status %d after %v, %+v", test, w.Code, time.Since(began), a)
			}
		}
	})
}

func BenchmarkPredictionContributions(b *testing.B) {
	for _, most := range []int{10, 256} {
		b.Run(fmt.Sprintf("top=%d", most), func(b *testing.B) {
			m := wideModel(10, 256)
			m.Mean = make([]float64, 256)
			columns := make([]gram.Column, 256)
			for j := range columns {
				columns[j] = gram.ColumnOf(m.Planes[0].W)
			}
			served := &model.Served{Model: m}
			for b.Loop() {
				p, err := predict(served, columns, 256, asked{contributions: most})
				if err != nil {
					b.Fatal(err)
				}
				if err := p.write(discard{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*256*10), "ns/row/plane")
		})
	}
}
