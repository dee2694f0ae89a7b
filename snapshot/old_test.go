package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// put writes the payload of a value and returns the value.
type put func(bucket string, key, payload []byte) []byte

// writeOld writes the contents of a current file as a program of version 4 or 5 would have,
// under a key unless that is nil. It has its own code for the old formats.
func writeOld(t *testing.T, path, old string, f format, key *Key) {
	t.Helper()
	s, c, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db, err := bbolt.Open(old, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(to *bbolt.Tx) error {
		put := func(bucket string, key, payload []byte) []byte {
			b, err := to.CreateBucketIfNotExists([]byte(bucket))
			if err != nil {
				t.Fatal(err)
			}
			value := append(frame(), payload...)
			if err := errors.Join(seal([]byte(bucket), key, value), b.Put(key, value)); err != nil {
				t.Fatal(err)
			}
			return value
		}
		if err := s.view(func(tx *bbolt.Tx) error {
			if f == 5 {
				return writeV5(tx, to, put)
			}
			return writeV4(c, tx, to, put)
		}); err != nil {
			return err
		}
		if key != nil {
			sum, err := key.sumValues(to)
			if err != nil {
				return err
			}
			put("streamd", keyMAC, key.fileMAC(sum))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// writeV5 writes ledger entries without flags and digests, and the head with their tallies.
func writeV5(tx, to *bbolt.Tx, put put) error {
	tallies := map[string]*tally{"blocks": {}, "withdrawn": {}}
	err := tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		if _, err := to.CreateBucketIfNotExists(name); err != nil {
			return err
		}
		return bucket.ForEach(func(key, value []byte) error {
			payload := value[frameSize:]
			if entries := tallies[string(name)]; entries != nil {
				skip := 1 + 32*int(payload[36])
				entries.add(put(string(name), key, append(bytes.Clone(payload[:36]), payload[36+skip:]...)))
			} else {
				put(string(name), key, payload)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	head := bytes.Clone(tx.Bucket(bucketMeta).Get(keyHead)[frameSize:])
	copy(head[36:], appendTally(nil, *tallies["blocks"]))
	put("streamd", keyHead, head)
	if t := tallies["withdrawn"]; t.n > 0 {
		put("streamd", keyWithdrawn, appendTally(nil, *t))
	}
	put("streamd", keyFormat, appendFormat(nil, 5, "0.5"))
	return nil
}

func writeV4(c *Contents, tx, to *bbolt.Tx, put put) error {
	for _, name := range []string{"state", "blocks", "summaries", "offsets", "parts", "folds", "epochs", "bases", "epoch states", "epoch summaries", "sources"} {
		if _, err := to.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	h, err := readHead(tx, version)
	if err != nil {
		return err
	}
	records, err := readRecords(tx)
	if err != nil {
		return err
	}
	var folds, epochs, blocks tally
	epoch := map[uint32]*spaceRecord{}
	for i := range records {
		r := &records[i]
		epoch[r.number] = r
		r.states, r.summaries = tally{}, tally{}
	}
	for _, name := range []string{"offsets", "parts", "bases", "sources"} {
		if err := tx.Bucket([]byte(name)).ForEach(func(key, value []byte) error {
			put(name, key, value[frameSize:])
			return nil
		}); err != nil {
			return err
		}
	}
	summaries := map[string][]byte{}
	if err := tx.Bucket(bucketSummaries).ForEach(func(key, value []byte) error {
		if number := binary.BigEndian.Uint32(key); number > 0 {
			epoch[number].summaries.addKeyed(key, put("epoch summaries", key, value[frameSize:]))
		} else {
			summaries[string(key[4:])] = put("summaries", key[4:], value[frameSize:])
		}
		return nil
	}); err != nil {
		return err
	}
	if err := tx.Bucket(bucketStates).ForEach(func(key, value []byte) error {
		number, i := binary.BigEndian.Uint32(key), binary.BigEndian.Uint32(key[4:])
		switch {
		case number > 0:
			epoch[number].states.add(put("epoch states", key, value[frameSize:]))
		case i == 0:
			put("state", []byte("state"), value[frameSize:])
		default:
			folds.add(put("folds", binary.BigEndian.AppendUint32(nil, i-1), value[frameSize:]))
		}
		return nil
	}); err != nil {
		return err
	}
	if err := tx.Bucket(bucketBlocks).ForEach(func(key, value []byte) error {
		payload, summary := value[frameSize:], summaries[string(key)]
		b := bytes.Clone(payload[:36])
		b = appendU32(b, uint32(len(summary)-frameSize))
		b = appendU32(b, frameChecksum(summary))
		blocks.add(put("blocks", key, append(b, payload[36+1+32:]...)))
		return nil
	}); err != nil {
		return err
	}
	for _, r := range records {
		if r.number > 0 {
			epochs.add(put("epochs", spaceKey(r.number), appendSpace(nil, &r)))
		}
	}
	b := appendHead(nil, &h)
	head := bytes.Clone(b[:36])
	head = appendTally(head, blocks)
	head = append(head, b[52:156]...)
	features, digest := c.Space(Features), emptyDigest
	if features != nil {
		digest = features.State.Digest()
	}
	head = append(appendFlag(head, features != nil), digest[:]...)
	head = append(head, b[156:172]...)
	head = appendTally(appendTally(head, folds), epochs)
	put("streamd", keyHead, append(head, b[188:]...))
	put("streamd", keySettings, appendTexts(nil, settings.Topic, settings.Unit))
	put("streamd", keyFormat, appendFormat(nil, 4, "0.4"))
	return nil
}

// A random file of version 4 or 5 has the same contents as a current one, with and without a
// key. After migration it has the same values.
func TestOldFileEqualsMemory(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // they wait for the disk
			var key *Key
			if seed%2 == 1 {
				key = newKey(t, "sixteen bytes or more")
			}
			path, old := filepath.Join(t.TempDir(), "today.db"), filepath.Join(t.TempDir(), "streamd.db")
			w, f := newWorld(rand.New(rand.NewPCG(61, seed)), 1+int(seed)%3), format(4+seed/2%2)
			if f == 5 {
				w.log, w.withdraws = newWorldLog(), true
			}
			s, _ := mustOpen(t, path)
			for range seed { // the first file stays empty
				for range 20 {
					w.step()
				}
				w.save(t, s)
			}
			s.Close()
			today := values(t, path)
			writeOld(t, path, old, f, key)

			s, c, err := OpenReadOnly(old)
			if err != nil || c.Version != int(f) || c.Keyed != (key != nil) {
				t.Fatalf("%+v, %v", c, err)
			}
			if seed > 0 {
				c.Version, c.Keyed = int(version), false
				w.compare(t, s, c)
			}
			s.Close()
			if report, err := key.Verify(t.Context(), old, nil); err != nil || !report.OK || seed > 0 && report.Rows != w.state.Rows() {
				t.Fatalf("verified as %+v, %v", report, err)
			}

			if s, c, err = key.Open(old, settings); err != nil {
				t.Fatal(err)
			}
			if c.Keyed = false; seed > 0 {
				w.compare(t, s, c)
			}
			s.Close()
			got := values(t, old)
			delete(got, "streamd mac")
			if !maps.Equal(got, today) {
				t.Errorf("%d values, want %d, or these are others", len(got), len(today))
			}
			if report, err := key.Verify(t.Context(), old, nil); err != nil || !report.OK || report.Keyed != (key != nil) {
				t.Fatalf("brought up to date, verified as %+v, %v", report, err)
			}
			if r, err := FindRemains(old); err != nil || r.Written != 0 {
				t.Errorf("%+v, %v", r, err)
			}
			if s, _, err = key.Open(old, settings); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			w.step()
			w.save(t, s)
		})
	}
}

// A migration takes several transactions, so its memory does not grow with the file.
func TestMigrationInParts(t *testing.T) {
	path, old := filepath.Join(t.TempDir(), "today.db"), filepath.Join(t.TempDir(), "streamd.db")
	const features = 500
	w := newWorld(rand.New(rand.NewPCG(62, 1)), features)
	for i := range 12 { // 1 MB each
		w.add(randomBlock(w.r, fmt.Sprintf("orders/0/%d", i), 2, features))
	}
	s, _ := mustOpen(t, path)
	w.save(t, s)
	s.Close()
	writeOld(t, path, old, 4, nil)
	if info, err := os.Stat(old); err != nil || info.Size() < compactBytes+compactBytes/4 {
		t.Fatalf("a file of %d bytes is copied at once: %v", info.Size(), err)
	}
	s, c := mustOpen(t, old)
	w.compare(t, s, c)
}

// An old file that somebody without the key has changed is refused. So is a damaged one,
// which must not get good checksums. Both stay unchanged.
func TestBadOldFileIsNotBroughtUpToDate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "today.db")
	w := newWorld(rand.New(rand.NewPCG(63, 1)), 2)
	s, _ := mustOpen(t, path)
	b := randomBlock(w.r, "b", 3, 2)
	b.Part = takePartAgain(b)
	w.add(b)
	c := randomBlock(w.r, "c", 3, 2)
	w.add(c)
	w.withdraw("c")
	w.beginSpace()
	w.stepSpaces() // the space has the block
	w.spaces[0].sources["b"] = false
	w.offsets[0] = Offset{Topic: "orders", Next: 3}
	w.moved[0] = w.offsets[0]
	w.save(t, s)
	s.Close()
	key := newKey(t, "sixteen bytes or more")
	number := w.spaces[0].Number
	for name, c := range map[string]struct {
		f           format
		bucket, key []byte
	}{
		"head": {4, bucketMeta, keyHead}, "settings": {4, bucketMeta, keySettings}, "block": {4, bucketBlocks, []byte("b")},
		"part": {4, bucketParts, []byte("b")}, "offset": {4, bucketOffsets, offsetKey(&Offset{Topic: "orders"})},
		"summary": {4, bucketSummaries, []byte("b")}, "state": {4, bucketOldState, bucketOldState}, "fold": {4, bucketOldFolds, spaceKey(0)},
		"epoch": {4, bucketEpochs, spaceKey(number)}, "basis": {4, bucketBases, spaceKey(number)}, "source": {4, bucketSources, blockKey(number, "b")},
		"epoch's state": {4, bucketEpochStates, stateKey(number, 0)}, "epoch's fold": {4, bucketEpochStates, stateKey(number, 1)},
		"epoch's summary": {4, bucketEpochSummaries, blockKey(number, "b")},
		"head of 5":       {5, bucketMeta, keyHead}, "block of 5": {5, bucketBlocks, []byte("b")}, "withdrawn block of 5": {5, bucketWithdrawn, []byte("c")},
		"summary of 5": {5, bucketSummaries, blockKey(Features, "b")}, "state of 5": {5, bucketStates, stateKey(Features, 0)}, "space of 5": {5, bucketSpaces, spaceKey(number)},
	} {
		for _, k := range []*Key{nil, key} {
			old := filepath.Join(dir, "streamd.db")
			writeOld(t, path, old, c.f, k)
			db, err := bbolt.Open(old, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Update(func(tx *bbolt.Tx) error {
				bucket := tx.Bucket(c.bucket)
				return bucket.Put(c.key, flipLast(bytes.Clone(bucket.Get(c.key))))
			}); err != nil {
				t.Fatal(err)
			}
			db.Close()
			before, err := os.ReadFile(old)
			if err != nil {
				t.Fatal(err)
			}
			var damage *ChecksumError
			if _, _, err := k.Open(old, settings); k == nil && !errors.As(err, &damage) || k != nil && !errors.Is(err, ErrMAC) {
				t.Errorf("%s: opened: %v", name, err)
			}
			if after, err := os.ReadFile(old); err != nil || !bytes.Equal(before, after) {
				t.Errorf("%s: the file was changed: %v", name, err)
			}
			if _, err := os.Stat(compacting(old)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: the copy is left behind: %v", name, err)
			}
			if report, err := Verify(t.Context(), old, nil); err != nil || report.OK || report.Damaged == 0 || report.Damage[0].Bucket != string(c.bucket) {
				t.Errorf("%s: verified as %+v, %v", name, report, err)
			}
			if err := os.Remove(old); err != nil {
				t.Fatal(err)
			}
		}
	}
}
