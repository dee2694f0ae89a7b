package live

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental/decode"
	"streamd/kernels"
	"streamd/retire"
)

// Published is a basis as the control topic has it, for all replicas.
type Published struct {
	Topic     string   // of the blocks
	Features  []string // that the map takes, in its order
	Map       *kernels.Map
	Reduction *model.Reduction
	Stale     Staleness // when it was published
	// Sources are the positions of the first records of the blocks whose rows the basis was chosen
	// from, in ascending order. They are no ids, since an id may be a person's name.
	Sources []Source
}

// Source is the position of the first record of a block.
type Source struct {
	Partition int
	Offset    int64
}

func (s Source) compare(other Source) int {
	return cmp.Or(cmp.Compare(s.Partition, other.Partition), cmp.Compare(s.Offset, other.Offset))
}

func sourceOf(e *retire.Entry) Source { return Source{e.Position.Partition, e.Position.Offset} }

const (
	publishedVersion = 1
	heldRows         = 4 // a sample holds fewer than so many times sample.rows, each of a block
)

var errPublished = errors.New("it is not the encoding of a published basis")

// AppendBinary appends the canonical encoding: the version, the staleness, the topic, the features,
// the map's encoding, the snapshot's record of the reduction, and the sources by partition, each
// offset as its distance from the one before. Numbers are uvarints. Texts have their length first.
func (p *Published) AppendBinary(b []byte) []byte {
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	b = append(b, publishedVersion, byte(p.Stale))
	text(p.Topic)
	b = binary.AppendUvarint(b, uint64(len(p.Features)))
	for _, name := range p.Features {
		text(name)
	}
	text(string(p.Map.AppendBinary(nil)))
	text(string(reportOf(p.Reduction)))
	for rest := p.Sources; len(rest) > 0; {
		in := rest[0].Partition
		n := slices.IndexFunc(rest, func(s Source) bool { return s.Partition != in })
		if n < 0 {
			n = len(rest)
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(in)), uint64(n))
		last := int64(-1)
		for _, s := range rest[:n] {
			b = binary.AppendUvarint(b, uint64(s.Offset-last))
			last = s.Offset
		}
		rest = rest[n:]
	}
	return b
}

// DecodePublished decodes the output of AppendBinary, and nothing else. More features or sources
// than the configuration allows are an error, so that memory is bounded by the bytes and these.
func DecodePublished(b []byte, cfg *config.Config) (*Published, error) {
	d := decode.Reader{Rest: b}
	version, stale := d.Take(1)[0], Staleness(d.Take(1)[0])
	if !d.Bad && version != publishedVersion {
		return nil, fmt.Errorf("a published basis has version %d, this program knows version %d", version, publishedVersion)
	}
	p := &Published{Stale: stale, Topic: d.Text()}
	features := d.Count(1)
	if features > cfg.Limits.Features {
		return nil, fmt.Errorf("it has %d features, and limits.features is %d", features, cfg.Limits.Features)
	}
	for range features {
		p.Features = append(p.Features, d.Text())
	}
	encoded, report := d.Text(), d.Text()
	for before := -1; !d.Bad && len(d.Rest) > 0; {
		in, n, last := d.Uvarint(), d.Count(1), int64(-1)
		if in > 1<<31-1 || int(in) <= before || n == 0 {
			return nil, errPublished
		}
		if most := heldRows * cfg.Sample.Rows; len(p.Sources)+n > most {
			return nil, fmt.Errorf("it was chosen from more than %d blocks, and sample.rows is %d", most, cfg.Sample.Rows)
		}
		before = int(in)
		for range n {
			step := d.Uvarint()
			if step == 0 || step > 1<<62 || last+int64(step) < last {
				return nil, errPublished
			}
			last += int64(step)
			p.Sources = append(p.Sources, Source{int(in), last})
		}
	}
	if d.Bad || stale > SourceRetired {
		return nil, errPublished
	}
	var err error
	if p.Map, err = kernels.DecodeMap([]byte(encoded)); err != nil {
		return nil, err
	}
	if p.Reduction, err = reductionOf([]byte(report)); err != nil {
		return nil, err
	}
	digest := p.Map.Digest()
	if p.Reduction.Basis != hex.EncodeToString(digest[:]) || p.Reduction.Points != p.Map.Points() || len(p.Features) != len(p.Map.Point(0)) {
		return nil, errPublished
	}
	return p, nil
}

// Is reports whether a space's basis is the published one, of the same choice.
func (p *Published) Is(space *Space) bool {
	return space != nil && p.SameAs(space) && space.Reduction.MadeAt.Equal(p.Reduction.MadeAt)
}

// SameAs reports whether a space's basis is the published one, of whatever choice.
func (p *Published) SameAs(space *Space) bool {
	return space.Coordinates != nil && space.ID == p.Reduction.Basis
}

// SameChoice reports whether both are of one choice.
func (p *Published) SameChoice(as *Published) bool {
	return p.Reduction.Basis == as.Reduction.Basis && p.Reduction.MadeAt.Equal(as.Reduction.MadeAt)
}

// Unfit says why a set that is made by a configuration has no use for the basis. It is nil while
// the features are not known.
func (l *Set) Unfit(p *Published, wanted *config.Config) error {
	k := &wanted.Kernel
	switch {
	case p.Topic != wanted.Kafka.Topic:
		return fmt.Errorf("it was chosen from topic %s, and this daemon reads %s", p.Topic, wanted.Kafka.Topic)
	case l.features.names != nil && !slices.Equal(p.Features, l.features.Names()):
		return fmt.Errorf("it has other features: %.200q, and this daemon has %.200q", p.Features, l.features.Names())
	case p.Map.Size() > k.Basis:
		return fmt.Errorf("it has %d coordinates, and kernel.basis is %d", p.Map.Size(), k.Basis)
	case !Fits(p.Map, wanted):
		return fmt.Errorf("it has the kernel %s%s, and this daemon has kernel.function: %s and model.standardise: %s",
			p.Map.Kernel(), scaledText(p.Map), k.Function, wanted.Model.Standardise)
	}
	return nil
}

func scaledText(m *kernels.Map) string {
	if mean, _ := m.Scaling(); mean != nil {
		return " of scaled features"
	}
	return ""
}

// Publish makes the published form of the basis that is being chosen (see Choose).
func (l *Set) Publish(basis *kernels.Map, made *model.Reduction, topic string) *Published {
	p := &Published{Topic: topic, Features: l.features.Names(), Map: basis, Reduction: made, Stale: l.choosing.stale}
	for id := range l.choosing.blocks {
		if e, live := l.ledger.Get(id); live {
			p.Sources = append(p.Sources, sourceOf(&e))
		}
	}
	slices.SortFunc(p.Sources, Source.compare)
	p.Sources = slices.Compact(p.Sources)
	return p
}

// BeginPublished begins to build a space for a basis that another replica has chosen. applied are
// the offsets below which records have been applied.
func (l *Set) BeginPublished(p *Published, regulariser config.Regulariser, applied []model.Offset) {
	own := l.choosing
	l.choosing = l.sourcesOf(p, applied)
	l.Begin(p.Map, p.Reduction, regulariser)
	l.choosing = own
}

// Await has the spaces of a published basis know which of its sources have not been read yet. A
// snapshot does not have that.
func (l *Set) Await(p *Published, applied []model.Offset) {
	for _, space := range l.bases() {
		if p.Is(space) {
			space.from.awaited = l.sourcesOf(p, applied).awaited
		}
	}
}

// sourcesOf finds the sources of a published basis among the blocks. One that has been read, and
// is not there, has left: of keys a newer value may have replaced it, and where the policy limits
// the blocks it may have let the block go. Else it was retired.
func (l *Set) sourcesOf(p *Published, applied []model.Offset) *sources {
	s := &sources{blocks: map[string]struct{}{}, stale: p.Stale, awaited: make(map[Source]struct{}, len(p.Sources))}
	for _, at := range p.Sources {
		s.awaited[at] = struct{}{}
	}
	for e := range l.Everything {
		if !e.Carrier.Sums {
			s.comes(&e)
		}
	}
	next := map[int]int64{}
	for _, o := range applied {
		next[o.Partition] = o.Next
	}
	for at := range s.awaited {
		if at.Offset >= next[at.Partition] {
			continue
		}
		delete(s.awaited, at)
		if l.keyed {
			s.stale = max(s.stale, SourceReplaced)
		} else if !l.ledger.Limited() {
			s.stale = max(s.stale, SourceRetired)
		}
	}
	return s
}

// comes notes that a block is there. If it is an awaited source, it is one from now on, unless it
// is withdrawn already.
func (s *sources) comes(e *retire.Entry) {
	at := sourceOf(e)
	if _, awaited := s.awaited[at]; !awaited {
		return
	}
	delete(s.awaited, at)
	switch {
	case e.Withdrawn:
		s.stale = max(s.stale, SourceRetired)
	case !e.Archived:
		s.blocks[e.ID] = struct{}{}
	}
}

// sourceComes notes a block in all bases.
func (l *Set) sourceComes(e *retire.Entry) {
	for _, s := range l.allSources() {
		s.comes(e)
	}
}
