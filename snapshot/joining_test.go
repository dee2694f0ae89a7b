package snapshot

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// Rows and labels by id add values to a file, and change no other. A save has those that have
// changed, and damage is noticed.
func TestJoining(t *testing.T) {
	change, path := fixtureChange(), filepath.Join(t.TempDir(), "streamd.db")
	change.Joining = Joining{
		Items:  []JoiningItem{{"key:b", []byte("row b")}, {"key:a", []byte("label a")}, {ID: "key:none"}},
		Record: []byte(`{"books":1}`),
	}
	s, c := mustOpen(t, path)
	if c.Joining.Record != nil || c.Joining.Items != nil {
		t.Errorf("a new file has %+v", c.Joining)
	}
	save := func(j Joining) {
		t.Helper()
		change.Joining = j
		if _, err := s.Save(change); err != nil {
			t.Fatal(err)
		}
		change.Delete, change.Withdraw, change.Put, change.Parts = nil, nil, nil, nil
		for i := range change.Spaces {
			change.Spaces[i].Put = nil
		}
	}
	reopen := func(want Joining) {
		t.Helper()
		s.Close()
		if s, c = mustOpen(t, path); !reflect.DeepEqual(c.Joining, want) {
			t.Errorf("%+v, want %+v", c.Joining, want)
		}
	}
	save(change.Joining)
	s.Close()
	got := values(t, path)
	if got["joining key:a"] == "" || got["streamd joining"] == "" {
		t.Errorf("values are %v", maps.Keys(got))
	}
	for key := range got {
		if key == "joining key:a" || key == "joining key:b" || key == "streamd joining" {
			delete(got, key)
		}
	}
	if !maps.Equal(got, values(t, fixture)) {
		t.Error("other values have changed")
	}
	reopen(Joining{Items: []JoiningItem{{"key:a", []byte("label a")}, {"key:b", []byte("row b")}}, Record: []byte(`{"books":1}`)})
	save(Joining{}) // without a record nothing changes
	reopen(Joining{Items: []JoiningItem{{"key:a", []byte("label a")}, {"key:b", []byte("row b")}}, Record: []byte(`{"books":1}`)})
	save(Joining{Items: []JoiningItem{{ID: "key:b"}, {ID: "key:c"}, {"key:a", []byte{}}}, Record: []byte(`{}`), Forgotten: 1})
	reopen(Joining{Items: []JoiningItem{{"key:a", []byte{}}}, Record: []byte(`{}`)})
	if c.Uncompacted.IsZero() {
		t.Error("a row that was deleted leaves remains, and nothing says so")
	}
	for what, bad := range map[string]Joining{
		"without a record": {Items: []JoiningItem{{"key:a", []byte("x")}}},
		"without an id":    {Items: []JoiningItem{{"", []byte("x")}}, Record: []byte("{}")},
	} {
		change.Joining = bad
		if _, err := s.Save(change); err == nil {
			t.Errorf("a change %s is saved", what)
		}
	}
	if _, err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	reopen(Joining{Items: []JoiningItem{{"key:a", []byte{}}}, Record: []byte(`{}`)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for what, damage := range map[string]func(tx *bbolt.Tx) error{
		"a value is gone": func(tx *bbolt.Tx) error { return tx.Bucket(bucketJoining).Delete([]byte("key:a")) },
		"a value is there twice": func(tx *bbolt.Tx) error {
			value := append(frame(), "x"...)
			if err := seal(bucketJoining, []byte("key:z"), value); err != nil {
				return err
			}
			return tx.Bucket(bucketJoining).Put([]byte("key:z"), value)
		},
		"the record is gone": func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Delete(keyJoining) },
		"a byte has changed": func(tx *bbolt.Tx) error {
			value := bytes.Clone(tx.Bucket(bucketMeta).Get(keyJoining))
			value[len(value)-1]++
			return tx.Bucket(bucketMeta).Put(keyJoining, value)
		},
	} {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		before := map[string][]byte{}
		err = db.Update(func(tx *bbolt.Tx) error {
			before["key:a"], before["record"] = bytes.Clone(tx.Bucket(bucketJoining).Get([]byte("key:a"))), bytes.Clone(tx.Bucket(bucketMeta).Get(keyJoining))
			return damage(tx)
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if s, _, err := Open(path, settings); !errors.As(err, new(*ChecksumError)) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				s.Close()
			}
		}
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			return errors.Join(
				tx.Bucket(bucketJoining).Delete([]byte("key:z")),
				tx.Bucket(bucketJoining).Put([]byte("key:a"), before["key:a"]),
				tx.Bucket(bucketMeta).Put(keyJoining, before["record"]),
			)
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
