package snapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
)

// Contents is everything in a file except the summaries and the parts.
type Contents struct {
	Settings
	Version int             // of the format
	Spaces  []SpaceContents // by number; without the first, Features, the features are not fixed
	InUse   uint32          // the space that planes are solved from
	Entries []retire.Entry  // of live blocks, ordered by id
	// Withdrawn has the entries of withdrawn blocks, ordered by id.
	Withdrawn []retire.Entry
	// Archived has the entries of archived blocks, ordered by id. Those that are not also
	// withdrawn have a summary in the features.
	Archived  []retire.Entry
	Offsets   []Offset
	Horizon   retire.Rank
	Counts    Counts
	SavedAt   time.Time // UTC; zero: nothing has been saved
	History   []byte    // as SaveHistory wrote it; nil: there is none
	Detectors []byte    // Change.Detectors of the last save that had some; nil: there are none
	Learning  []byte    // Change.Learning of the last save that had it; nil: none had
	Log       LogHead   // end of the log of receipts
	Joining   Joining   // rows and labels by id, ordered by id; without a record none were saved

	// Uncompacted is the time when the oldest remains were left since the last
	// compaction: those of an explicitly retired block, or of a basis made from one. They
	// may still be read off the file. It is zero if there are none.
	Uncompacted time.Time
	// Missed is the number of explicit retirements that were saved under the file's name
	// but are not in the file, because it is an older copy. Retired blocks may be live
	// again. LastRetired is the time of the last retirement.
	Missed      int64
	LastRetired time.Time
	Keyed       bool // the file is under a key

	retirements int64 // explicit ones in the file
}

// SpaceContents is everything in a file about a space except the summaries.
type SpaceContents struct {
	Space
	State   *incremental.State
	Folds   []*incremental.State
	Missing []string // live blocks without a summary, in order; none in Features and in the space in use
	Sources []string // in order
	Stale   uint8

	digest [sha256.Size]byte // of the state, as saved
}

// Space returns the space of that number, or nil.
func (c *Contents) Space(number uint32) *SpaceContents {
	for i := range c.Spaces {
		if c.Spaces[i].Number == number {
			return &c.Spaces[i]
		}
	}
	return nil
}

// Features are the names of the features. They are nil if not fixed.
func (c *Contents) Features() []string {
	if s := c.Space(Features); s != nil && s.State != nil {
		return s.State.Features()
	}
	return nil
}

// archivedValue is the entry of an archived block, or nil.
func archivedValue(tx *bbolt.Tx, id string) []byte {
	if bucket := tx.Bucket(bucketArchive); bucket != nil {
		return bucket.Get([]byte(id))
	}
	return nil
}

// Summary reads the summary of a block in a space, in the features also that of an archived
// block. The error is ErrNotFound or a *ChecksumError.
func (s *Store) Summary(space uint32, id string) (summary *incremental.Summary, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		var e retire.Entry
		if value := tx.Bucket(bucketBlocks).Get([]byte(id)); value != nil {
			e, _, err = decodeBlock(id, value)
		} else if value := archivedValue(tx, id); value != nil && space == Features {
			if e, _, err = decodeArchived(id, value); err == nil && e.Withdrawn {
				err = ErrNotFound
			}
		} else {
			err = ErrNotFound
		}
		if err == nil {
			summary, err = readSummary(tx, space, &e)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read block %s from snapshot %s: %w", nameIn(space, id), s.path, err)
	}
	return summary, nil
}

// Summaries calls do with every live block that has a summary in a space, ordered by id,
// until do fails. It shows the file as at the start of the call. do must not call Save,
// which could wait for Summaries to end.
func (s *Store) Summaries(space uint32, do func(retire.Entry, *incremental.Summary) error) error {
	var summary *incremental.Summary
	var passed passed
	return s.eachEntry(func(tx *bbolt.Tx, e *retire.Entry, _ *[sha256.Size]byte) (err error) {
		if summary, err = readSummary(tx, space, e); errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			passed.add(tx, summary.Bytes())
		}
		return err
	}, func(e retire.Entry) error {
		if summary == nil {
			return nil
		}
		return do(e, summary)
	})
}

// Digests calls do with every live block and the digest of its summary in the features,
// ordered by id. It reads the ledger and no summary. Otherwise it promises the same as Summaries.
func (s *Store) Digests(do func(retire.Entry, [sha256.Size]byte)) error {
	var digest [sha256.Size]byte
	return s.eachEntry(func(_ *bbolt.Tx, _ *retire.Entry, of *[sha256.Size]byte) error {
		digest = *of
		return nil
	}, func(e retire.Entry) error {
		do(e, digest)
		return nil
	})
}

// forget drops the pages of the mapped file from the process's memory (forgetPages). Without
// it, a long-lived process would come to hold the whole file.
func (s *Store) forget() {
	_ = s.view(func(tx *bbolt.Tx) error {
		forgetPages(tx)
		return nil
	})
}

// passed counts the bytes of values that a transaction has read one after the other. The
// pages are forgotten now and then, so that reading a file takes little memory.
type passed struct{ bytes int }

const mostPassed = 64 << 20

func (p *passed) add(tx *bbolt.Tx, bytes int) {
	if p.bytes += bytes; p.bytes > mostPassed {
		p.bytes = 0
		forgetPages(tx)
	}
}

// eachEntry calls read and then do with the entry of every live block, ordered by id, until
// one of them fails. do runs outside of the guard, because its panics are not damage.
func (s *Store) eachEntry(read func(*bbolt.Tx, *retire.Entry, *[sha256.Size]byte) error, do func(retire.Entry) error) error {
	fault := func(err error) error { return fmt.Errorf("read the blocks from snapshot %s: %w", s.path, err) }
	tx, end, err := s.begin()
	if err != nil {
		return fault(err)
	}
	defer end()
	cursor := tx.Bucket(bucketBlocks).Cursor()
	for step := cursor.First; ; step = cursor.Next {
		var e retire.Entry
		var more bool
		err := guard(func() (err error) {
			var key, value []byte
			if key, value = step(); key == nil {
				return nil
			}
			more = true
			var digest [sha256.Size]byte
			if e, digest, err = decodeBlock(string(key), value); err == nil {
				err = read(tx, &e, &digest)
			}
			return err
		})
		switch {
		case err != nil:
			return fault(err)
		case !more:
			return nil
		}
		if err := do(e); err != nil {
			return err
		}
	}
}

// Part reads the part of a block, or nil if it has none. The error is a *ChecksumError.
func (s *Store) Part(id string) (p *sample.Part, err error) {
	err = s.view(func(tx *bbolt.Tx) (err error) {
		p, err = readPart(tx, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read block %s from snapshot %s: %w", id, s.path, err)
	}
	return p, nil
}

// Parts calls f with every part, ordered by id. f must not call Save.
func (s *Store) Parts(f func(id string, p *sample.Part)) error {
	defer s.forget()
	const atOnce = 1000 // decoded at a time: f runs outside of the guard, because its panics are not damage
	var found []Part
	var passed passed
	for from := []byte{}; ; {
		found = found[:0]
		err := s.view(func(tx *bbolt.Tx) error {
			cursor := tx.Bucket(bucketParts).Cursor()
			for key, value := cursor.Seek(from); key != nil && len(found) < atOnce; key, value = cursor.Next() {
				p, err := decodeWith(sample.DecodePart, bucketParts, key, value)
				if err != nil {
					return err
				}
				found = append(found, Part{string(key), p})
				passed.add(tx, len(value))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the parts from snapshot %s: %w", s.path, err)
		}
		for _, p := range found {
			f(p.ID, p.Part)
		}
		if len(found) < atOnce {
			return nil
		}
		from = append([]byte(found[atOnce-1].ID), 0)
	}
}

// nameIn names a value of a space in errors.
func nameIn(space uint32, name string) string {
	if space == Features {
		return name
	}
	return fmt.Sprintf("%d/%s", space, name)
}

// damageIn reports damage of a value of a space.
func damageIn(bucket []byte, space uint32, name, reason string) error {
	return &ChecksumError{string(bucket), nameIn(space, name), reason}
}

// renamed puts the name of the damaged value into an error.
func renamed(err error, space uint32, name string) error {
	if damage := (*ChecksumError)(nil); errors.As(err, &damage) {
		return damageIn([]byte(damage.Bucket), space, name, damage.Reason)
	}
	return err
}

// readSummary reads the summary of a live block in a space. The error is ErrNotFound if a
// space other than the features lacks it.
func readSummary(tx *bbolt.Tx, space uint32, e *retire.Entry) (*incremental.Summary, error) {
	p := summaries(space)
	key := p.key(e.ID)
	value := tx.Bucket(p.bucket).Get(key)
	if value == nil && space != Features {
		return nil, ErrNotFound
	}
	s, err := decodeWith(incremental.DecodeSummary, p.bucket, key, value)
	if err != nil {
		return nil, renamed(err, space, e.ID)
	}
	if s.Rows() != e.Rows {
		return nil, damageIn(p.bucket, space, e.ID, fmt.Sprintf("it has %d rows, the ledger's entry %d", s.Rows(), e.Rows))
	}
	return s, nil
}

// readPart reads the part of a block, or nil if it has none.
func readPart(tx *bbolt.Tx, id string) (*sample.Part, error) {
	value := tx.Bucket(bucketParts).Get([]byte(id))
	if value == nil {
		return nil, nil
	}
	return decodeWith(sample.DecodePart, bucketParts, []byte(id), value)
}

// note is called with every error, and with nil where there is none. It returns nil to
// continue without the value that could not be read.
type note func(error) error

// strict stops at the first error.
func strict(err error) error { return err }

// readContents reads everything except the summaries and the parts.
func readContents(tx *bbolt.Tx, note note) (*Contents, error) {
	f, _, err := readFormat(tx)
	if err != nil {
		return nil, err
	}
	c := &Contents{Version: int(f)}
	c.Settings, err = readSettings(tx)
	if err := note(err); err != nil {
		return nil, err
	}
	want, headErr := readHead(tx)
	if err := note(headErr); err != nil {
		return nil, err
	}
	c.Horizon, c.Counts, c.SavedAt, c.Uncompacted = want.horizon, want.counts, want.savedAt, want.uncompacted
	c.InUse, c.retirements = want.inUse, want.retirements
	c.History, err = readHistory(tx, keyHistory)
	if err := note(err); err != nil {
		return nil, err
	}
	c.Detectors, err = readHistory(tx, keyDetectors)
	if err := note(err); err != nil {
		return nil, err
	}
	c.Learning, err = readHistory(tx, keyLearning)
	if err := note(err); err != nil {
		return nil, err
	}
	c.Log, err = readLog(tx)
	if err := note(err); err != nil {
		return nil, err
	}
	mac, err := readMAC(tx)
	if err := note(err); err != nil {
		return nil, err
	}
	c.Keyed = mac != nil
	if err := c.readBuckets(tx, &want, headErr == nil, note); err != nil {
		return nil, err
	}
	return c, c.readSpaces(tx, &want, headErr == nil, note)
}

// readHistory returns a copy of a record beside the state; nil: there is none.
func readHistory(tx *bbolt.Tx, key []byte) ([]byte, error) {
	bucket := tx.Bucket(bucketHistory)
	if bucket == nil {
		return nil, nil
	}
	value := bucket.Get(key)
	if value == nil {
		return nil, nil
	}
	record, err := unseal(bucketHistory, key, value)
	return bytes.Clone(record), err
}

// readBuckets reads the ledger and the offsets, and looks at the parts. It compares them
// with the head, if that could be read.
func (c *Contents) readBuckets(tx *bbolt.Tx, want *head, headRead bool, note note) (err error) {
	var rows int64
	var blocks, withdrawn, archived, offsets, parts, joining tally
	// each reads the values of a bucket and counts the good ones.
	each := func(name []byte, t *tally, read func(key, value []byte) error) error {
		return place{name, nil}.each(tx, func(key, value []byte) error {
			if err := read(key, value); err != nil {
				return note(err)
			}
			t.add(value)
			return nil
		})
	}
	// A number too large for the file's size is not believed.
	c.Entries = slices.Grow(c.Entries, int(min(want.blocks.n, tx.Size()/leastBlock)))
	err = each(bucketBlocks, &blocks, func(key, value []byte) error {
		e, _, err := decodeBlock(string(key), value)
		if err != nil {
			return err
		}
		if n := len(c.Entries); n > 0 && c.Entries[n-1].Position.Topic == e.Position.Topic {
			e.Position.Topic = c.Entries[n-1].Position.Topic // one string for all
		}
		rows += e.Rows
		c.Entries = append(c.Entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	err = each(bucketWithdrawn, &withdrawn, func(key, value []byte) error {
		e, err := decodeWithdrawn(string(key), value)
		if err == nil {
			c.Withdrawn = append(c.Withdrawn, e)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = each(bucketArchive, &archived, func(key, value []byte) error {
		e, _, err := decodeArchived(string(key), value)
		if err == nil {
			c.Archived = append(c.Archived, e)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = each(bucketJoining, &joining, func(key, value []byte) error {
		item, err := unseal(bucketJoining, key, value)
		if err == nil {
			c.Joining.Items = append(c.Joining.Items, JoiningItem{string(key), bytes.Clone(item)})
		}
		return err
	})
	if err != nil {
		return err
	}
	c.Joining.Record = want.joining.record
	err = each(bucketOffsets, &offsets, func(key, value []byte) error {
		o, err := decodeOffset(key, value)
		if err == nil {
			c.Offsets = append(c.Offsets, o)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(c.Offsets, func(a, b Offset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	err = each(bucketParts, &parts, func(key, value []byte) error {
		_, err := unseal(bucketParts, key, value)
		return err
	})
	if err != nil || !headRead {
		return err
	}
	return compare(note, []comparison{
		{bucketBlocks, blocks != want.blocks, fmt.Sprintf("there are %d blocks, %d were saved, or not these", blocks.n, want.blocks.n)},
		{bucketBlocks, rows != want.rows, fmt.Sprintf("the blocks have %d rows, %d were saved", rows, want.rows)},
		{bucketWithdrawn, withdrawn != want.withdrawn, fmt.Sprintf("there are %d withdrawn blocks, %d were saved, or not these", withdrawn.n, want.withdrawn.n)},
		{bucketArchive, archived != want.archive.blocks, fmt.Sprintf("there are %d archived blocks, %d were saved, or not these", archived.n, want.archive.blocks.n)},
		{bucketJoining, joining != want.joining.items, fmt.Sprintf("there are %d rows and labels by id, %d were saved, or not these", joining.n, want.joining.items.n)},
		{bucketParts, parts != want.parts, fmt.Sprintf("there are %d parts, %d were saved, or not these", parts.n, want.parts.n)},
		{bucketOffsets, offsets != want.offsets, fmt.Sprintf("there are %d offsets, %d were saved, or not these", offsets.n, want.offsets.n)},
	})
}

// comparison compares values with their record.
type comparison struct {
	bucket []byte
	bad    bool
	reason string
}

// compare notes the comparisons that fail.
func compare(note note, all []comparison) error {
	for _, c := range all {
		if c.bad {
			if err := note(&ChecksumError{Bucket: string(c.bucket), Reason: c.reason}); err != nil {
				return err
			}
		}
	}
	return nil
}

// readRecords reads the records of the spaces, by number.
func readRecords(tx *bbolt.Tx) (records []spaceRecord, err error) {
	err = tx.Bucket(bucketSpaces).ForEach(func(key, value []byte) error {
		r, err := decodeSpace(key, value)
		records = append(records, r)
		return err
	})
	return records, err
}

// readSpaces reads the spaces and compares them with the head, if that could be read.
func (c *Contents) readSpaces(tx *bbolt.Tx, want *head, headRead bool, note note) error {
	read := func(r *spaceRecord) error {
		s, archived, err := c.readSpace(tx, r, note)
		if err == nil && headRead && r.number == Features && archived != want.archive.summaries {
			err = note(damageIn(bucketSummaries, Features, "", fmt.Sprintf("there are %d summaries of archived blocks, %d were saved, or not these", archived.n, want.archive.summaries.n)))
		}
		if err == nil && headRead && (r.number == Features || r.number == want.inUse) &&
			(len(s.Missing) > 0 || r.summaries.n != want.blocks.n || r.rows != want.rows) {
			err = note(damageIn(bucketSpaces, r.number, "", "it does not have all live blocks"))
		}
		c.Spaces = append(c.Spaces, s)
		return err
	}
	var spaces tally
	bucket := bucketSpaces
	if err := (place{bucket, nil}).each(tx, func(key, value []byte) error {
		r, err := decodeSpace(key, value)
		if err != nil {
			return note(err)
		}
		spaces.add(value)
		return read(&r)
	}); err != nil || !headRead {
		return err
	}
	return compare(note, []comparison{
		{bucket, spaces != want.spaces, fmt.Sprintf("there are %d spaces, %d were saved, or not these", spaces.n, want.spaces.n)},
		{bucket, want.inUse != Features && c.Space(want.inUse) == nil, fmt.Sprintf("space %d is in use, but missing", want.inUse)},
		{bucket, want.blocks.n+want.archive.summaries.n > 0 && c.Space(Features) == nil, "there are blocks, but no features"},
	})
}

// readSpace reads everything of a space except the summaries. archived are those of archived
// blocks, which only the features have.
func (c *Contents) readSpace(tx *bbolt.Tx, r *spaceRecord, note note) (s SpaceContents, archived tally, err error) {
	if r.number != Features {
		key := spaceKey(r.number)
		basis := tx.Bucket(bucketBases).Get(key)
		s.Space, err = decodeBasis(key, basis)
		if err == nil && frameChecksum(basis) != r.basisChecksum {
			err = &ChecksumError{Bucket: string(bucketBases), Reason: "it is not the one that belongs to the space"}
		}
		if err := note(renamed(err, r.number, "")); err != nil {
			return s, archived, err
		}
	}
	s.Number, s.Stale, s.digest = r.number, r.stale, r.digest
	var stated, summed, sourced tally
	seen := 0
	p := states(r.number)
	if err := p.each(tx, func(key, value []byte) error {
		i := seen
		seen++
		state, err := decodeWith(incremental.DecodeState, p.bucket, key, value)
		if err != nil {
			return note(renamed(err, r.number, fmt.Sprint(i)))
		}
		if stated.add(value); i == 0 {
			s.State = state
		} else {
			s.Folds = append(s.Folds, state)
		}
		return nil
	}); err != nil {
		return s, archived, err
	}
	p, rest := summaries(r.number), c.Entries
	var letGo []retire.Entry
	if r.number == Features {
		letGo = c.Archived
	}
	if err := p.each(tx, func(key, value []byte) error {
		id := p.id(key)
		if len(value) < frameSize {
			return note(damageIn(p.bucket, r.number, id, "the length is wrong"))
		}
		for len(letGo) > 0 && letGo[0].ID < id {
			letGo = letGo[1:]
		}
		if len(letGo) > 0 && letGo[0].ID == id {
			archived.addKeyed(key, value)
			return nil
		}
		summed.addKeyed(key, value)
		for ; len(rest) > 0 && rest[0].ID < id; rest = rest[1:] {
			s.Missing = append(s.Missing, rest[0].ID)
		}
		if len(rest) > 0 && rest[0].ID == id {
			rest = rest[1:]
		}
		return nil
	}); err != nil {
		return s, archived, err
	}
	for _, e := range rest {
		s.Missing = append(s.Missing, e.ID)
	}
	p = sources(r.number)
	if err := p.each(tx, func(key, value []byte) error {
		if _, err := unseal(p.bucket, key, value); err != nil {
			return note(renamed(err, r.number, p.id(key)))
		}
		sourced.add(value)
		s.Sources = append(s.Sources, p.id(key))
		return nil
	}); err != nil {
		return s, archived, err
	}
	var foldRows int64
	for _, fold := range s.Folds {
		foldRows += fold.Rows()
	}
	return s, archived, compare(func(err error) error { return note(renamed(err, r.number, "")) }, []comparison{
		{bucketSources, sourced != r.sources, fmt.Sprintf("there are %d sources, %d were saved, or not these", sourced.n, r.sources.n)},
		{bucketStates, stated != r.states, fmt.Sprintf("there are %d states, %d were saved, or not these", stated.n, r.states.n)},
		{bucketStates, s.State == nil, "its state is missing"},
		{bucketStates, s.State != nil && s.State.Digest() != s.digest, "the digest of its state is not the saved one"},
		{bucketStates, s.State != nil && s.State.Rows() != r.rows, fmt.Sprintf("the state does not have the %d rows of the summaries", r.rows)},
		{bucketStates, len(s.Folds) > 0 && foldRows != r.rows, fmt.Sprintf("the folds have %d rows, the summaries %d", foldRows, r.rows)},
		{bucketSummaries, summed != r.summaries, fmt.Sprintf("there are %d summaries, %d were saved, or not these", summed.n, r.summaries.n)},
	})
}
