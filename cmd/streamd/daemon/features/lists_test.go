package features

import (
	"slices"
	"testing"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/ingest/schema"
)

// someLists are lists of two categories, of which one was declared. Those of most were learned.
func someLists(t *testing.T, most map[string]int) *Lists {
	t.Helper()
	configured, err := schema.Parse([]byte(`{"town": {"kind": "category", "values": {"most": 3}}, "street": {"kind": "category", "values": {"most": 4}}, "plan": {"kind": "category", "values": ["a", "b"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return &Lists{configured: configured, saved: learning.Lists{Most: most}}
}

// A list is learned where the configuration has one to learn, and it was learned before.
func TestLearnedCategories(t *testing.T) {
	for _, c := range []struct {
		most map[string]int
		want []string
	}{
		{nil, nil},
		{map[string]int{"plan": 2}, nil}, // it is declared now
		{map[string]int{"town": 2, "plan": 2}, []string{"town"}},
		{map[string]int{"town": 2, "street": 4}, []string{"street", "town"}},
	} {
		if got := someLists(t, c.most).Learned(); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.most, got, c.want)
		}
	}
	if got := new(Lists).Learned(); len(got) > 0 {
		t.Errorf("%q without a schema", got)
	}
}
