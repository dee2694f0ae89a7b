package retire

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/incremental"
)

// naiveSelect is Select by looking at every block and every criterion.
func naiveSelect(entries []Entry, s *Selection) (ids []string) {
	for _, e := range entries {
		inRange := s.Ranges == nil
		for _, r := range s.Ranges {
			for offset := e.Position.Offset; offset <= e.Last; offset++ {
				inRange = inRange || r.Topic == e.Position.Topic && r.Partition == e.Position.Partition && r.First <= offset && offset <= r.Last
			}
		}
		if inRange && (s.IDs == nil || slices.Contains(s.IDs, e.ID)) && (s.Headers == nil || slices.Contains(s.Headers, e.Header)) &&
			(s.From.IsZero() || !e.Time.Before(s.From)) && (s.To.IsZero() || e.Time.Before(s.To)) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// randomHeader is the zero one, or one of two.
func randomHeader(r *rand.Rand) HeaderHash {
	if k := r.IntN(3); k > 0 {
		return HashHeader("tenant", []byte{byte(k)})
	}
	return HeaderHash{}
}

// A header's name and value are not confused with those of another one.
func TestHeadersDiffer(t *testing.T) {
	seen := map[HeaderHash]bool{{}: true}
	for _, h := range [][2]string{{"", ""}, {"a", ""}, {"", "a"}, {"a", "b"}, {"ab", ""}, {"", "ab"}, {"b", "a"}, {"a", "bb"}} {
		hash := HashHeader(h[0], []byte(h[1]))
		if seen[hash] {
			t.Errorf("%q has the hash of another header", h)
		}
		seen[hash] = true
	}
}

func TestSelectIsTheNaiveChoice(t *testing.T) {
	chosen, all := 0, 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(21, seed))
		l := NewLedger(Policy{})
		var ids []string
		for i := range r.IntN(60) {
			p := incremental.Position{Topic: []string{"t", "u"}[r.IntN(2)], Partition: r.IntN(3), Offset: int64(10 * i)}
			e := Entry{ID: p.String(), Position: p, Last: p.Offset + r.Int64N(10), Time: epoch.Add(time.Duration(r.IntN(40)-20) * time.Millisecond), Rows: 1}
			e.Header = randomHeader(r)
			l.Add(e)
			ids = append(ids, e.ID)
		}
		var s Selection
		if r.IntN(3) == 0 {
			s.Headers = []HeaderHash{randomHeader(r), HashHeader("tenant", []byte{9})}
		}
		if r.IntN(2) == 0 {
			s.IDs = []string{"none"}
			for range r.IntN(2 * (len(ids) + 1)) { // some twice
				if len(ids) > 0 {
					s.IDs = append(s.IDs, ids[r.IntN(len(ids))])
				}
			}
		}
		if r.IntN(2) == 0 {
			s.Ranges = []Range{}
			for range r.IntN(8) {
				first := r.Int64N(600)
				s.Ranges = append(s.Ranges, Range{[]string{"t", "u"}[r.IntN(2)], r.IntN(3), first, first + r.Int64N(120)})
			}
		}
		half := time.Duration(r.IntN(2)) * 500 * time.Microsecond // times of blocks are whole milliseconds
		if r.IntN(2) == 0 {
			s.From = epoch.Add(time.Duration(r.IntN(40)-20)*time.Millisecond + half)
		}
		if r.IntN(2) == 0 {
			s.To = epoch.Add(time.Duration(r.IntN(40)-20)*time.Millisecond + half)
		}
		var got []string
		for e := range l.Select(&s) {
			got = append(got, e.ID)
		}
		want := naiveSelect(l.Page(Lowest, l.Len()), &s)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %+v chooses %v, want %v", seed, s, got, want)
		}
		for range l.Select(&s) {
			break // stops
		}
		chosen, all = chosen+len(want), all+l.Len()
	}
	if chosen < all/20 || chosen > all/2 {
		t.Errorf("%d of %d blocks were chosen", chosen, all)
	}
}

// A selection by positions costs what it selects, not what is live.
func TestPositionsCostWhatTheySelect(t *testing.T) {
	l := NewLedger(Policy{})
	const blocks = 20_000
	for i := range blocks {
		p := incremental.Position{Topic: "t", Partition: i % 4, Offset: int64(i / 4 * 3)}
		l.Add(Entry{ID: p.String(), Position: p, Last: p.Offset + 2, Time: epoch.Add(time.Duration(i*7919%blocks) * time.Second), Rows: 1})
	}
	s := &Selection{Ranges: []Range{{"t", 1, 100, 160}, {"t", 1, 161, 162}, {"t", 3, 9, 9}, {"u", 3, 0, 100}}}
	if found, looked := spansOf(s.Ranges).all(l.shelves[live]); len(found) != 23 || looked > 100 {
		t.Errorf("%d blocks are found by looking at %d", len(found), looked)
	}
}

func TestRangeOfText(t *testing.T) {
	for _, text := range []string{"orders/3/100-199", "a.b-c_d/0/0-0", "t/2147483647/9223372036854775807-9223372036854775807"} {
		var r Range
		if err := r.UnmarshalText([]byte(text)); err != nil || r.String() != text {
			t.Errorf("%s: %v, %v", text, r, err)
		}
		if again, err := json.Marshal(r); err != nil || string(again) != `"`+text+`"` {
			t.Errorf("%s: %s, %v", text, again, err)
		}
	}
	var one Range
	if err := one.UnmarshalText([]byte("orders/3/100")); err != nil || one != (Range{"orders", 3, 100, 100}) {
		t.Errorf("one offset: %v, %v", one, err)
	}
	for text, want := range map[string]string{
		"": "want TOPIC", "orders": "want TOPIC", "orders/3": "want TOPIC", "orders/3/": "want TOPIC", "/3/1-2": "want TOPIC", "orders/3/1-": "want TOPIC",
		"orders/-1/1-2": "want TOPIC", "orders/3/1-2-3": "want TOPIC", "orders/3/-1-2": "want TOPIC", "orders/3/1-9223372036854775808": "want TOPIC",
		"orders/3/2-1": "above the last", "orders/2147483648/1-2": "want TOPIC", "orders/3/+1-2": "want TOPIC",
	} {
		if err := new(Range).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
