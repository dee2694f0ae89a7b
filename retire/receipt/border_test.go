package receipt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// A leaf at the border of what a leaf can be is read as it was written, and one beyond is refused.
func TestLeavesAtTheBorder(t *testing.T) {
	const most = 1 << 50 // ms
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	plain := func() *Leaf {
		zero := at(0)
		return &Leaf{Kind: Deleted, Earliest: zero, Latest: zero, Durable: zero, LogUntil: zero}
	}
	for name, c := range map[string]struct {
		set  func(l *Leaf)
		good bool
	}{
		"nothing":             {func(*Leaf) {}, true},
		"numbers":             {func(l *Leaf) { l.Blocks, l.Rows, l.Passing = math.MaxInt64, math.MaxInt64, math.MaxInt64 }, true},
		"negative blocks":     {func(l *Leaf) { l.Blocks = -1 }, false},
		"negative rows":       {func(l *Leaf) { l.Rows = -1 }, false},
		"negative passing":    {func(l *Leaf) { l.Passing = -1 }, false},
		"the latest time":     {func(l *Leaf) { l.LogUntil = at(most) }, true},
		"a later time":        {func(l *Leaf) { l.LogUntil = at(most + 1) }, false},
		"the earliest time":   {func(l *Leaf) { l.LogUntil = at(-most) }, true},
		"an earlier time":     {func(l *Leaf) { l.LogUntil = at(-most - 1) }, false},
		"a sum of steps":      {func(l *Leaf) { l.Earliest, l.Latest = at(most/2), at(most+1) }, false},
		"a sum of steps down": {func(l *Leaf) { l.Earliest, l.Latest = at(-most/2), at(-most-1) }, false},
		"too large a step":    {func(l *Leaf) { l.Earliest, l.Latest = at(most), at(-1) }, false},
		"as large a step":     {func(l *Leaf) { l.Earliest, l.Latest, l.Durable, l.LogUntil = at(most), at(0), at(0), at(-most) }, true},
		"the last kind":       {func(l *Leaf) { l.Kind = Kinds - 1 }, true},
		"another kind":        {func(l *Leaf) { l.Kind = Kinds }, false},
		"no kind":             {func(l *Leaf) { l.Kind = 0 }, false},
		"begun blocks":        {func(l *Leaf) { l.Kind, l.Blocks = Begun, 1 }, false},
		"begun":               {func(l *Leaf) { l.Kind, l.VRF[0], l.Before.Root[1], l.After.Root[1] = Begun, 1, 2, 2 }, true},
		"begun twice":         {func(l *Leaf) { l.Kind, l.After.Digest[1] = Begun, 2 }, false},
		"the last status":     {func(l *Leaf) { l.Scope[Sample], l.Lacking = statuses-1, 1 }, true},
		"negative lacking":    {func(l *Leaf) { l.Scope[Sample], l.Lacking = statuses-1, -1 }, false},
		"another status":      {func(l *Leaf) { l.Scope[0] = statuses }, false},
		"long texts": {func(l *Leaf) {
			l.Principal, l.Build, l.Topic = strings.Repeat("a", 1024), strings.Repeat("b", 1024), strings.Repeat("c", 1024)
		}, true},
		"the last partition": {func(l *Leaf) { l.Offsets = []Next{{0, 0}, {1, math.MaxInt64}, {math.MaxInt32, 5}} }, true},
		"another partition":  {func(l *Leaf) { l.Offsets = []Next{{math.MaxInt32 + 1, 5}} }, false},
		"a partition twice":  {func(l *Leaf) { l.Offsets = []Next{{3, 1}, {3, 2}} }, false},
		"partitions back":    {func(l *Leaf) { l.Offsets = []Next{{3, 1}, {2, 2}} }, false},
		"a negative offset":  {func(l *Leaf) { l.Offsets = []Next{{3, -1}} }, false},
		"all offsets": {func(l *Leaf) {
			for i := range MaxOffsets {
				l.Offsets = append(l.Offsets, Next{uint32(i), int64(i)})
			}
		}, true},
	} {
		l := plain()
		c.set(l)
		b := l.AppendBinary(nil)
		got, err := DecodeLeaf(b)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		} else if c.good && !reflect.DeepEqual(got, l) {
			t.Errorf("%s: %+v is read as %+v", name, l, got)
		}
		if c.good {
			for n := range len(b) {
				if _, err := DecodeLeaf(b[:n]); err == nil {
					t.Fatalf("%s: %d bytes of %d are a leaf", name, n, len(b))
				}
				if n > 4096 {
					break
				}
			}
			if _, err := DecodeLeaf(append(b, 0)); err == nil {
				t.Errorf("%s: a byte more is a leaf", name)
			}
		}
	}
	// Texts that nobody writes.
	l := plain()
	l.Topic = "x"
	b := l.AppendBinary(nil)
	tail := []byte{1, 'x', 0} // the topic, and no offsets
	if !bytes.HasSuffix(b, tail) {
		t.Fatalf("a leaf ends with %x", b[len(b)-5:])
	}
	for text, good := range map[string]bool{"y": true, strings.Repeat("y", 1024): true, strings.Repeat("y", 1025): false, "\xff": false} {
		other := binary.AppendUvarint(bytes.Clone(b[:len(b)-len(tail)]), uint64(len(text)))
		if _, err := DecodeLeaf(append(append(other, text...), 0)); (err == nil) != good {
			t.Errorf("the topic %.10q of %d bytes: %v", text, len(text), err)
		}
	}
	many := binary.AppendUvarint(bytes.Clone(b[:len(b)-1]), MaxOffsets+1)
	for i := range MaxOffsets + 1 {
		many = append(binary.AppendUvarint(many, uint64(i)), 0)
	}
	if _, err := DecodeLeaf(many); err == nil {
		t.Errorf("%d offsets are taken", MaxOffsets+1)
	}
	// More offsets than there is room for are cut, and texts are.
	for i := range MaxOffsets + 1 {
		l.Offsets = append(l.Offsets, Next{uint32(i), 1})
	}
	l.Topic, l.Build = strings.Repeat("é", 600), "a\xffb"
	if got, err := DecodeLeaf(l.AppendBinary(nil)); err != nil || len(got.Offsets) != MaxOffsets || got.Topic != strings.Repeat("é", 512) || got.Build != "a\uFFFDb" {
		t.Errorf("what has no room: %v, %d offsets, %d bytes of topic, build %q", err, len(got.Offsets), len(got.Topic), got.Build)
	}
	l.Topic = "x" + strings.Repeat("é", 600)
	if got, err := DecodeLeaf(l.AppendBinary(nil)); err != nil || got.Topic != "x"+strings.Repeat("é", 511) {
		t.Errorf("a cut letter: %v, %q", err, got.Topic)
	}
}

// A leaf counts its blocks and their rows, and has the times of the first and the last.
func TestLeafCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(91, 1))
	for range 100 {
		var l Leaf
		var blocks, rows int64
		earliest, latest := int64(math.MaxInt64), int64(math.MinInt64)
		for range 1 + r.IntN(6) {
			n, ms := r.Int64N(100), r.Int64N(2000)-1000
			l.Add(n, time.UnixMilli(ms))
			blocks, rows, earliest, latest = blocks+1, rows+n, min(earliest, ms), max(latest, ms)
		}
		if l.Blocks != blocks || l.Rows != rows || l.Earliest.UnixMilli() != earliest || l.Latest.UnixMilli() != latest {
			t.Fatalf("%+v, want %d blocks of %d rows from %d to %d", l, blocks, rows, earliest, latest)
		}
	}
}

// No kind of a part leads a checker astray, whatever comes after it.
func TestPartsOfEveryKind(t *testing.T) {
	r := rand.New(rand.NewPCG(92, 1))
	for tag := range 256 {
		if _, err := CheckChange([]byte{byte(tag)}); err == nil {
			t.Errorf("a part of kind %d and nothing else passes", tag)
		}
		for range 20 {
			proof := []byte{byte(tag)}
			for range r.IntN(300) {
				proof = append(proof, byte(r.UintN(256)))
			}
			unknown := tag == 13 || tag == 14 || tag == 15
			_, err := CheckChange(proof)
			if unknown && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a node of kind %d", tag))) || tag == 0 && err == nil {
				t.Fatalf("a part of kind %d: %v", tag, err)
			}
		}
	}
}

// Every leaf of a log has a proof, that of the log which ends with it or that of all, and a hash
// that cannot be read has none.
func TestProofsOfALog(t *testing.T) {
	m := someLog(t, 6)
	m.add(t, everyKind(filled(m.key, 40), m.key, 40)...)
	size := int64(len(m.records))
	for i := range size {
		calls := 0
		counting := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
			calls++
			return m.ReadHashes(indexes)
		})
		proof, err := m.key.Prove(i, m.records[i], counting)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Check(proof, m.key.Public())
		if err != nil || r.Index != i || r.Checkpoint.Size != i+1 {
			t.Errorf("leaf %d: %+v, %v", i, r, err)
		}
		all, err := ProveIn(m.checkpoint, size, i, m.records[i], m)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := Check(all, m.key.Public()); err != nil || r.Index != i || r.Checkpoint.Size != size {
			t.Errorf("leaf %d of %d: %+v, %v", i, size, r, err)
		}
		bad := errors.New("the disk")
		for fails := range calls {
			left := fails
			failing := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
				if left--; left < 0 {
					return nil, bad
				}
				return m.ReadHashes(indexes)
			})
			if proof, err := m.key.Prove(i, m.records[i], failing); !errors.Is(err, bad) || proof != nil {
				t.Errorf("leaf %d is proved without the hashes of read %d: %v", i, fails, err)
			}
		}
	}
	bad := errors.New("the disk")
	for fails := range 3 {
		left := fails
		failing := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
			if left--; left < 0 {
				return nil, bad
			}
			return m.ReadHashes(indexes)
		})
		if _, err := m.key.Grow(size, failing, m.records[1:4]); err != nil && !errors.Is(err, bad) {
			t.Errorf("read %d: %v", fails, err)
		} else if err == nil && fails == 0 {
			t.Error("a log grows without its hashes")
		}
	}
	large := Record{Leaf: make([]byte, maxLeaf+1)}
	if _, err := m.key.Grow(size, m, []Record{large}); err == nil {
		t.Error("a leaf that no log takes is taken")
	}
}
