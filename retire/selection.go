package retire

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"streamd/incremental"
)

// Range is a range of offsets of a partition, both ends included. Its text is
// TOPIC/PARTITION/FIRST-LAST, or that of one offset TOPIC/PARTITION/OFFSET.
type Range struct {
	Topic       string
	Partition   int
	First, Last int64
}

func (r Range) String() string {
	return fmt.Sprintf("%s/%d/%d-%d", r.Topic, r.Partition, r.First, r.Last)
}

// MarshalText writes the text of the range.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Compare orders ranges by topic, partition and first offset.
func (r Range) Compare(other Range) int {
	return cmp.Or(strings.Compare(r.Topic, other.Topic), cmp.Compare(r.Partition, other.Partition), cmp.Compare(r.First, other.First))
}

// UnmarshalText reads the text of a range. One offset is a range, too.
func (r *Range) UnmarshalText(text []byte) error {
	topic, rest, _ := strings.Cut(string(text), "/")
	number, offsets, _ := strings.Cut(rest, "/")
	from, to, several := strings.Cut(offsets, "-")
	if !several {
		to = from
	}
	partition, err1 := strconv.ParseUint(number, 10, 31)
	first, err2 := strconv.ParseUint(from, 10, 63)
	last, err3 := strconv.ParseUint(to, 10, 63)
	if topic == "" || err1 != nil || err2 != nil || err3 != nil {
		return fmt.Errorf("%.100q: want TOPIC/PARTITION/FIRST-LAST, such as orders/3/100-199, or one offset", text)
	}
	if first > last {
		return fmt.Errorf("%.100q: the first offset is above the last one", text)
	}
	*r = Range{topic, int(partition), int64(first), int64(last)}
	return nil
}

// HeaderHash stands for the name and the value of a record's header: the first 16 bytes of
// their SHA-256. So entries are bounded, and have no value that may be a name of a person. The
// zero HeaderHash is that of a block without the header.
type HeaderHash [16]byte

// HashHeader hashes a header.
func HashHeader(name string, value []byte) HeaderHash {
	sum := sha256.Sum256(append(append(binary.AppendUvarint(nil, uint64(len(name))), name...), value...))
	return HeaderHash(sum[:16])
}

// Selection chooses live blocks. A block is chosen if it meets every criterion that is
// given, so a further criterion only narrows the choice. The zero Selection chooses all.
type Selection struct {
	IDs     []string     // its id is one of these; nil: any
	Headers []HeaderHash // its header is one of these; nil: any
	Ranges  []Range      // one of these has an offset between its first and its last record; nil: any
	From    time.Time    // its event time is not before this; zero: any
	To      time.Time    // its event time is before this; zero: any
}

// CheckTimes refuses an end that is not after the beginning: no event time lies between them. Nil
// is none.
func CheckTimes(from, to *time.Time) error {
	if from == nil || to == nil || from.Before(*to) {
		return nil
	}
	return fmt.Errorf("from %s is not before to %s: no event time lies between them", from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano))
}

// Select yields the chosen live blocks in ascending rank. The ledger must not change
// meanwhile. With ids it takes O(ids log ids). With ranges it takes O(log live blocks) for each of
// them, and the time to sort their blocks. Else it takes O(log live blocks) and the blocks between
// the two times.
func (l *Ledger) Select(s *Selection) iter.Seq[Entry] { return l.choose(live, s) }

// SelectPast lists the chosen blocks that are live or archived, in ascending rank.
func (l *Ledger) SelectPast(s *Selection) []Entry { return l.list(s, live, archived) }

// SelectWithdrawn lists the chosen blocks among the withdrawn ones, in ascending rank.
func (l *Ledger) SelectWithdrawn(s *Selection) []Entry {
	return l.list(s, withdrawn, archivedWithdrawn)
}

// View is the blocks of a ledger at one moment, whatever their states. It takes no time to make,
// since it shares the ledger's trees until these change. Any goroutine may use it meanwhile, one at
// a time.
type View struct{ places }

// View is the blocks of now: those of these ids, or all if ids is nil.
func (l *Ledger) View(ids []string) *View {
	v := &View{}
	for i, s := range l.shelves {
		if v.shelves[i] = newShelf(); ids == nil {
			v.shelves[i] = &shelf{entries: s.entries.Copy(), places: s.places.Copy(), longest: s.longest}
		}
	}
	if ids != nil {
		v.byID = make(map[string]*Entry, len(ids))
		for _, id := range ids {
			if e, ok := l.byID[id]; ok {
				v.byID[id] = e
			}
		}
	}
	return v
}

// Select lists the chosen blocks in ascending rank. The ids of s are those of the view.
func (v *View) Select(s *Selection) []Entry {
	return v.list(s, live, withdrawn, archived, archivedWithdrawn)
}

// Has reports whether the view, which is one of ids, has a block of this id.
func (v *View) Has(id string) bool { return v.byID[id] != nil }

// NoHeader counts the blocks that s would choose if it had no headers, and that have none.
func (v *View) NoHeader(s *Selection) (n int) {
	without := *s
	without.Headers = []HeaderHash{{}}
	for state := range states {
		for range v.choose(state, &without) {
			n++
		}
	}
	return n
}

// Meets returns a function that reports whether the selection chooses a block.
func (s *Selection) Meets() func(*Entry) bool {
	c, ids := criteriaOf(s), map[string]struct{}{}
	for _, id := range s.IDs {
		ids[id] = struct{}{}
	}
	return func(e *Entry) bool {
		_, named := ids[e.ID]
		return (s.IDs == nil || named) && c.meet(e)
	}
}

// criteria are those of a selection, except its ids.
type criteria struct {
	headers  map[HeaderHash]struct{} // nil: any
	spans    spans                   // nil: any
	from, to time.Time
}

func criteriaOf(s *Selection) criteria {
	c := criteria{from: s.From, to: s.To}
	if s.Ranges != nil {
		c.spans = spansOf(s.Ranges)
	}
	if s.Headers != nil {
		c.headers = make(map[HeaderHash]struct{}, len(s.Headers))
		for _, h := range s.Headers {
			c.headers[h] = struct{}{}
		}
	}
	return c
}

// meet reports whether a block meets all criteria.
func (c *criteria) meet(e *Entry) bool {
	if c.headers != nil {
		if _, ok := c.headers[e.Header]; !ok {
			return false
		}
	}
	return (c.from.IsZero() || !e.Time.Before(c.from)) && (c.to.IsZero() || e.Time.Before(c.to)) && (c.spans == nil || c.spans.meet(e))
}

// list lists the chosen blocks of these states in ascending rank.
func (p *places) list(by *Selection, of ...state) (chosen []Entry) {
	sorted := true
	for _, s := range of {
		before := len(chosen)
		chosen = slices.AppendSeq(chosen, p.choose(s, by))
		sorted = sorted && (before == 0 || before == len(chosen))
	}
	if !sorted {
		slices.SortStableFunc(chosen, byRank)
	}
	return chosen
}

// choose yields the chosen blocks of one state in ascending rank.
func (p *places) choose(of state, by *Selection) iter.Seq[Entry] {
	c := criteriaOf(by)
	return func(yield func(Entry) bool) {
		if by.IDs != nil || c.spans != nil {
			var found []ranked
			if by.IDs != nil {
				found = p.named(of, by.IDs)
			} else {
				found, _ = c.spans.all(p.shelves[of])
			}
			for _, e := range found {
				if c.meet(e.Entry) && !yield(*e.Entry) {
					return
				}
			}
			return
		}
		first := ranked{Lowest.Milliseconds, &Entry{}}
		if !c.from.IsZero() {
			first.milliseconds = c.from.UnixMilli()
		}
		p.shelves[of].entries.Ascend(first, func(e ranked) bool {
			if !c.to.IsZero() && !e.Time.Before(c.to) {
				return false
			}
			return !c.meet(e.Entry) || yield(*e.Entry)
		})
	}
}

// named returns the blocks of one state with these ids in ascending rank, each once.
func (p *places) named(of state, ids []string) (found []ranked) {
	for _, id := range ids {
		if e, ok := p.byID[id]; ok && stateOf(e) == of {
			found = append(found, rankedOf(e))
		}
	}
	slices.SortFunc(found, compare)
	return slices.CompactFunc(found, func(a, b ranked) bool { return a.Entry == b.Entry })
}

// spans are ranges by partition, in ascending order and without overlaps.
type spans map[incremental.Position][]Range // offset 0

func spansOf(ranges []Range) spans {
	s := spans{}
	ordered := slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	for _, r := range ordered {
		p := incremental.Position{Topic: r.Topic, Partition: r.Partition}
		if n := len(s[p]); n > 0 && r.First <= s[p][n-1].Last {
			s[p][n-1].Last = max(s[p][n-1].Last, r.Last)
			continue
		}
		s[p] = append(s[p], r)
	}
	return s
}

// meet reports whether a range has an offset between the block's first and last record.
func (s spans) meet(e *Entry) bool { return s.first(e) != nil }

// first is the first range that has such an offset, or nil.
func (s spans) first(e *Entry) *Range {
	all := s[incremental.Position{Topic: e.Position.Topic, Partition: e.Position.Partition}]
	i := sort.Search(len(all), func(i int) bool { return all[i].Last >= e.Position.Offset })
	if i < len(all) && all[i].First <= e.Last {
		return &all[i]
	}
	return nil
}

// all lists the blocks that meet the ranges, in ascending rank, and says at how many it has looked.
func (s spans) all(x *shelf) (found []ranked, looked int) {
	for _, ranges := range s {
		for _, r := range ranges {
			x.places.Ascend(placed{r.Partition, r.First - min(x.longest, r.First), &Entry{}}, func(e placed) bool {
				if e.partition != r.Partition || e.offset > r.Last {
					return false
				}
				looked++
				// The first of the ranges that a block meets finds it.
				if first := s.first(e.Entry); first != nil && first.Topic == r.Topic && first.First == r.First {
					found = append(found, rankedOf(e.Entry))
				}
				return true
			})
		}
	}
	slices.SortFunc(found, compare)
	return found, looked
}
