package httpapi

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

const inferTarget = "/v2/models/default/infer"

// inferred is an answer as a client reads it.
type inferred struct {
	ModelName    string `json:"model_name"`
	ModelVersion string `json:"model_version"`
	ID           string
	Parameters   map[string]any
	Outputs      []struct {
		Name, Datatype string
		Shape          []int
		Parameters     map[string]any
		Data           json.RawMessage
	}
}

// tensors reads the outputs of an answer, those in bytes as well.
func (a *inferred) tensors(t *testing.T, raw []byte) (labels []string, numbers map[string][]float64) {
	t.Helper()
	numbers = map[string][]float64{}
	for _, out := range a.Outputs {
		elements := 1
		for _, n := range out.Shape {
			elements *= n
		}
		if size, binaryOutput := out.Parameters["binary_data_size"]; binaryOutput {
			if out.Data != nil || int(size.(float64)) > len(raw) {
				t.Fatalf("%+v, and %d bytes are left", out, len(raw))
			}
			own := raw[:int(size.(float64))]
			raw = raw[len(own):]
			for len(own) > 0 && out.Datatype == "BYTES" {
				n := binary.LittleEndian.Uint32(own)
				labels, own = append(labels, string(own[4:4+n])), own[4+n:]
			}
			for ; len(own) > 0; own = own[8:] {
				numbers[out.Name] = append(numbers[out.Name], math.Float64frombits(binary.LittleEndian.Uint64(own)))
			}
		} else {
			var err error
			if out.Datatype == "BYTES" {
				err = json.Unmarshal(out.Data, &labels)
			} else {
				var list []float64
				err = json.Unmarshal(out.Data, &list)
				numbers[out.Name] = list
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := len(numbers[out.Name]); out.Datatype == "BYTES" && len(labels) != elements || out.Datatype == "FP64" && n != elements {
			t.Fatalf("%s of shape %v has %d texts and %d numbers", out.Name, out.Shape, len(labels), n)
		}
	}
	if len(raw) > 0 {
		t.Fatalf("%d bytes are left", len(raw))
	}
	return labels, numbers
}

// readInferred reads the body of an answer.
func readInferred(t *testing.T, w *httptest.ResponseRecorder) (a inferred, raw []byte) {
	t.Helper()
	body := w.Body.Bytes()
	if length := w.Header().Get(inferHeader); length != "" {
		n, err := strconv.Atoi(length)
		if err != nil || n > len(body) || w.Header().Get("Content-Type") != binaryType {
			t.Fatalf("%v", w.Header())
		}
		body, raw = body[:n], body[n:]
	}
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return a, raw
}

// little is numbers in little-endian order.
func little(of any) string {
	b, err := binary.Append(nil, binary.LittleEndian, of)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A request in any of the protocol's forms has the labels, values and probabilities that predict
// has for the same rows, bit for bit.
func TestInferIsPredict(t *testing.T) {
	rows := `[{"len":2,"caps":0.5},{"len":-0.1,"caps":7},{"len":16777217,"caps":0}]`
	single := `[{"len":2,"caps":0.5},{"len":-0.10000000149011612,"caps":7},{"len":16777216,"caps":0}]`
	const lens, caps = `2,-0.1,16777217`, `0.5,7,0`
	for name, c := range map[string]struct{ rows, request, raw string }{
		"a tensor for each feature": {rows, `{"inputs":[{"name":"len","shape":[3],"datatype":"FP64","data":[` + lens + `]},{"name":"caps","shape":[3],"datatype":"FP64","data":[` + caps + `]}]}`, ""},
		"columns, in another order": {rows, `{"inputs":[{"name":"caps","shape":[3,1],"datatype":"FP64","data":[[0.5],[7] , [0]]},{"name":"len","shape":[3,1],"datatype":"FP64","data":[` + lens + `]}]}`, ""},
		"with others":               {rows, `{"inputs":[{"name":"x \"y\"","shape":[3],"datatype":"BYTES","data":["a","[\\\"]",null]},{"name":"len","shape":[3],"datatype":"FP64","data":[` + lens + `]},{"name":"caps","shape":[3],"datatype":"FP64","data":[` + caps + `]}]}`, ""},
		"a matrix":                  {rows, "{\"inputs\":[{\"name\":\"input-0\",\"shape\":[3,2],\"datatype\":\"FP64\",\"data\":[2,0.5,-0.1, 7,\n16777217,0]}]}", ""},
		"a nested matrix":           {rows, `{"inputs":[{"name":"input-0","shape":[3,2],"datatype":"FP64","data":[ [2,0.5],[-0.1,7] ,[16777217,0] ]}]}`, ""},
		"single precision":          {single, `{"inputs":[{"name":"input-0","shape":[3,2],"datatype":"FP32","data":[2,0.5,-0.1,7,16777217,0]}]}`, ""},
		"texts of numbers":          {rows, `{"inputs":[{"name":"len","shape":[3],"datatype":"BYTES","data":["2","-0.1","16777217"]},{"name":"caps","shape":[3],"datatype":"FP64","data":[` + caps + `]}]}`, ""},
		"integers":                  {`[[2,3],[-128,255]]`, `{"inputs":[{"name":"len","shape":[2],"datatype":"INT8","data":[2,-128]},{"name":"caps","shape":[2],"datatype":"UINT8","data":[3,255]}]}`, ""},
		"booleans":                  {`[[1,0],[0,1]]`, `{"inputs":[{"name":"input-0","shape":[2,2],"datatype":"BOOL","data":[true,false,false,true]}]}`, ""},
		"content types":             {rows, `{"parameters":{"content_type":"pd"},"model_name":"default","inputs":[{"name":"len","shape":[3,1],"datatype":"FP64","parameters":{"content_type":"np"},"data":[` + lens + `]},{"name":"caps","shape":[3,1],"datatype":"FP64","data":[` + caps + `]}]}`, ""},
		"a matrix in bytes":         {rows, `{"inputs":[{"name":"input-0","shape":[3,2],"datatype":"FP64","parameters":{"binary_data_size":48}}]}`, little([]float64{2, 0.5, -0.1, 7, 16777217, 0})},
		"single precision in bytes": {single, `{"inputs":[{"name":"input-0","shape":[3,2],"datatype":"FP32","parameters":{"binary_data_size":24}}]}`, little([]float32{2, 0.5, -0.1, 7, 16777217, 0})},
		"some in bytes": {rows, `{"inputs":[{"name":"len","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":25}},{"name":"caps","shape":[3],"datatype":"FP64","data":[` + caps + `]},{"name":"z","shape":[3],"datatype":"BOOL","parameters":{"binary_data_size":3}}]}`,
			little(uint32(1)) + "2" + little(uint32(4)) + "-0.1" + little(uint32(8)) + "16777217" + "\x00\x01\x00"},
		"integers in bytes": {`[[-2,60000],[300,1]]`, `{"inputs":[{"name":"len","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}},{"name":"caps","shape":[2],"datatype":"UINT16","parameters":{"binary_data_size":4}}]}`,
			little([]int16{-2, 300}) + little([]uint16{60000, 1})},
	} {
		for _, probable := range []bool{false, true} {
			f := newFake()
			if probable {
				f.calibrate(calibration.Sigmoid{A: -1e-3, B: 0.5})
			}
			s := newServer(f)
			w := do(s, "POST", "/v1/predict", c.rows, "Content-Type: application/json")
			if w.Code != 200 {
				t.Fatalf("%s: %s", name, w.Body)
			}
			want := decodeJSON[predictions.PredictAnswer](t, w)
			body, headers := c.request+c.raw, []string{"Content-Type: application/json"}
			if c.raw != "" {
				headers = []string{"Content-Type: " + binaryType, fmt.Sprintf("%s: %d", inferHeader, len(c.request))}
			}
			w = do(s, "POST", inferTarget, body, headers...)
			if w.Code != 200 {
				t.Errorf("%s: status %d: %s", name, w.Code, w.Body)
				continue
			}
			a, raw := readInferred(t, w)
			labels, numbers := a.tensors(t, raw)
			if !slices.Equal(labels, want.Labels) || !slices.Equal(numbers["values"], slices.Concat(want.Values...)) || !slices.Equal(numbers["probabilities"], slices.Concat(want.Probabilities...)) {
				t.Errorf("%s: %v %v, not %+v", name, labels, numbers, want)
			}
			if a.ModelName != "default" || a.ModelVersion != want.Model || a.Parameters["decision"] != string(want.Decision) || w.Header().Get(modelHeader) != want.Model {
				t.Errorf("%s: %+v, not of %+v", name, a, want)
			}
			if classes := a.Outputs[len(a.Outputs)-1].Parameters["classes"]; probable && classes != `["ham","spam"]` {
				t.Errorf("%s: the classes are %v", name, classes)
			}
		}
	}
}

// Outputs are those that are asked for, in that order, in JSON or in bytes.
func TestInferOutputs(t *testing.T) {
	f := newFake()
	f.calibrate(calibration.Sigmoid{A: -2, B: 0})
	s := newServer(f)
	in := strings.TrimSuffix(inferTwo, "}")
	all, _ := readInferred(t, do(s, "POST", inferTarget, inferTwo))
	labels, numbers := all.tensors(t, nil)
	for asked, names := range map[string][]string{
		`"parameters":{"binary_data_output":true}`:                                                                           {"label", "values", "probabilities"},
		`"outputs":[{"name":"probabilities"},{"name":"label"}]`:                                                              {"probabilities", "label"},
		`"outputs":[{"name":"values","parameters":{"binary_data":true,"content_type":"np"}}]`:                                {"values"},
		`"outputs":[{"name":"values","parameters":{"binary_data":true}},{"name":"label"},{"name":"probabilities"}]`:          {"values", "label", "probabilities"},
		`"outputs":[{"name":"label","parameters":{"binary_data":true}},{"name":"values","parameters":{"binary_data":true}}]`: {"label", "values"},
		`"parameters":{"binary_data_output":true},"outputs":[{"name":"label","parameters":{"binary_data":false}}]`:           {"label"},
	} {
		a, raw := readInferred(t, do(s, "POST", inferTarget, in+","+asked+"}", "Accept-Encoding: identity"))
		if binaryOutput := strings.Contains(asked, "true") && !strings.Contains(asked, "false"); (raw != nil) != binaryOutput {
			t.Errorf("%s: %d bytes follow", asked, len(raw))
		}
		gotLabels, got := a.tensors(t, raw)
		var order []string
		for _, out := range a.Outputs {
			order = append(order, out.Name)
			if out.Name == "label" && !slices.Equal(gotLabels, labels) || out.Name != "label" && !slices.Equal(got[out.Name], numbers[out.Name]) {
				t.Errorf("%s: %v %v, not %v %v", asked, gotLabels, got, labels, numbers)
			}
		}
		if !slices.Equal(order, names) {
			t.Errorf("%s: the outputs are %q", asked, order)
		}
	}
}

// A request in the words of the specification has this answer.
func TestGoldenInference(t *testing.T) {
	f := newFake()
	// Exact on every processor, unlike exp and log.
	f.calibrate(calibration.Isotonic{Values: []float64{-3, 1}, Probabilities: []float64{0, 1}})
	f.price()
	var got bytes.Buffer
	for _, request := range []string{"GET /v2 ", "GET /v2/health/live ", "GET /v2/health/ready ", "GET /v2/models/default ", "GET /v2/models/default/ready ",
		"POST /v2/models/default/versions/f1/infer " + `{"id":"42","inputs":[{"name":"len","shape":[2,1],"datatype":"FP32","data":[2,0.25]},{"name":"caps","shape":[2,1],"datatype":"UINT32","data":[1,1]}],"outputs":[{"name":"label"},{"name":"values"},{"name":"probabilities"}]}`,
		"POST /v2/models/other/infer {}"} {
		method, rest, _ := strings.Cut(request, " ")
		target, body, _ := strings.Cut(rest, " ")
		w := do(newServer(f), method, target, body)
		fmt.Fprintf(&got, "%s\n%d ", strings.TrimSpace(request), w.Code)
		if err := json.Indent(&got, w.Body.Bytes(), "", "  "); err != nil {
			t.Fatalf("%s: %v: %s", request, err, w.Body)
		}
		got.WriteString("\n")
	}
	const file = "testdata/inference.golden"
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
		t.Errorf("the answers are not those of %s (-update writes it anew):\n%s", file, got.Bytes())
	}
}

// What is wrong with a request is said, in the protocol's form, and nothing is ignored.
func TestBadInferences(t *testing.T) {
	input := func(rest string) string { return `{"inputs":[{"name":"len",` + rest + `}]}` }
	two := func(rest string) string { return strings.TrimSuffix(inferTwo, "}") + "," + rest + "}" }
	for _, c := range []struct {
		body   string
		status int
		says   string
	}{
		{``, 400, "the body is no inference request: EOF"},
		{`[]`, 400, "the body is no inference request: cannot unmarshal array"},
		{`{"inputs":[]}`, 400, "inputs: there are none"},
		{`{"instances":[[1,2]]}`, 400, `unknown field "instances"`},
		{inferTwo + inferTwo, 400, "there is more behind the inference request"},
		{two(`"model_name":"other"`), 400, `model_name is "other", and the path names "default"`},
		{two(`"parameters":{"timeout":5}`), 400, `parameters: unknown parameter "timeout"`},
		{two(`"parameters":{"content_type":"base64"}`), 400, `parameters: content_type is base64: want one of pd, np`},
		{two(`"parameters":{"binary_data_output":1}`), 400, "binary_data_output is 1: want true or false"},
		{two(`"outputs":[{"name":"score"}]`), 400, `there is no output "score": those of the model are ["label" "values"]`},
		{two(`"outputs":[{"name":"probabilities"}]`), 400, `there is no output "probabilities"`},
		{two(`"outputs":[{"name":"label"},{"name":"label"}]`), 400, `asked for twice`},
		{two(`"outputs":[{"name":"label","parameters":{"classification":3}}]`), 400, `output "label": unknown parameter "classification"`},
		{input(`"shape":[1],"datatype":"FP16","data":[1]`), 400, `input "len": the datatype is "FP16"`},
		{input(`"shape":[],"datatype":"FP64","data":[1]`), 400, "the shape is []: want [rows] or [rows, columns]"},
		{input(`"shape":[1,1,1],"datatype":"FP64","data":[1]`), 400, "the shape is [1 1 1]"},
		{input(`"shape":[0],"datatype":"FP64","data":[]`), 400, "each at least 1"},
		{input(`"shape":[-1],"datatype":"FP64","data":[1]`), 400, "each at least 1"},
		{input(`"shape":[1],"datatype":"FP64"`), 400, "neither data nor binary_data_size"},
		{input(`"shape":[1],"datatype":"FP64","data":1`), 400, "data is no list"},
		{input(`"shape":[1],"datatype":"FP64","data":[1],"parameters":{"binary_data_size":8}`), 400, "both data and binary_data_size"},
		{input(`"shape":[1],"datatype":"FP64","parameters":{"binary_data_size":8}`), 400, "binary_data_size is 8, and 0 bytes are left of the body"},
		{input(`"shape":[1],"datatype":"FP64","parameters":{"binary_data_size":-1}`), 400, "binary_data_size is -1: want a number of bytes"},
		{input(`"shape":[1],"datatype":"FP64","parameters":{"binary_data_size":"8"}`), 400, "binary_data_size is 8: want a number of bytes"},
		{input(`"shape":[1],"datatype":"FP64","parameters":{"scale":2},"data":[1]`), 400, `input "len": unknown parameter "scale"`},
		{input(`"shape":[1],"datatype":"FP64","data":[1]`), 400, "caps"},
		{input(`"shape":[1,3],"datatype":"FP64","data":[1,2,3]`), 400, "the feature is missing"},
		{`{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP64","data":[1,2,3]}]}`, 400, "the feature is missing"},
		{`{"inputs":[{"name":"len","shape":[1],"datatype":"FP64","data":[1]},{"name":"len","shape":[1],"datatype":"FP64","data":[1]}]}`, 400, `two of the name "len"`},
		{`{"inputs":[{"name":"len","shape":[1],"datatype":"FP64","data":[1]},{"name":"caps","shape":[2],"datatype":"FP64","data":[1,2]}]}`, 400, `input "caps" has 2 rows, and "len" has 1`},
		{`{"inputs":[{"name":"m","shape":[2,2],"datatype":"FP64","data":[1,2,3]}]}`, 400, `input "m", element 3: data has fewer elements than the shape`},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP64","data":[1,2,3]}]}`, 400, `input "m": data has more elements than the shape`},
		{`{"inputs":[{"name":"m","shape":[2,2],"datatype":"FP64","data":[[1,2,3],[4]]}]}`, 400, "the lists in data are not those of the shape"},
		{`{"inputs":[{"name":"m","shape":[2,2],"datatype":"FP64","data":[[1,2],3,4]}]}`, 400, "the lists in data are not those of the shape"},
		{`{"inputs":[{"name":"m","shape":[2,2],"datatype":"FP64","data":[1,[2],3,4]}]}`, 400, "the lists in data are not those of the shape"},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP64","data":[1,{}]}]}`, 400, "the lists in data are not those of the shape"},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP64","data":[1,"2"]}]}`, 400, `input "m", element 1: "2" is no FP64`},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP64","data":[1,1e999]}]}`, 400, "1e999"},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP32","data":[1,1e99]}]}`, 400, "1e99 is no FP32"},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"INT64","data":[1,2.5]}]}`, 400, "2.5 is no INT64"},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"UINT8","data":[1,256]}]}`, 400, "256 is no UINT8"},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"BOOL","data":[true,1]}]}`, 400, "1 is no BOOL"},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"BYTES","data":["1",2]}]}`, 400, "2 is no BYTES"},
		{`{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP64","data":[1,null]}]}`, 400, "null"},
		{`{"inputs":[` + strings.Repeat(`{},`, 104) + `{}]}`, 413, "105 inputs: a model of 2 columns takes at most 104"},
		{`{"inputs":[{"name":"m","shape":[100001,2],"datatype":"FP64","data":[]}]}`, 413, "100001 rows: a prediction takes at most 100000"},
		{`{"inputs":[{"name":"m","shape":[2000000000,2000000000],"datatype":"FP64","data":[]}]}`, 413, "a prediction takes at most"},
	} {
		w := do(newServer(newFake()), "POST", inferTarget, c.body)
		e := decodeJSON[InferError](t, w)
		if w.Code != c.status || !strings.Contains(e.Error, c.says) {
			t.Errorf("%.100s: %d %q, want %d %q", c.body, w.Code, e.Error, c.status, c.says)
		}
	}

	// In bytes.
	request := func(datatype string, size int) string {
		return fmt.Sprintf(`{"inputs":[{"name":"m","shape":[1,2],"datatype":%q,"parameters":{"binary_data_size":%d}}]}`, datatype, size)
	}
	for _, c := range []struct{ request, raw, says string }{
		{request("FP64", 8), little([]float64{1}), "2 elements of FP64 have 16 bytes"},
		{request("FP64", 16), little([]float64{1, 2, 3}), "8 bytes are left behind the elements of all inputs"},
		{request("FP64", 16), little([]float64{1, math.Inf(1)}), `input "m", element 1: it is +Inf`},
		{request("FP64", 16), little([]float64{1, math.NaN()}), "null"},
		{request("BOOL", 2), "\x01\x02", "the byte 2 is no boolean"},
		{request("BYTES", 7), little(uint32(1)) + "1\x01\x00", "its bytes end early"},
		{request("BYTES", 9), little(uint32(1)) + "1" + little(uint32(5)), "it has 5 bytes, and 0 are left"},
		{request("BYTES", 12), little(uint32(1)) + "1" + little(uint32(1)) + "2??", `input "m": 2 bytes are left behind the elements of its shape`},
		{request("BYTES", 10), little(uint32(1)) + "1" + little(uint32(1)) + "\xff", "it is not valid UTF-8"},
	} {
		w := do(newServer(newFake()), "POST", inferTarget, c.request+c.raw, fmt.Sprintf("%s: %d", inferHeader, len(c.request)))
		if e := decodeJSON[InferError](t, w); w.Code != 400 || !strings.Contains(e.Error, c.says) {
			t.Errorf("%s %q: %d %q, want %q", c.request, c.raw, w.Code, e.Error, c.says)
		}
	}
	for _, header := range []string{"-1", "x", "1000", "99999999999"} {
		w := do(newServer(newFake()), "POST", inferTarget, inferTwo, inferHeader+": "+header)
		if e := decodeJSON[InferError](t, w); w.Code != 400 || !strings.Contains(e.Error, inferHeader) {
			t.Errorf("%s: %d %q", header, w.Code, e.Error)
		}
	}
	for _, target := range []string{"/v2/models", "/v2/models/default/config", "/v2/nothing"} {
		if e := decodeJSON[InferError](t, do(newServer(newFake()), "GET", target, "")); !strings.Contains(e.Error, "nothing at this path") {
			t.Errorf("%s: %q", target, e.Error)
		}
	}
	if w := do(newServer(newFake()), "GET", inferTarget, ""); w.Code != 405 || decodeJSON[InferError](t, w).Error != "this path takes POST" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The rows of a request may be longer as text than a body may be, and not without a bound.
func TestLongInference(t *testing.T) {
	for rows, status := range map[int]int{500: 200, 600: 413} { // of 25 bytes for each number
		f := newFake()
		guard, err := access.New(config.HTTP{Hosts: []string{"example.com"}}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		s := New(Config{Access: guard, Name: "default", MaxBodyBytes: 8500}, f, NewMetrics(), zerolog.Nop())
		numbers := make([]float64, 2*rows)
		for i := range numbers {
			numbers[i] = -1.2345678901234567e-100
		}
		request := fmt.Sprintf(`{"inputs":[{"name":"m","shape":[%d,2],"datatype":"FP64","parameters":{"binary_data_size":%d}}]}`, rows, 16*rows)
		w := do(s, "POST", inferTarget, request+little(numbers), fmt.Sprintf("%s: %d", inferHeader, len(request)))
		if w.Code != status {
			t.Errorf("%d rows: %d %.200s", rows, w.Code, w.Body)
		}
	}
	// The rows are longer than four bodies: names in each row.
	name := strings.Repeat("n", 1000)
	var data []string
	for range 100 {
		data = append(data, "1")
	}
	list := strings.Join(data, ",")
	body := fmt.Sprintf(`{"inputs":[{"name":"%s","shape":[100],"datatype":"FP64","data":[%s]},{"name":"len","shape":[100],"datatype":"FP64","data":[%s]},{"name":"caps","shape":[100],"datatype":"FP64","data":[%s]}]}`, name, list, list, list)
	guard, err := access.New(config.HTTP{Hosts: []string{"example.com"}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Access: guard, Name: "default", MaxBodyBytes: 8500}, newFake(), NewMetrics(), zerolog.Nop())
	if w := do(s, "POST", inferTarget, body); w.Code != 413 || !strings.Contains(w.Body.String(), "the rows take more than 34000 bytes as text") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Rows that are longer than their request take a share of the memory.
func TestInferenceMemory(t *testing.T) {
	granted := 0
	list := InferData("[" + strings.Repeat("1,", 999) + "1]")
	c := tensorsToRows{
		served: newFake().served, most: 1000, limit: 1 << 30,
		grow: func(n int) error { granted += n; return nil },
		inputs: []InferInput{
			{Name: strings.Repeat("n", 10_000), Shape: []int64{1000}, Datatype: "FP64", Data: list},
			{Name: "len", Shape: []int64{1000}, Datatype: "FP64", Data: list},
			{Name: "caps", Shape: []int64{1000}, Datatype: "FP64", Data: list},
		},
	}
	rows, err := c.toRows()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(rows.json); n < 10_000_000 || granted < 2*(n-shortBody-pieceBytes) {
		t.Errorf("the rows have %d bytes, and a share of %d", n, granted)
	}
}

// A body may be compressed, and so may the answer.
func TestInferenceCompressed(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, inferTwo)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	want := do(newServer(newFake()), "POST", inferTarget, inferTwo)
	if got := do(newServer(newFake()), "POST", inferTarget, zipped.String(), "Content-Encoding: gzip"); got.Code != 200 || got.Body.String() != want.Body.String() {
		t.Errorf("%d %s, not %s", got.Code, got.Body, want.Body)
	}
}

// Missing values count as the model says.
func TestInferenceOfMissingValues(t *testing.T) {
	missing := wire.Missing{Default: wire.MissingMean}
	f := newFake()
	f.serve(func(s *model.Served) {
		s.Missing = missing
		s.Model.Features = missing.Columns([]string{"len", "caps"})
		n := len(s.Model.Features)
		s.Model.Mean, s.Model.Planes = make([]float64, n), []incremental.Plane{{Class: "spam", W: make([]float64, n), Gamma: 0.5}}
		for i := range n {
			s.Model.Planes[0].W[i] = float64(i + 1)
		}
	})
	guard, err := access.New(config.HTTP{Hosts: []string{"example.com"}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Access: guard, Name: "default", Rows: wire.Options{Missing: missing}}, f, NewMetrics(), zerolog.Nop())
	want := decodeJSON[predictions.PredictAnswer](t, do(s, "POST", "/v1/predict", `[{"len":null,"caps":2},{"len":1,"caps":null}]`, "Content-Type: application/json"))
	if want.Values[0][0] == want.Values[1][0] {
		t.Fatal("the rows have one value")
	}
	request := `{"inputs":[{"name":"m","shape":[2,2],"datatype":"FP64","parameters":{"binary_data_size":32}}]}`
	for body, headers := range map[string][]string{
		`{"inputs":[{"name":"m","shape":[2,2],"datatype":"FP64","data":[null,2,1,null]}]}`:                                                         nil,
		`{"inputs":[{"name":"len","shape":[2],"datatype":"INT64","data":[null,1]},{"name":"caps","shape":[2],"datatype":"FP64","data":[2,null]}]}`: nil,
		request + little([]float64{math.NaN(), 2, 1, math.NaN()}):                                                                                  {fmt.Sprintf("%s: %d", inferHeader, len(request))},
	} {
		a, _ := readInferred(t, do(s, "POST", inferTarget, body, headers...))
		if _, numbers := a.tensors(t, nil); !slices.Equal(numbers["values"], slices.Concat(want.Values...)) {
			t.Errorf("%.100s: %v, not %v", body, numbers["values"], want.Values)
		}
	}
	told := decodeJSON[ModelMetadata](t, do(s, "GET", "/v2/models/default", ""))
	if want := []TensorMetadata{{"len", "FP64", []int{-1}}, {"caps", "FP64", []int{-1}}}; !reflect.DeepEqual(told.Inputs, want) {
		t.Errorf("the inputs are %+v", told.Inputs)
	}
}

// With a schema of features the inputs are its columns, and texts are BYTES.
func TestInferenceWithSchema(t *testing.T) {
	made, err := schema.Parse([]byte(`{city: {kind: category, values: [Rome, "Lima, \"C\""], other: true}, age: number}`))
	if err != nil {
		t.Fatal(err)
	}
	f := newFake()
	f.serve(func(s *model.Served) {
		s.Schema, s.Model.Features = made, made.Columns()
		n := len(s.Model.Features)
		s.Model.Mean, s.Model.Planes = make([]float64, n), []incremental.Plane{{Class: "spam", W: make([]float64, n), Gamma: 0.5}}
		for i := range n {
			s.Model.Planes[0].W[i] = float64(int(1) << i)
		}
	})
	s := newServer(f)
	want := decodeJSON[predictions.PredictAnswer](t, do(s, "POST", "/v1/predict", `[{"city":"Rome","age":3},{"city":"Lima, \"C\"","age":4},{"city":"Oslo","age":5}]`, "Content-Type: application/json"))
	a, _ := readInferred(t, do(s, "POST", inferTarget, `{"inputs":[{"name":"city","shape":[3,1],"datatype":"BYTES","data":["Rome","Lima, \"C\"","Oslo"]},{"name":"age","shape":[3,1],"datatype":"INT32","data":[3,4,5]}]}`))
	if _, numbers := a.tensors(t, nil); !slices.Equal(numbers["values"], slices.Concat(want.Values...)) {
		t.Errorf("%v, not %v", numbers["values"], want.Values)
	}
	told := decodeJSON[ModelMetadata](t, do(s, "GET", "/v2/models/default", ""))
	if want := []TensorMetadata{{"age", "FP64", []int{-1}}, {"city", "BYTES", []int{-1}}}; !reflect.DeepEqual(told.Inputs, want) {
		t.Errorf("the inputs are %+v", told.Inputs)
	}
	w := do(s, "POST", inferTarget, `{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP64","data":[1,2]}]}`)
	if e := decodeJSON[InferError](t, w); w.Code != 400 || !strings.Contains(e.Error, "takes one input for each: age, city") {
		t.Errorf("%d %q", w.Code, e.Error)
	}
}

// A single row is remembered under the request's id, and several under ids of their own.
func TestInferencesAreRemembered(t *testing.T) {
	matrix := func(rest string) string {
		return `{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP64","data":[2,0.5]}]` + rest + `}`
	}
	for _, c := range []struct {
		body      string
		ids, rows []string
	}{
		{matrix(`,"id":"a\"7"`), []string{`a"7`}, []string{`{"features":[2,0.5]}`}},
		{matrix(``), nil, nil},
		{`{"id":"a7","inputs":[{"name":"len","shape":[1],"datatype":"FP64","data":[2.50]},{"name":"caps","shape":[1],"datatype":"FP64","data":[0.5]}]}`, []string{"a7"}, []string{`{"caps":0.5,"len":2.50}`}},
		{strings.Replace(inferTwo, "{", `{"id":"a7",`, 1), nil, nil},
		{strings.Replace(inferTwo, `"inputs":[`, `"id":"a7","inputs":[{"name":"id","shape":[2],"datatype":"BYTES","data":["a","b"]},`, 1), []string{"a", "b"}, []string{`{"caps":0,"len":2}`, `{"caps":1,"len":0}`}},
		{strings.Replace(inferTwo, `"inputs":[`, `"inputs":[{"name":"inference_id","shape":[2,1],"datatype":"INT64","data":[17,18]},`, 1), []string{"17", "18"}, []string{`{"caps":0,"len":2}`, `{"caps":1,"len":0}`}},
	} {
		s, m := remembering(t, newFake())
		a, raw := readInferred(t, do(s, "POST", inferTarget, c.body))
		labels, _ := a.tensors(t, raw)
		var ids, rows []string
		for i, r := range m.all {
			ids, rows = append(ids, r.ID), append(rows, string(r.Row))
			var kept predictions.PredictRowsAnswer
			if err := json.Unmarshal(r.Answer, &kept); err != nil || kept.Rows[0].Label != labels[i] {
				t.Errorf("%s: the answer is %s, not %q: %v", c.body, r.Answer, labels, err)
			}
		}
		if !slices.Equal(ids, c.ids) || !slices.Equal(rows, c.rows) {
			t.Errorf("%s: %q %q are remembered, not %q %q", c.body, ids, rows, c.ids, c.rows)
		}
		// A daemon that does not remember repeats the id.
		b, _ := readInferred(t, do(newServer(newFake()), "POST", inferTarget, c.body))
		if want := map[bool]string{true: a.ID}[strings.HasPrefix(c.body, "{") && strings.Contains(c.body, `"id":"a`)]; b.ID != want {
			t.Errorf("%s: the id is %q, not %q", c.body, b.ID, want)
		}
	}
	s, m := remembering(t, newFake())
	m.err = fmt.Errorf("the brokers do not take it: %w", ErrUnavailable)
	if w := do(s, "POST", inferTarget, matrix(`,"id":"a"`)); w.Code != 503 || !strings.Contains(decodeJSON[InferError](t, w).Error, "the brokers do not take it") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s, _ = remembering(t, newFake())
	if w := do(s, "POST", inferTarget, matrix(`,"id":"`+strings.Repeat("a", 513)+`"`)); w.Code != 400 || !strings.Contains(decodeJSON[InferError](t, w).Error, "513 bytes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// For any request the answer has the elements of every row, or an error.
func FuzzInfer(f *testing.F) {
	f.Add([]byte(inferTwo), []byte(nil))
	f.Add([]byte(`{"inputs":[{"name":"m","shape":[2,2],"datatype":"FP64","data":[[1,2],[3,4]]}],"outputs":[{"name":"label","parameters":{"binary_data":true}}]}`), []byte(nil))
	f.Add([]byte(`{"id":"a","inputs":[{"name":"m","shape":[1,2],"datatype":"BYTES","parameters":{"binary_data_size":10}}]}`), []byte(little(uint32(1))+"1"+little(uint32(1))+"2"))
	f.Add([]byte(`{"inputs":[{"name":"m","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`), []byte(little([]float32{1, 2})))
	f.Add([]byte(`{"inputs":[{"name":"m","shape":[1,2],"datatype":"BYTES","data":["\\","\""]}]}`), []byte(nil))
	service := newFake()
	service.answers(f)
	guard, err := access.New(config.HTTP{Hosts: []string{"example.com"}}, zerolog.Nop())
	if err != nil {
		f.Fatal(err)
	}
	s := New(Config{Access: guard, Name: "default", Remember: &kept{}}, service, NewMetrics(), zerolog.Nop())
	f.Fuzz(func(t *testing.T, request, raw []byte) {
		w := do(s, "POST", inferTarget, string(request)+string(raw), fmt.Sprintf("%s: %d", inferHeader, len(request)))
		switch w.Code {
		case 200:
			a, rest := readInferred(t, w)
			a.tensors(t, rest)
		case 400, 413:
			decodeJSON[InferError](t, w)
		default:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	})
}
