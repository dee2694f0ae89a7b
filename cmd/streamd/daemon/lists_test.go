package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/schema"
	"streamd/retire"
)

// townRows are messages whose rows have a town, and the number of rows of each town in them.
func townRows(r *rand.Rand, messages int) (all []message, towns []map[string]int64) {
	for i := range messages {
		var text strings.Builder
		counts := map[string]int64{}
		for range 1 + r.IntN(20) {
			label, town := r.IntN(2), fmt.Sprintf(`"t%d"`, int(r.ExpFloat64()*4))
			if r.IntN(9) == 0 {
				town = "null"
			} else {
				counts[strings.Trim(town, `"`)]++
			}
			fmt.Fprintf(&text, `{"label":%d,"town":%s,"size":%v}`+"\n", label, town, r.NormFloat64()+float64(label))
		}
		all, towns = append(all, message{partition: i % 2, value: []byte(text.String())}), append(towns, counts)
	}
	return all, towns
}

// mostFrequent are the values of a list, the most frequent one first.
func mostFrequent(most int, blocks ...map[string]int64) (list []schema.ValueRows, rows int64) {
	sum := map[string]int64{}
	for _, counts := range blocks {
		for town, n := range counts {
			sum[town] += n
			rows += n
		}
	}
	for town, n := range sum {
		list = append(list, schema.ValueRows{Value: town, Rows: n})
	}
	slices.SortFunc(list, func(a, b schema.ValueRows) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), strings.Compare(a.Value, b.Value))
	})
	return list[:most], rows
}

// learnLists has a daemon learn lists.
func (i *instance) learnLists() (a httpapi.LearnedLists) {
	i.t.Helper()
	status, text := i.ask(http.MethodPost, "/v1/features/learn")
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
		i.t.Fatalf("learn lists: %d %s", status, text)
	}
	return a
}

// hasSchema waits for a model whose schema has a text.
func (i *instance) hasSchema(text string) (m httpapi.ModelAnswer) {
	i.t.Helper()
	i.until("the schema has "+text, func() bool {
		var err error
		m, err = getModel(i.Addr().String())
		return err == nil && strings.Contains(m.Schema.String(), text)
	})
	return m
}

// A list of values is learned on request, from the rows that are live. Then the model is that of a
// daemon that had the declared list from the start, and that of a replica that has learned. The
// list outlives restarts, also those in the middle of the change, and stays until another is asked
// for.
func TestLearnedLists(t *testing.T) {
	r := rand.New(rand.NewPCG(92, 1))
	topic, file := topic(t, 2), filepath.Join(t.TempDir(), "streamd.db")
	messages, towns := townRows(r, 60)
	produce(t, topic, messages...)
	flags := func(values string) map[string]string {
		return map[string]string{
			"format.schema": fmt.Sprintf(`{"town": {kind: category, values: %s, other: true, missing: own}, "size": number}`, values),
			"model.nu":      "auto", "sample.rows": "300", "model.folds": "3",
		}
	}
	gone := fmt.Sprintf("%s/1/4", topic) // message 9
	live := slices.Delete(slices.Clone(towns), 9, 10)

	d := start(t, topic, file, flags("{most: 5}"))
	d.waitForOffsets(60)
	d.until("a problem for the list that is not learned", func() bool {
		return strings.Contains(d.problems(), `the values of category "town" are still to learn`)
	})
	if first := d.settled(); !slices.Equal(first.Model.Features, []string{"size", "town=(missing)", "town=(other)"}) {
		t.Errorf("before a list is learned the features are %q", first.Model.Features)
	}
	d.retire(gone)
	want, rows := mostFrequent(5, live...)
	a := d.learnLists()
	if l := a.Lists[0]; len(a.Lists) != 1 || l.Feature != "town" || l.Most != 5 || !slices.Equal(l.Values, want) || l.Rows != rows || !a.Changes || a.Blocks != 59 {
		t.Fatalf("learned %+v, want %v of %d rows", a, want, rows)
	}
	var list []string
	for _, v := range want {
		list = append(list, v.Value)
	}
	slices.Sort(list)
	learned := d.hasSchema(`"values":["t`)
	if again := d.learnLists(); again.Changes || !slices.Equal(again.Lists[0].Values, want) {
		t.Errorf("learned again: %+v", again)
	}
	d.stop()
	if _, err := os.Stat(file + ".features"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the change is still there: %v", err)
	}

	declared := start(t, topic, filepath.Join(t.TempDir(), "declared.db"), flags("["+strings.Join(list, ", ")+"]"))
	declared.waitForOffsets(60)
	declared.retire(gone)
	model := declared.settled()
	d = start(t, topic, file, flags("{most: 5}"))
	if got := d.settled(); got.Fingerprint != model.Fingerprint || got.Digest != model.Digest || got.Digest != learned.Digest {
		t.Errorf("after a restart the fingerprint is %s, with the declared list %s", got.Fingerprint, model.Fingerprint)
	}
	if text := d.problems(); strings.Contains(text, "still to learn") || strings.Contains(text, "was learned") {
		t.Errorf("problems: %s", text)
	}
	if status, text := declared.ask(http.MethodPost, "/v1/features/learn"); status != http.StatusConflict || !strings.Contains(text, "no category with values") {
		t.Errorf("a daemon of declared lists: %d %s", status, text)
	}
	declared.stop()
	d.rereadsAll()
	if remains := fmt.Sprint(d.retire(fmt.Sprintf("%s/0/3", topic)).Remains); !strings.Contains(remains, `names of values in the learned lists of ["town"]`) {
		t.Errorf("after a retirement there remain %s", remains)
	}
	again, rows := mostFrequent(5, slices.Concat(towns[:6], towns[7:9], towns[10:])...)
	if got := d.learnLists(); !slices.Equal(got.Lists[0].Values, again) || got.Lists[0].Rows != rows || got.Blocks != 58 {
		t.Errorf("after a retirement learned %+v, want %v of %d rows", got, again, rows)
	}
	d.stop()

	// Another replica, which stops at once and goes on.
	copied := filepath.Join(t.TempDir(), "copy.db")
	replica := start(t, topic, copied, flags("{most: 5}"))
	replica.waitForOffsets(60)
	replica.retire(gone)
	replica.learnLists()
	replica.stop()
	replica = start(t, topic, copied, flags("{most: 5}"))
	replica.hasSchema(`"values":["t`)
	replica.stop()
	replica = start(t, topic, copied, flags("{most: 5}"))
	if got := replica.settled(); got.Fingerprint != model.Fingerprint {
		t.Errorf("the fingerprint of a replica is %s, want %s", got.Fingerprint, model.Fingerprint)
	}
	replica.stop()

	// Another K keeps the list until it is asked for.
	d = start(t, topic, copied, flags("{most: 3}"))
	d.until("a problem for another K", func() bool {
		return strings.Contains(d.problems(), "was learned for values: {most: 5}, and the configuration has 3")
	})
	if got := d.settled(); got.Fingerprint != model.Fingerprint {
		t.Errorf("with another K the fingerprint is %s before it is learned for, want %s", got.Fingerprint, model.Fingerprint)
	}
	if got := d.learnLists(); !slices.Equal(got.Lists[0].Values, want[:3]) || !got.Changes {
		t.Errorf("learned %+v, want %v", got, want[:3])
	}
	d.until("a list of three", func() bool {
		m, err := getModel(d.Addr().String())
		return err == nil && len(m.Features) == 6
	})
	d.stop()
}

// A block that leaves while values are counted does not count, and neither does one that comes.
func TestListsOfBlocksThatLeave(t *testing.T) {
	r := rand.New(rand.NewPCG(93, 1))
	topic := topic(t, 2)
	messages, towns := townRows(r, 40)
	produce(t, topic, messages[:30]...)
	d := start(t, topic, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
		"format.schema": `{"town": {kind: category, values: {most: 4}, missing: zero}, "size": number}`,
	})
	defer d.stop()
	d.waitForOffsets(30)
	var names []string
	blocks, err := loop.Ask(t.Context(), d.Loop, func() (*live.Blocks, error) {
		names = d.Live.Features().Names()
		return d.Live.Moment(d.Live.Page(retire.Lowest, math.MaxInt)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	counted, err := d.Features.CountValues(t.Context(), blocks, names, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	d.retire(fmt.Sprintf("%s/1/0", topic)) // message 1
	d.retire(fmt.Sprintf("%s/0/7", topic)) // message 14
	produce(t, topic, messages[30:]...)
	d.waitForOffsets(40)
	a, err := loop.Ask(t.Context(), d.Loop, func() (*httpapi.LearnedLists, error) { return d.Features.TakeLists(counted) })
	if err != nil {
		t.Fatal(err)
	}
	left := slices.Concat(towns[:1], towns[2:14], towns[15:30])
	want, rows := mostFrequent(4, left...)
	if l := a.Lists[0]; !slices.Equal(l.Values, want) || l.Rows != rows || a.Blocks != 28 {
		t.Errorf("learned %+v of %d blocks, want %v of %d rows", l, a.Blocks, want, rows)
	}
}

// Whatever makes a block, the values of all live rows are counted, and the replay of a topic has
// the lists of the snapshot that it is compared with.
func TestListsOfAllUnits(t *testing.T) {
	for name, unit := range map[string]map[string]string{
		"messages": {},
		"keys":     {"blocks.unit": "key"},
		"gathered": {"blocks.unit": "offsets", "blocks.offsets": "3"},
		"kernel":   {"kernel.function": "gaussian(gamma=0.5)", "kernel.basis": "8", "sample.rows": "300"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(94, 1))
			topic, file := topic(t, 2), filepath.Join(t.TempDir(), "streamd.db")
			messages, towns := townRows(r, 20)
			if name == "keys" {
				for i := range messages {
					messages[i].key = fmt.Append(nil, "k", i%14) // the last ones replace the first ones
				}
				towns = towns[6:]
			}
			produce(t, topic, messages...)
			flags := map[string]string{"format.schema": `{"town": {kind: category, values: {most: 3}, missing: own}, "size": number}`}
			for k, v := range unit {
				flags[k] = v
			}
			d := start(t, topic, file, flags)
			d.waitForOffsets(20)
			want, rows := mostFrequent(3, towns...)
			if a := d.learnLists(); !slices.Equal(a.Lists[0].Values, want) || a.Lists[0].Rows != rows {
				t.Errorf("learned %+v, want %v of %d rows", a, want, rows)
			}
			d.hasSchema(`"values":["t`)
			d.stop()
			if got, _, err := replay(t, topic, file, flags); err != nil || got.Side != got.Saved || got.Blocks == 0 {
				t.Errorf("replayed %d blocks with digest %x, want %x: %v", got.Blocks, got.Side.Digest, got.Saved.Digest, err)
			}
		})
	}
}
