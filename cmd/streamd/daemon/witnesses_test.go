package daemon

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

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

// cosigning are two witnesses, and a daemon that they cosign the log of.
type cosigning struct {
	*instance
	a, b   *witnesstest.Witness
	topic  string
	file   string
	flags  map[string]string
	public string
	keys   []*receipt.Witness
	ids    []string // of six blocks
}

// startCosigned starts the daemon while the witnesses away do not answer.
func startCosigned(t *testing.T, away ...string) *cosigning {
	topic, folder := topic(t, 1), t.TempDir()
	key, _, _, err := receipt.OpenKey(filepath.Join(folder, "receipts.key"), topic)
	if err != nil {
		t.Fatal(err)
	}
	c := &cosigning{
		a: &witnesstest.Witness{Name: "a.example/w", Log: key.Public()}, b: &witnesstest.Witness{Name: "b.example/w", Log: key.Public()},
		public: key.Public(), topic: topic, file: filepath.Join(folder, "streamd.db"),
	}
	var list []string
	for _, w := range []*witnesstest.Witness{c.a, c.b} {
		if slices.Contains(away, w.Name) {
			w.Fail(http.StatusServiceUnavailable)
		}
		s := httptest.NewServer(w)
		t.Cleanup(s.Close)
		k, err := receipt.ParseWitness(w.Public())
		if err != nil {
			t.Fatal(err)
		}
		list, c.keys = append(list, s.URL+" "+w.Public()), append(c.keys, k)
	}
	c.flags = withReceipts(folder, map[string]string{"receipts.witnesses": strings.Join(list, ",")})
	produce(t, topic, customers(t)[:6]...)
	c.instance = start(t, topic, c.file, c.flags)
	c.await("six blocks", func() bool { c.ids = slices.Collect(c.Live.IDs); return len(c.ids) == 6 })
	slices.Sort(c.ids)
	return c
}

// cosigned waits until the proof of a leaf has the cosignatures of these witnesses.
func (c *cosigning) cosigned(leaf int64, wantSize int64, want ...string) {
	c.t.Helper()
	c.until(fmt.Sprintf("leaf %d cosigned by %s in a log of %d", leaf, want, wantSize), func() bool {
		names, size := c.cosigners(leaf, c.public, c.keys)
		return slices.Equal(names, want) && size == wantSize
	})
}

// Witnesses cosign the log as it grows. One that is away holds up nothing, is reported, and
// cosigns later; older proofs keep its cosignature meanwhile. After a restart all goes on.
func TestWitnesses(t *testing.T) {
	c := startCosigned(t, "b.example/w")
	c.retire(c.ids[0])
	c.cosigned(1, 2, "a.example/w")
	c.until("a report of the witness that is away", func() bool { return strings.Contains(c.problems(), "the witness b.example/w does not cosign") })
	for _, want := range []string{
		"streamd_receipts 2\n", `streamd_witness_cosigned_receipts{witness="a.example/w"} 2`, `streamd_witness_cosigned_receipts{witness="b.example/w"} 0`,
		`streamd_witness_failures_total{witness="a.example/w"} 0`,
	} {
		c.until("the metric "+want, func() bool {
			_, metrics := c.ask(http.MethodGet, "/metrics")
			return strings.Contains(metrics, want)
		})
	}
	c.b.Fail(0)
	c.cosigned(1, 2, "a.example/w", "b.example/w")
	c.until("no report of a witness", func() bool { return !strings.Contains(c.problems(), "witness") })
	c.b.Fail(http.StatusServiceUnavailable)
	c.retire(c.ids[1])
	c.cosigned(2, 3, "a.example/w")
	c.cosigned(1, 2, "a.example/w", "b.example/w") // the smaller log has more cosignatures
	if _, text := c.ask(http.MethodGet, "/v1/receipts/checkpoint"); strings.Count(text, "\n— ") != 2 {
		t.Errorf("the checkpoint is %s", text)
	}
	c.stop()
	if report, err := snapshot.Verify(t.Context(), c.file, nil); err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}

	c.b.Fail(0)
	asked := c.a.Asked()
	c.instance = start(t, c.topic, c.file, c.flags)
	c.cosigned(1, 3, "a.example/w", "b.example/w")
	c.cosigned(2, 3, "a.example/w", "b.example/w")
	if n := c.a.Asked() - asked; n != 1 {
		t.Errorf("the start asks a witness %d times that has cosigned the log, want once", n)
	}
	_, proof := c.ask(http.MethodGet, "/v1/receipts/proof/2")
	path := filepath.Join(filepath.Dir(c.file), "2.tlog-proof")
	if err := os.WriteFile(path, []byte(proof), 0o644); err != nil {
		t.Fatal(err)
	}
	independent(t, true, path, receipt.PublicFile(c.flags["receipts.key_file"]), "--witness", c.a.Public(), "--witness", c.b.Public())
	c.stop()
}

// The proof of an older leaf keeps the cosignature of a witness that is away, though another one
// has cosigned a larger log, also after a restart. The head has the other's.
func TestOlderProofKeepsACosignature(t *testing.T) {
	c := startCosigned(t, "a.example/w")
	c.retire(c.ids[0])
	c.cosigned(1, 2, "b.example/w")
	c.b.Fail(http.StatusServiceUnavailable)
	c.retire(c.ids[1])
	c.a.Fail(0)
	for range 2 {
		c.cosigned(2, 3, "a.example/w")
		c.cosigned(1, 2, "b.example/w")
		c.stop()
		c.instance = start(t, c.topic, c.file, c.flags)
	}
	c.b.Fail(0)
	c.cosigned(1, 3, "a.example/w", "b.example/w")
	c.stop()
}

// A daemon whose whole folder was put back from a backup does not fork the log that a witness has
// cosigned: it does not start. One whose witnesses are away does.
func TestWitnessKnowsALaterLog(t *testing.T) {
	c := startCosigned(t)
	c.retire(c.ids[0])
	c.cosigned(1, 2, "a.example/w", "b.example/w")
	c.stop()
	backup := map[string][]byte{}
	for _, path := range []string{c.file, snapshot.CheckpointPath(c.file)} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		backup[path] = b
	}
	c.instance = start(t, c.topic, c.file, c.flags)
	c.await("five blocks", func() bool { return c.Live.Blocks() == 5 })
	c.retire(c.ids[1])
	c.cosigned(2, 3, "a.example/w", "b.example/w")
	c.stop()
	for path, b := range backup {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func() error {
		flags := maps.Clone(c.flags)
		flags["kafka.brokers"], flags["kafka.topic"], flags["snapshot.file"] = cluster(t).Brokers[0], c.topic, c.file
		d, err := New(Options{Config: load(t, flags), Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		return d.Run(ctx)
	}
	c.a.Fail(http.StatusServiceUnavailable)
	const want = "the witness b.example/w has cosigned a log of 3 receipts, and the snapshot has 2"
	if err := run(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the start: %v, want %s", err, want)
	}
	if after, err := os.ReadFile(snapshot.CheckpointPath(c.file)); err != nil || !bytes.Equal(after, backup[snapshot.CheckpointPath(c.file)]) {
		t.Errorf("the log has gone on: %s, %v", after, err)
	}
	c.b.Fail(http.StatusServiceUnavailable)
	if err := run(); err != nil {
		t.Errorf("without an answer of a witness: %v", err)
	}
	c.instance = start(t, c.topic, c.file, c.flags) // it forks the log
	c.await("five blocks", func() bool { return c.Live.Blocks() == 5 })
	c.retire(c.ids[2])
	c.stop()
	for _, size := range []int{2, 3} {
		c.b.Fail(0)
		const other = "the witness b.example/w has cosigned other receipts than the first 3 of the snapshot"
		if err := run(); err == nil || !strings.Contains(err.Error(), other) {
			t.Errorf("the start with %d leaves: %v, want %s", size, err, other)
		}
		c.b.Fail(http.StatusServiceUnavailable)
		c.instance = start(t, c.topic, c.file, c.flags)
		c.await("blocks", func() bool { return c.Live.Blocks() == 6-size })
		c.retire(c.ids[size+1])
		c.stop()
	}
	for path := range backup { // a new snapshot under the key
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	c.b.Fail(0)
	const new = "the witness b.example/w has cosigned a log of 3 receipts, and the snapshot has 0"
	if err := run(); err == nil || !strings.Contains(err.Error(), new) {
		t.Errorf("the start: %v, want %s", err, new)
	}
}
