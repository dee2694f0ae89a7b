package export

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// mlmodel is the file MLmodel. YAML takes JSON as it is.
type mlmodel struct {
	Flavors   map[string]any  `json:"flavors"`
	Signature mlSignature     `json:"signature"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

// mlSignature has texts of JSON.
type mlSignature struct {
	Inputs  string  `json:"inputs"`
	Outputs string  `json:"outputs"`
	Params  *string `json:"params"`
}

// mlColumn is a column of a signature.
type mlColumn struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Required bool   `json:"required"`
}

// Packages that a folder of MLflow asks for: the oldest ones that run opset 17.
const mlRequirements = "mlflow>=2.9\nonnx>=1.12\nonnxruntime>=1.12\n"

// MLflow writes a model of MLflow into a folder that it makes: MLmodel with the signature, a graph
// of the layout Flat, and the packages to run it. The folder must not be there.
func (p *Program) MLflow(dir string) error {
	inputs := make([]mlColumn, len(p.columns))
	for i, c := range p.columns {
		inputs[i] = mlColumn{"double", c.Name, !p.lacking[i]}
		if c.Text {
			inputs[i].Type = "string"
		}
	}
	var outputs []mlColumn
	for i, name := range p.outputNames(Flat) {
		kind := "double"
		if i == 0 {
			kind = "string"
		}
		outputs = append(outputs, mlColumn{kind, name, true})
	}
	in, _ := json.Marshal(inputs) // texts and booleans
	out, _ := json.Marshal(outputs)
	m := mlmodel{
		Flavors: map[string]any{
			"onnx": map[string]any{
				"onnx_version": "1.12.0", "data": "model.onnx", "code": nil, "providers": []string{"CPUExecutionProvider"}, "onnx_session_options": nil,
			},
			"python_function": map[string]any{
				"loader_module": "mlflow.onnx", "data": "model.onnx", "env": map[string]string{"virtualenv": "python_env.yaml"},
			},
		},
		Signature: mlSignature{Inputs: string(in), Outputs: string(out)},
	}
	if p.Fingerprint != "" {
		m.Metadata, _ = json.Marshal(map[string]string{"streamd_model": p.Fingerprint})
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return fmt.Errorf("a folder of MLflow: %w", err)
	}
	for name, content := range map[string][]byte{
		"MLmodel": append(text, '\n'), "model.onnx": p.ONNX(Flat), "requirements.txt": []byte(mlRequirements),
		"python_env.yaml": []byte("dependencies:\n- -r requirements.txt\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			return err
		}
	}
	return nil
}
