package wire_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// TestRowByRow: the rows of a payload are the same as in payloads of one row, to the bit
// and to the word of an error, whether they are written alike or not.
func TestRowByRow(t *testing.T) {
	odd := strings.Split(" 0 -0 0.0 1 +1 .5 5. 007 01.5 1e5 1E+05 1e-05 1e400 -1e400 1e-400 nan -inf null \"\" \"1\" - + . e5 1e 1e+ 1e+123 2.5e-10 "+
		"9007199254740993 123456789012345678901234567890 0.123456789012345678901234567890 1.00000000000000011102230246251565 18446744073709551616 "+
		"4.9e-324 1_0 0x10 1:2 true 1.e5 -.5 1-2 1.2.3 é", " ")
	styles := []func(x float64) string{
		func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) },
		func(x float64) string { return strconv.FormatFloat(1e-6*x, 'g', -1, 64) },
		func(x float64) string { return strconv.FormatFloat(10*x, 'f', 2, 64) },
		func(x float64) string { return strconv.FormatFloat(x, 'e', 18, 64) },
		func(x float64) string { return strconv.Itoa(int(100 * x)) },
	}
	rng := rand.New(rand.NewPCG(6, 6))
	long := strings.Repeat("long ", 8)
	good, bad := make(map[string]int), make(map[string]int)
	for trial := range 1500 {
		n := 1 + rng.IntN(6)
		names := make([]string, n)
		for j := range names {
			names[j] = fmt.Sprintf("%sx%d", long[:rng.IntN(2)*rng.IntN(len(long))], j)
		}
		oddities, changes := []int{0, 20, 1000}[rng.IntN(3)], []int{1, 5, 100}[rng.IntN(3)]
		number := func() string {
			if oddities > 0 && rng.IntN(oddities) == 0 {
				return odd[rng.IntN(len(odd))]
			}
			return styles[rng.IntN(len(styles))](rng.NormFloat64())
		}
		kind := []string{"csv", "libsvm", "list", "named"}[trial%4]
		refused := map[bool]string{true: "nan"}[kind == "csv" || kind == "libsvm"]
		var space, end string
		var order []int
		var with []bool
		var labelAt int
		var rows []string
		for i := range 5 + rng.IntN(50) {
			if i == 0 || rng.IntN(changes) == 0 {
				space, end = []string{"", " ", "\t ", strings.Repeat(" ", 30+rng.IntN(10))}[rng.IntN(4)], []string{"\n", "\r\n", " \n", "\n\n"}[rng.IntN(4)]
				order, labelAt = rng.Perm(n), rng.IntN(n+1)
				with = make([]bool, n)
				for j := range with {
					with[j] = rng.IntN(4) > 0
				}
			}
			label := []string{"1", "-1.0", "+1", "spam", "1e0", refused}[rng.IntN(5)+rng.IntN(60)/59]
			var row []string
			switch kind {
			case "csv":
				row = append(row, label)
				for range n {
					row = append(row, number())
				}
				if oddities > 0 && rng.IntN(oddities) == 0 {
					row = append(row[:1+rng.IntN(n)], "")
				}
				rows = append(rows, strings.Join(row, ","+space)+end)
			case "libsvm":
				row = append(row, label)
				for j := range n {
					if with[j] {
						row = append(row, fmt.Sprintf("%s%d:%s", space, j+1, number()))
					}
				}
				rows = append(rows, strings.Join(row, " ")+[]string{"", " # 5:7"}[rng.IntN(20)/19]+end)
			case "list":
				for range n {
					row = append(row, number())
				}
				row = []string{fmt.Sprintf(`"features":%s[%s]`, space, strings.Join(row, ","+space))}
			case "named":
				for _, j := range order {
					row = append(row, fmt.Sprintf(`"%s":%s%s`, names[j], space, number()))
				}
			}
			if kind == "list" || kind == "named" {
				at := min(labelAt, len(row))
				row = append(row[:at:at], append([]string{`"label":` + space + strconv.Quote(label), `"weight": ` + []string{"1", "0.5", "2"}[rng.IntN(3)]}, row[at:]...)...)
				rows = append(rows, "{"+strings.Join(row, ","+space)+"}"+strings.TrimLeft(end, "\n")+"\n")
			}
		}
		opts := wire.Options{Features: names, Label: "first", Header: wire.HeaderAbsent}
		contentType, head := "text/csv", "" // a first row; errors of a first row are different
		switch kind {
		case "csv":
			head = "1" + strings.Repeat(",0", n) + "\n"
		case "libsvm":
			contentType = "application/x-libsvm"
		case "list", "named":
			contentType, opts.Label, opts.Weight = "application/json", "label", "weight"
		}
		whole, wholeErr := newDecoder(t, opts).Decode(contentType, []byte(head+strings.Join(rows, "")))
		first := strings.Count(head, "\n")
		if wholeErr == nil {
			table, err := newDecoder(t, opts).DecodeUnlabelled(contentType, []byte(head+strings.Join(rows, "")))
			if err != nil || table.Rows != first+len(rows) {
				t.Fatalf("%s without labels: %d rows, %v\n%q", kind, table.Rows, err, rows)
			}
		}
		if contentType == "application/json" { // a message of one row names its own features
			d := newDecoder(t, wire.Options{Weight: "weight"})
			for _, row := range rows {
				got, err := d.Decode(contentType, []byte(row))
				want, wantErr := newDecoder(t, wire.Options{Weight: "weight"}).Decode(contentType, []byte(row))
				if fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("%v, of a fresh decoder %v\n%q", err, wantErr, row)
				}
				if err == nil {
					requireSame(t, got, want)
				}
			}
		}
		alone := newDecoder(t, opts)
		line := 1
		for i, row := range rows {
			one, err := alone.Decode(contentType, []byte(head+row))
			var e, wholeE *wire.Error
			if errors.As(err, &e) {
				bad[kind]++
				if e.Row, e.Line = first+i, e.Line+line-1; !errors.As(wholeErr, &wholeE) || *wholeE != *e {
					t.Fatalf("row %d of %s, alone: %v; in all: %v\n%q", i, kind, e, wholeErr, rows)
				}
				break
			}
			line += strings.Count(row, "\n")
			if wholeErr == nil {
				good[kind]++
				requireRow(t, whole, first+i, one)
			} else if errors.As(wholeErr, &wholeE); wholeE.Row <= first+i {
				t.Fatalf("row %d of %s is good alone; in all: %v\n%q", i, kind, wholeErr, rows)
			}
		}
	}
	for _, kind := range []string{"csv", "libsvm", "list", "named"} {
		if good[kind] < 1000 || bad[kind] < 50 {
			t.Errorf("%s: %d good rows and %d bad ones, too few", kind, good[kind], bad[kind])
		}
	}
}

// requireRow compares row i of a block with the last of another.
func requireRow(t *testing.T, whole *incremental.Block, i int, one *incremental.Block) {
	t.Helper()
	if got, want := whole.Classes[whole.Codes[i]], one.Classes[one.Codes[one.Rows()-1]]; got != want {
		t.Fatalf("row %d: label %q, want %q", i, got, want)
	}
	if one.Weights != nil && whole.Weights[i] != one.Weights[one.Rows()-1] {
		t.Fatalf("row %d: weight %v, want %v", i, whole.Weights[i], one.Weights[one.Rows()-1])
	}
	for j, c := range one.Columns {
		if got, want := whole.Columns[j].At(i), c.At(one.Rows()-1); math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("row %d: %v in column %d, want %v", i, got, j, want)
		}
	}
}
