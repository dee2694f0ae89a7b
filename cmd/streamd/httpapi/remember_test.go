package httpapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/predictions"
	"streamd/config"
	"streamd/ingest/wire"
)

// kept remembers predictions in memory.
type kept struct {
	all []Remembered
	err error
}

func (m *kept) Read(contentType string, row []byte) ([]float64, error) {
	d, err := wire.NewDecoder(wire.Options{Features: []string{"len", "caps"}})
	if err != nil {
		return nil, err
	}
	t, err := d.DecodeUnlabelled(contentType, row)
	if err != nil {
		return nil, err
	}
	if t.Rows != 1 {
		return nil, fmt.Errorf("there are %d rows", t.Rows)
	}
	return []float64{t.Columns[0].At(0), t.Columns[1].At(0)}, nil
}

func (m *kept) Remember(_ context.Context, all []Remembered) error {
	m.all = append(m.all, all...)
	return m.err
}

// remembering is a server that remembers predictions.
func remembering(t *testing.T, f *fake) (*Server, *kept) {
	guard, err := access.New(config.HTTP{Hosts: []string{"example.com"}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	m := &kept{}
	return New(Config{Access: guard, Name: "default", Remember: m, IDField: "order", Rows: wire.Options{Ignore: []string{"order"}}}, f, NewMetrics(), zerolog.Nop()), m
}

// A prediction with an id is remembered before it is given: the row as it was sent, without the id,
// and the answer that is given.
func TestRemember(t *testing.T) {
	for _, c := range []struct {
		target, contentType, body string
		ids, rows                 []string
	}{
		{"/v1/predict?id=a7", "application/json", `{"len":2,"caps":0.5}`, []string{"a7"}, []string{`{"len":2,"caps":0.5}`}},
		{"/v1/predict?inference_id=a%2F7", "text/csv", "2,0.5\n", []string{"a/7"}, []string{"2,0.5\n"}},
		{"/v1/predict?id=a7", "application/json", `[[2,0.5]]`, []string{"a7"}, []string{`[[2,0.5]]`}},
		{"/v1/predict?form=rows", "application/json", `[{"id":"a","len":2.50,"caps":0.5},{"caps":1,"len":0,"id":"b"}]`, []string{"a", "b"}, []string{`{"caps":0.5,"len":2.50}`, `{"caps":1,"len":0}`}},
		{"/v1/predict", "application/x-ndjson", "{\"inference_id\":17,\"len\":2,\"caps\":0.5}\n{\"id\":\"b\",\"features\":[0,1]}\n", []string{"17", "b"}, []string{`{"caps":0.5,"len":2}`, `{"features":[0,1]}`}},
		{"/v1/predict?form=rows", "text/csv", "caps,id,len\n0.5,a,2\n\"1\",\"b,c\",0\n", []string{"a", "b,c"}, []string{"caps,len\n0.5,2\n", "caps,len\n1,0\n"}},
		{"/v1/predict?form=rows", "text/csv", "sep=;\ninference_id;len;caps\n7;2;0.5\n", []string{"7"}, []string{"len;caps\n2;0.5\n"}},
		{"/v1/predict?form=rows", "application/json", `[{"order":17,"len":2.50,"caps":0.5},{"caps":1,"len":0,"id":"b"}]`, []string{"17", "b"}, []string{`{"caps":0.5,"len":2.50}`, `{"caps":1,"len":0}`}},
		{"/v1/predict?form=rows", "text/csv", "caps,order,len\n0.5,a,2\n1,b,0\n", []string{"a", "b"}, []string{"caps,len\n0.5,2\n", "caps,len\n1,0\n"}},
		{"/v1/predict", "application/json", `{"id":null,"len":2,"caps":0.5}`, nil, nil},
		{"/v1/predict", "application/json", `{"label":"id","len":2,"caps":0.5}`, nil, nil},
		{"/v1/predict", "text/csv", "2,0.5\n", nil, nil},
		{"/v1/predict?from=2026-01-02T03:04:05Z", "application/json", `{"id":"a","len":2,"caps":0.5}`, nil, nil},
	} {
		s, m := remembering(t, newFake())
		w := do(s, "POST", c.target, c.body, "Content-Type: "+c.contentType)
		if w.Code != 200 {
			t.Errorf("%s of %s: %d %s", c.target, c.body, w.Code, w.Body)
			continue
		}
		var ids, rows []string
		for i, r := range m.all {
			ids, rows = append(ids, r.ID), append(rows, string(r.Row))
			var kept predictions.PredictRowsAnswer
			if err := json.Unmarshal(r.Answer, &kept); err != nil || len(kept.Rows) != 1 {
				t.Fatalf("%s: the answer is %s: %v", c.target, r.Answer, err)
			}
			given := append(fields(t, w.Body.Bytes()), "")[i]
			if kept.Rows[0].Label != given || kept.Model != "f1" || r.Model != "f1" {
				t.Errorf("%s of %s: %s is remembered, and %s was answered", c.target, c.body, r.Answer, w.Body)
			}
		}
		if !slices.Equal(ids, c.ids) || !slices.Equal(rows, c.rows) {
			t.Errorf("%s of %s: %q %q are remembered, not %q %q", c.target, c.body, ids, rows, c.ids, c.rows)
		}
	}
}

// fields are the labels of an answer in either form.
func fields(t *testing.T, body []byte) (labels []string) {
	var a struct {
		Labels []string
		Rows   []struct{ Label string }
	}
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatal(err)
	}
	for _, r := range a.Rows {
		a.Labels = append(a.Labels, r.Label)
	}
	return a.Labels
}

// What cannot be remembered is told of, and not answered.
func TestNotRemembered(t *testing.T) {
	many := "[" + strings.TrimSuffix(strings.Repeat(`{"len":1,"caps":2,"id":"?"},`, 1001), ",") + "]"
	for i := range 1001 {
		many = strings.Replace(many, "?", fmt.Sprint(i), 1)
	}
	for _, c := range []struct {
		target, body string
		status       int
		says         string
	}{
		{"?id=", `{"len":2,"caps":0.5}`, 400, "id: it is empty"},
		{"?id=" + strings.Repeat("a", 513), `{"len":2,"caps":0.5}`, 400, "it has 513 bytes"},
		{"?id=%ff", `{"len":2,"caps":0.5}`, 400, "UTF-8"},
		{"?id=a&inference_id=b", `{"len":2,"caps":0.5}`, 400, "give one of them"},
		{"?id=a", `{"id":"a","len":2,"caps":0.5}`, 400, "the query has one"},
		{"?id=a", `[[1,2],[3,4]]`, 400, "row 0 cannot be remembered: there are 2 rows"},
		{"?id=a", `{"len":2}`, 400, "row 0 cannot be remembered: "},
		{"?id=a", `{"len":2,"caps":0.5,"unknown":1}`, 400, "unknown"},
		{"?id=a&nu=1&to=2026-01-02T03:04:05Z", `{"len":2,"caps":0.5}`, 400, "window"},
		{"?id=a", `{"len":2,"caps":0.5,"label":"` + strings.Repeat("a", 500_000) + `"}`, 413, "at most 500000"},
		{"", many, 413, "at most 1000"},
		{"", `[{"id":"a","len":2,"caps":0.5},{"len":2,"caps":0.5}]`, 400, "row 1 has no id"},
		{"", `[{"id":"a","len":2,"caps":0.5},{"id":"a","len":2,"caps":0.5}]`, 400, "row 1: the id"},
		{"", `{"id":"a","inference_id":"b","len":2,"caps":0.5}`, 400, "more than one of the fields order, id, inference_id"},
		{"", `{"inference_id":"b","order":"a","len":2,"caps":0.5}`, 400, "more than one of the fields order, id, inference_id"},
		{"?id=a", `{"order":"a","len":2,"caps":0.5}`, 400, "the query has one"},
		{"", `{"id":1.5,"len":2,"caps":0.5}`, 400, "want a text or a whole number"},
		{"", `{"id":{},"len":2,"caps":0.5}`, 400, "want a text or a whole number"},
		{"", `[{"id":"a","len":2,"caps":0.5},`, 400, ""},
	} {
		s, m := remembering(t, newFake())
		w := do(s, "POST", "/v1/predict"+c.target, c.body, "Content-Type: application/json")
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || len(m.all) > 0 {
			t.Errorf("%.40s of %.60s: %d %s, want %d %s; %d are remembered", c.target, c.body, w.Code, w.Body, c.status, c.says, len(m.all))
		}
	}
	for body, says := range map[string]string{
		"len,caps,id\n2,0.5,a\n2,0.5,\n":                        "row 1 has no id",
		"len,caps,id\n2,0.5,a\n2,0.5,a\n":                       "row 1: the id",
		"len,caps,id,inference_id\n2,0.5,a,b\n":                 "the rows have the columns id and inference_id",
		"len,caps,id\n2,0.5," + strings.Repeat("a", 513) + "\n": "the column id: it has 513 bytes",
		"len,caps,id\nmany,0.5,a\n":                             "row 0 cannot be remembered",
		"len,caps,id\n" + strings.Repeat("2,0.5,a\n", 1001):     "at most 1000",
	} {
		s, m := remembering(t, newFake())
		w := do(s, "POST", "/v1/predict", body, "Content-Type: text/csv")
		if w.Code/100 != 4 || !strings.Contains(w.Body.String(), says) || len(m.all) > 0 {
			t.Errorf("%.60q: %d %s, want %s", body, w.Code, w.Body, says)
		}
	}
	for _, body := range []string{"len,caps\n2,0.5\n", "2,0.5\n", "len,caps,identity\n2,0.5,a\n"} {
		s, _ := remembering(t, newFake())
		if w := do(s, "POST", "/v1/predict", body, "Content-Type: text/csv"); w.Code != 200 {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
	s, m := remembering(t, newFake())
	m.err = fmt.Errorf("the brokers do not take it: %w", ErrUnavailable)
	if w := do(s, "POST", "/v1/predict?id=a", `{"len":2,"caps":0.5}`, "Content-Type: application/json"); w.Code != 503 || !strings.Contains(w.Body.String(), "the brokers do not take it") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := do(newServer(newFake()), "POST", "/v1/predict?id=a", `{"len":2,"caps":0.5}`, "Content-Type: application/json"); w.Code != 409 || !strings.Contains(w.Body.String(), "predict.output set to the topic of rows") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A column of a stream of Arrow has ids, of texts or of numbers. Each row is remembered as a stream
// of its own, which has the values and the types of the others.
func TestRememberArrow(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "len", Type: arrow.PrimitiveTypes.Float32}, {Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "caps", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(schema))
	for from := range int64(3) { // batches of 2 rows
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i := 2 * from; i < 2*from+2; i++ {
			b.Field(0).(*array.Float32Builder).Append(float32(i) / 3)
			b.Field(1).(*array.Int64Builder).Append(1000 + i)
			b.Field(2).(*array.Float64Builder).Append(float64(i) / 7)
		}
		if err := w.Write(b.NewRecordBatch()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, m := remembering(t, newFake())
	kind := wire.Arrow.ContentType()
	if w := do(s, "POST", "/v1/predict?form=rows", stream.String(), "Content-Type: "+kind); w.Code != 200 || len(m.all) != 6 {
		t.Fatalf("%d %s; %d are remembered", w.Code, w.Body, len(m.all))
	}
	for i, r := range m.all {
		values, err := m.Read(r.ContentType, r.Row)
		if err != nil || r.ID != fmt.Sprint(1000+i) || values[0] != float64(float32(i)/3) || values[1] != float64(i)/7 {
			t.Errorf("row %d is %s: %v, %v", i, r.ID, values, err)
		}
	}
	// Cut and changed bytes are errors, never a panic.
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		body := bytes.Clone(stream.Bytes())
		if r.IntN(2) == 0 {
			body = body[:r.IntN(len(body))]
		} else {
			body[r.IntN(len(body))] ^= 1 << r.IntN(8)
		}
		if w := do(s, "POST", "/v1/predict", string(body), "Content-Type: "+kind); w.Code >= 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

// A column that is ignored, so that the decoder of rows passes it over, takes no more memory than
// a body may.
func TestRememberArrowBomb(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "len", Type: arrow.PrimitiveTypes.Float64}, {Name: "id", Type: arrow.BinaryTypes.String}, {Name: "caps", Type: arrow.PrimitiveTypes.Float64},
		{Name: "note", Type: arrow.BinaryTypes.String},
	}, nil)
	const long = 12_345
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.Float64Builder).Append(1)
	b.Field(1).(*array.StringBuilder).Append("a")
	b.Field(2).(*array.Float64Builder).Append(2)
	b.Field(3).(*array.StringBuilder).Append(strings.Repeat("n", long))
	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(schema), ipc.WithLZ4())
	if err := errors.Join(w.Write(b.NewRecordBatch()), w.Close()); err != nil {
		t.Fatal(err)
	}
	s, m := remembering(t, newFake())
	s.config.Rows.Ignore = []string{"note"}
	kind := "Content-Type: " + wire.Arrow.ContentType()
	// The length before compression, which may be padded; the offsets before it have it, too.
	bomb, at := bytes.Clone(stream.Bytes()), -1
	for padded := uint64(long); at < 0 && padded < long+64; padded++ {
		at = bytes.LastIndex(bomb, binary.LittleEndian.AppendUint64(nil, padded))
	}
	binary.LittleEndian.PutUint64(bomb[at:], 1<<40)
	if w := do(s, "POST", "/v1/predict", string(bomb), kind); w.Code != 400 || !strings.Contains(w.Body.String(), "too much memory") || len(m.all) > 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if _, err := splitArrow(stream.Bytes(), "id", 1<<20); err != nil {
		t.Error(err)
	}
}
