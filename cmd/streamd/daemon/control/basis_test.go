package control

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"streamd/ingest/kafka"
)

// content is the content of a basis of that many parts.
func content(seed byte, parts int) []byte {
	b := bytes.Repeat([]byte{seed}, (parts-1)*partBytes+1)
	return append(b, seed)
}

// read puts records in order, and returns what they make.
func read(p *parts, records []Record) *Basis {
	for _, r := range records {
		p.put(r.Partition, r.Key, r.Value)
	}
	return p.basis()
}

func TestBasis(t *testing.T) {
	const most = 4 * partBytes
	a, b := content('a', 3), content('b', 2)
	fresh := func() *parts { return newParts("m", most) }
	ra, rb := RecordsOfBasis("m", a, 0), RecordsOfBasis("m", b, 3)
	if len(ra) != 3 || len(rb) != 3 || rb[2].Value != nil {
		t.Fatalf("%d and %d records", len(ra), len(rb))
	}
	for _, r := range slices.Concat(ra, rb) {
		if n := len(r.Key) + len(r.Value); n >= 900_000 || !IsBasisKey(string(r.Key)) {
			t.Errorf("the record %s has %d bytes", r.Key, n)
		}
	}
	damaged := slices.Clone(ra)
	damaged[1].Value = bytes.Clone(damaged[1].Value)
	damaged[1].Value[partBytes/2] ^= 1
	unread := slices.Clone(ra)
	unread[1].Value = []byte(`{"restore":true}`)
	elsewhere := slices.Clone(ra)
	for i := range elsewhere {
		elsewhere[i].Partition = 1
	}
	for what, c := range map[string]struct {
		records []Record
		want    []byte
		keys    int
		fault   string
	}{
		"nothing":             {},
		"one":                 {ra, a, 3, ""},
		"the next":            {slices.Concat(ra, rb), b, 2, ""},
		"in any order":        {[]Record{ra[2], ra[0], ra[1]}, a, 3, ""},
		"twice":               {slices.Concat(ra, ra), a, 3, ""},
		"the first again":     {slices.Concat(ra, rb, ra), a, 3, ""},
		"a former part stays": {slices.Concat(ra, rb[:2]), b, 3, ""},
		"half replaced":       {slices.Concat(ra, rb[:1]), nil, 3, "two bases"},
		"interleaved":         {[]Record{ra[0], rb[0], rb[1], ra[1], ra[2]}, nil, 3, "two bases"},
		"begun":               {ra[:2], nil, 2, "2 of 3"},
		"without a beginning": {ra[1:], nil, 3, "part 0"},
		"damaged":             {damaged, nil, 3, "digest"},
		"unread":              {unread, nil, 3, "part 1 cannot be read"},
		"tombstones":          {slices.Concat(ra, RecordsOfBasis("m", nil, 3)), nil, 0, ""},
		"of another model":    {RecordsOfBasis("other", a, 0), nil, 0, ""},
		"another partition":   {elsewhere, nil, 0, ""},
		"too large":           {RecordsOfBasis("m", content('c', 5), 0), nil, 4, "part 0"},
	} {
		got := read(fresh(), c.records)
		if !bytes.Equal(got.Content, c.want) || got.Keys != c.keys || !strings.Contains(got.Fault, c.fault) || (got.Fault == "") != (c.fault == "") {
			t.Errorf("%s: %d bytes, %d keys, fault %q; want %d bytes, %d keys, fault %q", what, len(got.Content), got.Keys, got.Fault, len(c.want), c.keys, c.fault)
		}
	}
	for _, key := range []string{"basis/", "basis/m", "basis/m/", "basis/m/01", "basis/m/-1", "basis/m/1/2", "basis/m/+1", "basis/m/x"} {
		if _, err := fresh().put(0, []byte(key), ra[0].Value); err == nil {
			t.Errorf("the key %s is taken", key)
		}
	}
	for number, value := range map[int][]byte{0: ra[1].Value, 1: nil, 2: ra[2].Value[:20], 3: append(bytes.Clone(ra[0].Value), 1)} {
		p := fresh()
		if _, err := p.put(0, basisKey("m", number), value); (err == nil) != (value == nil) {
			t.Errorf("part %d: %v", number, err)
		}
	}
	for i := range ra { // neither takes the other's records
		if _, err := changeOf(0, &kafka.Record{Key: ra[i].Key, Value: []byte(`{"retire":{"ids":["a"]}}`)}, ""); err == nil {
			t.Errorf("%s names a selection", ra[i].Key)
		}
		if c, err := changeOf(0, &kafka.Record{Key: []byte("a"), Value: ra[i].Value}, ""); err == nil {
			t.Errorf("a part is the selection %+v", c)
		}
	}
}

// A reader has the same basis before and after any compaction, whatever choosers have mixed.
func TestBasisAfterCompaction(t *testing.T) {
	whole := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		var writers [][]Record
		for i := range 1 + r.IntN(3) {
			writers = append(writers, RecordsOfBasis("m", content(byte(i), 1+r.IntN(3)), r.IntN(4)))
		}
		var log []Record
		for len(writers) > 0 {
			i := r.IntN(len(writers))
			n := 1 + r.IntN(len(writers[i]))
			log = append(log, writers[i][:n]...)
			if writers[i] = writers[i][n:]; len(writers[i]) == 0 || r.IntN(8) == 0 { // a chooser may die
				writers = slices.Delete(writers, i, i+1)
			}
		}
		latest := map[string]int{}
		for i := range log {
			latest[string(log[i].Key)] = i
		}
		var compacted []Record
		for i := range log {
			if latest[string(log[i].Key)] == i && log[i].Value != nil || r.IntN(3) == 0 {
				compacted = append(compacted, log[i])
			}
		}
		for key, i := range latest { // tombstones go last
			if log[i].Value == nil {
				compacted = slices.DeleteFunc(compacted, func(x Record) bool { return string(x.Key) == key })
			}
		}
		a, b := read(newParts("m", 9*partBytes), log), read(newParts("m", 9*partBytes), compacted)
		if !bytes.Equal(a.Content, b.Content) || a.Keys != b.Keys || a.Parts != b.Parts || a.Fault != b.Fault {
			t.Fatalf("seed %d: %d bytes of %d keys (%s), after a compaction %d of %d (%s)", seed, len(a.Content), a.Keys, a.Fault, len(b.Content), b.Keys, b.Fault)
		}
		if a.Content != nil {
			whole++
		}
	}
	if whole < 15 || whole > 140 {
		t.Errorf("%d of the topics have a whole basis: this test shows little", whole)
	}
}

// The listing shows bases apart from selectors.
func TestListBases(t *testing.T) {
	s := newSite(t, 1)
	s.write(t, "0 x "+retiring("a"))
	f := s.follow(t, nil)
	f.catchUp()
	damaged := RecordsOfBasis("n", []byte("short"), 0)
	damaged[0].Value[len(damaged[0].Value)-1]++
	if err := Write(t.Context(), s.cluster(), s.topic, append(RecordsOfBasis("m", []byte("short"), 0), damaged...), f.Log); err != nil {
		t.Fatal(err)
	}
	f.waitForOffset(0, 4)
	if f.Unreadable() != 0 || !f.has(map[string]string{"0/x": "a"}) {
		t.Errorf("%d unreadable keys, in force %v", f.Unreadable(), f.in)
	}
	l, err := List(t.Context(), s.cluster(), s.topic, most, f.Log)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.InForce) != 1 || len(l.Bad) != 0 || len(l.Bases) != 2 || l.Bases[0].Model != "m" || l.Bases[0].Parts != 1 || l.Bases[1].Fault == "" {
		t.Errorf("%+v", l)
	}
}

// Any value of a part is a part that reads the same again, or an error. None takes more memory than
// it has bytes.
func FuzzBasis(f *testing.F) {
	for _, r := range RecordsOfBasis("m", content('a', 2), 3) {
		if len(r.Value) < 1<<10 {
			f.Add(string(r.Key), r.Value)
		}
	}
	f.Add("basis/m/0", RecordsOfBasis("m", []byte("short"), 0)[0].Value)
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		p := newParts("m", 2*partBytes)
		changed, err := p.put(0, []byte(key), value)
		b := p.basis()
		if len(b.Content) > len(value) || b.Keys > 2 || err != nil && b.Content != nil {
			t.Fatalf("%+v, %v", b, err)
		}
		part, err := parsePart(value, 2)
		if err == nil && !bytes.Equal(part.appendBinary(nil), value) {
			t.Error("the part reads otherwise")
		}
		if changed && b.Content != nil {
			if again := RecordsOfBasis("m", b.Content, 0); len(again) == 1 && !bytes.Equal(again[0].Value, value) {
				t.Errorf("%q makes another record", b.Content)
			}
		}
	})
}
