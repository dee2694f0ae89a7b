package snapshot

import (
	"bytes"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/retire"
)

// Every payload is refused, or equals the encoding of its contents.
func FuzzDecodeValues(f *testing.F) {
	position := incremental.Position{Topic: "orders", Partition: 3, Offset: 1841}
	at := time.UnixMilli(1_700_000_000_000)
	last := Fingerprint{Offset: 9, Checksum: 7, Time: at}
	offset := Offset{Topic: "orders", Partition: 3, Next: 10, Last: last, HasLast: true}
	f.Add(0, []byte("format"), appendFormat(nil, version, program))
	f.Add(1, []byte("settings"), appendSettings(nil, settings))
	f.Add(2, []byte("head"), appendHead(nil, &head{
		savedAt: at, horizon: retire.Rank{Milliseconds: 5, Position: position},
		rows: 8, blocks: tally{2, 1 << 60}, offsets: tally{1, 5}, counts: Counts{AppliedRecords: 7, BlocksReplaced: 2},
		parts: tally{1, 9}, spaces: tally{2, 3}, inUse: 4, retirements: 3, uncompacted: at,
	}))
	f.Add(3, []byte("orders/3/1841"), appendBlock(nil, &retire.Entry{Position: position, Last: 1900, Time: at, Rows: 50}, &[32]byte{3, 31: 4}))
	f.Add(3, []byte("key:ann"), appendBlock(nil, &retire.Entry{Position: position, Header: retire.HeaderHash{5: 1}}, &[32]byte{}))
	f.Add(4, offsetKey(&offset), appendOffset(nil, &offset))
	f.Add(4, offsetKey(&offset), appendOffset(nil, &Offset{Next: 1}))
	f.Add(4, offsetKey(&offset), appendOffset(nil, &Offset{Next: 1, EventTimes: []int64{5, -7}}))
	f.Add(4, offsetKey(&offset), appendOffset(nil, &Offset{Next: 1, Growing: &Growing{Next: 9, EventTimes: []int64{5}}}))
	f.Add(5, spaceKey(7), appendSpace(nil, &spaceRecord{
		number: 7, basisChecksum: 5, summaries: tally{3, 1 << 50}, states: tally{6, 9}, rows: 8, sources: tally{2, 1 << 33}, stale: 2,
	}))
	f.Add(6, spaceKey(7), appendBasis(nil, &Space{Number: 7, Basis: []byte("basis"), Report: []byte("report")}))
	f.Add(7, []byte("orders/3/1841"), appendBlock(nil, &retire.Entry{Position: position, Time: at, Rows: 50, Withdrawn: true}, nil))
	f.Fuzz(func(t *testing.T, kind int, key, payload []byte) {
		bucket := [][]byte{bucketMeta, bucketMeta, bucketMeta, bucketBlocks, bucketOffsets, bucketSpaces, bucketBases, bucketWithdrawn}
		if kind < 0 || kind >= len(bucket) {
			return
		}
		if kind < 3 {
			key = [][]byte{keyFormat, keySettings, keyHead}[kind]
		}
		value := append(frame(), payload...)
		if err := seal(bucket[kind], key, value); err != nil {
			t.Fatal(err)
		}
		var again []byte
		var err error
		switch kind {
		case 0:
			var v format
			var p string
			v, p, err = decodeFormat(value)
			again = appendFormat(nil, v, p)
		case 1:
			var s Settings
			s, err = decodeSettings(value)
			again = appendSettings(nil, s)
		case 2:
			var h head
			h, err = decodeHead(value)
			again = appendHead(nil, &h)
		case 3:
			var e retire.Entry
			var digest [32]byte
			e, digest, err = decodeBlock(string(key), value)
			again = appendBlock(nil, &e, &digest)
		case 4:
			var o Offset
			o, err = decodeOffset(key, value)
			again = appendOffset(nil, &o)
			if err == nil && !bytes.Equal(offsetKey(&o), key) {
				t.Errorf("key %x came back as %x", key, offsetKey(&o))
			}
		case 5:
			var r spaceRecord
			r, err = decodeSpace(key, value)
			again = appendSpace(nil, &r)
			if err == nil && !bytes.Equal(spaceKey(r.number), key) {
				t.Errorf("key %x came back as %x", key, spaceKey(r.number))
			}
		}
		if kind == 6 {
			var s Space
			s, err = decodeBasis(key, value)
			again = appendBasis(nil, &s)
		}
		if kind == 7 {
			var e retire.Entry
			e, err = decodeWithdrawn(string(key), value)
			again = appendBlock(nil, &e, nil)
		}
		if err == nil && !bytes.Equal(again, payload) {
			t.Errorf("kind %d: %x came back as %x", kind, payload, again)
		}
	})
}

func FuzzDecodeRetired(f *testing.F) {
	good := appendRetired(frame(), retirements{3, time.UnixMilli(1_700_000_000_000)})
	if err := seal(nil, []byte(nameRetired), good); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:9])
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := decodeRetired(value)
		if err != nil {
			return
		}
		again := appendRetired(frame(), r)
		if err := seal(nil, []byte(nameRetired), again); err != nil || !bytes.Equal(again, value) {
			t.Errorf("%x came back as %x, %v", value, again, err)
		}
	})
}

func FuzzUnseal(f *testing.F) {
	good := append(frame(), "payload"...)
	if err := seal(bucketMeta, keyHead, good); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, value []byte) {
		payload, err := unseal(bucketMeta, keyHead, value)
		if err != nil {
			return
		}
		again := append(frame(), payload...)
		if err := seal(bucketMeta, keyHead, again); err != nil || !bytes.Equal(again, value) {
			t.Errorf("%x came back as %x, %v", value, again, err)
		}
	})
}

// Files with arbitrary pages and valid meta pages. A file that opens under a key has the
// values that were written under it.
func FuzzOpen(f *testing.F) {
	key := newKey(f, "sixteen bytes or more")
	path := filepath.Join(f.TempDir(), "seed.db")
	s, _, err := key.Open(path, settings)
	if err != nil {
		f.Fatal(err)
	}
	w := newWorld(rand.New(rand.NewPCG(18, 1)), 1)
	s.Close()
	before := values(f, path) // the file may open as before its last save
	if s, _, err = key.Open(path, settings); err != nil {
		f.Fatal(err)
	}
	for range 40 {
		w.step()
	}
	w.save(f, s)
	s.Close()
	written := values(f, path)
	seed, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := key.Rekey(path, nil); err != nil {
		f.Fatal(err)
	}
	open, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)/2])
	f.Add(open)
	f.Fuzz(func(t *testing.T, b []byte) {
		page := os.Getpagesize()
		for _, at := range []int{0, page} {
			if len(b) >= at+80 {
				h := fnv.New64a()
				h.Write(b[at+16 : at+72])
				order.PutUint64(b[at+72:], h.Sum64())
			}
		}
		path := filepath.Join(t.TempDir(), "fuzz.db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		report, verifyErr := Verify(t.Context(), path, nil)
		if verifyErr == nil && len(report.Damage) > maxDamage {
			t.Errorf("%d faults are named", len(report.Damage))
		}
		_, remainsErr := FindRemains(path)
		if s, _, err := key.open(path, true); err == nil {
			s.Close()
			if got := values(t, path); !maps.Equal(got, written) && !maps.Equal(got, before) {
				t.Error("values that nobody has written are authentic")
			}
		}
		s, _, err := OpenReadOnly(path)
		if (err == nil) != (remainsErr == nil) {
			t.Errorf("opening gives %v, looking for remains %v", err, remainsErr)
		}
		if err != nil {
			if verifyErr == nil && report.OK {
				t.Errorf("verified, but opening gives %v", err)
			}
			return
		}
		defer s.Close()
		err = s.Summaries(Features, func(retire.Entry, *incremental.Summary) error { return nil })
		if (err == nil) != (report.Damaged == 0) {
			// Reading does not notice an orphan.
			if err != nil {
				t.Errorf("verified as %+v, but reading gives %v", report, err)
			}
		}
	})
}
