package document

import "testing"

func TestEdits(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"kafka.broker", "kafka.brokers", 1},
		{"kafak", "kafka", 1}, {"abcd", "acbd", 1}, {"kitten", "sitting", 3},
	} {
		if got := edits(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: %d edits, want %d", test.a, test.b, got, test.want)
		}
	}
}
