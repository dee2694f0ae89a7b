package daemon

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/daemon/witness/witnesstest"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// cosigners checks the proof of a leaf and lists the witnesses that have cosigned its checkpoint.
func (i *instance) cosigners(leaf int64, public string, keys []*receipt.Witness) (names []string, size int64) {
	i.t.Helper()
	status, proof := i.ask(http.MethodGet, fmt.Sprintf("/v1/receipts/proof/%d", leaf))
	r, err := receipt.Check([]byte(proof), public)
	if status != http.StatusOK || err != nil {
		i.t.Fatalf("the proof of leaf %d: %d, %v", leaf, status, err)
	}
	found, err := receipt.Cosignatures(r.Signed, keys)
	if err != nil {
		i.t.Fatal(err)
	}
	for _, c := range found {
		names = append(names, c.Witness.Name())
	}
	return names, r.Checkpoint.Size
}

// Witnesses cosign the log as it grows. One that is away holds up nothing, is reported, and
// cosigns later; older proofs keep its cosignature meanwhile. After a restart all goes on.
func TestWitnesses(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	key, _, _, err := receipt.OpenKey(filepath.Join(folder, "receipts.key"), topic)
	if err != nil {
		t.Fatal(err)
	}
	a := &witnesstest.Witness{Name: "a.example/w", Log: key.Public()}
	b := &witnesstest.Witness{Name: "b.example/w", Log: key.Public()}
	var list []string
	var keys []*receipt.Witness
	for _, w := range []*witnesstest.Witness{a, b} {
		s := httptest.NewServer(w)
		defer s.Close()
		k, err := receipt.ParseWitness(w.Public())
		if err != nil {
			t.Fatal(err)
		}
		list, keys = append(list, s.URL+" "+w.Public()), append(keys, k)
	}
	file, flags := filepath.Join(folder, "streamd.db"), withReceipts(folder, map[string]string{"receipts.witnesses": strings.Join(list, ",")})
	produce(t, topic, customers(t)[:6]...)
	b.Fail(http.StatusServiceUnavailable)
	d := start(t, topic, file, flags)
	var ids []string
	d.await("six blocks", func() bool { ids = slices.Collect(d.live.IDs); return len(ids) == 6 })
	slices.Sort(ids)
	cosigned := func(d *instance, leaf int64, want []string, wantSize int64) {
		t.Helper()
		var names []string
		var size int64
		d.until(fmt.Sprintf("leaf %d cosigned by %s in a log of %d", leaf, want, wantSize), func() bool {
			names, size = d.cosigners(leaf, key.Public(), keys)
			return slices.Equal(names, want) && size == wantSize
		})
	}
	both := []string{a.Name, b.Name}

	d.retire(ids[0])
	cosigned(d, 0, both[:1], 1)
	d.until("a report of the witness that is away", func() bool { return strings.Contains(d.problems(), "the witness b.example/w has not cosigned") })
	for _, want := range []string{
		"streamd_receipts 1\n", `streamd_witness_cosigned_receipts{witness="a.example/w"} 1`, `streamd_witness_cosigned_receipts{witness="b.example/w"} 0`,
		`streamd_witness_failures_total{witness="a.example/w"} 0`,
	} {
		d.until("the metric "+want, func() bool {
			_, metrics := d.ask(http.MethodGet, "/metrics")
			return strings.Contains(metrics, want)
		})
	}
	b.Fail(0)
	cosigned(d, 0, both, 1)
	d.until("no report of a witness", func() bool { return !strings.Contains(d.problems(), "witness") })
	b.Fail(http.StatusServiceUnavailable)
	d.retire(ids[1])
	cosigned(d, 1, both[:1], 2)
	cosigned(d, 0, both, 1) // the smaller log has more cosignatures
	if _, text := d.ask(http.MethodGet, "/v1/receipts/checkpoint"); strings.Count(text, "\n— ") != 2 {
		t.Errorf("the checkpoint is %s", text)
	}
	d.stop()
	if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}

	b.Fail(0)
	asked := a.Asked()
	d = start(t, topic, file, flags)
	cosigned(d, 0, both, 2)
	cosigned(d, 1, both, 2)
	if n := a.Asked() - asked; n > 0 {
		t.Errorf("the start asks a witness %d times that has cosigned the log", n)
	}
	_, proof := d.ask(http.MethodGet, "/v1/receipts/proof/1")
	path := filepath.Join(folder, "1.tlog-proof")
	if err := os.WriteFile(path, []byte(proof), 0o644); err != nil {
		t.Fatal(err)
	}
	independent(t, true, path, receipt.PublicFile(flags["receipts.key_file"]))
	d.stop()
}
