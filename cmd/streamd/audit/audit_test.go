package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"streamd/cmd/streamd/audit"
	"streamd/incremental"
	"streamd/retire/receipt"
)

// An auditor with any knowledge finds that the live blocks add up to the state, and that those that
// had come by the last receipt add up to what it left. Blocks at and above its offsets came later.
func TestSnapshotProvesItsLastReceipt(t *testing.T) {
	for _, since := range []int{0, 1, 2} {
		w := newWriter(t, testKey(t))
		w.fix()
		gone := w.add(5, 0.5)
		w.add(7, 0.5)
		w.add(9, 0.5)
		w.retire(gone)
		for range since {
			w.add(4, 0.5)
		}
		w.save()
		r := w.proofs[1]
		named, err := r.Named(gone, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, knows := range []struct {
			key    *receipt.Key
			named  map[string]receipt.Hash
			looked int
		}{{nil, nil, 0}, {nil, map[string]receipt.Hash{gone: named}, 1}, {w.key, nil, 1}} {
			report, err := audit.Snapshot(w.path, r, w.key.Public(), knows.key, knows.named)
			if err != nil {
				t.Fatal(err)
			}
			if !report.Proved || report.Since != since || report.Grown != 0 || report.Blocks != 2+since || report.Rows != int64(16+4*since) ||
				report.Leaves != 2 || report.Last != 1 || report.Looked != knows.looked || report.Live != 0 ||
				report.Digest != w.set.Digest() || (report.Root != "") != (knows.key != nil) {
				t.Errorf("%d blocks since: %+v", since, report)
			}
		}
	}
}

// A receipt can pass by itself and still not be what the file has: other rows in the sums, or other
// blocks than it left.
func TestSnapshotOfADishonestDaemon(t *testing.T) {
	for name, c := range map[string]struct {
		dishonest func(w *writer, gone, stays *incremental.Summary)
		want      string
	}{
		"the sums keep the rows of a retired block": {func(w *writer, gone, stays *incremental.Summary) {
			w.swap(gone, stays)
		}, "its blocks add up to the digest "},
		"the receipt names another digest": {func(w *writer, _, _ *incremental.Summary) {
			w.pending[1].After.Digest[0] ^= 1
		}, "its blocks that had come by receipt 1 add up to the digest "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t, testKey(t))
			w.fix()
			gone, stays := w.add(5, 0.5), w.add(5, 0.5)
			in, out := w.summary(gone), w.summary(stays)
			w.retire(gone)
			c.dishonest(w, in, out)
			w.save()
			report, err := audit.Snapshot(w.path, w.proofs[1], w.key.Public(), nil, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v, want %q", report, err, c.want)
			}
		})
	}
}

// A copy from before a checkpoint cannot be compared with it. The refusal counts the receipts of
// both.
func TestSnapshotOlderThanACheckpoint(t *testing.T) {
	for leaves, has := range map[int]string{1: "its log has 1 receipt, ", 2: "its log has 2 receipts, "} {
		var files []*writer
		for _, retired := range []int{leaves - 1, leaves} {
			w := newWriter(t, testKey(t))
			w.fix()
			for range 3 {
				w.add(5, 0.5)
			}
			for i := range retired {
				w.retire(fmt.Sprint(written, i))
			}
			w.save()
			files = append(files, w)
		}
		older, newer := files[0], files[1]
		_, err := audit.Snapshot(older.path, newer.proofs[leaves], newer.key.Public(), nil, nil)
		if want := has + fmt.Sprintf("and the checkpoint to compare with is one of %d: ", leaves+1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
