package incremental

import (
	"slices"
	"testing"

	"streamd/incremental/gram"
)

func TestIdentifiers(t *testing.T) {
	columns := func(m int) (all []gram.Column) {
		ids, ages, lengths, late, text := make([]int64, m), make([]int8, m), make([]float64, m), make([]float64, m), make([]float32, m)
		for i := range m {
			ids[i], ages[i], lengths[i], late[i], text[i] = int64(1<<40+977*(m-i)), int8(i%90), float64(i)+0.5, float64(i), float32(i)
		}
		late[m-1] = late[0]
		return []gram.Column{gram.ColumnOf(ages), gram.ColumnOf(ids), gram.ColumnOf(lengths), gram.ColumnOf(late), gram.ColumnOf(text)}
	}
	for _, c := range []struct {
		rows int
		want []int
	}{{9, nil}, {91, []int{1, 4}}, {256, []int{1, 4}}, {5000, []int{1, 4}}} {
		b := &Block{Columns: columns(c.rows), Codes: make([]int32, c.rows)}
		if got := b.Identifiers(); !slices.Equal(got, c.want) {
			t.Errorf("%d rows: %v, want %v", c.rows, got, c.want)
		}
	}
}
