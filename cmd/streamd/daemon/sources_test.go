package daemon

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
	"streamd/kernels"
	"streamd/retire"
	"streamd/snapshot"
)

// keyed is a message with a key, rows of a checkerboard, and a row at the given point.
func keyed(t testing.TB, key string, seed uint64, rows int, at float64) message {
	t.Helper()
	value, err := wire.Encode(nil, wire.Arrow, checkered(seed, rows, at))
	if err != nil {
		t.Fatal(err)
	}
	return message{key: []byte(key), value: value, contentType: wire.Arrow.ContentType()}
}

func checkered(seed uint64, rows int, at float64) *incremental.Block {
	r := rand.New(rand.NewPCG(seed, 3))
	b := &incremental.Block{Classes: []string{"black", "white"}}
	var x, y []float64
	for range rows {
		i, k := r.Float64(), r.Float64()
		x, y = append(x, at+200*i), append(y, at+200*k)
		b.Codes = append(b.Codes, board(200*i, 200*k))
	}
	b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	return b
}

// customers are ten keys of nine rows each. One is planted: its rows lie far from all
// others.
func customers(t testing.TB) (messages []message) {
	for k := range 10 {
		messages = append(messages, keyed(t, fmt.Sprintf("k%d", k), uint64(k), 9, 0))
	}
	return append(messages, keyed(t, "planted", 99, 9, 5000))
}

// planted returns the points of a basis that contain rows of the planted customer.
func planted(basis *kernels.Map) (out [][]float64) {
	for i := range basis.Points() {
		if z := basis.Point(i); slices.ContainsFunc(z, func(x float64) bool { return x > 300 }) {
			out = append(out, z)
		}
	}
	return out
}

// forgetting returns flags of a daemon whose bases contain every row, where they consist of
// rows.
func forgetting(method string) map[string]string {
	return map[string]string{
		"kernel.function": "gaussian(gamma=0.0005)", "kernel.reduce": method, "kernel.basis": "99", "kernel.rows": "99",
		"blocks.unit": "key", "model.nu": "100",
	}
}

// settledBasis waits until a basis that is not stale is in use, and planes are served in
// its coordinates.
func (i *instance) settledBasis() *model.Served {
	i.t.Helper()
	a := i.waitForEpoch("a basis", func(a *httpapi.EpochAnswer) bool {
		return a.InUse != nil && !a.Stale && a.Reducing == nil && a.Rebuild == nil
	})
	return i.wait("planes in its coordinates", func(s *model.Served) bool {
		return s.Model != nil && s.BasisID() == a.InUse.Basis && !s.Basis.Stale
	})
}

// basesOf returns the bases in a snapshot file.
func basesOf(t testing.TB, file string) (all []*kernels.Map) {
	t.Helper()
	store, contents, err := snapshot.OpenReadOnly(file)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, s := range contents.Spaces {
		if s.Number == snapshot.Features {
			continue
		}
		m, err := kernels.DecodeMap(s.Basis)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// A retired row leaves the points of the basis, whichever reducer chose them and however
// the row was retired. Until another basis is in use, the basis stays as it was, with points of
// the row, and every answer says that it is stale. Then basis and planes are those of a daemon
// that has never seen the row.
func TestForgottenRowsLeaveTheBasis(t *testing.T) {
	for _, method := range []string{"random", "stratified", "kmeans", "kmedian", "cs", "eigen"} {
		for how, gone := range map[string]func(*instance, string){
			"DELETE": func(i *instance, _ string) {
				if receipt := i.retire("key:planted"); !receipt.InBasis {
					i.t.Errorf("the receipt %+v does not say that the block is in the basis", receipt)
				}
				if s, _ := i.Served(); !s.Basis.Stale {
					i.t.Error("after the receipt the model does not say that its basis is stale")
				}
			},
			"tombstone":   func(_ *instance, topic string) { produce(t, topic, message{key: []byte("planted")}) },
			"replacement": func(_ *instance, topic string) { produce(t, topic, keyed(t, "planted", 7, 9, 0)) },
		} {
			t.Run(method+" "+how, func(t *testing.T) {
				t.Parallel()
				flags := forgetting(method)
				name := topic(t, 1)
				file := filepath.Join(t.TempDir(), "streamd.db")
				produce(t, name, customers(t)...)
				d := start(t, name, file, flags)
				before := d.settledBasis()
				if len(planted(before.Basis.Map)) == 0 {
					t.Fatal("no point is made of the planted rows")
				}
				release := d.holdReading()
				gone(d, name)
				d.waitForEpoch("a rebuild", func(a *httpapi.EpochAnswer) bool { return a.Rebuild != nil && a.Stale && !a.Rebuild.Stale })
				stale := d.wait("planes in a basis that is stale", func(s *model.Served) bool { return s.Basis.Stale && s.Digest != before.Digest })
				if stale.BasisID() != before.BasisID() || len(planted(stale.Basis.Map)) != len(planted(before.Basis.Map)) {
					t.Error("the basis is another one before the next reduction")
				}
				_, answer := d.ask("GET", "/v1/model")
				for _, says := range []string{`"basis_stale":true`, fmt.Sprintf(`"basis_id":%q`, before.BasisID())} {
					if !strings.Contains(answer, says) {
						t.Errorf("before the next reduction the answer lacks %s: %.300s", says, answer)
					}
				}
				release()
				got := d.settledBasis()
				if p := planted(got.Basis.Map); len(p) > 0 {
					t.Errorf("points %v", p)
				}
				d.stop()
				for _, m := range basesOf(t, file) {
					if p := planted(m); len(p) > 0 {
						t.Errorf("points %v in the file", p)
					}
				}
				other := topic(t, 1)
				produce(t, other, customers(t)[:10]...)
				live := int64(10)
				if how == "replacement" {
					produce(t, other, keyed(t, "planted", 7, 9, 0))
					live++
				}
				flags["kernel.rows"] = "0"
				u := start(t, other, filepath.Join(t.TempDir(), "streamd.db"), flags)
				u.waitForOffsets(live)
				if want := u.reduced(); comparable(got) != comparable(want) {
					t.Errorf("served\n%.400s\nwant\n%.400s", comparable(got), comparable(want))
				}
				u.stop()
			})
		}
	}
}

// A block may be retired while a basis with its rows is being built. Another reduction
// begins at once, also after a restart, and its basis does not contain the block.
func TestForgottenWhileRebuilding(t *testing.T) {
	flags := forgetting("random")
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	messages := append(customers(t), keyed(t, "second", 98, 9, 9000))
	produce(t, name, messages...)
	d := start(t, name, file, flags)
	d.settledBasis()
	d.holdReading()
	d.retire("key:planted")
	d.waitForEpoch("a rebuild", func(a *httpapi.EpochAnswer) bool { return a.Rebuild != nil })
	d.retire("key:second")
	a := d.epoch()
	if !a.Stale || a.Rebuild == nil || !a.Rebuild.Stale {
		t.Errorf("both bases should be stale: %+v, %+v", a, a.Rebuild)
	}
	d.stop() // in the middle of the rebuild
	d = start(t, name, file, flags)
	if p := planted(d.settledBasis().Basis.Map); len(p) > 0 {
		t.Errorf("points %v", p)
	}
	d.stop()
	// A block that is not among the basis' sources does not change it.
	produce(t, name, keyed(t, "third", 97, 9, 0))
	d = start(t, name, file, flags)
	d.waitForOffsets(int64(len(messages)) + 1)
	number := d.epoch().Epoch
	if receipt := d.retire("key:third"); receipt.InBasis {
		t.Error("a block that came after the basis is in it")
	}
	if a := d.epoch(); a.Stale || a.Reducing != nil || a.Rebuild != nil || a.Epoch != number {
		t.Errorf("%+v", a)
	}
	d.stop()
}

// With kernel.on_retire: keep the basis stays in use and is reported as stale, until
// another one is requested.
func TestKeptBasis(t *testing.T) {
	flags := forgetting("kmeans")
	flags["kernel.on_retire"] = "keep"
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	produce(t, name, customers(t)...)
	d := start(t, name, file, flags)
	first := d.settledBasis()
	d.retire("key:planted")
	d.stop()
	d = start(t, name, file, flags)
	s := d.wait("planes", func(s *model.Served) bool { return s.Model != nil })
	if a := d.epoch(); !a.Stale || !s.Basis.Stale || s.BasisID() != first.BasisID() || a.Reducing != nil || a.Rebuild != nil {
		t.Errorf("%+v", a)
	}
	if err := d.Reduce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := planted(d.settledBasis().Basis.Map); len(p) > 0 {
		t.Errorf("points %v", p)
	}
	d.stop()
}

// Where memory does not suffice for two bases, a stale basis is dropped before the next is
// built.
func TestStaleBasisMakesRoom(t *testing.T) {
	name := topic(t, 1)
	produce(t, name, customers(t)...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), forgetting("random"))
	first := d.settledBasis()
	d.Call(t.Context(), func() error {
		l, points := d.Live, first.Basis.Map.Points()
		shapeOf := func(p *live.Space) memory.Shape {
			sum := p.Total()
			return memory.Shape{Features: len(p.Names()), Classes: sum.Classes(), Window: sum.Window()}
		}
		next := memory.Shape{Features: points, Classes: l.Features().Total().Classes()}
		one := d.Memory.Price([]memory.Shape{shapeOf(l.Features()), next}, l.Blocks())
		two := d.Memory.Price([]memory.Shape{shapeOf(l.Features()), next, shapeOf(l.InUse())}, l.Blocks())
		d.Memory.Limit -= int64((d.Memory.Room() - (one+two)/2) * 8 / 7) // an eighth is spare
		if l.FitsBasis(points) == nil {
			t.Error("there is room for two")
		}
		return nil
	})
	d.retire("key:planted")
	if p := planted(d.settledBasis().Basis.Map); len(p) > 0 {
		t.Errorf("points %v", p)
	}
	d.stop()
}

// A stale basis that cannot be dropped is a problem in the status.
func TestStaleBasisThatStays(t *testing.T) {
	flags := forgetting("random")
	name := topic(t, 1)
	produce(t, name, customers(t)...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	d.settledBasis()
	if p := d.Status().Problems; len(p) > 0 {
		t.Errorf("problems %q", p)
	}
	d.Call(t.Context(), func() error {
		d.Bases.RetryAt(time.Now().Add(time.Hour))
		d.filling.Unread = map[string]retire.Entry{"key:k1": {ID: "key:k1"}}
		return d.Live.Retire("key:planted")
	})
	if p := d.Status().Problems; len(p) != 1 || !strings.Contains(p[0].Text, "lacks rows of 1 blocks") {
		t.Errorf("problems %q", p)
	}
	d.stop()
}

// When retirements leave rows that no basis can be chosen from, the basis is dropped. The
// daemon serves the model of one that has only seen these rows, also after a restart. With
// more rows a basis is chosen again.
func TestBasisGoesWithItsRows(t *testing.T) {
	one := func(key, class string, rows int) message {
		b := &incremental.Block{Classes: []string{class}, Codes: make([]int32, rows)}
		var x, y []float64
		for i := range rows {
			x, y = append(x, float64(i)), append(y, float64(i*i+len(class)))
		}
		b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
		value, err := wire.Encode(nil, wire.Arrow, b)
		if err != nil {
			t.Fatal(err)
		}
		return message{key: []byte(key), value: value, contentType: wire.Arrow.ContentType()}
	}
	for name, left := range map[string][]message{
		"one class": {one("a", "x", 20)},
		"few rows":  {one("a", "x", 2), one("b", "yy", 2)},
		"none":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			flags := forgetting("kmeans")
			flags["kernel.rows"], flags["model.refine"], flags["format.features"] = "20", "full", "x1,x2"
			of := func(s *model.Served) string {
				if s.Model == nil {
					return fmt.Sprint(s.Problem, s.Rows, s.Digest, s.Absent)
				}
				return content(t, s)
			}
			other := topic(t, 1)
			produce(t, other, left...)
			u := start(t, other, filepath.Join(t.TempDir(), "streamd.db"), flags)
			fresh := u.wait("the rows that are left", func(s *model.Served) bool { return s.Blocks == len(left) && s.Problem != "starting" })
			if len(left) > 0 {
				fresh = u.settled()
			}
			want := of(fresh)
			u.stop()

			name := topic(t, 1)
			file := filepath.Join(t.TempDir(), "streamd.db")
			produce(t, name, left...)
			produce(t, name, one("many", "x", 20), one("others", "yy", 20))
			d := start(t, name, file, flags)
			d.settledBasis()
			d.retire("key:many")
			produce(t, name, message{key: []byte("others")})
			same := func() {
				t.Helper()
				d.wait("what a daemon serves that has only seen what is left: "+want, func(s *model.Served) bool {
					return s.Basis == nil && s.Blocks == len(left) && of(s) == want
				})
				if a := d.epoch(); a.Epoch != 0 || a.InUse != nil || a.Reducing != nil || a.Rebuild != nil {
					t.Errorf("%+v", a)
				}
			}
			same()
			d.stop()
			if all := basesOf(t, file); len(all) > 0 {
				t.Errorf("%d bases in the file", len(all))
			}
			d = start(t, name, file, flags)
			same()
			produce(t, name, one("more", "x", 20), one("yet more", "yy", 20))
			d.settledBasis()
			d.stop()
		})
	}
}

// Blocks come, are retired and are replaced, and reductions are requested, through
// restarts. As soon as nothing is under way, the points of the basis are live rows. With
// a new basis the daemon serves the model of one that has only seen these rows.
func TestPointsAreLiveRows(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(61, seed))
			flags := forgetting([]string{"random", "stratified"}[seed%2])
			flags["kernel.rows"] = "20"
			name := topic(t, 1)
			file := filepath.Join(t.TempDir(), "streamd.db")
			type value struct {
				seed uint64
				rows int
			}
			live := map[string]value{}
			records := int64(0)
			send := func(m message) {
				produce(t, name, m)
				records++
			}
			add := func(key string) {
				v := value{r.Uint64(), 2 + r.IntN(8)}
				live[key] = v
				send(keyed(t, key, v.seed, v.rows, 0))
			}
			for k := range 6 {
				add(fmt.Sprint(k))
			}
			d := start(t, name, file, flags)
			settle := func() {
				t.Helper()
				d.waitForOffsets(records)
				a := d.waitForEpoch("the end of what is under way", func(a *httpapi.EpochAnswer) bool { return a.Reducing == nil && a.Rebuild == nil && !a.Stale })
				if a.Basis == nil {
					return
				}
				rows := map[string]bool{}
				for _, v := range live {
					b := checkered(v.seed, v.rows, 0)
					for i := range b.Rows() {
						rows[fmt.Sprint([]float64{b.Columns[0].At(i), b.Columns[1].At(i)})] = true
					}
				}
				for _, z := range a.Basis.Points {
					if !rows[fmt.Sprint(z)] {
						t.Errorf("point %v is no live row", z)
					}
				}
			}
			for range 12 {
				key := fmt.Sprint(r.IntN(8))
				_, known := live[key]
				switch k := r.IntN(6); {
				case k < 2:
					add(key)
				case k < 4 && known:
					delete(live, key)
					if k == 2 {
						send(message{key: []byte(key)})
					} else {
						d.waitForOffsets(records)
						d.retire("key:" + key)
					}
				case k == 4:
					d.stop()
					d = start(t, name, file, flags)
				default:
					settle()
				}
			}
			settle()
			if len(live) == 0 {
				add("0")
			}
			got := d.reduced()
			settle()
			d.stop()

			other := topic(t, 1)
			for key, v := range live {
				produce(t, other, keyed(t, key, v.seed, v.rows, 0))
			}
			flags["kernel.rows"] = "0"
			u := start(t, other, filepath.Join(t.TempDir(), "streamd.db"), flags)
			u.waitForOffsets(int64(len(live)))
			if want := u.reduced(); comparable(got) != comparable(want) {
				t.Errorf("served\n%.400s\nwant\n%.400s", comparable(got), comparable(want))
			}
			u.stop()
		})
	}
}
