package httpapi

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/invopop/jsonschema"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/gram"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
	"streamd/retire"
)

type object = map[string]any

// generator makes the document from the table of routes.
type generator struct {
	reflector jsonschema.Reflector
	schemas   map[string]*jsonschema.Schema
	types     map[string]reflect.Type // of schemas
	failures  map[string]object       // responses
}

func newGenerator(t *testing.T) *generator {
	g := &generator{schemas: rowSchemas(), types: map[string]reflect.Type{}, failures: map[string]object{}}
	g.reflector.Anonymous = true
	g.reflector.Mapper = func(of reflect.Type) *jsonschema.Schema {
		switch {
		case of == reflect.TypeFor[Code]():
			s := &jsonschema.Schema{Type: "string"}
			for _, c := range slices.Sorted(maps.Keys(codes)) {
				s.Enum = append(s.Enum, c)
			}
			return s
		case of == reflect.TypeFor[InferData]():
			// Generators make a list of anything of this, and nothing useful of a choice.
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Description: "A number, a text, a boolean, null, or a list of these."}}
		case of == reflect.TypeFor[schema.Schema](): // it writes its features by name
			return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "object", AdditionalProperties: jsonschema.TrueSchema}}
		case of != reflect.TypeFor[time.Time]() && of.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
			return &jsonschema.Schema{Type: "string"}
		case of.PkgPath() != "":
			return nil
		}
		// Without a format, some generators make numbers of single precision.
		switch of.Kind() {
		case reflect.Float64:
			return &jsonschema.Schema{Type: "number", Format: "double"}
		case reflect.Int, reflect.Int64:
			return &jsonschema.Schema{Type: "integer", Format: "int64"}
		}
		return nil
	}
	g.reflector.Namer = func(of reflect.Type) string { return componentName(of.Name()) }
	for _, folder := range []string{".", "../model", "../predictions", "../../../retire", "../../../ingest/schema"} {
		if err := g.reflector.AddGoComments("streamd/cmd/streamd/httpapi", folder, jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	for name, comment := range g.reflector.CommentMap {
		of := name[strings.LastIndex(name, ".")+1:]
		if rest, ok := strings.CutPrefix(comment, of+" "); ok {
			comment = componentName(of) + " " + rest
		}
		g.reflector.CommentMap[name] = strings.Join(strings.Fields(comment), " ")
	}
	return g
}

// componentName is the name in the document of a type with the given name. The written
// forms of package model keep the names that generated clients use.
func componentName(name string) string {
	form, ok := strings.CutSuffix(name, "JSON")
	if ok && form != "Basis" {
		form += "Answer"
	}
	return form
}

// schema is the schema of a type. Named types in it become components.
func (g *generator) schema(t *testing.T, of any) *jsonschema.Schema {
	s := g.reflector.Reflect(of)
	s.Version = ""
	for name, definition := range s.Definitions {
		if g.schemas[name] == nil {
			g.schemas[name] = definition
		}
	}
	s.Definitions = nil
	g.nulls(t, reflect.TypeOf(of))
	return s
}

// nulls allows null for a field that is a pointer, unless nil leaves the field out, and in
// a list of pointers.
func (g *generator) nulls(t *testing.T, of reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		g.nulls(t, of.Elem())
	case reflect.Struct:
		name := componentName(of.Name())
		s := g.schemas[name]
		if s == nil || s.Properties == nil || g.types[name] == of {
			return
		}
		if other := g.types[name]; other != nil {
			t.Fatalf("%v and %v have the same name in the document", of, other)
		}
		g.types[name] = of
		for _, f := range reflect.VisibleFields(of) {
			if f.Anonymous {
				continue // its fields are among those of the struct
			}
			tag := f.Tag.Get("json")
			name, _, _ := strings.Cut(tag, ",")
			if value, ok := s.Properties.Get(name); ok && f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Pointer {
				value.Items = &jsonschema.Schema{OneOf: []*jsonschema.Schema{value.Items, {Type: "null"}}}
			}
			if f.Type.Kind() == reflect.Pointer && !strings.Contains(tag, ",omitempty") {
				value, ok := s.Properties.Get(name)
				if !ok {
					t.Fatalf("%v has no property %q", of, name)
				}
				description := value.Description
				value.Description = ""
				s.Properties.Set(name, &jsonschema.Schema{Description: description, OneOf: []*jsonschema.Schema{value, {Type: "null"}}})
			}
			g.nulls(t, f.Type)
		}
	}
}

// rowSchemas describe the rows of a body in JSON, in one shape: generators make nothing useful of a
// choice of shapes. Package wire reads a single object, and lists of numbers, as well.
func rowSchemas() map[string]*jsonschema.Schema {
	one := uint64(1)
	number := &jsonschema.Schema{Type: "number", Format: "double"}
	return map[string]*jsonschema.Schema{
		"RowValue": {
			Description: "A value of a row: a number, a text or a boolean; null where it is missing; a list of numbers for `features`, or for a feature that is a list.",
			AnyOf:       []*jsonschema.Schema{number, {Type: "string"}, {Type: "boolean"}, {Type: "array", Items: number}, {Type: "null"}},
		},
		"Row": {
			Description:          "The value of each feature by its name, or `features` with the numbers of all in the model's order. A label and a weight may stand beside them.",
			Type:                 "object",
			MinProperties:        &one,
			AdditionalProperties: &jsonschema.Schema{Ref: "#/components/schemas/RowValue"},
		},
		"Rows": {
			Description: "Rows to predict.",
			Type:        "array",
			MinItems:    &one,
			Items:       &jsonschema.Schema{Ref: "#/components/schemas/Row"},
		},
	}
}

// mediaSchema describes a body that is not JSON.
func mediaSchema(media string) object {
	if strings.HasPrefix(media, "text/") || media == wire.LIBSVM.ContentType() || strings.HasSuffix(media, "json") || strings.HasSuffix(media, "xml") {
		return object{"type": "string"}
	}
	return object{"type": "string", "format": "binary"}
}

func (g *generator) operation(t *testing.T, r *route) object {
	etag := object{"ETag": object{"description": "Identifies the content of the answer.", "schema": object{"type": "string"}}}
	responses := object{}
	for _, reply := range r.replies {
		status := strconv.Itoa(reply.status)
		response, ok := responses[status].(object)
		if !ok {
			response = object{"description": "", "content": object{}}
			responses[status] = response
		}
		response["description"] = response["description"].(string) + reply.meaning
		content := response["content"].(object)
		switch {
		case reply.of == nil:
			content[reply.media] = object{"schema": mediaSchema(reply.media)}
		case r.follows:
			g.schema(t, reply.of) // OpenAPI 3.1 has no schema for the events of a stream
			content[reply.media] = object{"schema": object{"type": "string"}}
		case content["application/json"] == nil:
			content["application/json"] = object{"schema": g.schema(t, reply.of)}
		default:
			first := content["application/json"].(object)["schema"]
			content["application/json"] = object{"schema": object{"oneOf": []any{first, g.schema(t, reply.of)}}}
		}
		switch {
		case r.tagged:
			response["headers"] = etag
		case r.named:
			response["headers"] = object{modelHeader: object{"description": "Fingerprint of the model that made the predictions.", "schema": object{"type": "string"}}}
		}
	}
	if r.tagged {
		responses["304"] = object{"description": "The client has this answer: If-None-Match names it.", "headers": etag}
	}
	for status, code := range r.errors() {
		var plain, names, meanings []string
		for _, c := range code {
			plain = append(plain, string(c))
			names = append(names, "`"+string(c)+"`")
			meanings = append(meanings, codes[c].meaning)
		}
		name := strings.Join(plain, "_or_")
		var body any = ErrorAnswer{}
		if r.tag == tagProtocol {
			name, body = "inference_"+name, InferError{}
		}
		responses[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + name}
		response := object{
			"description": strings.Join(names, " or ") + ". " + strings.Join(meanings, " "),
			"content":     object{"application/json": object{"schema": g.schema(t, body)}},
		}
		header := func(name, meaning, kind string) {
			response["headers"] = object{name: object{"description": meaning, "schema": object{"type": kind}}}
		}
		switch status {
		case http.StatusUnauthorized:
			header("WWW-Authenticate", "How to say who one is.", "string")
		case http.StatusServiceUnavailable:
			header("Retry-After", "Seconds after which it is worth another try.", "integer")
		}
		g.failures[name] = response
	}

	parameters := []object{}
	for i, found := range wildcard.FindAllStringSubmatch(documented(r.path), -1) {
		parameters = append(parameters, object{
			"name": found[1], "in": "path", "required": true, "description": r.meanings[i], "schema": object{"type": "string"},
		})
	}
	for _, p := range r.query {
		name, meaning, schema, otherwise := p.describe()
		if otherwise != nil {
			schema = maps.Clone(schema)
			schema["default"] = otherwise
		}
		of := object{"name": name, "in": "query", "description": meaning, "schema": schema}
		if p.needed() {
			of["required"] = true
		}
		parameters = append(parameters, of)
	}
	if r.tagged {
		parameters = append(parameters, object{
			"name": "If-None-Match", "in": "header", "schema": object{"type": "string"},
			"description": "ETags of answers that the client has: one, a list, or *.",
		})
	}
	if r.follows {
		parameters = append(parameters, object{
			"name": "Last-Event-ID", "in": "header", "schema": object{"type": "string"},
			"description": "Id of the last event that the client has: those after it come. One that the daemon does not know, as after a restart, is ignored.",
		})
	}

	o := object{"operationId": r.name, "tags": []tag{r.tag}, "summary": r.summary, "responses": responses}
	if r.notes != "" {
		o["description"] = r.notes
	}
	if len(parameters) > 0 {
		o["parameters"] = parameters
	}
	if r.rows {
		content := object{}
		for _, media := range rowTypes {
			content[media] = object{"schema": mediaSchema(media)}
		}
		content[wire.JSON.ContentType()] = object{"schema": object{"$ref": "#/components/schemas/Rows"}}
		o["requestBody"] = object{"required": true, "content": content, "description": "Rows, as they are or compressed with gzip (Content-Encoding). " +
			"Without a Content-Type, and with the one that curl sends by default, the first bytes tell the format: an Arrow stream by its opening, JSON by a bracket, LIBSVM by a comment or a pair index:value; all else is CSV. " +
			"CSV and LIBSVM with curl's default must have a line end, because `curl -d @FILE` drops them. " +
			"In JSON, a single row need not be in a list, and where all rows have all features, a row may be the list of their numbers."}
	}
	if r.chooses {
		content := object{wire.JSON.ContentType(): object{"schema": g.schema(t, retire.Selector{})}}
		o["requestBody"] = object{"required": true, "content": content, "description": "The selector, as it is or compressed with gzip (Content-Encoding). " +
			"It has at least one part, and none is null or empty. The content type that curl sends by default is taken for JSON."}
	}
	if r.infers {
		o["requestBody"] = object{"required": true, "description": "The request, as it is or compressed with gzip (Content-Encoding).", "content": object{
			wire.JSON.ContentType(): object{"schema": g.schema(t, InferRequest{})},
			binaryType:              object{"schema": mediaSchema(binaryType)},
		}}
		parameters = append(parameters, object{
			"name": inferHeader, "in": "header", "schema": object{"type": "integer", "format": "int64"},
			"description": "Length of the JSON, where elements follow it as bytes.",
		})
		o["parameters"] = parameters
	}
	if r.role != "" {
		o["description"] = strings.TrimSpace(r.notes + " Role: `" + string(r.role) + "`.")
		o["security"] = []object{{}, {"token": []string{}}, {"certificate": []string{}}}
	}
	return o
}

// errors lists the codes of all errors of a route by status.
func (r *route) errors() map[int][]Code {
	all := append([]Code{CodeBadRequest, CodeForbidden, CodeInternal}, r.codes...)
	if r.role != "" && !r.signsIn {
		all = append(all, CodeUnauthorized)
	}
	by := map[int][]Code{}
	for _, c := range all {
		by[codes[c].status] = append(by[codes[c].status], c)
	}
	return by
}

var wildcard = regexp.MustCompile(`\{(\w+)\}`)

// pathOf matches the paths of a route of the document. The wildcards of most are the rest of a
// path.
func pathOf(path string) *regexp.Regexp {
	value := "(.+)"
	if strings.HasPrefix(path, protocolPath) {
		value = "([^/]+)"
	}
	return regexp.MustCompile("^" + wildcard.ReplaceAllLiteralString(path, value) + "$")
}

// documented is a path of the mux in the syntax of the document.
func documented(path string) string {
	return strings.Replace(strings.TrimSuffix(path, "{$}"), "...}", "}", 1)
}

func generateDocument(t *testing.T) []byte {
	g := newGenerator(t)
	paths := map[string]object{}
	for i := range routes {
		r := &routes[i]
		path := documented(r.path)
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(r.method)] = g.operation(t, r)
	}
	subjects := []object{}
	for _, of := range tagMeanings {
		subjects = append(subjects, object{"name": of.tag, "description": of.meaning})
	}
	components := object{
		"schemas": g.schemas, "responses": g.failures,
		"securitySchemes": object{
			"token": object{
				"type": "http", "scheme": "bearer",
				"description": "A token of http.tokens_file with the call's role, or with admin. No token is needed where anonymous callers have the role (http.anonymous).",
			},
			"certificate": object{"type": "mutualTLS", "description": "A client certificate whose name has the call's role in http.tls.clients."},
		},
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "streamd", "version": "1", "license": object{"name": "Apache 2.0", "identifier": "Apache-2.0"},
			"description": "A classifier learned from labelled blocks in Kafka: its planes, predictions, the ledger of live blocks, and admin calls. " +
				"Every error is JSON. An unknown or repeated query parameter is an error, and so is a body where none is taken. " +
				"HEAD is answered as GET, without the body.",
		},
		"servers": []object{{"url": "/", "description": "The daemon that the document comes from."}},
		"tags":    subjects, "paths": paths, "components": components,
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(out.Bytes(), []byte(`"#/$defs/`), []byte(`"#/components/schemas/`))
}

// The served document is the one generated from the routes and the types.
func TestDocument(t *testing.T) {
	got := generateDocument(t)
	if *update {
		if err := os.WriteFile("openapi.json", got, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(got, document) {
		t.Error("openapi.json is not what the routes and the types make: go generate writes it anew")
	}
}

// loadDocument reads the document into a validator.
func loadDocument(t *testing.T) *openapi3.T {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestDocumentIsValid(t *testing.T) {
	spec := loadDocument(t)
	if err := spec.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	for name, schema := range spec.Components.Schemas {
		for property, of := range schema.Value.Properties {
			if of.Value.Description == "" {
				t.Errorf("the document does not say what %s.%s is: its field wants a comment", name, property)
			}
		}
	}
}

// dialogue is a request to a daemon in some state, and the status of the answer.
type dialogue struct {
	method, target, body string
	headers              []string
	daemon               func(*testing.T, *fake)
	guarded              bool // callers need tokens
	most                 int  // rows of a prediction
	streams              int  // clients that may follow the events, of a server that is stopping
	undescribed          bool // the body is taken, and the document describes other shapes
	status               int
}

// describedBy finds the operation of a request in the document.
func describedBy(t *testing.T, spec *openapi3.T, d *dialogue) *openapi3filter.RequestValidationInput {
	t.Helper()
	r := httptest.NewRequest(d.method, d.target, strings.NewReader(d.body))
	for _, h := range d.headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: map[string]string{},
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	for path, item := range spec.Paths.Map() {
		values := pathOf(path).FindStringSubmatch(r.URL.Path)
		if values == nil {
			continue
		}
		for i, found := range wildcard.FindAllStringSubmatch(path, -1) {
			in.PathParams[found[1]] = values[i+1]
		}
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		operation := item.GetOperation(method)
		if operation == nil {
			t.Fatalf("%s %s is not in the document", d.method, path)
		}
		in.Route = &routers.Route{Spec: spec, Path: path, PathItem: item, Method: method, Operation: operation}
		return in
	}
	t.Fatalf("%s is not in the document", d.target)
	return nil
}

// Every described answer can be had and agrees with its description. So does each request
// that is answered.
func TestAnswersAreAsDescribed(t *testing.T) {
	for _, media := range append(rowTypes[1:], formType, "text/csv", "text/html", "text/css", "text/javascript", "image/svg+xml", "application/octet-stream", "text/event-stream") {
		openapi3filter.RegisterBodyDecoder(media, openapi3filter.FileBodyDecoder)
	}
	spec := loadDocument(t)

	var arrow, libsvm []byte
	block := &incremental.Block{
		Features: []string{"len", "caps"}, Classes: []string{"ham"}, Codes: []int32{0, 0},
		Columns: []gram.Column{gram.ColumnOf([]float32{2, 0}), gram.ColumnOf([]int8{1, -1})},
	}
	for format, body := range map[wire.Format]*[]byte{wire.Arrow: &arrow, wire.LIBSVM: &libsvm} {
		var err error
		if *body, err = wire.Encode(nil, format, block); err != nil {
			t.Fatal(err)
		}
	}
	whole := func(t *testing.T, f *fake) { f.answers(t) }
	kernel := func(t *testing.T, f *fake) { f.answers(t); onBasis(t, f) }
	isotonic := func(t *testing.T, f *fake) {
		f.answers(t)
		f.calibrate(calibration.Isotonic{Values: []float64{-3, 1}, Probabilities: []float64{0, 1}})
	}
	byCost := func(t *testing.T, f *fake) { f.answers(t); f.price() }
	epochs := func(t *testing.T, f *fake) {
		onBasis(t, f)
		f.epoch = wholeEpoch(f.served.Basis)
	}
	modelless := func(t *testing.T, f *fake) { f.served.Model, f.served.Problem = nil, "no rows" }
	troubled := func(t *testing.T, f *fake) {
		f.status.NotReady = "reading"
		f.status.Problems = []Problem{
			{Kind: ProblemReading, Since: testTime, Text: "orders/0 cannot be read"},
			{Kind: ProblemGap, Subject: "deleted", Since: testTime, Last: testTime, Count: 3, Text: "records were gone", Detail: "in orders/3", Action: "nothing"},
		}
	}
	failing := func(err error) func(*testing.T, *fake) { return func(t *testing.T, f *fake) { f.err = err } }
	unavailable := failing(fmt.Errorf("stopping: %w", ErrUnavailable))
	busy := failing(fmt.Errorf("refining: %w", ErrBusy))
	json, csv, known := "Content-Type: application/json", "Content-Type: text/csv", `If-None-Match: *`
	stranger, form := "Sec-Fetch-Site: cross-site", "Content-Type: "+formType

	dialogues := []dialogue{
		{method: "GET", target: "/v1/model", status: 200},
		{method: "GET", target: "/v1/model?wait=1m30s", daemon: whole, status: 200},
		{method: "GET", target: "/v1/model", daemon: kernel, status: 200},
		{method: "GET", target: "/v1/model", daemon: isotonic, status: 200},
		{method: "GET", target: "/v1/model", daemon: byCost, status: 200},
		{method: "HEAD", target: "/v1/model", status: 200},
		{method: "GET", target: "/v1/model", headers: []string{known}, status: 304},
		{method: "GET", target: "/v1/model?wait=30", status: 400},
		{method: "GET", target: "/v1/model", daemon: modelless, status: 503},
		{method: "GET", target: "/v1/model?from=2026-01-02T03:04:05Z&to=2026-01-03T00:00:00.5%2B01:00", daemon: whole, status: 200},
		{method: "GET", target: "/v1/model?positions=orders/3/0-9,orders/4/7-7&nu=0.5", daemon: kernel, status: 200},
		{method: "GET", target: "/v1/model?from=2026-01-02T03:04:05Z", headers: []string{known}, status: 304},
		{method: "GET", target: "/v1/model?from=2026-01-02T03:04:05Z&wait=0s", status: 200},
		{method: "GET", target: "/v1/model?from=2026-01-02T03:04:05Z&wait=1s", status: 400},
		{method: "GET", target: "/v1/model?from=2026-01-02", status: 400},
		{method: "GET", target: "/v1/model?to=2026-01-02T03:04:05Z", daemon: modelless, status: 404},
		{method: "GET", target: "/v1/model?to=2026-01-02T03:04:05Z", daemon: failing(ErrNoWindow), status: 404},
		{method: "GET", target: "/v1/model?positions=other/0/1-2", daemon: failing(fmt.Errorf("positions: %w", ErrOtherTopic)), status: 400},
		{method: "GET", target: "/v1/model?to=2026-01-02T03:04:05Z", daemon: unavailable, status: 503},

		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `{"len":2,"caps":0.5}`, undescribed: true, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[{"len":2,"caps":0.5,"label":"ham"},{"len":2,"caps":1}]`, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[{"features":[1,2],"label":1},{"features":[1,3],"label":true}]`, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[[1,2],[1,3]]`, undescribed: true, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{"Content-Type: application/x-www-form-urlencoded"}, body: `{"len":2,"caps":0.5}`, undescribed: true, status: 200},
		{method: "POST", target: "/v1/predict?contributions=true&top=1&leverage=true", headers: []string{csv}, body: "2,0.5\n0,1\n", daemon: whole, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "2,0.5\n0,1\n", daemon: byCost, status: 200},
		{method: "POST", target: "/v1/predict?leverage=true", headers: []string{csv}, body: "2,0.5\n0,1\n", daemon: kernel, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{"Content-Type: application/x-ndjson"}, body: "{\"len\":2,\"caps\":0.5}\n{\"len\":2,\"caps\":0.5}\n", status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{"Content-Type: application/x-libsvm"}, body: string(libsvm), status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{"Content-Type: application/vnd.apache.arrow.stream"}, body: string(arrow), status: 200},
		{method: "POST", target: "/v1/predict?form=rows", headers: []string{json}, body: `[[1,2],[1,3]]`, undescribed: true, status: 200},
		{method: "POST", target: "/v1/predict?form=rows", headers: []string{json}, body: `[[1,2],[1,3]]`, daemon: isotonic, undescribed: true, status: 200},
		{method: "POST", target: "/v1/predict?form=rows&contributions=true&leverage=true", headers: []string{csv}, body: "2,0.5\n0,1\n", daemon: whole, status: 200},
		{method: "POST", target: "/v1/predict?form=rows&leverage=true", headers: []string{csv}, body: "2,0.5\n0,1\n", daemon: kernel, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{json, "Accept: text/csv"}, body: `[[1,2],[1,3]]`, daemon: whole, undescribed: true, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{json, "Accept: application/vnd.apache.arrow.stream"}, body: `[[1,2],[1,3]]`, daemon: whole, undescribed: true, status: 200},
		{method: "POST", target: "/v1/predict", headers: []string{json, "Accept: text/html"}, body: `[[1,2],[1,3]]`, status: 406},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `{"len":2,"capz":0.5}`, status: 400},
		{method: "POST", target: "/v1/predict", headers: []string{json}, body: `[]`, status: 400},
		{method: "POST", target: "/v1/predict?positions=orders/3/0-9&contributions=true", headers: []string{csv}, body: "2,0.5\n0,1\n", status: 200},
		{method: "POST", target: "/v1/predict?from=2026-01-02T03:04:05Z", headers: []string{csv}, body: "1,2", daemon: failing(ErrNoWindow), status: 404},
		{method: "POST", target: "/v1/predict", headers: []string{csv, stranger}, body: "1,2", status: 403},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "1,2\n3,4\n", most: 1, status: 413},
		{method: "POST", target: "/v1/predict?id=a7", headers: []string{json}, body: `{"len":2,"caps":0.5}`, status: 409},
		{method: "POST", target: "/v1/predict", headers: []string{"Content-Type: image/png"}, body: "1,2", status: 415},
		{method: "POST", target: "/v1/predict", headers: []string{csv, "Content-Encoding: br"}, body: "1,2", status: 415},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "1,2", daemon: modelless, status: 503},
		{method: "POST", target: "/v1/predict", headers: []string{csv}, body: "2,0.5\n0,1\n", daemon: byCost, status: 200},
		{method: "POST", target: "/v1/predict?leverage=true", headers: []string{csv}, body: "1,2", status: 503},

		{method: "GET", target: "/v1/tuning", daemon: whole, status: 200},
		{method: "GET", target: "/v1/tuning", daemon: whole, headers: []string{known}, status: 304},
		{method: "GET", target: "/v1/tuning?nu=1", daemon: whole, status: 400},
		{method: "GET", target: "/v1/tuning", status: 404},
		{method: "GET", target: "/v1/tuning", daemon: modelless, status: 503},
		{method: "GET", target: "/v1/quality", daemon: whole, status: 200},
		{method: "GET", target: "/v1/quality", daemon: whole, headers: []string{known}, status: 304},
		{method: "GET", target: "/v1/quality?folds=5", daemon: whole, status: 400},
		{method: "GET", target: "/v1/quality", status: 404},
		{method: "GET", target: "/v1/quality", daemon: modelless, status: 503},

		{method: "GET", target: "/v1/prequential", status: 200},
		{method: "GET", target: "/v1/prequential", daemon: func(_ *testing.T, f *fake) { f.prequential = model.Prequential{} }, status: 200},
		{method: "GET", target: "/v1/prequential?window=1", status: 400},
		{method: "GET", target: "/v1/events", streams: 1, status: 200},
		{method: "GET", target: "/v1/events?follow=false", streams: 1, status: 200},
		{method: "GET", target: "/v1/events", streams: 0, status: 503},
		{method: "GET", target: "/v1/events?follow=no", status: 400},
		{method: "GET", target: "/v1/events?type=alarm", status: 400},
		{method: "GET", target: "/v1/history", status: 200},
		{method: "GET", target: "/v1/history?span=days", daemon: func(_ *testing.T, f *fake) { f.empty = true }, status: 200},
		{method: "GET", target: "/v1/history?span=weeks", status: 400},
		{method: "GET", target: "/v1/windows", status: 400},
		{method: "GET", target: "/v1/windows?step=1d&window=30d&from=2026-01-02T03:04:05Z&nu=2", status: 200},
		{method: "GET", target: "/v1/windows?step=1d", daemon: kernel, status: 200},
		{method: "GET", target: "/v1/windows?step=0s", status: 400},
		{method: "GET", target: "/v1/windows?step=6h", daemon: failing(ErrNoWindow), status: 404},
		{method: "GET", target: "/v1/windows?step=1s", daemon: failing(fmt.Errorf("%w: 401", ErrManySteps)), status: 413},
		{method: "GET", target: "/v1/windows?step=1d", daemon: unavailable, status: 503},
		{method: "GET", target: "/v1/compare?a=2026-01-02T03:04:05Z,2026-01-03T03:04:05Z&b=orders/3/0-9,orders/4/7-7", status: 200},
		{method: "GET", target: "/v1/compare?a=,2026-01-03T03:04:05Z&nu=2", status: 200},
		{method: "GET", target: "/v1/compare?a=,2026-01-03T03:04:05Z", daemon: kernel, status: 200},
		{method: "GET", target: "/v1/compare", status: 400},
		{method: "GET", target: "/v1/compare?a=2026-01-03T03:04:05Z", status: 400},
		{method: "GET", target: "/v1/compare?a=,2026-01-03T03:04:05Z", daemon: failing(fmt.Errorf("a: %w: one class", ErrNoPlanes)), status: 404},
		{method: "GET", target: "/v1/compare?a=,2026-01-03T03:04:05Z", daemon: unavailable, status: 503},

		{method: "GET", target: "/v1/label-requests", status: 200},
		{method: "GET", target: "/v1/label-requests?count=x", status: 400},
		{method: "GET", target: "/v1/label-requests", daemon: unavailable, status: 503},
		{method: "GET", target: "/v1/label-requests", daemon: busy, status: 409},
		{method: "GET", target: "/v1/epoch", status: 200},
		{method: "GET", target: "/v1/epoch", daemon: epochs, status: 200},
		{method: "GET", target: "/v1/epoch?wait=1s", status: 400},
		{method: "GET", target: "/v1/epoch", daemon: unavailable, status: 503},
		{method: "GET", target: "/v1/regions?model=f1", daemon: kernel, status: 200},
		{method: "GET", target: "/v1/regions", daemon: kernel, headers: []string{known}, status: 304},
		{method: "GET", target: "/v1/regions?narrow=true", daemon: kernel, status: 200},
		{method: "GET", target: "/v1/regions?narrow=yes", daemon: kernel, status: 400},
		{method: "GET", target: "/v1/regions?width=100", daemon: kernel, status: 400},
		{method: "GET", target: "/v1/regions", status: 404},
		{method: "GET", target: "/v1/regions", daemon: modelless, status: 503},
		{method: "POST", target: "/v1/reduce", daemon: epochs, status: 202},
		{method: "POST", target: "/v1/reduce?prune=lda&basis=2", daemon: epochs, status: 202},
		{method: "POST", target: "/v1/reduce?prune=lda", daemon: epochs, status: 400},
		{method: "POST", target: "/v1/reduce", body: "{}", status: 400},
		{method: "POST", target: "/v1/reduce", headers: []string{stranger}, status: 403},
		{method: "POST", target: "/v1/reduce", daemon: busy, status: 409},
		{method: "POST", target: "/v1/reduce", daemon: unavailable, status: 503},
		{method: "DELETE", target: "/v1/reduce", daemon: epochs, status: 200},
		{method: "POST", target: "/v1/features/learn", status: 200},
		{method: "POST", target: "/v1/features/learn?now=1", status: 400},
		{method: "POST", target: "/v1/features/learn", headers: []string{stranger}, status: 403},
		{method: "POST", target: "/v1/features/learn", daemon: busy, status: 409},
		{method: "POST", target: "/v1/features/learn", daemon: unavailable, status: 503},
		{method: "DELETE", target: "/v1/reduce?now", status: 400},
		{method: "DELETE", target: "/v1/reduce", headers: []string{stranger}, status: 403},
		{method: "DELETE", target: "/v1/reduce", daemon: unavailable, status: 503},

		{method: "GET", target: "/v1/receipts/proof/7", status: 200},
		{method: "GET", target: "/v1/receipts/proof/7?level=1", status: 400},
		{method: "GET", target: "/v1/receipts/proof/8", status: 404},
		{method: "GET", target: "/v1/receipts/proof/07", status: 404},
		{method: "GET", target: "/v1/receipts/checkpoint", status: 200},
		{method: "GET", target: "/v1/receipts/checkpoint?size=1", status: 400},
		{method: "GET", target: "/v1/receipts/checkpoint", daemon: failing(fmt.Errorf("no log: %w", ErrNoReceipt)), status: 404},
		{method: "GET", target: "/v1/receipts/tile/0/000.p/1", status: 200},
		{method: "GET", target: "/v1/receipts/tile/0/000.p/1?height=8", status: 400},
		{method: "GET", target: "/v1/receipts/tile/entries/000", status: 404},

		{method: "GET", target: "/v1/status", daemon: troubled, status: 200},
		{method: "GET", target: "/v1/status?problems=1", status: 400},
		{method: "POST", target: "/v1/status/seen", daemon: troubled, status: 200},
		{method: "POST", target: "/v1/status/seen?until=2026-01-02T03:04:05Z", daemon: troubled, status: 200},
		{method: "POST", target: "/v1/status/seen?until=now", status: 400},
		{method: "POST", target: "/v1/status/seen", headers: []string{stranger}, status: 403},
		{method: "POST", target: "/v1/status/seen", daemon: unavailable, status: 503},
		{method: "GET", target: "/v1/blocks", status: 200},
		{method: "GET", target: "/v1/blocks?after=&limit=1", status: 200},
		{method: "GET", target: "/v1/blocks?after=zzz", status: 200},
		{method: "GET", target: "/v1/blocks?limit=0", status: 400},
		{method: "GET", target: "/v1/blocks", daemon: unavailable, status: 503},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", guarded: true, headers: []string{"Authorization: Bearer " + retireToken}, status: 200},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841?dry-run=true", status: 400},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", headers: []string{stranger}, status: 403},
		{method: "DELETE", target: "/v1/blocks/orders/3/1842", status: 404},
		{method: "DELETE", target: "/v1/blocks/orders/3/1841", daemon: unavailable, status: 503},
		{method: "POST", target: "/v1/retire", headers: []string{json}, body: `{"ids":["orders/3/1841","orders/3/1842"],"positions":["orders/3/0-9","orders/3/5-7"],"from":"2026-01-02T03:04:05Z"}`, status: 200},
		{method: "POST", target: "/v1/retire?dry_run=true", body: `{"ids":["orders/3/1841"],"to":"2026-01-02T03:04:05Z"}`, headers: []string{form}, undescribed: true, status: 200},
		{method: "POST", target: "/v1/retire", headers: []string{json}, body: `{"ids":[]}`, status: 400},
		{method: "POST", target: "/v1/retire", headers: []string{json, stranger}, body: `{"ids":["orders/3/1841"]}`, status: 403},
		{method: "POST", target: "/v1/retire", headers: []string{json}, body: `{"keys":["alice"]}`, status: 404},
		{method: "POST", target: "/v1/retire", headers: []string{json}, body: strings.Repeat(" ", MaxBodyBytes+1), status: 413},
		{method: "POST", target: "/v1/retire", headers: []string{csv}, body: "orders/3/1841", status: 415},
		{method: "POST", target: "/v1/retire", headers: []string{json}, body: `{"keys":["alice"]}`, daemon: unavailable, status: 503},
		{method: "GET", target: "/v1/snapshot", status: 200},
		{method: "GET", target: "/v1/snapshot?receipts=no", status: 400},
		{method: "GET", target: "/v1/snapshot", daemon: busy, status: 409},
		{method: "GET", target: "/v1/snapshot", daemon: unavailable, status: 503},
		{method: "GET", target: "/v1/model?includes=orders/3/9999", status: 504},
		{method: "POST", target: "/v1/predict?includes=orders/3/9999", headers: []string{csv}, body: "1,2\n", status: 504},
		{method: "POST", target: "/v1/snapshot", status: 200},
		{method: "POST", target: "/v1/snapshot", body: "now", status: 400},
		{method: "POST", target: "/v1/snapshot", headers: []string{stranger}, status: 403},
		{method: "POST", target: "/v1/snapshot", daemon: unavailable, status: 503},
		{method: "POST", target: "/v1/snapshot", daemon: failing(errors.New("disk full")), status: 500},
		{method: "POST", target: "/v1/refine?wait=30s", status: 200},
		{method: "POST", target: "/v1/refine?wait=0s", daemon: func(_ *testing.T, f *fake) { f.slow = time.Hour }, status: 202},
		{method: "POST", target: "/v1/refine?wait=", status: 400},
		{method: "POST", target: "/v1/refine", headers: []string{stranger}, status: 403},
		{method: "POST", target: "/v1/refine", daemon: busy, status: 409},
		{method: "POST", target: "/v1/refine", daemon: modelless, status: 503},

		{method: "GET", target: "/v2", status: 200},
		{method: "GET", target: "/v2?pretty=true", status: 400},
		{method: "GET", target: "/v2/health/live", status: 200},
		{method: "GET", target: "/v2/health/live?pretty=true", status: 400},
		{method: "GET", target: "/v2/health/ready", status: 200},
		{method: "GET", target: "/v2/health/ready?pretty=true", status: 400},
		{method: "GET", target: "/v2/health/ready", daemon: troubled, status: 503},

		{method: "GET", target: "/v1/openapi.json", status: 200},
		{method: "GET", target: "/v1/openapi.json", headers: []string{known}, status: 304},
		{method: "GET", target: "/v1/openapi.json?pretty", status: 400},
		{method: "GET", target: "/healthz", status: 200},
		{method: "GET", target: "/healthz?verbose=true", status: 400},
		{method: "GET", target: "/readyz", status: 200},
		{method: "GET", target: "/readyz?verbose=true", status: 400},
		{method: "GET", target: "/readyz", daemon: func(_ *testing.T, f *fake) { f.status.NotReady = "reading" }, status: 503},
		{method: "GET", target: "/readyz", daemon: func(_ *testing.T, f *fake) { f.panics = true }, status: 500},
		{method: "GET", target: "/metrics", status: 200},
		{method: "GET", target: "/metrics?name[]=up", status: 400},
		{method: "GET", target: "/", daemon: whole, status: 200},
		{method: "GET", target: "/?view=model&weights=own&from=2", daemon: whole, status: 200},
		{method: "GET", target: "/?view=quality&class=spam", daemon: whole, status: 200},
		{method: "GET", target: "/?view=past&span=days", daemon: whole, status: 200},
		{method: "GET", target: "/?view=blocks&list=archived&after=bad", daemon: whole, status: 400},
		{method: "GET", target: "/?view=other", status: 400},
		{method: "GET", target: "/?dark", status: 400},
		{method: "GET", target: "/assets/page.css", status: 200},
		{method: "GET", target: "/assets/page.js", status: 200},
		{method: "GET", target: "/assets/icon.svg", status: 200},
		{method: "GET", target: "/assets/icon.svg", headers: []string{known}, status: 304},
		{method: "GET", target: "/assets/icon.svg?size=2", status: 400},
		{method: "GET", target: "/assets/icon.png", status: 404},
	}
	for path, other := range map[string]string{
		"/v2/models/default":             "/v2/models/other",
		"/v2/models/default/versions/f1": "/v2/models/default/versions/f2",
	} {
		dialogues = append(dialogues, []dialogue{
			{method: "GET", target: path, status: 200},
			{method: "GET", target: path, daemon: whole, status: 200},
			{method: "GET", target: path + "?pretty=true", status: 400},
			{method: "GET", target: other, status: 404},
			{method: "GET", target: path, daemon: modelless, status: 503},
			{method: "GET", target: path + "/ready", status: 200},
			{method: "GET", target: path + "/ready?pretty=true", status: 400},
			{method: "GET", target: other + "/ready", status: 404},
			{method: "GET", target: path + "/ready", daemon: troubled, status: 503},
			{method: "POST", target: path + "/infer", headers: []string{json}, body: inferTwo, status: 200},
			{method: "POST", target: path + "/infer", headers: []string{json}, body: inferTwo, daemon: whole, status: 200},
			{method: "POST", target: path + "/infer", headers: []string{"Content-Type: application/octet-stream", "Inference-Header-Content-Length: " + strconv.Itoa(len(inferTwo))}, body: inferTwo, status: 200},
			{method: "POST", target: path + "/infer", headers: []string{json}, body: `{"inputs":[],"outputs":[{"name":"label","parameters":{"binary_data":true}}]}`, status: 400},
			{method: "POST", target: path + "/infer", headers: []string{json}, body: strings.TrimSuffix(inferTwo, "}") + `,"outputs":[{"name":"label","parameters":{"binary_data":true}}]}`, status: 200},
			{method: "POST", target: other + "/infer", headers: []string{json}, body: inferTwo, status: 404},
			{method: "POST", target: path + "/infer", headers: []string{json}, body: inferTwo, most: 1, status: 413},
			{method: "POST", target: path + "/infer", headers: []string{csv}, body: "1,2\n", status: 415},
			{method: "POST", target: path + "/infer", headers: []string{json}, body: inferTwo, daemon: modelless, status: 503},
		}...)
	}
	for i := range routes {
		r := &routes[i]
		target := wildcard.ReplaceAllString(documented(r.path), "page.css")
		dialogues = append(dialogues, dialogue{method: r.method, target: "http://elsewhere.example" + target, status: 403})
		if r.role != "" {
			other := "Authorization: Bearer " + map[bool]string{true: predictToken, false: readToken}[r.role == config.RoleRead]
			dialogues = append(dialogues,
				dialogue{method: r.method, target: target, guarded: true, status: 401},
				dialogue{method: r.method, target: target, guarded: true, headers: []string{other}, status: map[bool]int{true: 401, false: 403}[r.signsIn]})
		}
	}
	seen := map[string]bool{}
	for _, d := range dialogues {
		name := fmt.Sprintf("%s %s %d", d.method, d.target, d.status)
		f := newFake()
		if d.daemon != nil {
			d.daemon(t, f)
		}
		open := newServer(f).config.Access
		if d.guarded {
			open = guard(t, "")
		}
		s := New(Config{Access: open, Name: "default", Topics: []string{"orders"}, MaxRows: d.most}, f, NewMetrics(), zerolog.Nop())
		if strings.HasPrefix(d.target, "/v1/events") {
			s.streams = make(chan struct{}, d.streams)
			s.stop()
		}
		w := do(s, d.method, d.target, d.body, d.headers...)
		if w.Code != d.status {
			t.Errorf("%s: status %d: %.300s", name, w.Code, w.Body)
			continue
		}
		in := describedBy(t, spec, &d)
		seen[fmt.Sprintf("%s %s %d", in.Route.Method, in.Route.Path, d.status)] = true
		if err := openapi3filter.ValidateRequest(t.Context(), in); (err != nil) != d.undescribed && d.status < 400 {
			t.Errorf("%s is answered, but not described: %v", name, err)
		}
		out := &openapi3filter.ResponseValidationInput{
			RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(w.Body), Options: in.Options,
		}
		if err := openapi3filter.ValidateResponse(t.Context(), out); err != nil {
			t.Errorf("%s: the answer is not as described: %v", name, err)
		}
	}
	described := 0
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				described++
				// Internal errors are the same for all calls: two are enough.
				if answer := method + " " + path + " " + status; !seen[answer] && status != "500" {
					t.Errorf("%s is described, but was not seen", answer)
				}
			}
		}
	}
	if described < 90 {
		t.Errorf("only %d answers are described", described)
	}
}

// wholeEpoch has every part of an EpochAnswer.
func wholeEpoch(b *model.Basis) *EpochAnswer {
	e := rebuilding()
	e.InUse.Gammas = model.NewGammas([]basis.Trial{{Gamma: 0.5, Nu: 1, Correctness: 0.75, Loss: 0.5}})
	e.InUse.Unjudged, e.InUse.Pruned = "too few rows", 40
	e.InUse.Stages = []model.Stage{model.NewStage(reduce.Stage{Classifier: reduce.Step{Points: 3}}, []string{"ham"})}
	e.Reducing.Stages = e.InUse.Stages
	e.Rebuild.Reduction = e.InUse
	e.Rebuild.Reasons = []UnreadBlock{{ID: "orders/3/7", Rows: 14, Reason: "it is gone"}}
	e.Served, e.Problem, e.Skipped = "b3", "rows are few", e.Rebuild.Reasons
	e.Basis = model.NewBasisJSON(b.Map, b.Regulariser)
	return e
}

// The route and the document know every parameter of a query, or the answer is 400 and
// names it.
func TestQueriesAreKnown(t *testing.T) {
	spec := loadDocument(t)
	texts := []string{
		"", "0", "1", "7", "007", "+1", "-1", "1.5", "1e3", "2147483647", "2147483648", "99999999999999999999", " 1", "0x1",
		"true", "false", "TRUE", "yes", "30s", "1m30s", "1.5h", ".5s", "1.s", "5µs", "5us", "0s", "-1s", "+1s", "30", "s", "1d", "1s ", "many",
	}
	taken := map[bool]int{}
	for i := range routes {
		r := &routes[i]
		target := wildcard.ReplaceAllString(documented(r.path), "page.css")
		synctest.Test(t, func(t *testing.T) { // polls wait on a fake clock
			ask := func(query string) *httptest.ResponseRecorder {
				f := newFake()
				f.answers(t)
				onBasis(t, f)
				f.ids = append(f.ids, "page.css")
				f.served.Basis = nil // a model in the features has contributions
				return do(newServer(f), r.method, target+"?"+query, body(r), mediaOf(r), "If-None-Match: *")
			}
			refused := func(query string, wants ...string) {
				t.Helper()
				w := ask(query)
				message := errorOf(t, w)
				for _, want := range wants {
					if w.Code != 400 || !strings.Contains(message, want) {
						t.Errorf("%s %s?%s: status %d, %q lacks %q", r.method, target, query, w.Code, message, want)
					}
				}
			}
			known := []string{`"calibraton"`}
			for _, p := range r.query {
				name, _, _, _ := p.describe()
				known = append(known, name)
			}
			refused("calibraton=true", known...)
			refused("%zz=1", "cannot be read")
			refused("a=1;b=2", "cannot be read")
			for _, p := range r.query {
				name, _, _, _ := p.describe()
				refused(name+"=1&"+name+"=1", name+" is given 2 times")
				for _, text := range texts {
					query := url.Values{name: {text}}
					if name == topQuery.name {
						query.Set(contributionsQuery.name, "true")
					}
					if name == basisQuery.name {
						query.Set(pruneQuery.name, "lda")
					}
					if r.path == "/v1/windows" {
						query.Set(stepsStep.name, cmp.Or(query.Get(stepsStep.name), "1d"))
					} else if r.path == "/v1/compare" {
						query.Set(compareA.name, cmp.Or(query.Get(compareA.name), "2026-01-02T03:04:05Z,"))
					} else if name == windowNu.name {
						query.Set(windowFrom.name, "2026-01-02T03:04:05Z")
					}
					w := ask(query.Encode())
					if w.Code == 400 && !strings.Contains(w.Body.String(), fmt.Sprintf("%s=\\\"%s\\\"", name, text)) {
						t.Errorf("%s %s: %s=%q: %s", r.method, target, name, text, w.Body)
					}
					d := &dialogue{method: r.method, target: target + "?" + query.Encode(), body: body(r), headers: []string{mediaOf(r)}}
					if err := openapi3filter.ValidateRequest(t.Context(), describedBy(t, spec, d)); err != nil && w.Code != 400 {
						t.Errorf("%s %s: %s=%q is taken (%d), but not as described: %v", r.method, target, name, text, w.Code, err)
					}
					taken[w.Code != 400]++
				}
			}
		})
	}
	if taken[true] < 40 || taken[false] < 100 {
		t.Errorf("%d values were taken, %d refused", taken[true], taken[false])
	}
}

// errorOf is the message of an error in either form.
func errorOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	e := decodeJSON[struct{ Error json.RawMessage }](t, w)
	var detail ErrorDetail
	if json.Unmarshal(e.Error, &detail.Message) == nil {
		return detail.Message
	}
	if err := json.Unmarshal(e.Error, &detail); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return detail.Message
}

// inferTwo is a request for two rows.
const inferTwo = `{"inputs":[{"name":"len","shape":[2],"datatype":"FP64","data":[2,0]},{"name":"caps","shape":[2,1],"datatype":"INT32","data":[[0],[1]]}]}`

// body is a body that the route takes.
func body(r *route) string {
	switch {
	case r.rows:
		return "2,0.5\n"
	case r.chooses:
		return `{"ids":["page.css"]}`
	case r.infers:
		return inferTwo
	}
	return ""
}

// mediaOf is the header with the content type of body.
func mediaOf(r *route) string {
	if r.chooses || r.infers {
		return "Content-Type: " + selectorTypes[0]
	}
	return "Content-Type: text/csv"
}

// A body where none is taken is an error.
func TestBodiesAreKnown(t *testing.T) {
	for i := range routes {
		r := &routes[i]
		if r.takesBody() {
			continue
		}
		target := wildcard.ReplaceAllString(documented(r.path), "page.css")
		w := do(newServer(newFake()), r.method, target, `{"wait":"3s"}`, "Content-Type: application/json")
		if message := errorOf(t, w); w.Code != 400 || !strings.Contains(message, "no body") {
			t.Errorf("%s %s: status %d, %s", r.method, target, w.Code, message)
		}
		chunked := httptest.NewRequest(r.method, target, io.NopCloser(strings.NewReader("")))
		if chunked.ContentLength >= 0 {
			t.Fatal("the length of the body is known")
		}
		again := httptest.NewRecorder()
		s := newServer(newFake())
		s.stop() // a stream of events ends at once
		s.ServeHTTP(again, chunked)
		if strings.Contains(again.Body.String(), "no body") {
			t.Errorf("%s %s: a body of no bytes is refused", r.method, target)
		}
	}
}

// The list for people names every route.
func TestRoutesAreListed(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for i := range routes {
		r := &routes[i]
		entry := fmt.Sprintf("//\t%-6s %s", r.method, documented(r.path))
		if strings.HasPrefix(r.path, "/v1/") && !strings.Contains(string(text), entry) {
			t.Errorf("doc.go does not list %q", entry)
		}
	}
}
