package predictions

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Tensor is an output of the Open Inference Protocol, version 2.
type Tensor string

// The outputs of m rows.
const (
	TensorLabel         Tensor = "label"         // BYTES [m]: class of each row
	TensorValues        Tensor = "values"        // FP64 [m, planes]: values on the scale of the rule
	TensorProbabilities Tensor = "probabilities" // FP64 [m, classes], where the rule goes by probabilities
)

// Tensors are the outputs that the table has.
func (t *Table) Tensors() []Tensor {
	if t.Probable() {
		return []Tensor{TensorLabel, TensorValues, TensorProbabilities}
	}
	return []Tensor{TensorLabel, TensorValues}
}

// Inference is how the table is written as an answer of the protocol.
type Inference struct {
	Name    string   // of the model
	ID      string   // of the request; "": none
	Outputs []Output // in their order; each is one of Tensors
}

// Output is an output of an Inference.
type Output struct {
	Tensor Tensor
	Binary bool // its elements follow the JSON, as bytes
}

// Binary says whether elements follow the JSON.
func (f *Inference) Binary() bool {
	return slices.ContainsFunc(f.Outputs, func(o Output) bool { return o.Binary })
}

// counted counts bytes and drops them.
type counted int

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}

// InferenceJSONBytes is the length of the JSON of an inference, before binary elements.
func (t *Table) InferenceJSONBytes(f Inference) (int, error) {
	var n counted
	err := t.writeInferenceJSON(&n, f)
	return int(n), err
}

// WriteInference writes the predictions as an answer of the protocol: JSON, and then the elements
// of binary outputs.
func (t *Table) WriteInference(w io.Writer, f Inference) error {
	if err := t.writeInferenceJSON(w, f); err != nil {
		return err
	}
	x := newText(w)
	for _, o := range f.Outputs {
		if o.Binary {
			t.binary(x, o.Tensor)
		}
	}
	return x.flush()
}

func (t *Table) writeInferenceJSON(w io.Writer, f Inference) error {
	n, err := t.names()
	if err != nil {
		return err
	}
	x := newText(w)
	x.add(`{"model_name":`, quoted(f.Name), `,"model_version":`, quoted(t.Model))
	if f.ID != "" {
		x.add(`,"id":`, quoted(f.ID))
	}
	x.add(`,"parameters":{"decision":`, quoted(string(t.Rule.Kind())), `,"method":`, quoted(t.Method))
	if t.Probable() {
		x.add(`,"calibration":`, quoted(string(t.calibration())))
	}
	x.add(`},"outputs":[`)
	for i, o := range f.Outputs {
		x.separate(i)
		// A parameter of the protocol is a text, a number or a boolean: names are a list in a text.
		var parameters []string
		datatype, shape := "FP64", ""
		switch o.Tensor {
		case TensorLabel:
			datatype = "BYTES"
		case TensorValues:
			shape = fmt.Sprintf(",%d", len(t.Planes))
			parameters = append(parameters, `"planes":`+quoted(listOf(t.Planes)))
		case TensorProbabilities:
			shape = fmt.Sprintf(",%d", len(t.Classes))
			parameters = append(parameters, `"classes":`+quoted(listOf(t.Classes)))
		}
		if o.Binary {
			parameters = append(parameters, fmt.Sprintf(`"binary_data_size":%d`, t.binaryBytes(o.Tensor)))
		}
		x.add(`{"name":"`, string(o.Tensor), `","datatype":"`, datatype, `","shape":[`, fmt.Sprint(len(t.Labels)), shape, "]")
		if parameters != nil {
			x.add(`,"parameters":{`, strings.Join(parameters, ","), "}")
		}
		if !o.Binary {
			x.add(`,"data":[`)
			t.tensor(x, o.Tensor, func(i, label int) {
				x.separate(i)
				x.piece = append(x.piece, n.classes[label]...)
			}, func(i int, number float64) {
				x.separate(i)
				x.number(number)
			})
			x.add("]")
		}
		x.add("}")
	}
	x.add("]}")
	return x.flush()
}

// tensor calls text or number for each element of an output, row by row.
func (t *Table) tensor(x *text, which Tensor, text func(i, label int), number func(i int, x float64)) {
	element := 0
	probabilities := make([]float64, len(t.Classes))
	for i, label := range t.Labels {
		if x.failed() {
			return
		}
		switch which {
		case TensorLabel:
			text(i, int(label))
		case TensorValues:
			for _, value := range t.Shown(i) {
				number(element, value)
				element++
			}
		case TensorProbabilities:
			t.Probabilities(probabilities, i)
			for _, p := range probabilities {
				number(element, p)
				element++
			}
		}
		x.flushFull()
	}
}

// binaryBytes is the size of an output as bytes.
func (t *Table) binaryBytes(which Tensor) (n int) {
	switch which {
	case TensorLabel:
		for _, label := range t.Labels {
			n += 4 + len(t.Classes[label])
		}
	case TensorValues:
		n = 8 * len(t.Labels) * len(t.Planes)
	case TensorProbabilities:
		n = 8 * len(t.Labels) * len(t.Classes)
	}
	return n
}

// binary adds an output as bytes: numbers in little-endian order, and texts behind their lengths.
func (t *Table) binary(x *text, which Tensor) {
	t.tensor(x, which, func(_, label int) {
		x.piece = binary.LittleEndian.AppendUint32(x.piece, uint32(len(t.Classes[label])))
		x.piece = append(x.piece, t.Classes[label]...)
	}, func(_ int, number float64) {
		x.finite(number)
		x.piece = binary.LittleEndian.AppendUint64(x.piece, math.Float64bits(number))
	})
}

func quoted(text string) string {
	q, _ := json.Marshal(text) // no string is an error
	return string(q)
}

func listOf(texts []string) string {
	list, _ := json.Marshal(texts)
	return string(list)
}
