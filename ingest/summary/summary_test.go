package summary

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/ingest/wire"
)

var ctx = context.Background()

// randomRows is a block of m rows of n features, some with weights, some without labels.
func randomRows(r *rand.Rand, m, n int) *incremental.Block {
	b := &incremental.Block{Classes: []string{"spam", "-1", "1", incremental.Unlabelled}}
	classes := 1 + r.IntN(4)
	for range m {
		b.Codes = append(b.Codes, int32(r.IntN(classes)))
	}
	for j := range n {
		b.Features = append(b.Features, fmt.Sprintf("feature %d", n-j))
		x := make([]float64, m)
		for i := range x {
			x[i] = r.NormFloat64() + float64(j*int(b.Codes[i]))
		}
		if j%2 == 0 {
			narrow := make([]float32, m)
			for i := range x {
				narrow[i] = float32(x[i])
			}
			b.Columns = append(b.Columns, gram.ColumnOf(narrow))
			continue
		}
		b.Columns = append(b.Columns, gram.ColumnOf(x))
	}
	if r.IntN(3) == 0 {
		for range m {
			b.Weights = append(b.Weights, []float64{0, 0.25, 1, 3}[r.IntN(4)])
		}
	}
	return b
}

// levels takes some rows of each block.
func levels(rows int) *sample.Levels {
	return sample.New(sample.Settings{Rows: rows, Seed: 7}, nil).Levels()
}

// made is the summary block of rows.
func made(t testing.TB, b *incremental.Block, l *sample.Levels) *Block {
	t.Helper()
	to := &Block{
		ID: "orders/3/1841", Position: incremental.Position{Topic: "orders", Partition: 3, Offset: 1841}, Last: 1900,
		Time: time.UnixMilli(1_700_000_123_456).UTC(), Rows: RowCounts{Rejected: 4},
	}
	if err := new(Maker).Make(ctx, to, b, l); err != nil {
		t.Fatal(err)
	}
	return to
}

func encoded(t testing.TB, b *Block) []byte {
	t.Helper()
	out, err := b.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decoded decodes a record and expects it to be the encoding of what it decodes to.
func decoded(t testing.TB, record []byte) (*Block, error) {
	t.Helper()
	b, err := new(Decoder).Decode(ctx, record)
	if err == nil && !bytes.Equal(encoded(t, b), record) {
		t.Fatalf("%x decodes, and is encoded as %x", record, encoded(t, b))
	}
	if refused := (*wire.Error)(nil); err != nil && !errors.As(err, &refused) {
		t.Fatalf("%v is no wire.Error", err)
	}
	return b, err
}

// sealed gives contents a head and a digest.
func sealed(content []byte) []byte {
	record := append([]byte(magic), content...)
	digest := sha256.Sum256(record)
	return append(record, digest[:]...)
}

func contentsOf(record []byte) []byte { return record[len(magic) : len(record)-sha256.Size] }

// A block comes back as it was: its place, counts, sums and rows.
func TestEveryBlockComesBack(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(51, seed))
		rows := randomRows(r, 1+r.IntN(80), 1+r.IntN(9))
		var l *sample.Levels
		if r.IntN(3) > 0 {
			l = levels(1 + r.IntN(30))
		}
		want := made(t, rows, l)
		got, err := decoded(t, encoded(t, want))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got.Summary.Digest() != want.Summary.Digest() || (got.Part == nil) != (want.Part == nil) {
			t.Fatalf("seed %d: other sums, or other rows", seed)
		}
		if got.Summary, got.Part = want.Summary, want.Part; !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
		}
		if r := want.Rows; r.Read != int64(rows.Rows())+4 || r.Read != r.Rejected+r.ZeroWeight+want.Summary.Rows() {
			t.Fatalf("seed %d: %+v of %d rows", seed, r, rows.Rows())
		}
	}
}

// One decoder reads blocks of different features.
func TestDecoderKeepsNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(52, 52))
	var d Decoder
	for range 30 {
		n := 1 + r.IntN(3)
		record := encoded(t, made(t, randomRows(r, 9, n), levels(5)))
		b, err := d.Decode(ctx, record)
		if err != nil {
			t.Fatal(err)
		}
		again := slices.Clone(record)
		clear(record)
		if !bytes.Equal(encoded(t, b), again) {
			t.Fatal("the block has memory of its record")
		}
	}
}

// Whatever part of a record is missing, it is refused.
func TestTruncated(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 53))
	record := encoded(t, made(t, randomRows(r, 30, 3), levels(5)))
	for cut := range record {
		if _, err := decoded(t, record[:cut]); err == nil {
			t.Fatalf("%d of %d bytes are accepted", cut, len(record))
		}
	}
	content := contentsOf(record)
	for cut := range content {
		if _, err := decoded(t, sealed(content[:cut])); err == nil {
			t.Fatalf("%d of %d bytes of contents are accepted", cut, len(content))
		}
	}
	for i := range record {
		record[i] ^= 0x10
		if _, err := decoded(t, record); err == nil {
			t.Fatalf("a changed byte %d is accepted", i)
		}
		record[i] ^= 0x10
	}
}

// fields are the contents of a record, one by one.
type fields struct {
	id, topic                                             string
	partition, first, more, read, rejected, weightless, n uint64
	names                                                 []string
	sums, rows                                            []byte
}

func (f *fields) record() []byte {
	b := appendText(nil, f.id)
	b = appendText(b, f.topic)
	for _, x := range []uint64{f.partition, f.first, f.more} {
		b = binary.AppendUvarint(b, x)
	}
	b = append(b, make([]byte, 8)...)
	for _, x := range []uint64{f.read, f.rejected, f.weightless, f.n} {
		b = binary.AppendUvarint(b, x)
	}
	for _, name := range f.names {
		b = appendText(b, name)
	}
	b = append(binary.AppendUvarint(b, uint64(len(f.sums))), f.sums...)
	b = append(binary.AppendUvarint(b, uint64(len(f.rows))), f.rows...)
	return sealed(b)
}

// sum is the sums of a class.
type sum struct {
	label   string
	rows    uint64
	numbers []float64 // Σv, Σv(x−c), the triangle
}

func sumsOf(n, k uint64, origin []float64, classes ...sum) []byte {
	b := binary.AppendUvarint(binary.AppendUvarint(nil, n), k)
	numbers := func(xs []float64) {
		for _, x := range xs {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	numbers(origin)
	for _, c := range classes {
		b = binary.AppendUvarint(appendText(b, c.label), c.rows)
		numbers(c.numbers)
	}
	return b
}

// Each kind of hostile record is refused for its reason.
func TestHostile(t *testing.T) {
	one := func() sum { return sum{"1", 3, []float64{3, 1, 2, 2, 0.5, 3}} } // two features
	two := func(c ...sum) []byte { return sumsOf(2, uint64(len(c)), []float64{0, 0}, c...) }
	good := func() *fields {
		return &fields{
			id: "orders/0/7", topic: "orders", first: 7, more: 2, read: 6, rejected: 1, weightless: 2, n: 2,
			names: []string{"b", "a"}, sums: two(one()),
		}
	}
	if _, err := decoded(t, good().record()); err != nil {
		t.Fatal(err)
	}
	rows := randomRows(rand.New(rand.NewPCG(54, 54)), 40, 2)
	other := made(t, rows, levels(4))
	numbers := func(at int, x float64) func(*fields) {
		return func(f *fields) { c := one(); c.numbers[at] = x; f.sums = two(c) }
	}
	for name, c := range map[string]struct {
		spoil func(f *fields)
		want  string
	}{
		"no id":                    {func(f *fields) { f.id = "" }, "the id of the block"},
		"long id":                  {func(f *fields) { f.id = strings.Repeat("a", MaxID+1) }, "the id of the block"},
		"control character in id":  {func(f *fields) { f.id = "a\x00b" }, "the id of the block"},
		"id is not UTF-8":          {func(f *fields) { f.id = "\xff" }, "the id of the block"},
		"topic with /":             {func(f *fields) { f.topic = "a/b" }, "the source of the rows"},
		"huge partition":           {func(f *fields) { f.partition = 1 << 31 }, "no range of offsets"},
		"offset beyond 63 bits":    {func(f *fields) { f.first = 1 << 63 }, "ends within a field"},
		"last beyond 63 bits":      {func(f *fields) { f.more = 1<<63 - 1 }, "no range of offsets"},
		"counts of rows":           {func(f *fields) { f.read = 7 }, "7 rows were read, but 1 were rejected, 2 are of weight 0 and 3 are summed"},
		"negative count":           {func(f *fields) { f.rejected = 1<<64 - 1 }, "ends within a field"},
		"huge count":               {func(f *fields) { f.read, f.rejected = 1<<40, 1<<40-5 }, "counts of rows"},
		"no features":              {func(f *fields) { f.n, f.names, f.sums, f.read = 0, nil, sumsOf(0, 0, nil), 3 }, "0 names for 0 features"},
		"huge number of features":  {func(f *fields) { f.n = 1 << 62 }, "ends within a field"},
		"fewer names":              {func(f *fields) { f.n, f.names = 1, f.names[:1] }, "1 names for 2 features"},
		"feature twice":            {func(f *fields) { f.names[1] = "b" }, `"b" is named twice`},
		"feature without a name":   {func(f *fields) { f.names[1] = "" }, "empty name"},
		"huge features of sums":    {func(f *fields) { f.sums = sumsOf(1<<60, 1, nil) }, "names for 0 features"},
		"huge number of classes":   {func(f *fields) { f.sums = sumsOf(2, 1<<60, []float64{0, 0}) }, "features"},
		"more classes than follow": {func(f *fields) { f.sums = sumsOf(2, 2, []float64{0, 0}, one()) }, "not a valid encoding"},
		"bytes after the sums":     {func(f *fields) { f.sums = append(f.sums, 0) }, "not a valid encoding"},
		"label twice":              {func(f *fields) { f.sums, f.read = two(one(), one()), 9 }, `class "1" is not in its place`},
		"labels in another order":  {func(f *fields) { c := one(); c.label = "-1"; f.sums, f.read = two(one(), c), 9 }, `class "-1" is not in its place`},
		"label is not UTF-8":       {func(f *fields) { c := one(); c.label = "\xff"; f.sums = two(c) }, "not a valid encoding"},
		"class without rows":       {func(f *fields) { c := one(); c.rows = 0; f.sums, f.read = two(c), 3 }, `class "1" has 0 rows`},
		"negative rows":            {func(f *fields) { c := one(); c.rows = 1<<64 - 3; f.sums = two(c) }, `class "1" has -3 rows`},
		"rows beyond 2^31":         {func(f *fields) { c := one(); c.rows = 1 << 31; f.sums, f.read, f.rejected = two(c), 1<<31+3, 1 }, "counts of rows"},
		"weight 0":                 {numbers(0, 0), "the sum of the weights"},
		"weight negative":          {numbers(0, -3), "the sum of the weights"},
		"weight NaN":               {numbers(0, math.NaN()), "the sum of the weights"},
		"weight of another count":  {numbers(0, 0x1p50), "no rows have these sums"},
		"NaN":                      {numbers(1, math.NaN()), "not in the range"},
		"+Inf":                     {numbers(2, math.Inf(1)), "not in the range"},
		"-Inf":                     {numbers(4, math.Inf(-1)), "not in the range"},
		"negative square":          {numbers(3, -2), "sum of squares of feature 0 is -2"},
		"not semidefinite":         {numbers(4, 2.5), "not positive semidefinite"},
		"sum too large":            {numbers(1, 4), "not positive semidefinite"},
		"origin NaN":               {func(f *fields) { f.sums = sumsOf(2, 1, []float64{0, math.NaN()}, one()) }, "not in the range"},
		"origin out of range":      {func(f *fields) { f.sums = sumsOf(2, 1, []float64{0x1p128, 0}, one()) }, "no rows have these sums"},
		"rows of other sums":       {func(f *fields) { f.rows = other.Part.AppendBinary(nil) }, "the rows for the sample"},
		"rows without sums": {func(f *fields) {
			f.sums, f.read, f.rows = sumsOf(2, 0, []float64{0, 0}), 3, other.Part.AppendBinary(nil)
		},
			"the rows for the sample"},
		"not rows": {func(f *fields) { f.rows = []byte("abc") }, "the rows for the sample"},
	} {
		f := good()
		c.spoil(f)
		if _, err := decoded(t, f.record()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		spoil func(record []byte) []byte
		want  string
	}{
		"empty":         {func([]byte) []byte { return nil }, "does not begin like one"},
		"other format":  {func(r []byte) []byte { return []byte(strings.Repeat(`{"label":1}`, 20)) }, "does not begin like one"},
		"later version": {func(r []byte) []byte { r[len(magic)-1] = 2; return r }, "has version 2, and this program reads version 1"},
		"cut":           {func(r []byte) []byte { return r[:len(r)-1] }, "the digest is not"},
		"more bytes":    {func(r []byte) []byte { return sealed(append(contentsOf(r), 0)) }, "goes on after the last one"},
		"long uvarint": {func(r []byte) []byte {
			content := contentsOf(r)
			return sealed(append([]byte{content[0] | 0x80, 0}, content[1:]...))
		}, "ends within a field"},
	} {
		if _, err := decoded(t, c.spoil(good().record())); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Rows that the sums cannot be of are refused, though their encoding is right.
func TestRowsOfOtherSums(t *testing.T) {
	r := rand.New(rand.NewPCG(55, 55))
	rows := randomRows(r, 40, 3)
	b := made(t, rows, levels(5))
	rows.Columns[1] = gram.ColumnOf(slices.Repeat([]float64{1.5}, rows.Rows()))
	b.Part = made(t, rows, levels(5)).Part // the same classes and counts
	if _, err := decoded(t, encoded(t, b)); err == nil || !strings.Contains(err.Error(), "its digest is not that of the sums") {
		t.Errorf("rows of another block: %v", err)
	}
	b = made(t, fixtureRows(), levels(9))
	record := encoded(t, b) // its last number is a float64 of the last row
	content := contentsOf(record)
	binary.LittleEndian.PutUint64(content[len(content)-8:], math.Float64bits(1e300))
	if _, err := decoded(t, sealed(content)); err == nil || !strings.Contains(err.Error(), "outside the range of exact sums") {
		t.Errorf("a row of a number out of range: %v", err)
	}
}

// A record takes no more memory than it says, and it is refused before it takes more than there
// is. The worst records have very many small classes or features.
func TestRecordsStayBelowTheLimit(t *testing.T) {
	many := func(n, k int) []byte {
		f := &fields{id: "a", topic: "t", read: uint64(k), n: uint64(n)}
		for j := range n {
			f.names = append(f.names, fmt.Sprint(j))
		}
		var classes []sum
		for c := range k {
			numbers := make([]float64, 1+n+gram.PackedLen(n))
			numbers[0] = 1
			classes = append(classes, sum{fmt.Sprint(c), 1, numbers})
		}
		f.sums = sumsOf(uint64(n), uint64(k), make([]float64, n), classes...)
		part := append(make([]byte, 40), 0)
		part = binary.AppendUvarint(binary.AppendUvarint(part, uint64(n)), uint64(k))
		for _, c := range classes {
			part = append(append(appendText(part, c.label), 1), 63)
		}
		f.rows = append(part, 0)
		return f.record()
	}
	for _, shape := range [][2]int{{1, 20_000}, {800, 0}, {300, 1}, {10, 300}} {
		record := many(shape[0], shape[1])
		least := 1 << 40
		for low, high := 0, 1<<30; low < high; { // the least memory that it is admitted with
			d := Decoder{Memory: (low + high) / 2}
			_, err := d.Decode(ctx, record)
			if bad := (*wire.Error)(nil); errors.As(err, &bad) && bad.Memory {
				low = d.Memory + 1
			} else {
				high, least = d.Memory, d.Memory
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		(&Decoder{Memory: least}).Decode(ctx, record)
		runtime.ReadMemStats(&after)
		if took := int(after.TotalAlloc - before.TotalAlloc); took > least || least > 16*len(record) {
			t.Errorf("%d features, %d classes: %d bytes, priced at %d", shape[0], shape[1], took, least)
		}
		(&Decoder{Memory: least - 1}).Decode(ctx, record)
		runtime.ReadMemStats(&before)
		(&Decoder{Memory: least - 1}).Decode(ctx, record)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<10 {
			t.Errorf("%d features, %d classes: %d bytes are taken to refuse it", shape[0], shape[1], took)
		}
	}
}

var writeFixture = flag.Bool("write-fixture", false, "write testdata/summary/v1.bin anew")

const (
	fixture       = "../../testdata/summary/v1.bin"
	fixtureDigest = "194a57570eb9c58e8a288b866ee5ee553cee3b57620a4a20a727929501d4f058" // of the sums
)

// fixtureRows are ten rows of three classes.
func fixtureRows() *incremental.Block {
	return &incremental.Block{
		Features: []string{"length", "capitals"},
		Columns: []gram.Column{
			gram.ColumnOf([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
			gram.ColumnOf([]float64{0.5, 0.25, 0.1, 0, -1, 3, 2, 2, 1, 7}),
		},
		Classes: []string{"spam", "ham", incremental.Unlabelled},
		Codes:   []int32{0, 1, 1, 0, 2, 1, 0, 1, 1, 0},
		Weights: []float64{1, 1, 1, 2, 1, 0, 1, 1, 0.5, 1},
	}
}

// The format does not change unnoticed: the fixture decodes to the block of today's code, and
// this is encoded as the fixture.
func TestFixture(t *testing.T) {
	b := made(t, fixtureRows(), levels(2))
	record := encoded(t, b)
	if *writeFixture {
		if err := os.MkdirAll(filepath.Dir(fixture), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fixture, record, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(record, want) {
		t.Errorf("the encoding is %x, and the fixture is %x", record, want)
	}
	got, err := decoded(t, want)
	if err != nil {
		t.Fatal(err)
	}
	digest := got.Summary.Digest()
	if text := hex.EncodeToString(digest[:]); text != fixtureDigest {
		t.Errorf("the digest of the sums is %s, want %s", text, fixtureDigest)
	}
	if got.Part == nil || got.Rows != (RowCounts{Read: 14, Rejected: 4, ZeroWeight: 1}) {
		t.Errorf("%+v", got)
	}
}

// Decode never panics, and what it accepts has the one encoding that it came in.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(56, 56))
	for m := range 6 {
		f.Add(contentsOf(encoded(f, made(f, randomRows(r, 1+5*m, 1+m%3), levels(3)))))
	}
	f.Add(contentsOf(encoded(f, made(f, fixtureRows(), nil))))
	f.Fuzz(func(t *testing.T, content []byte) {
		if b, err := decoded(t, sealed(content)); err == nil {
			state := incremental.NewState(b.Features) // it is safe to add
			state.Add(b.Summary)
			state.Remove(b.Summary)
			if state.Classes() != 0 {
				t.Fatal("adding and removing leaves something")
			}
		}
		_, _ = decoded(t, content)
	})
}

// Blocks of ten features and two classes with two rows for the sample, decoded and added to the
// sums of the model.
func BenchmarkDecode(b *testing.B) {
	r := rand.New(rand.NewPCG(57, 57))
	rows := &incremental.Block{Classes: []string{"-1", "1"}, Features: incremental.DefaultFeatures(10)}
	for i := range 1000 {
		rows.Codes = append(rows.Codes, int32(i%2))
	}
	for range 10 {
		x := make([]float32, len(rows.Codes))
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		rows.Columns = append(rows.Columns, gram.ColumnOf(x))
	}
	record := encoded(b, made(b, rows, levels(1)))
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		b.ReportAllocs()
		var d Decoder
		for b.Loop() {
			if _, err := d.Decode(ctx, record); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode and add", func(b *testing.B) {
		b.SetBytes(int64(len(record)))
		state := incremental.NewState(rows.Features)
		var d Decoder
		for b.Loop() {
			s, err := d.Decode(ctx, record)
			if err != nil {
				b.Fatal(err)
			}
			state.Add(s.Summary)
		}
	})
}
