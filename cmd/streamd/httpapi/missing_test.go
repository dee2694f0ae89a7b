package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/wire"
)

// gappyRows are rows as clients have them. a and b may lack values that count as the mean, c such
// that a feature marks, and d such that are 0. b lacks none.
func gappyRows(rows int, seed uint64) (all []map[string]*float64, text []byte) {
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range rows {
		label := i % 2
		row := map[string]*float64{}
		record := map[string]any{"label": label}
		for name, shift := range map[string]float64{"a": 50, "b": -70, "c": 3, "d": 9} {
			x := shift + float64(label) + r.NormFloat64()
			if row[name] = &x; name != "b" && r.IntN(4) == 0 {
				row[name] = nil
			}
			record[name] = row[name]
		}
		line, err := json.Marshal(record)
		if err != nil {
			panic(err)
		}
		all, text = append(all, row), append(append(text, line...), '\n')
	}
	return all, text
}

// A client that does with a row what /v1/model says about missing values, and nothing else, has the
// daemon's decision values. Features that are imputed have no column of marks, and so none that
// are never missing have one with a weight.
func TestModelSaysHowToFillMissingValues(t *testing.T) {
	_, text := gappyRows(400, 1)
	for _, standardise := range []bool{false, true} {
		missing := wire.Missing{Default: wire.MissingMean, Features: map[string]wire.MissingPolicy{"c": wire.MissingIndicator, "d": wire.MissingZero}}
		options := wire.Options{Label: "label", Features: missing.Columns([]string{"a", "b", "c", "d"}), Missing: missing, Format: wire.JSON}
		decoder, err := wire.NewDecoder(options)
		if err != nil {
			t.Fatal(err)
		}
		b, err := decoder.Decode("application/json", text)
		if err != nil {
			t.Fatal(err)
		}
		var z incremental.Summariser
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		state := incremental.NewState(b.Features)
		state.Add(s)
		solved, err := state.Moments().Solve(incremental.Options{Nu: 1, Standardise: standardise, Mean: missing.Means(b.Features)})
		if err != nil {
			t.Fatal(err)
		}
		f := newFake()
		f.serve(func(s *model.Served) { s.Model, s.Missing, s.Fingerprint = solved, missing, fmt.Sprint(standardise) })
		guard, err := access.New(config.HTTP{Hosts: []string{"example.com"}}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		api := New(Config{Access: guard, Rows: wire.Options{Missing: missing}}, f, NewMetrics(), zerolog.Nop())
		var told struct {
			Features []string
			Planes   []struct {
				W     []float64
				Gamma float64
			}
			Missing []struct {
				Feature, Policy, Column string
				Mean                    *float64
			}
		}
		if err := json.Unmarshal(do(api, "GET", "/v1/model", "").Body.Bytes(), &told); err != nil {
			t.Fatal(err)
		}
		if want := []string{"a", "b", "c", "c missing", "d"}; !slices.Equal(told.Features, want) || len(told.Missing) != 4 {
			t.Fatalf("features %q, missing %+v", told.Features, told.Missing)
		}
		rows, body := gappyRows(50, 2)
		var said predictions.PredictAnswer
		w := do(api, "POST", "/v1/predict?contributions=true", string(body), "Content-Type: application/json")
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || len(said.Values) != len(rows) {
			t.Fatal(w.Body, err)
		}
		for i, row := range rows {
			x := map[string]float64{}
			for name, value := range row {
				if value != nil {
					x[name] = *value
				}
			}
			for _, m := range told.Missing {
				switch gone := row[m.Feature] == nil; {
				case gone && m.Policy == "mean":
					x[m.Feature] = *m.Mean
				case gone && m.Policy == "indicator":
					x[m.Column] = 1
				}
			}
			value := -told.Planes[0].Gamma
			for j, name := range told.Features {
				value += told.Planes[0].W[j] * x[name]
			}
			if got := said.Values[i][0]; !(math.Abs(got-value) < 1e-9) {
				t.Errorf("row %d of %v: the daemon says %v, the model %v", i, row, got, value)
			}
			if of := said.Contributions.Rows[i][0]; len(of) != len(told.Features) {
				t.Fatalf("contributions %v of features %q", of, told.Features)
			}
		}
		// Read back, the answer classifies rows that lack values like the daemon.
		var answer ModelAnswer
		if err := json.Unmarshal(do(api, "GET", "/v1/model", "").Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		c, err := answer.Classifier()
		if err != nil {
			t.Fatal(err)
		}
		options.Features, options.Missing = c.Features, c.Missing
		if decoder, err = wire.NewDecoder(options); err != nil {
			t.Fatal(err)
		}
		if b, err = decoder.Decode("application/json", body); err != nil {
			t.Fatal(err)
		}
		values := make([]float64, len(rows))
		c.Classify(make([]int32, len(rows)), values, b.Columns)
		for i, value := range values {
			if math.Abs(value-said.Values[i][0]) > 1e-9 {
				t.Errorf("row %d: read back, the model says %v, the daemon %v", i, value, said.Values[i][0])
			}
		}
	}
}

// A saved model that treats missing values in two ways is refused.
func TestModelWithContradictoryMissingValues(t *testing.T) {
	for name, missing := range map[string]string{
		"marks of a mean":           `{"feature":"a","policy":"mean","mean":3}`,
		"mean without a number":     `{"feature":"b","policy":"mean"}`,
		"number without a mean":     `{"feature":"b","policy":"zero","mean":3}`,
		"indicator without a place": `{"feature":"b","policy":"indicator","column":"b missing"}`,
		"twice":                     `{"feature":"b","policy":"zero"},{"feature":"b","policy":"zero"}`,
		"another feature":           `{"feature":"c","policy":"zero"}`,
	} {
		text := `{"features":["a","a missing","b"],"classes":["0","1"],"planes":[{"class":"1","w":[1,2,3],"gamma":0}],"missing":[` + missing + `]}`
		var answer ModelAnswer
		if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		if _, err := answer.Classifier(); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
