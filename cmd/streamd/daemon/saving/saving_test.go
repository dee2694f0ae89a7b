package saving

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/daemon/watching"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/snapshot"
)

// load is a configuration.
func load(t *testing.T, flags map[string]string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// roomy is a budget that is large enough for every test.
func roomy(cfg *config.Config) *memory.Budget { return memory.New(cfg, 8<<30) }

// saverOf is a saver that has saved nothing of a live set.
func saverOf(cfg *config.Config, l *live.Set, store *snapshot.Store) *Saver {
	c := loop.New(&loop.Environment{
		Config: cfg, Log: zerolog.Nop(), Metrics: httpapi.NewMetrics(), Problems: problems.New(zerolog.Nop(), func(httpapi.Event) {}), Store: store,
	})
	c.Live, c.Intake = l, intake.New(intake.Settings{Config: cfg, Live: l, Budget: roomy(cfg)})
	return New(c, &receipts.Receipts{Loop: c}, watching.New(c, nil, nil), control.NewFollowed("", nil, nil, c.Log), nil, &snapshot.Contents{})
}

// Memory stays bounded while the disk is full or slower than the log.
func TestMostUnsaved(t *testing.T) {
	full := errors.New("no space")
	const wide = 1000 // features: a block of one class takes 4 MB
	for _, c := range []struct {
		features int
		saving   *saving
		problem  error
		want     int
	}{
		{1, nil, nil, math.MaxInt},
		{1, nil, full, 100},
		{1, &saving{blocks: 7}, nil, 107},
		{1, &saving{blocks: 700}, nil, 1400},
		{1, &saving{blocks: 700}, full, 100},
		{wide, nil, full, 8},
		{wide, &saving{blocks: 7}, nil, 15},
		{wide, &saving{blocks: 70}, nil, 78},
	} {
		l := live.New(nil, liveConfig(0), roomy(liveConfig(0)))
		l.Fix(incremental.DefaultFeatures(c.features))
		block := &incremental.Block{Classes: []string{"1"}, Codes: []int32{0}, Columns: make([]gram.Column, c.features)}
		for j := range block.Columns {
			block.Columns[j] = gram.ColumnOf([]float32{1})
		}
		s, err := new(incremental.Summariser).Summarise(block)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Add(retire.Entry{ID: "a", Rows: 1}, live.Kept{Summary: s}); err != nil {
			t.Fatal(err)
		}
		w := saverOf(&config.Config{Snapshot: config.Snapshot{Blocks: 100}}, l, nil)
		if w.problem = c.problem; c.saving != nil {
			w.state, w.saving = storing, c.saving
		}
		if got := w.mostUnsaved(); got != c.want {
			t.Errorf("saving %+v after %v: %d, want %d", c.saving, c.problem, got, c.want)
		}
	}
}

// Blocks of keys in random order lie on separate pages, and a save holds every page that it
// writes. After a save of dense blocks, the next one has room by the bytes per block.
func TestRoomForPages(t *testing.T) {
	l := live.New(nil, liveConfig(0), roomy(liveConfig(0)))
	const block = 1 << 10 // without classes
	l.Wrote(0, 1)
	dense := l.Room()
	if dense != live.UnsavedMemory/block {
		t.Fatalf("room for %d blocks of %d bytes", dense, block)
	}
	for _, c := range []struct{ blocks, bytes, want int }{
		{dense, dense * 2 * block, dense},
		{dense, dense * 13 << 10, 4 * live.UnsavedMemory / (13 << 10)},
		{1, 100 << 20, live.UnsavedMemory / (block + 4<<10)}, // with a long free list
		{0, 8 << 10, live.UnsavedMemory / (block + 4<<10)},   // moved offsets only
		{dense, dense * block, dense},
	} {
		w := saverOf(load(t, map[string]string{"kafka.topic": "none"}), l, nil)
		w.state, w.saving = storing, &saving{blocks: c.blocks}
		w.endSave(snapshot.SaveInfo{Bytes: int64(c.bytes)}, nil)
		if got := l.Room(); got < c.want-1 || got > c.want {
			t.Errorf("after a save of %d blocks in %d bytes there is room for %d, want %d", c.blocks, c.bytes, got, c.want)
		}
		w.state, w.saving = storing, &saving{blocks: dense}
		if got := w.mostUnsaved(); got != dense+l.Room() {
			t.Errorf("while %d blocks are saved %d may wait, want %d more", dense, got, l.Room())
		}
	}
}

// Saves that take long, or are configured to be rare, are put off. They are not put off
// longer than there is room for new blocks.
func TestSavesAreNotPutOffWithoutRoom(t *testing.T) {
	for name, set := range map[string]map[string]string{
		"long":   {"kafka.topic": "none"},
		"seldom": {"kafka.topic": "none", "snapshot.interval": "1h", "snapshot.blocks": "1000000"},
	} {
		t.Run(name, func(t *testing.T) { testSavesAreNotPutOffWithoutRoom(t, load(t, set)) })
	}
}

func testSavesAreNotPutOffWithoutRoom(t *testing.T, cfg *config.Config) {
	store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	l, _, err := live.Open(store, contents, liveConfig(5), roomy(liveConfig(5)), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	l.Fix(incremental.DefaultFeatures(n))
	block := &incremental.Block{Classes: []string{"-1", "1"}, Codes: []int32{0, 1}}
	for j := range n {
		block.Columns = append(block.Columns, gram.ColumnOf([]float32{float32(j), -1}))
	}
	s, err := new(incremental.Summariser).Summarise(block)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	w := saverOf(cfg, l, store)
	w.Delivered = now
	w.took = time.Hour
	for i := 0; w.state == idle; i++ {
		if wait := live.UnsavedMemory / (8 * n * n); i > wait { // each of two classes has half of the products
			t.Fatalf("%d blocks wait for a save", i)
		}
		if _, err := l.Add(retire.Entry{ID: fmt.Sprint(i), Time: now, Rows: 2}, live.Kept{Summary: s}); err != nil {
			t.Fatal(err)
		}
		w.WhenDue(time.Now())
		if wait := live.UnsavedMemory / (2 * 8 * n * n); i < wait && w.state != idle {
			t.Fatalf("%d blocks do not wait for a save", i)
		}
	}
	if w.Await(); w.problem != nil {
		t.Error(w.problem)
	}
}

// Saves take a twentieth of the time of a busy loop, unless blocks that wait have no room, as
// the help of snapshot.interval says.
func TestShareOfSaves(t *testing.T) {
	cfg := load(t, map[string]string{"kafka.topic": "none"})
	s, now := saverOf(cfg, live.New(nil, cfg, roomy(cfg)), nil), time.Now()
	s.Delivered = now
	if pause := s.Pause(time.Second, now); pause < 19*time.Second {
		t.Errorf("after a save of a second the next one comes after %v", pause)
	}
	s.took, s.lastTry, s.unsavedSince = time.Hour, now, now.Add(-time.Hour)
	if s.WhenDue(now); s.state != idle {
		t.Error("a save begins before its time")
	}
	room := s.Intake.Room()
	if !s.HasRoom(room) {
		t.Error("an empty live set has no room")
	}
	of := reflect.TypeFor[config.Snapshot]()
	field, _ := of.FieldByName("Interval")
	if help := field.Tag.Get("help"); !strings.Contains(help, "Longer where saves would take over a twentieth of the time and unsaved blocks have room") {
		t.Errorf("the help says %q", help)
	}
}

func TestCompactionIsDue(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		name           string
		scrub          string
		since, lastTry time.Time
		due            bool
	}{
		{"no retirement", "1h", time.Time{}, time.Time{}, false},
		{"a fresh one", "1h", ago(29 * time.Minute), time.Time{}, false},
		{"an older one", "1h", ago(30 * time.Minute), time.Time{}, true},
		{"of the future", "1h", ago(-time.Hour), time.Time{}, true},
		{"never", "0", ago(1000 * time.Hour), time.Time{}, false},
		{"tried just now", "1h", ago(40 * time.Minute), ago(7 * time.Minute), false},
		{"tried before", "1h", ago(40 * time.Minute), ago(8 * time.Minute), true},
	} {
		cfg := load(t, map[string]string{"kafka.topic": "orders", "snapshot.scrub": c.scrub})
		if due := compactionIsDue(cfg.Snapshot.Scrub, c.since, c.lastTry, now); due != c.due {
			t.Errorf("%s: due %v", c.name, due)
		}
	}
}

// liveConfig is the configuration of a live set with two classes and the given folds.
func liveConfig(folds int) *config.Config {
	return &config.Config{Spec: config.Spec{Limits: config.Limits{Classes: 2, Features: 1000}, Model: config.Model{Folds: folds}}}
}
