package witness

import (
	"strings"
	"testing"

	"streamd/cmd/streamd/daemon/witness/witnesstest"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Of checkpoints with cosignatures those stay whose signers no larger one has, and at most so many.
func TestDropCosigned(t *testing.T) {
	names := "abcd"
	witnesses := map[rune]*receipt.Witness{}
	for _, name := range names {
		k, err := receipt.ParseWitness((&witnesstest.Witness{Name: string(name)}).Public())
		if err != nil {
			t.Fatal(err)
		}
		witnesses[name] = k
	}
	for _, c := range []struct {
		all  string // signers by ascending size
		most int
		want string
	}{
		{"b a", 8, "b a"},
		{"ab a", 8, "ab a"},
		{"a ab", 8, "ab"},
		{"b a ab", 8, "ab"},
		{"a b a b", 8, "a b"},
		{"ab ac bc", 8, "ab ac bc"},
		{"abc ab a c", 8, "abc ab a c"},
		{"abc ab a c b", 4, "abc a c b"},
		{"d abc ab ac bc a b", 5, "d abc bc a b"},
		{"ab ac bc ad", 3, "ac bc ad"},
	} {
		var all []cosigned
		for i, signers := range strings.Fields(c.all) {
			x := cosigned{LogHead: snapshot.LogHead{Size: int64(1 + i)}}
			for _, name := range signers {
				x.by = append(x.by, receipt.Cosignature{Witness: witnesses[name]})
			}
			all = append(all, x)
		}
		var got []string
		size := int64(0)
		for _, x := range dropCosigned(all, c.most) {
			signers := ""
			for _, by := range x.by {
				signers += by.Witness.Name()
			}
			if got = append(got, signers); x.Size <= size {
				t.Errorf("%s: sizes do not ascend", c.all)
			}
			size = x.Size
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("of %s stay %s, want %s", c.all, got, c.want)
		}
	}
}
