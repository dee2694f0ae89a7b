package snapshot

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

var report = Reduction{
	Basis: "5a", Kernel: "gaussian(gamma=0.3)", Method: "cs", Digest: "09a7", Unjudged: "too few rows",
	Points: 12, Rows: 5000, Live: 1 << 40, MadeAt: time.Unix(1_700_000_000, 123_456_789).UTC(), Seconds: 1.0 / 3,
	Gammas: []Gamma{{0.1, 1, 0.9, 0.25}, {0.3, math.SmallestNonzeroFloat64, 1, math.MaxFloat64}},
	Stages: []Stage{{Class: "spam", Stage: 1, Rows: 2, Runs: 3, Nu: 4.5, Candidates: 6, Points: 7.5, SupportVectors: 8.5, Training: 0.75, Testing: 0.5, Unconverged: 9}, {}},
}

// The bytes of a report stay as they are.
const reportBytes = `{"version":1,"basis":"5a","kernel":"gaussian(gamma=0.3)","points":12,"method":"cs","state_digest":"09a7","rows":5000,"live_rows":1099511627776,` +
	`"made_at":"2023-11-14T22:13:20.123456789Z","seconds":0.3333333333333333,"gammas":[{"gamma":0.1,"nu":1,"correctness":0.9,"loss":0.25},` +
	`{"gamma":0.3,"nu":5e-324,"correctness":1,"loss":1.7976931348623157e+308}],"gammas_absent":"too few rows","stages":[{"class":"spam","stage":1,"rows":2,` +
	`"runs":3,"nu":4.5,"candidates":6,"points":7.5,"support_vectors":8.5,"training":0.75,"testing":0.5,"unconverged":9},` +
	`{"class":"","stage":0,"rows":0,"runs":0,"nu":0,"candidates":0,"points":0,"support_vectors":0,"training":0,"testing":0,"unconverged":0}]}`

func TestReport(t *testing.T) {
	if got := report.AppendBinary(nil); string(got) != reportBytes {
		t.Errorf("the bytes are %s", got)
	}
	want := report
	want.Version = 1
	if got, err := DecodeReduction([]byte(reportBytes)); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, b := range map[string]string{
		"none": "", "text": "report", "other field": `{"version":1,"x":2}`, "no field": `{"version":1}`, "rest": reportBytes + "{}",
		"short": reportBytes[:len(reportBytes)-1], "space": reportBytes + " ", "other type": `{"points":"x"}`, "negative": `{"rows":-1}`,
		"version": `{"version":2}`, "no version": `{"basis":"5a"}`, "negative version": `{"version":-1}`, "long": strings.Repeat(" ", mostReport) + "{}",
		"fewer than none": `{"pruned":-1}`,
		"early":           `{"made_at":"0000-01-01T00:00:00+01:00"}`,
		"large":           `{"seconds":1e999}`, "long count": `{"live_rows":9223372036854775808}`,
	} {
		if got, err := DecodeReduction([]byte(b)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The report of a pruned basis has a field more.
func TestPrunedReport(t *testing.T) {
	want := report
	want.Pruned = 40
	b := want.AppendBinary(nil)
	if text := reportBytes[:len(reportBytes)-1] + `,"pruned":40}`; string(b) != text {
		t.Errorf("the bytes are %s", b)
	}
	want.Version = 1
	if got, err := DecodeReduction(b); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A report that would be too long to read has no stages.
func TestLongReport(t *testing.T) {
	long := report
	long.Stages = []Stage{{Class: strings.Repeat("x", mostReport)}}
	got, err := DecodeReduction(long.AppendBinary(nil))
	if err != nil || got.Stages != nil || got.Basis != long.Basis {
		t.Errorf("%+v, %v", got, err)
	}
}

// Every report is refused, or equals the encoding of its contents.
func FuzzDecodeReduction(f *testing.F) {
	f.Add([]byte(reportBytes))
	f.Add(Reduction{}.AppendBinary(nil))
	f.Add(Reduction{Pruned: 40}.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeReduction(b)
		if err != nil {
			return
		}
		again := r.AppendBinary(nil)
		if !bytes.Equal(again, b) {
			t.Errorf("%s came back as %s", b, again)
		}
		if same, err := DecodeReduction(again); err != nil || !same.MadeAt.Equal(r.MadeAt) || same.Live != r.Live || len(same.Stages) != len(r.Stages) {
			t.Errorf("%s came back as %s, which is %+v, %v", b, again, same, err)
		}
	})
}
