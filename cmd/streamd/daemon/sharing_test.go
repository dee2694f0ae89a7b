package daemon

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// replicas are daemons with one control topic, each of which has a client id.
type replicas struct {
	t           *testing.T
	name, topic string
	folder      string
	flags       map[string]string
	all         []*instance
}

func newReplicas(t *testing.T, flags map[string]string) *replicas {
	t.Helper()
	r := &replicas{t: t, name: topic(t, 1), folder: t.TempDir(), flags: maps.Clone(flags)}
	r.topic = controlTopic(t, r.name)
	r.flags["retire.topic"] = r.topic
	return r
}

// start starts replica i, or starts it again.
func (r *replicas) start(i int, more ...string) *instance {
	r.t.Helper()
	flags := maps.Clone(r.flags)
	flags["kafka.client_id"] = fmt.Sprint("replica-", i)
	for k := 0; k < len(more); k += 2 {
		if flags[more[k]] = more[k+1]; more[k+1] == "" {
			delete(flags, more[k])
		}
	}
	d := start(r.t, r.name, filepath.Join(r.folder, fmt.Sprint(i, ".db")), flags)
	if i < len(r.all) {
		r.all[i] = d
	} else {
		r.all = append(r.all, d)
	}
	return d
}

// same waits until all replicas serve planes in the basis, and checks that the answers are equal.
func (r *replicas) same(when, basis string) string {
	r.t.Helper()
	var first httpapi.ModelAnswer
	var tag string
	for i, d := range r.all {
		d.waitForEpoch(when+": the basis", func(a *httpapi.EpochAnswer) bool {
			return a.InUse != nil && (basis == "" || a.InUse.Basis == basis) && !a.Stale && a.Reducing == nil && a.Rebuild == nil
		})
		in := d.epoch().InUse.Basis
		d.wait(when+": planes", func(s *model.Served) bool { return s.Model != nil && s.BasisID() == in })
		d.settled()
		_, got, answer := d.etag("/v1/model", "")
		if i == 0 {
			first, tag = answer, got
			continue
		}
		if got != tag || answer.BasisID != first.BasisID || answer.Digest != first.Digest || !reflect.DeepEqual(answer.Planes, first.Planes) || !reflect.DeepEqual(answer.Basis, first.Basis) {
			r.t.Fatalf("%s: replica %d has the ETag %s, basis %s, state %s; replica 0 has %s, %s, %s", when, i, got, answer.BasisID, answer.Digest, tag, first.BasisID, first.Digest)
		}
	}
	return first.BasisID
}

// sharing are flags of replicas with a kernel. Replica 0 chooses.
func sharing() map[string]string {
	return map[string]string{
		"kernel.function": "gaussian(gamma=0.001)", "kernel.reduce": "random", "kernel.basis": "12", "kernel.rows": "300", "kernel.chooser": "replica-0",
		"model.nu": "auto", "sample.rows": "500",
	}
}

// The basis that one replica chooses is the next epoch of all: at first, after a retirement from
// its sources, on request to another replica, pruned, and in a replica that was away or is new.
func TestOneBasis(t *testing.T) {
	for _, standardise := range []string{"false", "true"} {
		t.Run("standardise "+standardise, func(t *testing.T) {
			flags := sharing()
			flags["model.standardise"] = standardise
			r := newReplicas(t, flags)
			produce(t, r.name, boardBlocks(t, 5, 20, 20)...)
			follower := r.start(0, "kernel.chooser", "replica-9") // nobody chooses
			follower.waitForOffsetsRead(20)
			follower.settled()
			if a := follower.epoch(); a.InUse != nil || a.Reducing != nil || follower.Daemon.published().Model == nil {
				t.Fatalf("before the first basis: %+v", a)
			}
			follower.stop()
			r.start(0)
			first := r.same("the first", "")
			r.start(1)
			if again := r.same("a new replica", first); again != first {
				t.Errorf("basis %s, and then %s", first, again)
			}
			source := fmt.Sprintf("%s/0/3", r.name)
			if done, err := r.all[1].Retire(t.Context(), retire.Selector{IDs: []string{source}}, httpapi.RetireOptions{}); err != nil || !done.InBasis || !strings.Contains(strings.Join(done.Remains, "; "), r.topic) {
				t.Fatalf("%+v, %v", done, err)
			}
			var second string
			for _, d := range r.all {
				d.waitForEpoch("the basis after the retirement", func(a *httpapi.EpochAnswer) bool { return a.InUse != nil && a.InUse.Basis != first && !a.Stale })
			}
			second = r.same("after the retirement", "")
			produce(t, r.name, boardBlocks(t, 6, 10, 20)...)
			for _, d := range r.all {
				d.waitForOffsetsRead(30)
				d.rowsAndFolds()
			}
			r.same("more rows", second)
			r.all[0].stop()
			r.all[1].untilShared()
			third := r.all[1].reduced().BasisID() // on the request of the follower
			if third == second {
				t.Error("the basis of other rows is the same")
			}
			r.start(0)
			r.same("a replica that was away", third)
			r.all[1].stop()
			r.start(1)
			r.same("a restart", third)
			r.all[1].untilShared()
			pruned := r.all[1].pruned("lda", 5).BasisID()
			r.same("pruned", pruned)
			r.start(2)
			r.same("one more", pruned)
			for _, d := range r.all {
				for _, p := range d.Status().Problems {
					if p.Kind != httpapi.ProblemQuality {
						t.Errorf("%+v", p)
					}
				}
				d.stop()
			}
		})
	}
}

// Without kernel.chooser each replica chooses, and all have the last basis of the topic.
func TestOneBasisOfManyChoosers(t *testing.T) {
	flags := sharing()
	delete(flags, "kernel.chooser")
	r := newReplicas(t, flags)
	r.start(0)
	r.start(1)
	produce(t, r.name, boardBlocks(t, 5, 20, 20)...)
	for _, d := range r.all {
		d.waitForOffsetsRead(20)
	}
	r.same("the first", "")
	r.all[0].untilShared()
	r.same("the next", r.all[0].reduced().BasisID())
	for _, d := range r.all {
		d.stop()
	}
}

// A replica knows the sources of a basis that another one has chosen, also those that it reads
// later. One that it retires alone makes the basis stale here, also after a restart, until it has
// another one chosen.
func TestSourcesOfAnotherReplica(t *testing.T) {
	r := newReplicas(t, sharing())
	produce(t, r.name, boardBlocks(t, 5, 20, 20)...)
	r.start(0)
	basis := r.same("the first", "")
	d := r.start(1)
	r.same("a new replica", basis)
	of := func(d *instance) (n int) {
		if err := d.Call(t.Context(), func() error {
			for id := range d.Live.IDs {
				if d.Live.InBasis(id) {
					n++
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if a, b := of(r.all[0]), of(d); a == 0 || a != b {
		t.Errorf("the chooser has %d sources, and the other replica %d", a, b)
	}
	last := retire.Selector{IDs: []string{fmt.Sprintf("%s/0/19", r.name)}}
	done, err := d.Retire(t.Context(), last, httpapi.RetireOptions{Here: true})
	if err != nil || !done.InBasis || !strings.Contains(strings.Join(done.Remains, "; "), "the points of a basis") {
		t.Fatalf("%+v, %v", done, err)
	}
	stale := func(a *httpapi.EpochAnswer) bool { return a.InUse != nil && a.InUse.Basis == basis && a.Stale }
	d.waitForEpoch("a stale basis", stale)
	d.stop()
	d = r.start(1)
	d.waitForEpoch("a stale basis after a restart", stale)
	if r.all[0].epoch().Stale {
		t.Error("the basis is stale where nothing was retired")
	}
	eventually(t, "a choice here", func() bool { return d.Reduce(t.Context()) == nil })
	next := d.settledBasis().BasisID()
	if next == basis {
		t.Error("the basis is the former one")
	}
	r.all[0].waitForEpoch("the next basis", func(a *httpapi.EpochAnswer) bool { return a.InUse != nil && a.InUse.Basis == next })
	for _, d := range r.all {
		d.stop()
	}
}

// A basis that a replica has no use for is refused, and it says why. What is not whole is no basis.
func TestBasisOfOthers(t *testing.T) {
	r := newReplicas(t, sharing())
	produce(t, r.name, boardBlocks(t, 5, 20, 20)...)
	r.start(0)
	basis := r.same("the first", "")
	r.start(1, "kernel.function", "polynomial")
	refused := func(i int, want string) {
		t.Helper()
		r.all[i].waitForProblem(httpapi.ProblemBasis, want)
	}
	refused(1, "it has the kernel gaussian")
	if a := r.all[1].epoch(); a.InUse != nil {
		t.Errorf("%+v", a)
	}
	r.all[1].stop()
	r.start(1, "kernel.basis", "5")
	refused(1, "12 coordinates, and kernel.basis is 5")
	r.all[1].stop()
	r.start(1, "format.features", "x2,x1")
	refused(1, "other features")
	r.all[1].stop()

	// A part is damaged. The replicas keep what they have, and the next choice mends it.
	r.start(1)
	r.same("the same settings", basis)
	damaged := control.RecordsOfBasis("default", []byte("something else"), 0)
	damaged[0].Value[20]++
	write := func(records []control.Record) {
		t.Helper()
		if err := r.all[0].withdrawing.Write(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	}
	write(damaged)
	produce(t, r.name, boardBlocks(t, 7, 5, 20)...)
	for _, d := range r.all {
		d.waitForOffsetsRead(25)
		d.rowsAndFolds()
	}
	r.same("a damaged part", basis)
	r.all[0].untilShared()
	next := r.all[0].reduced().BasisID()
	r.same("another choice", next)
	if next == basis {
		t.Error("the basis is the former one")
	}

	// Nothing but the topic says that there is none.
	write(control.RecordsOfBasis("default", nil, 1))
	for _, d := range r.all {
		d.waitForEpoch("no basis", func(a *httpapi.EpochAnswer) bool { return a.InUse == nil || a.InUse.Basis != next })
		d.stop()
	}
}

// When the kernel goes, or no basis can be chosen, the topic has none any more.
func TestNoBasisAnyMore(t *testing.T) {
	r := newReplicas(t, sharing())
	produce(t, r.name, boardBlocks(t, 5, 20, 20)...)
	r.start(0)
	r.start(1)
	r.same("the first", "")
	keys := func() int {
		l, err := control.List(t.Context(), r.all[0].cluster(), r.topic, 1<<20, r.all[0].Log)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Bases) == 0 {
			return 0
		}
		return l.Bases[0].Keys
	}
	if keys() == 0 {
		t.Fatal("the topic has no basis")
	}
	eventually(t, "an end of the log", func() bool { return r.all[0].Status().NotReady == "" })
	if _, err := r.all[1].Retire(t.Context(), retire.Selector{Positions: []retire.Range{{Topic: r.name, Last: 99}}}, httpapi.RetireOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "tombstones", func() bool { return keys() == 0 })
	for _, d := range r.all {
		d.waitForEpoch("the features", func(a *httpapi.EpochAnswer) bool { return a.InUse == nil })
	}
	produce(t, r.name, boardBlocks(t, 8, 20, 20)...)
	r.same("again", "")
	r.all[1].stop()
	r.all[0].stop()
	off := []string{"kernel.function", "", "kernel.reduce", "", "kernel.basis", "", "kernel.rows", "", "kernel.chooser", ""}
	r.start(0, off...)
	eventually(t, "tombstones of a daemon without a kernel", func() bool { return keys() == 0 })
	r.all[0].stop()
}

// cluster is that of a daemon.
func (i *instance) cluster() kafka.Cluster {
	i.t.Helper()
	c, err := settings.Cluster(i.Config.Kafka, i.Log)
	if err != nil {
		i.t.Fatal(err)
	}
	return c
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("waiting for " + what)
		}
	}
}

// waitForProblem waits for a problem with a text.
func (i *instance) waitForProblem(kind httpapi.ProblemKind, text string) {
	i.t.Helper()
	eventually(i.t, text, func() bool {
		return slices.ContainsFunc(i.Status().Problems, func(p httpapi.Problem) bool { return p.Kind == kind && strings.Contains(p.Text, text) })
	})
}

// untilShared waits until the control topic has been read up to its end: requests for a basis are
// refused before.
func (i *instance) untilShared() {
	i.t.Helper()
	eventually(i.t, "the end of the control topic", func() (known bool) {
		if err := i.Call(i.t.Context(), func() error { known = i.Bases.IsKnown(); return nil }); err != nil {
			i.t.Fatal(err)
		}
		return known
	})
}
