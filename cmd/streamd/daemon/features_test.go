package daemon

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/ingest/wire"
)

// The sign of a zero has no effect. A producer that writes −0 and one that writes 0 get the
// same model, folds, sample and curves.
func TestSignsOfZero(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 71))
	var csv, libsvm []message
	for range 12 {
		var dense, sparse strings.Builder
		for range 30 {
			class := r.IntN(2)
			x := class - r.IntN(2)
			y := float64(class) + r.NormFloat64()
			fmt.Fprintf(&sparse, "%d", class)
			if x == 0 {
				fmt.Fprintf(&dense, "%d,-0,%v\n", class, y)
			} else {
				fmt.Fprintf(&dense, "%d,%d,%v\n", class, x, y)
				fmt.Fprintf(&sparse, " 1:%d", x)
			}
			fmt.Fprintf(&sparse, " 2:%v\n", y)
		}
		csv = append(csv, message{value: []byte(dense.String()), contentType: wire.CSV.ContentType()})
		libsvm = append(libsvm, message{value: []byte(sparse.String()), contentType: wire.LIBSVM.ContentType()})
	}
	var contents []string
	for _, messages := range [][]message{csv, libsvm} {
		name := topic(t, 1)
		produce(t, name, messages...)
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"model.nu": "auto", "model.refine": "full", "sample.rows": "200"})
		d.waitForOffsetsRead(int64(len(messages)))
		served := d.settled()
		contents = append(contents, served.Digest+"\n"+content(t, served))
		d.stop()
	}
	if contents[0] != contents[1] {
		t.Errorf("with signs of zeros\n%s\nwithout\n%s", contents[0], contents[1])
	}
}

// namedRows makes messages of rows of four named features, in random order.
func namedRows(r *rand.Rand, blocks int) (messages []message) {
	names := []string{"x10", "b", "x2", "a"}
	for range blocks {
		var lines strings.Builder
		for range 40 {
			class := r.IntN(2)
			fields := []string{fmt.Sprintf(`"label":%d`, class)}
			for _, name := range names {
				fields = append(fields, fmt.Sprintf(`%q:%v`, name, float32(r.NormFloat64()+float64(class))))
			}
			r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
			fmt.Fprintf(&lines, "{%s}\n", strings.Join(fields, ","))
		}
		messages = append(messages, message{value: []byte(lines.String())})
	}
	return messages
}

// The features are ordered by name, whatever order the first message has. A daemon with a
// snapshot of another order reaches the same state, planes, sample and basis as a daemon
// that starts without one.
func TestOrderOfFeatures(t *testing.T) {
	const blocks = 25
	for name, flags := range map[string]map[string]string{
		"linear": {"model.nu": "auto", "sample.rows": "300"},
		"kernel": {"model.nu": "auto", "sample.rows": "300", "kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "kernel.rows": "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages := namedRows(rand.New(rand.NewPCG(72, 72)), blocks)
			all := func(d *instance) string {
				d.waitForOffsets(blocks)
				d.rowsAndFolds()
				s := d.settledAnywhere(flags)
				if !slices.Equal(d.features(), []string{"a", "b", "x2", "x10"}) {
					t.Errorf("features %q", d.features())
				}
				_, digests := d.rowsAndFolds()
				return fmt.Sprint(live.DigestOf(d.Live.Features().Total()), digests, comparable(s))
			}
			topicName := topic(t, 1)
			produce(t, topicName, messages...)
			d := start(t, topicName, filepath.Join(t.TempDir(), "streamd.db"), flags)
			want := all(d)
			d.stop()

			other, file := copied(flags), filepath.Join(t.TempDir(), "streamd.db")
			other["format.features"] = "x10,a,b,x2"
			d = start(t, topicName, file, other)
			d.waitForOffsets(blocks)
			d.settledAnywhere(flags)
			d.stop()
			for range 2 {
				d = start(t, topicName, file, flags)
				if got := all(d); got != want {
					t.Errorf("after another order\n%s\nwant\n%s", got, want)
				}
				d.stop()
			}
			other["format.features"] = "x2,a,b,x10"
			d = start(t, topicName, file, other)
			if d.waitForOffsets(blocks); !slices.Equal(d.features(), []string{"x2", "a", "b", "x10"}) {
				t.Errorf("features %q", d.features())
			}
			d.stop()
		})
	}
}

// settledAnywhere is settled, or settledBasis where flags ask for a kernel.
func (i *instance) settledAnywhere(flags map[string]string) *model.Served {
	i.t.Helper()
	if flags["kernel.function"] == "" {
		return i.settled()
	}
	return i.inEpoch(i.reduced(), flags)
}

func (i *instance) features() []string {
	i.t.Helper()
	out, err := loop.Ask(i.t.Context(), i.Loop, func() ([]string, error) { return i.Live.Features().Names(), nil })
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// Sums of weighted rows cannot be reordered bit for bit, so they keep their order.
func TestOrderOfWeightedRows(t *testing.T) {
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	messages, _ := weightedBlocks(t, 5)
	produce(t, name, messages...)
	flags := map[string]string{"format.weight": "weight", "format.features": "c,a,b"}
	d := start(t, name, file, flags)
	want := d.waitForOffsets(5).Digest
	d.stop()
	delete(flags, "format.features")
	d = start(t, name, file, flags)
	if served := d.waitForOffsets(5); served.Digest != want || !slices.Equal(d.features(), []string{"c", "a", "b"}) {
		t.Errorf("features %q with digest %s, want %s", d.features(), served.Digest, want)
	}
	d.rereadsAll()
	d.stop()
	flags["limits.features"], flags["kafka.topic"], flags["snapshot.file"] = "2", name, file
	if _, err := New(Options{Config: load(t, flags), Log: zerolog.Nop()}); err == nil || !strings.Contains(err.Error(), "limits.features") {
		t.Errorf("with a limit of two features: %v", err)
	}
}

// rowsNamed is a message of rows of two classes with the given features.
func rowsNamed(r *rand.Rand, rows int, classes [2]string, names ...string) message {
	var lines strings.Builder
	for range rows {
		class := r.IntN(2)
		fmt.Fprintf(&lines, `{"label":%q`, classes[class])
		for _, name := range names {
			fmt.Fprintf(&lines, `,%q:%v`, name, float32(r.NormFloat64()+float64(class)))
		}
		lines.WriteString("}\n")
	}
	return message{value: []byte(lines.String())}
}

// After the last block is retired, the next one defines the features. Nothing of the former
// features remains in the state, the planes, a basis or any answer, also after a restart.
func TestFeaturesAreFreeWithoutBlocks(t *testing.T) {
	const honest = 8
	r := rand.New(rand.NewPCG(73, 73))
	junk := rowsNamed(r, 50, [2]string{"rubbish", "waste"}, "junk1", "junk2", "junk3")
	var messages []message
	for range honest {
		messages = append(messages, rowsNamed(r, 40, [2]string{"ham", "spam"}, "b", "a"))
	}
	for name, flags := range map[string]map[string]string{
		"messages": {"model.nu": "auto", "model.refine": "full", "sample.rows": "200"},
		"gathered": {"blocks.unit": "offsets", "blocks.offsets": "100", "model.nu": "auto", "sample.rows": "200"},
		"kernel":   {"kernel.function": "gaussian(gamma=0.2)", "kernel.basis": "5", "kernel.rows": "0", "sample.rows": "200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := topic(t, 1)
			produce(t, fresh, messages...)
			d := start(t, fresh, filepath.Join(t.TempDir(), "streamd.db"), flags)
			d.waitForOffsets(honest)
			want := comparable(d.settledAnywhere(flags))
			d.stop()

			for _, restart := range []bool{false, true} {
				name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
				produce(t, name, junk, messages[0])
				d := start(t, name, file, flags)
				d.waitForOffsets(2)
				d.settledAnywhere(flags)
				if s := d.Status(); s.DeadLetters != 1 {
					t.Errorf("%d dead letters while the features are others", s.DeadLetters)
				}
				receipt := d.retire(incremental.Position{Topic: name}.String())
				if empty := live.DigestOf(incremental.NewState(nil)); receipt.DigestAfter != empty {
					t.Errorf("the digest without blocks is %s, want %s", receipt.DigestAfter, empty)
				}
				if restart {
					d.stop()
					d = start(t, name, file, flags)
				}
				produce(t, name, messages...)
				d.waitForOffsets(2 + honest)
				if got := comparable(d.settledAnywhere(flags)); got != want {
					t.Errorf("restart %t: served\n%s\nwant\n%s", restart, got, want)
				}
				for _, path := range []string{"/v1/model", "/v1/blocks", "/v1/quality", "/v1/tuning", "/v1/epoch", "/metrics", "/"} {
					if _, body := d.ask("GET", path); strings.Contains(body, "junk") || strings.Contains(body, "rubbish") {
						t.Errorf("restart %t: %s tells of what has gone:\n%s", restart, path, body)
					}
				}
				if s := d.Status(); s.DeadLetters != 1 || !addsUp(&s) {
					t.Errorf("restart %t: %d dead letters, rows %+v", restart, s.DeadLetters, s.Rows)
				}
				d.stop()
			}
		})
	}
}

// A record is checked against the features when the loop applies it. A worker may have
// prepared it ahead of a tombstone, for the former features. That result is discarded.
func TestFeaturesChangeInABatch(t *testing.T) {
	r := rand.New(rand.NewPCG(74, 74))
	keyed := func(key string, m message) message { m.key = []byte(key); return m }
	var messages []message
	for round := range 6 {
		names := []string{"a", "b", "c", "d"}[:1+round%4]
		for k := range 40 { // more than the workers can prepare in time
			messages = append(messages, keyed(fmt.Sprint("k", k), rowsNamed(r, 3, [2]string{"0", "1"}, names...)))
		}
		messages = append(messages, keyed("refused", rowsNamed(r, 3, [2]string{"0", "1"}, "other")))
		if round < 5 {
			for k := range 40 {
				messages = append(messages, message{key: fmt.Appendf(nil, "k%d", k)})
			}
		}
	}
	// The state of the last round, whose values are added in order.
	want := incremental.NewState([]string{"a", "b"})
	decoder, err := wire.NewDecoder(wire.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var z incremental.Summariser
	for _, m := range messages[len(messages)-41 : len(messages)-1] {
		b, err := decoder.Decode(wire.JSON.ContentType(), m.value)
		if err != nil {
			t.Fatal(err)
		}
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		want.Add(s)
	}
	name := topic(t, 1)
	produce(t, name, messages...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"blocks.unit": "key", "limits.classes": "2"})
	served := d.waitForOffsets(int64(len(messages)))
	s := d.Status()
	if served.Digest != live.DigestOf(want) || s.DeadLetters != 6 || !addsUp(&s) {
		t.Errorf("%d blocks with digest %s, want %s; %d dead letters, rows %+v", served.Blocks, served.Digest, live.DigestOf(want), s.DeadLetters, s.Rows)
	}
	d.stop()
}

// Rows of weight 0 define no features and add no classes, in any block unit.
func TestRowsThatWeighNothingFixNothing(t *testing.T) {
	for _, unit := range []string{"message", "key", "offsets", "time"} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			row := func(label string, weight int, fields string) message {
				return message{key: []byte(label), value: fmt.Appendf(nil, `{"label":%q,"v":%d,%s}`, label, weight, fields)}
			}
			name := topic(t, 1)
			produce(t, name, row("none", 0, `"junk":1`), row("x", 1, `"b":1,"a":2`), row("nothing", 0, `"a":9,"b":9`),
				message{key: []byte("y"), value: []byte(`[{"label":"y","v":1,"a":3,"b":5},{"label":"z","v":0,"a":0,"b":0}]`)})
			d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
				"blocks.unit": unit, "format.weight": "v", "limits.classes": "2", "dead_letters.policy": "stop"})
			served := d.waitForOffsets(4)
			s := d.Status()
			if served.Rows != 2 || served.Model == nil || !slices.Equal(served.Model.Features, []string{"a", "b"}) || s.Rows.Read != 5 || !addsUp(&s) {
				t.Errorf("served %+v, rows %+v", served, s.Rows)
			}
			d.stop()
		})
	}
}

// A crash right after the last retirement leaves a file with a basis and no blocks. The
// features of that basis do not bind the next block.
func TestBasisOfAFileWithoutBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(75, 75))
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	produce(t, name, rowsNamed(r, 60, [2]string{"0", "1"}, "a", "b"))
	flags := map[string]string{"kernel.function": "gaussian(gamma=0.2)", "kernel.basis": "5", "kernel.rows": "0", "format.features": "a,b"}
	d := start(t, name, file, flags)
	d.waitForOffsets(1)
	d.reduced()
	d.stop()
	given := map[string]string{"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name, "snapshot.file": file}
	maps.Copy(given, flags)
	at, err := New(Options{Config: load(t, given), Log: zerolog.Nop()}) // its loop does not run
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&offline{Daemon: at, t: t}).retireOne(incremental.Position{Topic: name}.String()); err != nil || at.Live.InUse().Coordinates == nil {
		t.Fatalf("%v; basis %v", err, at.Live.InUse().Coordinates)
	}
	at.serving.listener.Close()
	at.Store.Close()

	delete(flags, "format.features")
	produce(t, name, rowsNamed(r, 60, [2]string{"0", "1"}, "a", "b", "c"))
	d = start(t, name, file, flags)
	d.waitForOffsets(2)
	if served := d.reduced(); served.Basis == nil || !slices.Equal(served.Basis.Features, []string{"a", "b", "c"}) {
		t.Errorf("served %+v", served)
	}
	d.stop()
}
