package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/cmd/streamd/predictions"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
)

// clientModel is as much of the body of /v1/model as a client reads to label rows.
type clientModel struct {
	Classes []string
	Planes  []struct {
		Class string
		W     []float64
		Gamma float64
	}
	Calibration *struct {
		Method string
		Planes []struct {
			A, B                  float64
			Values, Probabilities []float64
		}
	}
	Decision struct {
		Rule      string
		Threshold *float64
		Costs     []struct {
			Class, Answer string
			Cost          float64
		}
	}
}

// label applies what the model says, and nothing else.
func (m *clientModel) label(x []float64) string {
	values := make([]float64, len(m.Planes))
	for p, plane := range m.Planes {
		for j, w := range plane.W {
			values[p] += w * x[j]
		}
		values[p] -= plane.Gamma
	}
	if len(m.Classes) == 2 {
		if values[0] >= *m.Decision.Threshold {
			return m.Planes[0].Class
		}
		return m.Classes[0]
	}
	if m.Decision.Rule == "value" {
		return m.Classes[slices.Index(values, slices.Max(values))]
	}
	p := make([]float64, len(values))
	var sum float64
	for i, v := range values {
		c := m.Calibration.Planes[i]
		if m.Calibration.Method == "platt" {
			p[i] = 1 / (1 + math.Exp(c.A*v+c.B))
		} else {
			last := len(c.Values) - 1
			switch {
			case v <= c.Values[0]:
				p[i] = c.Probabilities[0]
			case v >= c.Values[last]:
				p[i] = c.Probabilities[last]
			default:
				k := 1
				for v > c.Values[k] {
					k++
				}
				share := (v - c.Values[k-1]) / (c.Values[k] - c.Values[k-1])
				p[i] = c.Probabilities[k-1] + share*(c.Probabilities[k]-c.Probabilities[k-1])
			}
		}
		sum += p[i]
	}
	if m.Decision.Rule == "probability" {
		return m.Classes[slices.Index(p, slices.Max(p))]
	}
	best, least := "", math.Inf(1)
	for _, answer := range m.Classes {
		var expected float64
		for i, class := range m.Classes {
			cost := 1.0
			if class == answer {
				cost = 0
			}
			for _, c := range m.Decision.Costs {
				if c.Class == class && c.Answer == answer {
					cost = c.Cost
				}
			}
			expected += p[i] / sum * cost
		}
		if expected < least {
			best, least = answer, expected
		}
	}
	return best
}

// A client that reads /v1/model, and no documentation beside it, labels thousands of rows as
// /v1/predict does. In no answer do label, values and probabilities contradict.
func TestClientsAgree(t *testing.T) {
	const n, rows = 3, 3000
	r := rand.New(rand.NewPCG(18, 1))
	platt := func() calibration.Curve {
		return calibration.Sigmoid{A: -1 - 3*r.Float64(), B: r.NormFloat64()}
	}
	isotonic := func() calibration.Curve {
		from := -1.5 + r.Float64()
		return calibration.Isotonic{
			Values:        []float64{from, from + 0.5, from + 0.75, from + 1.25, from + 2},
			Probabilities: []float64{0.01 * r.Float64(), 0.2 * r.Float64(), 0.2 + 0.2*r.Float64(), 0.5 + 0.2*r.Float64(), 0.8 + 0.2*r.Float64()},
		}
	}
	differ := 0 // labels that are not those by value
	for _, k := range []int{2, 3, 7} {
		for i, curve := range []func() calibration.Curve{platt, isotonic} {
			name := []string{"platt", "isotonic"}[i]
			f := newFake()
			m := &incremental.Model{Features: incremental.DefaultFeatures(n), Rows: make([]int64, k)}
			for c := range k {
				m.Classes = append(m.Classes, fmt.Sprintf("class %d", c))
				if c == 0 && k == 2 {
					continue
				}
				p := incremental.Plane{Class: m.Classes[c], Gamma: r.NormFloat64() / 2, Condition: 1}
				for range n {
					p.W = append(p.W, r.NormFloat64()/2)
				}
				m.Planes = append(m.Planes, p)
				f.served.Calibration = append(f.served.Calibration, curve())
			}
			f.served.Model = m
			prices := []decision.Price{{Class: m.Classes[1], Answer: m.Classes[0], Cost: 6}, {Class: m.Classes[0], Answer: m.Classes[k-1], Cost: 2}}
			rules := []*decision.Rule{
				nil, decision.ByValue(k), decision.ByProbability(f.served.Calibration), decision.ByCost(m.Classes, f.served.Calibration, prices),
			}
			if k == 2 {
				rules = append(rules, decision.ByThreshold(-0.75, prices))
			}
			var body bytes.Buffer
			x := make([][]float64, rows)
			for i := range x {
				for j := range n {
					if j > 0 {
						body.WriteByte(',')
					}
					x[i] = append(x[i], 2*r.NormFloat64())
					fmt.Fprint(&body, x[i][j])
				}
				body.WriteByte('\n')
			}
			for _, rule := range rules {
				f.served.Rule = rule
				s := newServer(f)
				var client clientModel
				if err := json.Unmarshal(do(s, "GET", "/v1/model", "").Body.Bytes(), &client); err != nil {
					t.Fatal(err)
				}
				a := decodeJSON[predictions.PredictAnswer](t, do(s, "POST", "/v1/predict", body.String(), "Content-Type: text/csv"))
				if len(a.Labels) != rows || string(a.Decision) != client.Decision.Rule {
					t.Fatalf("%d classes, %s: %d labels by %q, the model says %q", k, name, len(a.Labels), a.Decision, client.Decision.Rule)
				}
				if goes := client.Decision.Rule != "value" && (rule == nil || rule.HasProbabilities()); goes != (a.Probabilities != nil) {
					t.Errorf("%d classes, %s, %s: probabilities: %v", k, name, a.Decision, !goes)
				}
				for i, label := range a.Labels {
					if got := client.label(x[i]); got != label {
						t.Errorf("%d classes, %s, %s: row %d is %q, a client says %q", k, name, a.Decision, i, label, got)
					}
					best := slices.Index(a.Values[i], slices.Max(a.Values[i]))
					if k == 2 {
						best = 0
						if a.Values[i][0] >= 0 {
							best = 1
						}
					}
					if m.Classes[best] != label {
						t.Errorf("%d classes, %s, %s: row %d is %q by values %v", k, name, a.Decision, i, label, a.Values[i])
					}
					if a.Decision == decision.Probability {
						if p := a.Probabilities[i]; m.Classes[slices.Index(p, slices.Max(p))] != label {
							t.Errorf("%d classes, %s: row %d is %q by probabilities %v", k, name, i, label, p)
						}
						raw := make([]float64, len(m.Planes))
						for p, plane := range m.Planes {
							for j, w := range plane.W {
								raw[p] += w * x[i][j]
							}
							raw[p] -= plane.Gamma
						}
						if m.Classes[incremental.Decide(raw)] != label {
							differ++
						}
					}
				}
			}
		}
	}
	if differ < rows/2 {
		t.Errorf("only %d labels differ from those by value; nothing is tested", differ)
	}
}
