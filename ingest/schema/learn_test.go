package schema

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// countedRow is a row with one category.
type countedRow struct {
	value    string // its name; empty: it is missing
	spelling string
	bare     bool // in JSON it is no text
	weight   int
}

// countedRows are random rows. Some values have several spellings, and some no place in a list.
func countedRows(r *rand.Rand, n int) (rows []countedRow) {
	long := strings.Repeat("long", 100)
	for range n {
		row := countedRow{weight: r.IntN(3)}
		switch r.IntN(12) {
		case 0:
			row.spelling = []string{"", "NA"}[r.IntN(2)]
		case 1:
			row.value, row.spelling = "1", []string{"1", "1.0", "1e0"}[r.IntN(3)]
			row.bare = r.IntN(2) == 0
		case 2:
			row.value, row.spelling, row.bare = "true", "true", r.IntN(2) == 0
		case 3:
			row.value = []string{"(other)", "(missing)", long, "\u00e9", "e\u0301"}[r.IntN(5)]
			row.spelling = row.value
		default:
			row.value = fmt.Sprintf("v%d", int(r.ExpFloat64()*8))
			row.spelling = row.value
		}
		rows = append(rows, row)
	}
	return rows
}

// payload is rows in a format.
func countedPayload(t *testing.T, rows []countedRow, format wire.Format) []byte {
	t.Helper()
	var out bytes.Buffer
	switch format {
	case wire.JSON:
		for _, row := range rows {
			text := fmt.Sprintf("%q", row.spelling)
			if row.bare {
				text = row.spelling
			}
			if row.spelling == "" {
				text = "null"
			}
			fmt.Fprintf(&out, `{"label":"a","c":%s,"w":%d}`+"\n", text, row.weight)
		}
	case wire.CSV:
		out.WriteString("w,c,label\n")
		for _, row := range rows {
			fmt.Fprintf(&out, "%d,%s,a\n", row.weight, row.spelling)
		}
	case wire.Arrow:
		dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}
		batch := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
			{Name: "c", Type: dictionary, Nullable: true}, {Name: "w", Type: arrow.PrimitiveTypes.Float64}, {Name: "label", Type: arrow.BinaryTypes.String},
		}, nil))
		for _, row := range rows {
			c := batch.Field(0).(*array.BinaryDictionaryBuilder)
			if row.spelling == "" {
				c.AppendNull()
			} else if err := c.AppendString(row.spelling); err != nil {
				t.Fatal(err)
			}
			batch.Field(1).(*array.Float64Builder).Append(float64(row.weight))
			batch.Field(2).(*array.StringBuilder).Append("a")
		}
		record := batch.NewRecordBatch()
		w := ipc.NewWriter(&out, ipc.WithSchema(record.Schema()))
		if err := errors.Join(w.Write(record), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// wantedList is the list of the most frequent values, by a count in a map.
func wantedList(rows []countedRow, most int, own bool) (list []ValueRows, distinct int, all int64) {
	counts := map[string]int64{}
	for _, row := range rows {
		if row.value != "" && row.weight > 0 {
			counts[row.value]++
			all++
		}
	}
	var order []string
	for value := range counts {
		order = append(order, value)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	accent := false
	for _, value := range order {
		isAccent := strings.ContainsAny(value, "\u00e9\u0301")
		if len(list) == most || value == "(other)" || value == "(missing)" && own || len(value) > 300 || isAccent && accent {
			continue
		}
		accent = accent || isAccent
		list = append(list, ValueRows{value, counts[value]})
	}
	return list, len(counts), all
}

// A learned list has the most frequent values of the rows that count, whatever the formats of the
// blocks, the cuts between them and the goroutines that count. The learned schema makes a column
// of each value with as many ones.
func TestLearnedLists(t *testing.T) {
	formats := []wire.Format{wire.JSON, wire.CSV, wire.Arrow}
	ties, kept := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(91, seed))
		most, own, hashed := 1+r.IntN(30), r.IntN(2) == 0, r.IntN(2) == 0
		missing, hash := "zero", ""
		if own {
			missing = "own"
		}
		if hashed { // then the column's texts are verbatim
			hash = ", h: {kind: hash, from: c, bits: 2, missing: zero}"
		}
		s, err := Parse(fmt.Appendf(nil, "{c: {kind: category, values: {most: %d}, missing: %s}, 'value of c': {kind: category, from: c, values: [1], other: true, missing: zero}%s}", most, missing, hash))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Learns(); !slices.Equal(got, []string{"c"}) {
			t.Fatalf("categories to learn are %q", got)
		}
		rows := countedRows(r, 1+r.IntN(2000))
		counts := s.NewValueCounts(s, 1<<20)
		blocks := make(chan []countedRow)
		var counting sync.WaitGroup
		for range 3 {
			turn := r.IntN(3)
			counting.Go(func() {
				d, err := wire.NewDecoder(wire.Options{Schema: counts.Schema(), IgnoreUnknown: true, Weight: "w"})
				for rows := range blocks {
					format := formats[turn%3]
					turn++
					var b *incremental.Block
					if err == nil {
						b, err = d.Decode(format.ContentType(), countedPayload(t, rows, format))
					}
					if err != nil {
						t.Errorf("seed %d, %v: %v", seed, format, err)
						continue
					}
					counts.Add(counts.Of(b))
				}
			})
		}
		for left := rows; len(left) > 0; {
			n := 1 + r.IntN(len(left))
			blocks <- left[:n]
			left = left[n:]
		}
		close(blocks)
		counting.Wait()

		list, distinct, all := wantedList(rows, most, own)
		learned, got, err := counts.Learned()
		if len(list) == 0 {
			if err == nil || !strings.Contains(err.Error(), `feature "c": no row has a value`) {
				t.Errorf("seed %d: without a value: %v", seed, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		listed := int64(0)
		for _, v := range list {
			listed += v.Rows
		}
		if l := got[0]; len(got) != 1 || l.Feature != "c" || l.Most != most || !slices.Equal(l.Values, list) || l.Distinct != distinct || l.Rows != all || l.Share != float64(listed)/float64(all) {
			t.Fatalf("seed %d: learned %+v, want %v of %d values, %d of %d rows", seed, got, list, distinct, listed, all)
		}
		if n := len(list); n == most && distinct > n {
			kept++
			if n > 1 && list[n-1].Rows == list[n-2].Rows {
				ties++
			}
		}
		text, err := learned.Text(got)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse([]byte(text)); err != nil || again.Digest() != learned.Digest() || again.Learns() != nil {
			t.Fatalf("seed %d: %s is another schema: %v", seed, text, err)
		}
		d, err := wire.NewDecoder(wire.Options{Schema: learned, IgnoreUnknown: true, Weight: "w"})
		if err != nil {
			t.Fatal(err)
		}
		format := formats[seed%3]
		b, err := d.Decode(format.ContentType(), countedPayload(t, rows, format))
		if err != nil {
			t.Fatal(err)
		}
		ones := func(column string) (n int64) {
			j := slices.Index(b.Features, column)
			if j < 0 {
				t.Fatalf("seed %d: there is no column %q", seed, column)
			}
			for i := range b.Rows() {
				if b.Columns[j].At(i) == 1 && b.Weight(i) > 0 {
					n++
				}
			}
			return n
		}
		for _, v := range list {
			if n := ones("c=" + v.Value); n != v.Rows {
				t.Errorf("seed %d: %d rows have a one for %q, want %d", seed, n, v.Value, v.Rows)
			}
		}
		if n := ones("c=(other)"); n != all-listed {
			t.Errorf("seed %d: %d rows have other values, want %d", seed, n, all-listed)
		}
	}
	if ties < 5 || kept < 20 {
		t.Errorf("%d lists end in a tie and %d leave values: this test shows little", ties, kept)
	}
}

// Values that take too much memory are no list.
func TestCountedValuesAreBounded(t *testing.T) {
	s, err := Parse([]byte("c: {kind: category, values: {most: 2}}"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := wire.NewDecoder(wire.Options{Schema: s.NewValueCounts(s, 5_000_000).Schema(), Limits: wire.Limits{Numbers: 16 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 60_000)
	for i := range 2000 {
		_, err := d.Decode("text/csv", fmt.Appendf(nil, "label,c\na,%s%d\n", text, i))
		if err != nil {
			if want := `column "c": its different values take more than 5000000 bytes of memory`; !strings.Contains(err.Error(), want) || i != 83 {
				t.Errorf("after %d values: %v", i, err)
			}
			return
		}
	}
	t.Error("120 MB of texts are counted")
}
