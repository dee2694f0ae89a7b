package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
)

// The second computation has the digest and the bits of the plane that package incremental has, and
// finds out a model that differs in anything.
func TestSecondComputation(t *testing.T) {
	c := Trillion{Blocks: 23, Sums: 5, BlockRows: 40, Features: 4, Seed: 3}
	made, err := c.sum(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.expected(made)
	if err != nil {
		t.Fatal(err)
	}
	of := func(blocks int) *httpapi.ModelAnswer {
		state := incremental.NewState(incremental.DefaultFeatures(c.Features))
		for i := range blocks {
			state.Add(made[i%len(made)].Summary)
		}
		solved, err := state.Moments().Solve(incremental.Options{Nu: Nu})
		if err != nil {
			t.Fatal(err)
		}
		return &httpapi.ModelAnswer{
			Digest: fmt.Sprintf("%x", state.Digest()), Planes: model.NewPlanesJSON(solved.Planes), LiveRows: state.Rows(),
		}
	}
	if err := want.compare(of(c.Blocks)); err != nil {
		t.Error(err)
	}
	for text, spoil := range map[string]func(m *httpapi.ModelAnswer){
		"rows":   func(m *httpapi.ModelAnswer) { *m = *of(c.Blocks - 1) },
		"digest": func(m *httpapi.ModelAnswer) { m.Digest = of(c.Blocks + 1).Digest },
		"number 4 of the plane": func(m *httpapi.ModelAnswer) {
			m.Planes = slices.Clone(m.Planes)
			m.Planes[0].Gamma = m.Planes[0].Gamma * (1 + 0x1p-52)
		},
	} {
		m := of(c.Blocks)
		spoil(m)
		if err := want.compare(m); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
