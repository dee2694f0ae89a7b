package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestAlikeLabels: labels with the same ends and the same length get codes of their own,
// in order of first appearance. Known ones allocate nothing.
func TestAlikeLabels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	texts := [][]byte{[]byte("1"), []byte("+1"), []byte("1.0"), []byte("1e0"), []byte("ham"), []byte("h.m")}
	for k := range 20 {
		texts = append(texts, fmt.Appendf(nil, "a%02db", k), fmt.Appendf(nil, "1%02d1", k))
	}
	l := newLabels(&Options{Limits: Limits{Classes: len(texts)}})
	for range 50 {
		l.reset()
		want := map[string]int32{}
		for range 500 {
			text := texts[rng.IntN(len(texts))]
			class, _ := classOfText(string(text))
			if _, ok := want[class]; !ok {
				want[class] = int32(len(want))
			}
			if code, reason := l.text(text); code != want[class] || reason != "" {
				t.Fatalf("%s has code %d (%s), want %d", text, code, reason, want[class])
			}
		}
	}
	for _, bad := range []string{"", "\xff"} {
		if code, reason := l.text([]byte(bad)); code != -1 || reason == "" {
			t.Errorf("%q has code %d (%s), want it refused", bad, code, reason)
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		for _, text := range texts {
			l.text(text)
		}
	}); n != 0 {
		t.Errorf("%v allocations for labels that are known", n)
	}
}
