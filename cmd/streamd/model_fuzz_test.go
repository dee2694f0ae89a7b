package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/export"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/predictions"
	"streamd/incremental/decision"
)

// fuzzModels are saved models of two features: with two classes and a
// calibration, with three classes, and with a kernel's basis.
var fuzzModels = []string{
	`{"features":["x","y"],"classes":["no","yes"],"planes":[{"class":"yes","w":[1,-1],"gamma":0}],"mean":[2,4],"calibration":{"method":"isotonic","planes":[{"values":[-2,2,6],"probabilities":[0,0.75,1]}]}}`,
	`{"features":["x","y"],"classes":["a","b","c"],"planes":[{"class":"a","w":[1,-1],"gamma":0},{"class":"b","w":[-1,1],"gamma":0.5},{"class":"c","w":[1,1],"gamma":2}],"mean":[0,0],"calibration":{"method":"platt","planes":[{"a":-1,"b":0},{"a":-2,"b":1},{"a":0,"b":0}]}}`,
	`{"features":["x","y"],"classes":["no","yes"],"planes":[{"class":"yes","w":[1,-1],"gamma":0}],"basis":{"kernel":"gaussian(gamma=0.5)","regulariser":"identity","mean":[0,1],"scale":[1,2],"points":[[0,0],[1,1]]}}`,
	`{"features":["x","y"],"classes":["no","yes"],"planes":[{"class":"yes","w":[1e308],"gamma":-1e308}],"basis":{"kernel":"polynomial(a=1,b=1,degree=3)","regulariser":"kernel","points":[[1e100,0]]}}`,
	`{"features":["x","y"],"classes":["a","b","c"],"planes":[{"class":"a","w":[5e307,0],"gamma":0},{"class":"b","w":[-5e307,0],"gamma":0},{"class":"c","w":[0,0],"gamma":0}]}`,
	`{"features":["x","y"],"classes":["no","yes"],"planes":[{"class":"yes","w":[1,-1],"gamma":0}],"decision":{"rule":"cost","threshold":-1.5,"costs":[{"class":"yes","answer":"no","cost":9}]}}`,
	`{"features":["x","y"],"classes":["a","b","c"],"planes":[{"class":"a","w":[1,-1],"gamma":0},{"class":"b","w":[-1,1],"gamma":0.5},{"class":"c","w":[1,1],"gamma":2}],"calibration":{"method":"isotonic","planes":[{"values":[0,1],"probabilities":[0,1]},{"values":[0],"probabilities":[0.5]},{"values":[-1,1],"probabilities":[0.1,0.5]}]},"decision":{"rule":"cost","costs":[{"class":"c","answer":"a","cost":5}]}}`,
}

const fuzzRows = "label,x,y\nyes,3,1\nno,1,3\nno,-0.5,0.25\n"

// writeFuzzed writes a model and rows to files.
func writeFuzzed(t *testing.T, model, rows []byte) (modelFile, rowsFile string) {
	dir := t.TempDir()
	modelFile, rowsFile = filepath.Join(dir, "model.json"), filepath.Join(dir, "rows.csv")
	if err := errors.Join(os.WriteFile(modelFile, model, 0o600), os.WriteFile(rowsFile, rows, 0o600)); err != nil {
		t.Fatal(err)
	}
	return modelFile, rowsFile
}

// FuzzPredictModel looks for a saved model that predict accepts and answers wrongly: an
// answer must name a class of the model, its probabilities must add up to 1, and its values
// and probabilities must not contradict the label.
func FuzzPredictModel(f *testing.F) {
	for _, model := range fuzzModels {
		f.Add([]byte(model), []byte(fuzzRows))
	}
	f.Fuzz(func(t *testing.T, model, rows []byte) {
		modelFile, rowsFile := writeFuzzed(t, model, rows)
		answer, err := savedModel(modelFile)
		if err != nil {
			return
		}
		var out bytes.Buffer
		s := &surroundings{stdin: strings.NewReader(""), stdout: &out, stderr: io.Discard}
		predict := predictCmd{
			File: rowsFile, columnFlags: columnFlags{Label: "label"}, Format: "csv", Model: modelFile, Values: true,
			Probabilities: answer.Calibration != nil && (answer.Decision == nil || answer.Decision.Rule != decision.Value),
			Contributions: answer.Mean != nil && answer.Basis == nil,
		}
		if predict.Run(t.Context(), s) != nil {
			return
		}
		lines := bytes.Count(out.Bytes(), []byte("\n"))
		out.Reset()
		predict.JSON = true
		if err := predict.Run(t.Context(), s); err != nil {
			t.Fatalf("in lines it succeeds, in JSON: %v", err)
		}
		var report predictions.PredictAnswer
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		if len(report.Labels) != lines || len(report.Values) != lines {
			t.Errorf("%d labels and values of %d in JSON, %d lines", len(report.Labels), len(report.Values), lines)
		}
		first := func(xs []float64) string { return report.Classes[slices.Index(xs, slices.Max(xs))] }
		for i, values := range report.Values {
			best := report.Classes[0]
			if len(values) > 1 {
				best = first(values)
			} else if values[0] >= 0 {
				best = report.Planes[0]
			}
			if report.Labels[i] != best {
				t.Errorf("row %d: label %q by values %v", i, report.Labels[i], values)
			}
		}
		for i, p := range report.Probabilities {
			if report.Decision == decision.Probability && report.Labels[i] != first(p) {
				t.Errorf("row %d: label %q by probabilities %v", i, report.Labels[i], p)
			}
			sum := 0.0
			for _, share := range p {
				if !(share >= 0 && share <= 1) {
					t.Errorf("row %d: probabilities %v", i, p)
				}
				sum += share
			}
			if len(p) != len(report.Classes) || !(sum > 1-1e-9 && sum < 1+1e-9) {
				t.Errorf("row %d: probabilities %v of %d classes", i, p, len(report.Classes))
			}
		}
	})
}

// FuzzExportModel looks for a saved model that can be used, and that a writer refuses or panics on.
// A schema may have what no writer takes, and a name may have what C and SQL do not.
func FuzzExportModel(f *testing.F) {
	for _, model := range append(fuzzModels,
		`{"features":["x","x missing","y"],"classes":["a","b","c"],"planes":[{"class":"a","w":[1,0,1],"gamma":0},{"class":"b","w":[0,1,0],"gamma":1},{"class":"c","w":[0,0,1],"gamma":2}],"missing":[{"feature":"x","policy":"indicator","column":"x missing"}],"calibration":{"method":"softmax","planes":[{"weights":[1,0,0],"bias":0},{"weights":[0,1,0],"bias":0},{"weights":[0,0,1],"bias":1}]},"decision":{"rule":"probability"}}`,
		`{"features":["c=u","c=(other)","n"],"classes":["no","yes"],"planes":[{"class":"yes","w":[1,-1,2],"gamma":0}],"schema":{"c":{"kind":"category","values":["u"],"other":true},"n":{"kind":"number","clip":[0,1]}}}`,
		`{"features":["x","y"],"classes":["no","yes"],"planes":[{"class":"yes","w":[1,-1],"gamma":0}],"missing":[{"feature":"y","policy":"mean","mean":3}]}`,
	) {
		f.Add([]byte(model))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var answer httpapi.ModelAnswer
		if unmarshalModel(text, &answer) != nil {
			return
		}
		by, err := answer.Classifier()
		if err != nil {
			return
		}
		p, err := export.New(by, answer.Fingerprint)
		if err != nil {
			if by.Schema == nil {
				t.Fatal(err)
			}
			return
		}
		_, inC := p.C()
		_, inSQL := p.Select([]string{"t"}, nil)
		if (inC == nil) != (inSQL == nil) {
			t.Errorf("C says %v, SQL %v", inC, inSQL)
		}
		if _, err := p.Expression(); err != nil && inSQL == nil && !errors.Is(err, export.ErrLong) {
			t.Error(err)
		}
		if len(p.ONNX(export.Tensors)) == 0 || len(p.ONNX(export.Flat)) == 0 {
			t.Error("there is no graph")
		}
	})
}

// FuzzPlotModel looks for a saved model that plot accepts and draws wrongly: a picture must
// be XML, and the same classifier can be drawn in pixels.
func FuzzPlotModel(f *testing.F) {
	for _, model := range fuzzModels {
		f.Add([]byte(model), []byte(fuzzRows))
	}
	f.Fuzz(func(t *testing.T, model, rows []byte) {
		modelFile, rowsFile := writeFuzzed(t, model, rows)
		s := &surroundings{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
		plot := plotCmd{Model: modelFile, Data: rowsFile, columnFlags: columnFlags{Label: "label"}, Format: "csv", Out: rowsFile + ".svg"}
		if plot.Run(t.Context(), s) != nil {
			return
		}
		picture, err := os.ReadFile(plot.Out)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := xml.NewDecoder(bytes.NewReader(picture)); ; {
			token, err := decoder.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("no picture in XML: %v", err)
			}
			if path, ok := token.(xml.StartElement); ok {
				for _, a := range path.Attr {
					if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
						t.Fatalf("%s %s=%q", path.Name.Local, a.Name.Local, a.Value)
					}
				}
			}
		}
		plot.Out = rowsFile + ".png"
		if err := plot.Run(t.Context(), s); err != nil {
			t.Fatalf("drawn as SVG, but not as PNG: %v", err)
		}
	})
}
