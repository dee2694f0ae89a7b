package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// modelPoller requests the model without a pause. Once there is one, it stops at the first
// request that is not answered with one.
type modelPoller struct {
	mu       sync.Mutex
	features map[string]int // answers by the features of their model
	err      error
	end      chan struct{}
	ended    chan struct{}
}

func pollModels(addr string) *modelPoller {
	p := &modelPoller{features: map[string]int{}, end: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for {
			select {
			case <-p.end:
				return
			default:
			}
			m, err := getModel(addr)
			if err == nil && len(m.Classes) < 2 {
				err = errors.New("an answer without planes")
			}
			p.mu.Lock()
			if len(p.features) == 0 && err != nil {
				p.mu.Unlock()
				continue // there is none yet
			}
			if p.err = err; err == nil {
				p.features[strings.Join(m.Features, " ")]++
			}
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p
}

// wait waits until a model of these features has been served.
func (p *modelPoller) wait(t *testing.T, features string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n, err := p.features[features], p.err
		p.mu.Unlock()
		switch {
		case err != nil:
			t.Fatalf("a client that polls got %v", err)
		case n > 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("no model of the features %s is served", features)
		}
	}
}

func (p *modelPoller) stop(t *testing.T) {
	t.Helper()
	close(p.end)
	if <-p.ended; p.err != nil {
		t.Errorf("a client that polls got %v", p.err)
	}
}

// blockIDs lists the live blocks by rank.
func (i *instance) blockIDs() (ids []string) {
	i.t.Helper()
	page, _, err := i.Blocks(i.t.Context(), false, "", 1000)
	if err != nil {
		i.t.Fatal(err)
	}
	for _, b := range page {
		ids = append(ids, b.ID)
	}
	return ids
}

// retireInTurn retires a block as soon as a daemon takes it: none does while one hands over
// to another.
func (i *instance) retireInTurn(id string) {
	i.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		status, body := i.ask(http.MethodDelete, "/v1/blocks/"+url.PathEscape(id))
		switch {
		case status == http.StatusOK:
			return
		case status != http.StatusServiceUnavailable || time.Now().After(deadline):
			i.t.Fatalf("retire %s: %d: %s", id, status, body)
		}
	}
}

// wideRows is a message of a few rows with four features and an id.
func wideRows(r *rand.Rand, rows int) []byte {
	var lines strings.Builder
	for range rows {
		class := r.IntN(2)
		fmt.Fprintf(&lines, `{"label":%d,"id":"c%d"`, class, r.Int32())
		for i, name := range []string{"a", "b", "c", "d"} {
			fmt.Fprintf(&lines, `,%q:%v`, name, float32(r.NormFloat64()+float64(class*i)))
		}
		lines.WriteString("}\n")
	}
	return []byte(lines.String())
}

// someValue is a value of the features a or c.
var someValue = regexp.MustCompile(`"[ac]":[^,}]*`)

// When format.features changes, the live blocks are read again. Until all are, a client
// gets planes in the former features, and then in the new ones, without a pause. State,
// sample and planes are those of a daemon that has had the new features from the start,
// whatever was retired, and whatever came meanwhile.
func TestFeaturesChange(t *testing.T) {
	const before, during = 60, 40
	for name, unit := range map[string]map[string]string{
		"messages": {},
		"keys":     {"blocks.unit": "key"},
		"gathered": {"blocks.unit": "offsets", "blocks.offsets": "7"},
		"missing":  {},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(61, 1))
			topic := topic(t, 2)
			sent := 0
			send := func(n int) {
				t.Helper()
				var messages []message
				for range n {
					m := message{partition: sent % 2, value: wideRows(r, 1+r.IntN(20))}
					if name == "missing" {
						m.value = someValue.ReplaceAllFunc(m.value, func(value []byte) []byte {
							if r.IntN(5) == 0 {
								return append(value[:4:4], "null"...)
							}
							return value
						})
					}
					if name == "keys" {
						m.key = fmt.Append(nil, "k", r.IntN(40)*2+sent%2)
					}
					messages = append(messages, m)
					sent++
				}
				produce(t, topic, messages...)
			}
			flags := func(features string) map[string]string {
				f := map[string]string{"format.features": features, "model.nu": "auto", "sample.rows": "300", "model.folds": "3"}
				for k, v := range unit {
					f[k] = v
				}
				if name == "missing" {
					f["format.missing"] = "zero"
					if features == "a,c,d" {
						f["format.missing"], f["format.missing_features"] = "mean", "c=indicator,d=zero"
					}
				}
				return f
			}
			changed := "a c d"
			if name == "missing" {
				changed = "a c c missing d" // a mark is served of an indicator alone
			}
			file := filepath.Join(t.TempDir(), "streamd.db")
			send(before)
			d := start(t, topic, file, flags("b,a"))
			d.waitForOffsets(before)
			gone := []string{d.blockIDs()[1], d.blockIDs()[2]}
			d.retire(gone[0])
			d.stop()

			d = start(t, topic, file, flags("a,c,d"))
			p := pollModels(d.Addr().String())
			p.wait(t, "b a")
			d.retireInTurn(gone[1])
			send(during)
			p.wait(t, changed)
			p.stop(t)
			d.stop()
			if _, err := os.Stat(file + ".features"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the file of the change is still there: %v", err)
			}

			d = start(t, topic, file, flags("a,c,d"))
			d.waitForOffsets(int64(sent))
			fresh := start(t, topic, filepath.Join(t.TempDir(), "fresh.db"), flags("a,c,d"))
			fresh.waitForOffsets(int64(sent))
			for _, id := range gone {
				if slices.Contains(fresh.blockIDs(), id) && !slices.Contains(d.blockIDs(), id) {
					fresh.retire(id)
				}
			}
			got, want := d.settled(), fresh.settled()
			if got.Digest != want.Digest || content(t, got) != content(t, want) {
				t.Errorf("after the change, with digest %s\n%s\nfrom the start, with digest %s\n%s", got.Digest, content(t, got), want.Digest, content(t, want))
			}
			_, rows := d.rowsAndFolds()
			if _, wantRows := fresh.rowsAndFolds(); !slices.Equal(rows, wantRows) {
				t.Errorf("the sample and the folds are %v, from the start %v", rows, wantRows)
			}
			d.rereadsAll()
			d.stop()
			fresh.stop()
		})
	}
}

// Blocks that the log no longer has in the features that are wanted hold up the
// change, until they are retired, or at once with kernel.unread: skip.
func TestFeaturesChangeWithUnreadBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(62, 1))
	topic := topic(t, 1)
	for range 2 {
		produce(t, topic, rowsNamed(r, 20, [2]string{"0", "1"}, "a", "b")) // no c
	}
	for range 8 {
		produce(t, topic, message{value: wideRows(r, 20)})
	}
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, topic, file, map[string]string{"format.features": "a,b"})
	d.waitForOffsets(10)
	d.stop()
	copied := filepath.Join(t.TempDir(), "streamd.db")
	contents, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(copied, contents, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}

	d = start(t, topic, file, map[string]string{"format.features": "a,c"})
	d.await("the blocks without c", func() bool { return d.Features.Unread() == 2 })
	if got := d.problems(); !strings.Contains(got, "does not return 2 of them") || !strings.Contains(got, "8 of 10") {
		t.Errorf("problems %q", got)
	}
	p := pollModels(d.Addr().String())
	p.wait(t, "a b")
	for _, id := range d.blockIDs()[:2] {
		d.retireInTurn(id)
	}
	p.wait(t, "a c")
	p.stop(t)
	d.stop()

	skipping := start(t, topic, copied, map[string]string{"format.features": "a,c", "kernel.unread": "skip"})
	p = pollModels(skipping.Addr().String())
	p.wait(t, "a c")
	p.stop(t)
	skipping.stop()
	for _, path := range []string{file, copied} {
		d := start(t, topic, path, map[string]string{"format.features": "a,c"})
		if served := d.waitForOffsets(10); served.Blocks != 8 {
			t.Errorf("%s: %d blocks are live, want 8", path, served.Blocks)
		}
		d.rereadsAll()
		d.stop()
	}
}

// A change of features survives stops at any moment, and a second one takes its place.
func TestFeaturesChangeIsInterrupted(t *testing.T) {
	r := rand.New(rand.NewPCG(63, 1))
	topic := topic(t, 3)
	const blocks = 300
	var messages []message
	for i := range blocks {
		messages = append(messages, message{partition: i % 3, value: wideRows(r, 30)})
	}
	produce(t, topic, messages...)
	file := filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"format.features": "a,b", "snapshot.blocks": "5"}
	d := start(t, topic, file, flags)
	d.waitForOffsets(blocks)
	d.stop()
	for i := range 12 {
		flags["format.features"] = []string{"c,a", "d,b,c"}[i/6]
		d := start(t, topic, file, flags)
		time.Sleep(time.Duration(r.Int64N(int64(60 * time.Millisecond))))
		d.stop()
	}
	d = start(t, topic, file, flags)
	p := pollModels(d.Addr().String())
	p.wait(t, "d b c")
	p.stop(t)
	d.stop()
	d = start(t, topic, file, flags)
	fresh := start(t, topic, filepath.Join(t.TempDir(), "fresh.db"), flags)
	if got, want := d.waitForOffsets(blocks), fresh.waitForOffsets(blocks); got.Digest != want.Digest || got.Blocks != want.Blocks {
		t.Errorf("%d blocks with digest %s, from the start %d with %s", got.Blocks, got.Digest, want.Blocks, want.Digest)
	}
	d.stop()
	fresh.stop()
}
