package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/ingest/wire"
)

// protocolPath begins the paths of the Open Inference Protocol, version 2.
const protocolPath = "/v2"

// inferHeader has the length of the JSON before the elements of binary tensors.
const inferHeader = "Inference-Header-Content-Length"

const binaryType = "application/octet-stream"

// InferError is the body of every error of the Open Inference Protocol.
type InferError struct {
	Error string `json:"error"` // message, for people; its wording may change
}

// ServerMetadata describes the server in the protocol.
type ServerMetadata struct {
	Name       string   `json:"name"`       // streamd
	Version    string   `json:"version"`    // version of the program
	Extensions []string `json:"extensions"` // extensions of the protocol that the server knows: binary_tensor_data
}

// ServerHealth says that the server lives, and whether it can answer.
type ServerHealth struct {
	Live  bool `json:"live"`            // always true
	Ready bool `json:"ready,omitempty"` // whether the server can answer; absent where nobody asks for it
}

// ModelHealth says that a model can answer.
type ModelHealth struct {
	Name  string `json:"name"`  // name of the model
	Ready bool   `json:"ready"` // always true: a model that is not ready is an error
}

// ModelMetadata describes the served model in the protocol.
type ModelMetadata struct {
	Name     string           `json:"name"`     // model.name of the configuration
	Versions []string         `json:"versions"` // fingerprint of the served model, the only version that can be asked for
	Platform string           `json:"platform"` // streamd
	Inputs   []TensorMetadata `json:"inputs"`   // an input for each feature
	Outputs  []TensorMetadata `json:"outputs"`  // the outputs, without probabilities where the decision does not go by them
}

// TensorMetadata describes a tensor.
type TensorMetadata struct {
	Name     string `json:"name"`     // name of the tensor
	Datatype string `json:"datatype"` // FP64 or BYTES
	Shape    []int  `json:"shape"`    // numbers of elements; -1 is that of rows
}

// InferAnswer has the predictions in the protocol.
type InferAnswer struct {
	ModelName    string           `json:"model_name"`    // model.name of the configuration
	ModelVersion string           `json:"model_version"` // fingerprint of the model
	ID           string           `json:"id,omitempty"`  // id of the request
	Parameters   InferParameters  `json:"parameters"`    // decision, method and, with probabilities, calibration, as in a PredictAnswer
	Outputs      []InferredTensor `json:"outputs"`       // the outputs
}

// InferredTensor is an output.
type InferredTensor struct {
	Name       string          `json:"name"`                 // label, values or probabilities
	Datatype   string          `json:"datatype"`             // BYTES for label, else FP64
	Shape      []int           `json:"shape"`                // [rows], [rows, planes] or [rows, classes]
	Parameters InferParameters `json:"parameters,omitempty"` // planes or classes, a list of names in JSON; binary_data_size where the elements follow the JSON
	Data       InferData       `json:"data,omitempty"`       // elements, row by row
}

func (s *Server) serverMetadata(w http.ResponseWriter, r *http.Request) error {
	return answerJSON(w, ServerMetadata{"streamd", s.service.Status().Version, []string{"binary_tensor_data"}})
}

func (s *Server) serverLive(w http.ResponseWriter, r *http.Request) error {
	return answerJSON(w, ServerHealth{Live: true})
}

// serverReady has both words: the specification's text has live, and its clients read ready.
func (s *Server) serverReady(w http.ResponseWriter, r *http.Request) error {
	if reason := s.service.Status().NotReady; reason != "" {
		return fail(CodeUnavailable, "not ready: %s", reason)
	}
	return answerJSON(w, ServerHealth{Live: true, Ready: true})
}

// named is the served model, which the path names.
func (s *Server) named(w http.ResponseWriter, r *http.Request) (*model.Served, error) {
	if name := r.PathValue("name"); name != s.config.Name {
		return nil, fail(CodeNotFound, "the model %.100q is not served here: that is %q", name, s.config.Name)
	}
	served, err := s.predictor(w, r)
	if err != nil {
		return nil, err
	}
	if version := r.PathValue("version"); version != "" && version != served.Fingerprint {
		return nil, fail(CodeNotFound, "version %.100q of the model is not served: that is %q", version, served.Fingerprint)
	}
	return served, nil
}

func (s *Server) modelReady(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.named(w, r); err != nil {
		return err
	}
	if reason := s.service.Status().NotReady; reason != "" {
		return fail(CodeUnavailable, "not ready: %s", reason)
	}
	return answerJSON(w, ModelHealth{s.config.Name, true})
}

func (s *Server) modelMetadata(w http.ResponseWriter, r *http.Request) error {
	served, err := s.named(w, r)
	if err != nil {
		return err
	}
	a := ModelMetadata{Name: s.config.Name, Versions: []string{served.Fingerprint}, Platform: "streamd"}
	for _, in := range inputsOf(served) {
		datatype := "FP64"
		if in.Text {
			datatype = "BYTES"
		}
		a.Inputs = append(a.Inputs, TensorMetadata{in.Name, datatype, []int{-1}})
	}
	table := predictions.NewTable(served.Classifier(), served.Fingerprint, served.Method())
	for _, name := range table.Tensors() {
		datatype, shape := "FP64", []int{-1}
		switch name {
		case predictions.TensorLabel:
			datatype = "BYTES"
		case predictions.TensorValues:
			shape = append(shape, len(table.Planes))
		case predictions.TensorProbabilities:
			shape = append(shape, len(table.Classes))
		}
		a.Outputs = append(a.Outputs, TensorMetadata{string(name), datatype, shape})
	}
	return answerJSON(w, a)
}

// infer is predict in the words of the protocol: tensors become rows, and the answer's columns
// become tensors.
func (s *Server) infer(w http.ResponseWriter, r *http.Request) error {
	zipped, err := isZipped(r)
	if err != nil {
		return err
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	header := r.Header.Get(inferHeader)
	if types := []string{"", "application/json", formType, binaryType}; !slices.Contains(types, media) || media == binaryType && header == "" {
		return fail(CodeUnsupportedMediaType, "Content-Type %q: want application/json, or %s with the header %s", media, binaryType, inferHeader)
	}
	served, err := s.named(w, r)
	if err != nil {
		return err
	}
	memory := &share{memory: s.memory, most: s.config.Memory}
	defer memory.shrink(0)
	content, err := s.content(r, zipped, memory)
	if err != nil {
		return err
	}
	var raw []byte
	if header != "" {
		n, err := strconv.ParseUint(header, 10, 31)
		if err != nil || int(n) > len(content) {
			return fail(CodeBadRequest, "%s is %.40q, and the body has %d bytes", inferHeader, header, len(content))
		}
		content, raw = content[:n], content[n:]
	}
	if len(content) > shortBody { // names and elements are copied, and an input has a few words
		if err := memory.grow(r.Context(), 3*int64(len(content))); err != nil {
			return err
		}
	}
	q, inference, err := s.readInference(content, served)
	if err != nil {
		return err
	}
	c := tensorsToRows{
		served: served, raw: raw, inputs: q.Inputs, most: s.config.MaxRows, limit: 4 * s.config.MaxBodyBytes,
		grow: func(n int) error { return memory.grow(r.Context(), int64(n)) },
	}
	if s.config.Remember != nil {
		c.id, c.idFields = q.ID, s.idFields(served)
	}
	rows, err := c.toRows()
	if err != nil {
		return err
	}
	answer, err := s.answer(r, served, asked{form: predictions.Columns}, rowsBody{wire.JSON, wire.JSON.ContentType(), rows.json}, memory)
	if err != nil {
		return err
	}
	answer.infers = &inference
	return answer.write(w)
}

// readInference reads the JSON of a request, and says how the answer is written.
func (s *Server) readInference(content []byte, served *model.Served) (q InferRequest, f predictions.Inference, err error) {
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, f, fail(CodeBadRequest, "the body is no inference request: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return q, f, fail(CodeBadRequest, "there is more behind the inference request; elements in bytes take the header %s", inferHeader)
	}
	if q.ModelName != "" && q.ModelName != s.config.Name {
		return q, f, fail(CodeBadRequest, "model_name is %.100q, and the path names %q", q.ModelName, s.config.Name)
	}
	binary, err := boolean(q.Parameters, "binary_data_output", "pd", "np")
	if err != nil {
		return q, f, fail(CodeBadRequest, "parameters: %v", err)
	}
	table := predictions.NewTable(served.Classifier(), served.Fingerprint, served.Method())
	f = predictions.Inference{Name: s.config.Name, ID: q.ID}
	known := table.Tensors()
	if len(q.Outputs) == 0 {
		for _, name := range known {
			f.Outputs = append(f.Outputs, predictions.Output{Tensor: name, Binary: binary})
		}
	}
	asked := map[string]bool{}
	for _, out := range q.Outputs {
		name := predictions.Tensor(out.Name)
		switch {
		case !slices.Contains(known, name):
			return q, f, fail(CodeBadRequest, "there is no output %.100q: those of the model are %q", out.Name, known)
		case asked[out.Name]:
			return q, f, fail(CodeBadRequest, "the output %q is asked for twice", out.Name)
		}
		asked[out.Name] = true
		own := binary
		if _, given := out.Parameters["binary_data"]; given {
			own = false
		}
		said, err := boolean(out.Parameters, "binary_data", "pd", "np", "str")
		if err != nil {
			return q, f, fail(CodeBadRequest, "output %q: %v", out.Name, err)
		}
		f.Outputs = append(f.Outputs, predictions.Output{Tensor: name, Binary: own || said})
	}
	return q, f, nil
}

// boolean is the boolean parameter of that name. Others but a content type are refused, since they
// would be ignored.
func boolean(given InferParameters, name string, contentTypes ...string) (is bool, err error) {
	for key, value := range given {
		switch v, ok := value.(bool); {
		case key == name && ok:
			is = v
		case key == name:
			return false, fmt.Errorf("%s is %.40v: want true or false", key, value)
		default:
			if err := checkContentType(key, value, contentTypes); err != nil {
				return false, err
			}
		}
	}
	return is, nil
}

// checkContentType refuses a parameter that is not content_type, with one of some values. Tensors
// are read by their datatype, so each of these says nothing new.
func checkContentType(key string, value any, types []string) error {
	if key != "content_type" {
		return fmt.Errorf("unknown parameter %.40q", key)
	}
	if text, _ := value.(string); !slices.Contains(types, text) {
		return fmt.Errorf("%s is %.40v: want one of %s", key, value, strings.Join(types, ", "))
	}
	return nil
}
