package reproduce

import (
	"encoding/json"
	"slices"
	"testing"
)

// The detector's alarms on a stream are those of River's ADWIN, also the errors of the planes.
func TestAlarmsOfRiver(t *testing.T) {
	var golden struct{ Runs []*alarmRun }
	if err := json.Unmarshal(goldenAlarms, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Runs) != 10 {
		t.Fatalf("%d runs", len(golden.Runs))
	}
	for _, g := range []*alarmRun{golden.Runs[0], golden.Runs[5]} {
		got, err := watch(t.Context(), g.rows(), g.Block, g.Keep, 0)
		if err != nil {
			t.Fatal(err)
		}
		if e := got.errors; len(e.Rises) == 0 || !slices.Equal(e.Rises, g.Plane.Rises) || !slices.Equal(e.Falls, g.Plane.Falls) || e.Wrong != g.Plane.Wrong {
			t.Errorf("%s: %+v, want %+v", g.Stream, e, g.Plane)
		}
	}
}

// Each change has the first alarm after it. Others are false where the change is over at once.
func TestDelays(t *testing.T) {
	for _, test := range []struct {
		rises  []int
		atOnce bool
		found  []int
		wrong  int
	}{
		{nil, true, []int{-1, -1}, 0},
		{[]int{99}, true, []int{-1, -1}, 1},
		{[]int{100, 250}, true, []int{0, 50}, 0},
		{[]int{10, 20, 110, 120, 130, 299}, true, []int{10, 99}, 4},
		{[]int{10, 110, 120}, false, []int{10, -1}, 1},
	} {
		if found, wrong := delays([]int{100, 200}, test.rises, 300, test.atOnce); !slices.Equal(found, test.found) || wrong != test.wrong {
			t.Errorf("%v: %v and %d false ones", test.rises, found, wrong)
		}
	}
}

// Alarms that miss more changes, are false, or are later where both find the change, are worse.
func TestLaterThan(t *testing.T) {
	a := &Alarms{Delays: [][]int{{10, -1}, {30, 5}}}
	if says := (&Alarms{Delays: a.Delays, False: 1}).laterThan(a); says == "" {
		t.Error("a false alarm is not worse than none")
	}
	for _, test := range []struct {
		other [][]int
		worse bool
	}{
		{[][]int{{10, -1}, {30, 5}}, false},
		{[][]int{{10, 2}, {30, 5}}, true},
		{[][]int{{-1, 2}, {30, 4}}, true},
		{[][]int{{-1, 2}, {29, 7}}, false},
		{[][]int{{-1, -1}, {-1, 5}}, false},
	} {
		if says := a.laterThan(&Alarms{Delays: test.other}); (says != "") != test.worse {
			t.Errorf("beside %v: %q", test.other, says)
		}
	}
}
