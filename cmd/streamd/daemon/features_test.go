package daemon

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/wire"
)

// The sign of a zero shows nowhere: a producer that writes it and one that leaves
// zeros out get one model, with its folds, sample and curves.
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

// namedRows makes messages of rows of four named features, in any order.
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

// The order of the features is that of their names, whatever the first message has.
// A snapshot that was made with another one comes to the same state, planes, sample
// and basis as a daemon that begins anew.
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
				return fmt.Sprint(digestOf(d.live.sums.total()), digests, comparable(s))
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

// settledAnywhere is settled, in the coordinates of a basis where flags ask for one.
func (i *instance) settledAnywhere(flags map[string]string) *httpapi.Served {
	i.t.Helper()
	if flags["kernel.function"] == "" {
		return i.settled()
	}
	return i.inEpoch(i.reduced(), flags)
}

func (i *instance) features() []string {
	i.t.Helper()
	out, err := inLoop(i.t.Context(), i.Daemon, func() ([]string, error) { return i.live.sums.features, nil })
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// Sums of weighted rows cannot be put into another order bit for bit, so that they stay
// as they are.
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
