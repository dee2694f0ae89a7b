package wire

import (
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// With LabelAlone a row may have no column but the label, in every format that can say so.
func TestLabelAlone(t *testing.T) {
	limits := Limits{Bytes: 1 << 20, Numbers: 1 << 20, Rows: 10, Features: 10, Classes: 10}
	for _, c := range []struct {
		format  Format
		payload string
		class   string
		columns []string
	}{
		{JSON, `{"label":"spam"}`, "spam", nil},
		{JSON, `{"label":1,"id":"a7","time":"2024-01-31 13:45:00.5"}`, "1", []string{"id", "time"}},
		{JSON, `{"id":"a7"}`, "", []string{"id"}},
		{JSON, `{"label":null}`, "", nil},
		{CSV, "label\nspam\n", "spam", nil},
		{CSV, "id,label,time\na7,1,2024-01-31\n", "1", []string{"id", "time"}},
	} {
		d, err := NewDecoder(Options{Format: c.format, AsTexts: true, LabelAlone: true, KeepUnlabelled: true, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			b, err := d.Decode("", []byte(c.payload))
			if err != nil {
				t.Errorf("%s: %v", c.payload, err)
				continue
			}
			if b.Rows() != 1 || b.Classes[b.Codes[0]] != c.class && c.class != incremental.Unlabelled || !slices.Equal(b.Features, c.columns) || len(d.Texts()) != len(c.columns) {
				t.Errorf("%s: %d rows, classes %q, columns %q", c.payload, b.Rows(), b.Classes, b.Features)
			}
		}
		if d, err = NewDecoder(Options{Format: c.format, AsTexts: true, KeepUnlabelled: true, Limits: limits}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Decode("", []byte(c.payload)); (err != nil) != (c.columns == nil) {
			t.Errorf("%s without LabelAlone: %v", c.payload, err)
		}
	}
	arrow, err := Encode(nil, Arrow, &incremental.Block{Classes: []string{"spam"}, Codes: []int32{0}, Features: []string{"x"}, Columns: []gram.Column{gram.ColumnOf([]float64{1})}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDecoder(Options{AsTexts: true, LabelAlone: true, Ignore: []string{"x"}, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := d.Decode(Arrow.ContentType(), arrow); err != nil || b.Rows() != 1 || len(b.Columns) != 0 {
		t.Errorf("Arrow: %v", err)
	}
}
