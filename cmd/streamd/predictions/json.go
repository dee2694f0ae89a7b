package predictions

import (
	"encoding/json"
	"fmt"
	"io"

	"streamd/config"
	"streamd/incremental/decision"
)

// PredictAnswer has predictions by columns: entry i of labels, values and so on belongs to
// row i of the request.
type PredictAnswer struct {
	Model  string `json:"model"`  // fingerprint of the model
	Method string `json:"method"` // method of the planes: psvm or that of a refinement
	// Rule that decided the labels: probability, value or cost. The model's answer has its
	// parameters.
	Decision decision.Kind `json:"decision"`
	Classes  []string      `json:"classes"` // the k classes of the model
	Planes   []string      `json:"planes"`  // class of each plane
	Labels   []string      `json:"labels"`  // class of each row, by the rule
	// For each row and plane, the quantity that the rule ranks by. A single plane's class is the
	// label where it is zero or more, else the label has the largest one. By value it is
	// x'w − γ. By probability it is log p/(1 − p) for the calibrated probability p of the
	// plane's class. By cost it is minus the expected cost of the class as the label; of two
	// classes, the cost of the first less that of the second, or x'w − γ less the threshold
	// where there is no calibration.
	Values [][]float64 `json:"values"`

	// Calibration is platt, isotonic or softmax. It is absent, like the probabilities, where the
	// rule does not go by probabilities, which could contradict the labels.
	Calibration   config.Calibration `json:"calibration,omitempty"`
	Probabilities [][]float64        `json:"probabilities,omitempty"` // for each row, the probability of each class

	Contributions *ContributionsAnswer `json:"contributions,omitempty"` // contributions, where the request asks for them
	Leverage      *LeverageAnswer      `json:"leverage,omitempty"`      // leverages, where the request asks for them
}

// ContributionsAnswer has the contribution of each feature to x'w − γ, which the values are
// functions of.
type ContributionsAnswer struct {
	// For each plane, x'w − γ of the mean row. That of another row is this plus the sum of
	// all its contributions, but for rounding.
	AtMean []float64 `json:"at_mean"`
	// For each row and plane, w_j (x_j − mean_j) by the name of feature j.
	Rows [][]map[string]float64 `json:"rows"`
}

// LeverageAnswer says how far rows are from the rows that the model was learned from: see
// incremental.Hat.
type LeverageAnswer struct {
	// Mean leverage of the rows that the model was learned from, about (n+1)/m for n
	// features and m rows. A row of several times that leverage is unlike any of them,
	// and its label is a guess. One for all planes, or one for each.
	Typical []float64   `json:"typical"`
	Rows    [][]float64 `json:"rows"` // for each row, as many leverages as in typical
}

// PredictRowsAnswer has the same predictions by rows, with the names of the classes.
type PredictRowsAnswer struct {
	Model       string             `json:"model"`                 // fingerprint of the model
	Method      string             `json:"method"`                // method of the planes: psvm or that of a refinement
	Decision    decision.Kind      `json:"decision"`              // rule that decided the labels: probability, value or cost
	Calibration config.Calibration `json:"calibration,omitempty"` // platt, isotonic or softmax; absent where the rule does not go by probabilities
	Rows        []PredictedRow     `json:"rows"`                  // predictions, in the order of the request

	AtMean          map[string]float64 `json:"at_mean,omitempty"`          // with contributions: by the class of the plane, x'w − γ of the mean row
	TypicalLeverage []float64          `json:"typical_leverage,omitempty"` // with leverages: the mean leverage of the rows that the model was learned from
}

// PredictedRow is the prediction of a row.
type PredictedRow struct {
	Label         string             `json:"label"`                   // class of the row, by the rule
	Values        map[string]float64 `json:"values"`                  // by the class of the plane, the quantity that the rule ranks by
	Probabilities map[string]float64 `json:"probabilities,omitempty"` // probability of each class; absent where the rule does not go by probabilities

	Contributions map[string]map[string]float64 `json:"contributions,omitempty"` // by the class of the plane, w_j (x_j − mean_j) by the name of feature j
	Leverage      []float64                     `json:"leverage,omitempty"`      // leverages, as many as in typical_leverage
}

// quoteAll encodes texts as JSON.
func quoteAll(texts []string) ([][]byte, error) {
	quoted := make([][]byte, len(texts))
	for i, text := range texts {
		var err error
		if quoted[i], err = json.Marshal(text); err != nil {
			return nil, fmt.Errorf("encode %q: %w", text, err)
		}
	}
	return quoted, nil
}

// names are the names in a table as JSON.
type names struct{ classes, planes, features [][]byte }

func (t *Table) names() (n names, err error) {
	if n.classes, err = quoteAll(t.Classes); err != nil {
		return n, err
	}
	if n.planes, err = quoteAll(t.Planes); err != nil {
		return n, err
	}
	if t.Contributions != nil {
		n.features, err = quoteAll(t.Features)
	}
	return n, err
}

func (x *text) texts(quoted [][]byte) {
	x.add("[")
	for i, q := range quoted {
		x.separate(i)
		x.piece = append(x.piece, q...)
		x.flushFull()
	}
	x.add("]")
}

// head opens the object of an answer. Every part ends with a comma.
func (t *Table) head(x *text) {
	x.add("{")
	for _, part := range [...]struct{ name, value string }{{"model", t.Model}, {"method", t.Method}, {"decision", string(t.Rule.Kind())}} {
		if part.value != "" {
			value, _ := json.Marshal(part.value) // no string is an error
			x.add(`"`, part.name, `":`, string(value), ",")
		}
	}
}

// writeColumns writes a PredictAnswer.
func (t *Table) writeColumns(w io.Writer) error {
	n, err := t.names()
	if err != nil {
		return err
	}
	x := newText(w)
	t.head(x)
	x.add(`"classes":`)
	x.texts(n.classes)
	x.add(`,"planes":`)
	x.texts(n.planes)
	x.add(`,"labels":[`)
	for i, label := range t.Labels {
		x.separate(i)
		x.piece = append(x.piece, n.classes[label]...)
		x.flushFull()
	}
	rows := len(t.Labels)
	x.add(`],"values":`)
	x.lists(rows, t.Shown)
	if t.Probable() {
		row := make([]float64, len(t.Classes))
		x.add(`,"calibration":"`, string(t.calibration()), `","probabilities":`)
		x.lists(rows, func(i int) []float64 {
			t.Probabilities(row, i)
			return row
		})
	}
	if c := t.Contributions; c != nil {
		x.add(`,"contributions":{"at_mean":`)
		x.numbers(c.AtMean)
		x.add(`,"rows":[`)
		for i := 0; i < rows && !x.failed(); i++ {
			x.separate(i)
			x.add("[")
			for plane := range t.Planes {
				x.separate(plane)
				t.contribution(x, n.features, i, plane)
			}
			x.add("]")
		}
		x.add("]}")
	}
	if t.Leverages != nil {
		x.add(`,"leverage":{"typical":`)
		x.numbers(t.Typical)
		x.add(`,"rows":`)
		x.lists(rows, t.leverages)
		x.add("}")
	}
	x.add("}\n")
	return x.flush()
}

// contribution writes the contributions to a plane's x'w − γ of row i.
func (t *Table) contribution(x *text, features [][]byte, i, plane int) {
	x.add("{")
	order, values := t.Contributions.Of(i, plane)
	for rank, j := range order {
		x.separate(rank)
		x.piece = append(append(x.piece, features[j]...), ':')
		x.number(values[j])
	}
	x.add("}")
	x.flushFull()
}

// writeRows writes a PredictRowsAnswer.
func (t *Table) writeRows(w io.Writer) error {
	n, err := t.names()
	if err != nil {
		return err
	}
	x := newText(w)
	t.head(x)
	if t.Probable() {
		x.add(`"calibration":"`, string(t.calibration()), `",`)
	}
	if t.Contributions != nil {
		x.add(`"at_mean":`)
		x.named(n.planes, t.Contributions.AtMean)
		x.add(",")
	}
	if t.Leverages != nil {
		x.add(`"typical_leverage":`)
		x.numbers(t.Typical)
		x.add(",")
	}
	x.add(`"rows":[`)
	probabilities := make([]float64, len(t.Classes))
	for i, label := range t.Labels {
		if x.failed() {
			break
		}
		x.separate(i)
		x.add(`{"label":`)
		x.piece = append(x.piece, n.classes[label]...)
		x.add(`,"values":`)
		x.named(n.planes, t.Shown(i))
		if t.Probable() {
			t.Probabilities(probabilities, i)
			x.add(`,"probabilities":`)
			x.named(n.classes, probabilities)
		}
		if t.Contributions != nil {
			x.add(`,"contributions":{`)
			for plane, class := range n.planes {
				x.separate(plane)
				x.piece = append(append(x.piece, class...), ':')
				t.contribution(x, n.features, i, plane)
			}
			x.add("}")
		}
		if t.Leverages != nil {
			x.add(`,"leverage":`)
			x.numbers(t.leverages(i))
		}
		x.add("}")
	}
	x.add("]}\n")
	return x.flush()
}
