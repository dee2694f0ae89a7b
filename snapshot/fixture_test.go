package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/retire"
)

var writeFixture = flag.Bool("write-fixture", false, "write testdata/snapshot/v1.db anew")

const (
	fixture       = "../testdata/snapshot/v1.db"
	fixtureBlocks = 6
	fixtureDigest = "09a70efd373c60957fab76ac517bc0d35273edc49ed95ddc7f527dc298f0a70a"
)

// fixtureChange is the change of the fixture's last save, in round numbers.
func fixtureChange() Change {
	var z incremental.Summariser
	c := Change{
		SavedAt: time.UnixMilli(1_700_000_123_456).UTC(),
		Horizon: retire.Rank{Milliseconds: 1_699_999_999_000, Position: incremental.Position{Topic: "orders", Partition: 2, Offset: 17}},
		Counts: Counts{
			AppliedRecords: 1, Tombstones: 2, RejectedRecords: 3, UndecodedRecords: 4, DeadLetters: 5,
			Rows: 6, ZeroWeightRows: 7, RejectedRows: 8, BlocksAdded: 9, BlocksRetired: 10, BlocksReplaced: 11,
			Gaps: 12, LostRecords: 13,
		},
		Offsets: []Offset{
			{Topic: "orders", Partition: 0, Next: 100, HasLast: true,
				Last:       Fingerprint{Offset: 99, Checksum: 0xDEADBEEF, Time: time.UnixMilli(1_700_000_000_099).UTC()},
				EventTimes: []int64{1_700_000_000_050, -1, 1_700_000_000_099}},
			{Topic: "orders", Partition: 1, Next: 5, Growing: &Growing{
				Next: 8, Counts: Counts{AppliedRecords: 3, Rows: 2, RejectedRecords: 1, RejectedRows: 1},
				EventTimes: []int64{1_700_000_000_004, 1_700_000_000_007}}},
		},
	}
	c.Detectors = []byte(`{"version":1}`)
	features := []string{"length", "capitals"}
	c.Spaces = []SpaceChange{{State: incremental.NewState(features), Folds: newFolds(features)}}
	// Two bases. The first is in use, and the second has two blocks.
	coordinates := []string{"z1", "z2", "z3"}
	for number := range uint32(2) {
		c.Spaces = append(c.Spaces, SpaceChange{
			Space: Space{Number: 5 + number, Basis: []byte("basis"), Report: []byte("report")},
			State: incremental.NewState(coordinates), Folds: newFolds(coordinates), Stale: uint8(number),
		})
	}
	c.InUse = 5
	add := func(space int, id string, s *incremental.Summary, digest [32]byte) {
		to := &c.Spaces[space]
		to.Put = append(to.Put, Summary{id, s})
		to.State.Add(s)
		to.Folds[sample.Fold(digest, folds)].Add(s)
	}
	for i, id := range []string{"key:a", "key:ä", "orders/0/1", "orders/0/10", "orders/0/2", "orders/1/3"} {
		x := float64(i)
		b := &incremental.Block{
			Columns: []gram.Column{gram.ColumnOf([]float64{x, 2 * x, 0.5}), gram.ColumnOf([]float64{-x, 1, x / 8})},
			Classes: []string{"-1", "spam", "1"},
			Codes:   []int32{0, int32(i % 3), 2},
			Weights: []float64{1, 0.25, 2},
		}
		s, err := z.Summarise(b)
		if err != nil {
			panic(err)
		}
		add(Features, id, s, s.Digest())
		c.Put = append(c.Put, Block{Part: takePart(b, s), Entry: retire.Entry{
			ID:       id,
			Position: incremental.Position{Topic: "orders", Partition: i % 2, Offset: int64(10 * i)},
			Last:     int64(10*i + 9), Time: time.UnixMilli(1_700_000_000_000 + int64(i)).UTC(), Rows: 3,
		}})
		if strings.HasPrefix(id, "key:") {
			c.Put[i].Entry.ItemKey = sha256.Sum256([]byte(id))
		}
		if id == "orders/1/3" {
			c.Put[i].Entry.Carrier = retire.Carrier{Sums: true, Partition: 2, Offset: 258}
		}
		b.Columns = append(b.Columns, gram.ColumnOf([]float64{1, x, x * x}))
		lifted, err := z.Summarise(b)
		if err != nil {
			panic(err)
		}
		source := &c.Spaces[1+i%2]
		source.Sources = append(source.Sources, id)
		add(1, id, lifted, s.Digest())
		if i < 2 {
			add(2, id, lifted, s.Digest())
		}
	}
	return c
}

func makeFixture(t *testing.T, path string) {
	s, _, err := Open(path, settings)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(fixtureChange()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// values lists everything in a file as bucket, key → value.
func values(t testing.TB, path string) map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	out := map[string]string{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(bucket []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(key, value []byte) error {
				out[string(bucket)+" "+string(key)] = hex.EncodeToString(value)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// checkFixture compares a file with the change of its last save.
func checkFixture(t *testing.T, path string) {
	t.Helper()
	s, got, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	change := fixtureChange()
	want := &Contents{
		Settings: settings, Version: int(version), Offsets: change.Offsets, Horizon: change.Horizon, Counts: change.Counts,
		SavedAt: change.SavedAt, Detectors: change.Detectors, InUse: change.InUse,
	}
	for i, b := range change.Put {
		want.Entries = append(want.Entries, b.Entry)
		summary, err := s.Summary(Features, b.Entry.ID)
		if err != nil || !equalSums(summary, change.Spaces[Features].Put[i].Summary) {
			t.Errorf("block %s: %v", b.Entry.ID, err)
		}
		if p, err := s.Part(b.Entry.ID); err != nil || !reflect.DeepEqual(p, b.Part) {
			t.Errorf("part of block %s: %v", b.Entry.ID, err)
		}
	}
	if len(got.Spaces) != len(change.Spaces) {
		t.Fatalf("%d spaces", len(got.Spaces))
	}
	for i := range got.Spaces {
		checkSpace(t, s, &got.Spaces[i], &change.Spaces[i])
	}
	if !slices.Equal(got.Features(), []string{"length", "capitals"}) {
		t.Errorf("the features are %q", got.Features())
	}
	if len(got.Entries) != fixtureBlocks {
		t.Fatalf("%d blocks", len(got.Entries))
	}
	if digest := got.Space(Features).State.Digest(); hex.EncodeToString(digest[:]) != fixtureDigest {
		t.Errorf("digest %x", digest)
	}
	got.Spaces = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("contents\n%+v, want\n%+v", got, want)
	}
	report, err := Verify(t.Context(), path, nil)
	if err != nil || !report.OK || report.Blocks != fixtureBlocks || hex.EncodeToString(report.Summed[:]) != fixtureDigest {
		t.Errorf("verified as %+v, %v", report, err)
	}
}

// checkSpace compares a space of a file with the change that was saved.
func checkSpace(t *testing.T, s *Store, got *SpaceContents, want *SpaceChange) {
	t.Helper()
	if !reflect.DeepEqual(got.Space, want.Space) || got.State.Digest() != want.State.Digest() || len(got.Missing) != fixtureBlocks-len(want.Put) {
		t.Errorf("space %d is another one", got.Number)
	}
	if !slices.Equal(got.Sources, want.Sources) || got.Stale != want.Stale {
		t.Errorf("space %d has the sources %q, staleness %d", got.Number, got.Sources, got.Stale)
	}
	if len(got.Folds) != folds {
		t.Errorf("space %d has %d folds", got.Number, len(got.Folds))
	}
	for i, f := range got.Folds {
		if f.Digest() != want.Folds[i].Digest() {
			t.Errorf("fold %d of space %d is another one", i, got.Number)
		}
	}
	for _, p := range want.Put {
		if summary, err := s.Summary(got.Number, p.ID); err != nil || !equalSums(summary, p.Summary) {
			t.Errorf("block %s of space %d: %v", p.ID, got.Number, err)
		}
	}
}

// A file of a program from before the first release is refused with a sentence, and stays as it is.
func TestFileFromBeforeTheFirstRelease(t *testing.T) {
	for former := format(1); former <= 6; former++ {
		path := filepath.Join(t.TempDir(), "streamd.db")
		s, _ := mustOpen(t, path)
		err := s.db.Update(func(tx *bbolt.Tx) error {
			value := appendFormat(frame(), former, "0.6")
			copy(value[frameSize:], unreleasedMagic)
			w := writer{tx: tx}
			return errors.Join(w.putValue(bucketMeta, keyFormat, value), tx.DeleteBucket(bucketOffsets))
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(path, settings); !errors.Is(err, ErrUnreleased) {
			t.Errorf("format %d: opened: %v", former, err)
		}
		if _, err := Verify(t.Context(), path, nil); !errors.Is(err, ErrUnreleased) {
			t.Errorf("format %d: verified: %v", former, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("format %d: the file was changed: %v", former, err)
		}
	}
}

// The fixture has the contents that were saved, and the same save makes the same
// bytes today.
func TestFixture(t *testing.T) {
	if *writeFixture {
		os.Remove(fixture)
		makeFixture(t, fixture)
	}
	checkFixture(t, fixture)
	today := filepath.Join(t.TempDir(), "today.db")
	makeFixture(t, today)
	old, now := values(t, fixture), values(t, today)
	if len(old) != 3+2*fixtureBlocks+2+3*(1+1+folds)+2+fixtureBlocks+2*fixtureBlocks+2+1 || !maps.Equal(old, now) {
		for k, v := range old {
			if now[k] != v {
				t.Errorf("%s\nwas %s\nnow %s", k, v, now[k])
			}
		}
		t.Errorf("%d values, now %d", len(old), len(now))
	}
}

// A header adds its hash to the end of an entry.
func TestHeadersAreOptional(t *testing.T) {
	e := fixtureChange().Put[0].Entry
	without := appendBlock(frame(), &e, new([32]byte))
	e.Header = retire.HashHeader("tenant", []byte("ann"))
	with := appendBlock(frame(), &e, new([32]byte))
	if !bytes.Equal(with, append(append(bytes.Clone(without), 0), e.Header[:]...)) {
		t.Errorf("%x, without the header %x", with, without)
	}
	decode := func(value []byte) (retire.Entry, error) {
		if err := seal(bucketBlocks, []byte(e.ID), value); err != nil {
			t.Fatal(err)
		}
		got, _, err := decodeBlock(e.ID, value)
		return got, err
	}
	if got, err := decode(with); err != nil || got != e {
		t.Errorf("%+v, %v", got, err)
	}
	for name, value := range map[string][]byte{"short": with[:len(with)-1], "unknown flag": flagged(without, 15), "zero key": clearedKey(without), "long": append(bytes.Clone(with), 1), "zero": append(bytes.Clone(without), make([]byte, 17)...)} {
		damage := (*ChecksumError)(nil)
		if got, err := decode(bytes.Clone(value)); !errors.As(err, &damage) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// The record that brought a block's sums adds its place before the topic.
func TestCarriersAreOptional(t *testing.T) {
	e := fixtureChange().Put[2].Entry
	without := appendBlock(frame(), &e, new([32]byte))
	e.Carrier = retire.Carrier{Sums: true, Partition: 3, Offset: 1<<40 + 7}
	with := appendBlock(frame(), &e, new([32]byte))
	end := len(without) - len(e.Position.Topic)
	want := flagged(without[:end], hasSummary|hasCarrier)
	want = append(append(want, 3, 0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0), e.Position.Topic...)
	if !bytes.Equal(with, want) {
		t.Errorf("%x, want %x", with, want)
	}
	negative := bytes.Clone(with)
	negative[end+11] = 0x80
	for value, good := range map[string]bool{string(with): true, string(negative): false} {
		value := []byte(value)
		if err := seal(bucketBlocks, []byte(e.ID), value); err != nil {
			t.Fatal(err)
		}
		got, _, err := decodeBlock(e.ID, value)
		if good != (err == nil) || good && got != e {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if partition, first, last := e.Records(); partition != 3 || first != e.Carrier.Offset || last != first {
		t.Errorf("the records are %d to %d of partition %d", first, last, partition)
	}
}

// flagged and clearedKey are an encoded entry with other flags, and one with a key of zeros.
func flagged(value []byte, flags byte) []byte {
	value = bytes.Clone(value)
	value[leastBlock-1] = flags
	return value
}

func clearedKey(value []byte) []byte {
	value = bytes.Clone(value)
	clear(value[leastBlock+sha256.Size:][:sha256.Size])
	return value
}

// Withdrawn blocks add two values to a file, and change no other.
func TestWithdrawnBlocksAreOptional(t *testing.T) {
	change, path := fixtureChange(), filepath.Join(t.TempDir(), "streamd.db")
	change.Withdraw = []retire.Entry{{
		ID: "orders/1/31", Position: incremental.Position{Topic: "orders", Partition: 1, Offset: 31},
		Last: 33, Time: time.UnixMilli(1_700_000_000_031).UTC(), Rows: 7, Withdrawn: true,
	}}
	s, _ := mustOpen(t, path)
	save := func(c Change) {
		t.Helper()
		if _, err := s.Save(c); err != nil {
			t.Fatal(err)
		}
	}
	save(change)
	s.Close()
	want := values(t, fixture)
	want["streamd withdrawn"] = "6d2b94051000000001000000000000000e29fc4c00000000"
	want["withdrawn orders/1/31"] = "0e29fc4c2b0000001f0000000000000021000000000000001f68e5cf8b010000070000000000000001000000006f7264657273"
	if got := values(t, path); !maps.Equal(got, want) {
		t.Errorf("%d values, want %d: %s, %s", len(got), len(want), got["streamd withdrawn"], got["withdrawn orders/1/31"])
	}
	s, c := mustOpen(t, path)
	if !reflect.DeepEqual(c.Withdrawn, change.Withdraw) {
		t.Errorf("withdrawn are %+v", c.Withdrawn)
	}
	change.Delete, change.Withdraw, change.Put = []string{"orders/1/31"}, nil, nil
	for i := range change.Spaces {
		change.Spaces[i].Put = nil
	}
	save(change)
	s.Close()
	if !maps.Equal(values(t, path), values(t, fixture)) {
		t.Error("without the block the file is another one than before")
	}
}

// A verification reports its progress and can be cancelled.
func TestVerifyIsWatched(t *testing.T) {
	s, contents, err := OpenReadOnly(fixture)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	want := 0
	for _, s := range contents.Spaces {
		want += len(contents.Entries) - len(s.Missing)
	}
	if want != 2*fixtureBlocks+2 {
		t.Fatalf("%d summaries", want)
	}
	for _, most := range []int{want, want - 1, fixtureBlocks - 1, 0} {
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		report, err := Verify(ctx, fixture, func(done, all int) {
			if done != seen || all != want {
				t.Errorf("%d of %d, want %d of %d", done, all, seen, want)
			}
			if seen++; seen > most {
				cancel()
			}
		})
		if ended := errors.Is(err, context.Canceled); ended != (most < want) || seen != min(most+1, want) || report.OK == ended {
			t.Errorf("ended after %d: %d seen, %+v, %v", most, seen, report, err)
		}
		cancel()
	}
}
