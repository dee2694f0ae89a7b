package snapshot

import (
	"bytes"
	"math"
	"reflect"
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
var reportBytes = "\x01\x025a\x13gaussian(gamma=0.3)\x02cs\x0409a7\x0ctoo few rows\x0c\x88\x27\x80\x80\x80\x80\x80\x20" +
	"\x15\xcd\x85=\xfe\x9c\x97\x17" + "UUUUUU\xd5?" + "\x02" +
	"\x9a\x99\x99\x99\x99\x99\xb9?\x00\x00\x00\x00\x00\x00\xf0?\xcd\xcc\xcc\xcc\xcc\xcc\xec?\x00\x00\x00\x00\x00\x00\xd0?" +
	"\x33\x33\x33\x33\x33\x33\xd3?\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0?\xff\xff\xff\xff\xff\xff\xef\x7f" +
	"\x02\x04spam\x01\x02\x03\x06\x09\x00\x00\x00\x00\x00\x00\x12@\x00\x00\x00\x00\x00\x00\x1e@\x00\x00\x00\x00\x00\x00\x21@\x00\x00\x00\x00\x00\x00\xe8?\x00\x00\x00\x00\x00\x00\xe0?" +
	"\x00\x00\x00\x00\x00\x00" + string(make([]byte, 40))

// oldReport is a report as programs of formats 3 and 4 wrote it.
const oldReport = `{"basis":"5a","kernel":"gaussian(gamma=0.3)","points":12,"method":"cs","state_digest":"09a7","rows":5000,"live_rows":1099511627776,` +
	`"made_at":"2023-11-14T22:13:20.123456789Z","seconds":0.3333333333333333,"gammas":[{"gamma":0.1,"nu":1,"correctness":0.9,"loss":0.25},` +
	`{"gamma":0.3,"nu":5e-324,"correctness":1,"loss":1.7976931348623157e+308}],"gammas_absent":"too few rows","stages":[{"class":"spam","stage":1,"rows":2,` +
	`"runs":3,"nu":4.5,"candidates":6,"points":7.5,"support_vectors":8.5,"training":0.75,"testing":0.5,"unconverged":9},` +
	`{"class":"","stage":0,"rows":0,"runs":0,"nu":0,"candidates":0,"points":0,"support_vectors":0,"training":0,"testing":0,"unconverged":0}]}`

func TestReport(t *testing.T) {
	if got := report.AppendBinary(nil); string(got) != reportBytes {
		t.Errorf("the bytes are %q", got)
	}
	for _, b := range []string{reportBytes, oldReport} {
		if got, err := DecodeReduction([]byte(b)); err != nil || !reflect.DeepEqual(*got, report) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	small := Reduction{MadeAt: time.Unix(0, 0).UTC()}
	if got, err := DecodeReduction(small.AppendBinary(nil)); err != nil || !reflect.DeepEqual(*got, small) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, b := range map[string][]byte{
		"none": nil, "version": []byte("\x02" + reportBytes[1:]), "rest": []byte(reportBytes + "\x00"),
		"short": []byte(reportBytes[:len(reportBytes)-1]), "other JSON": []byte(`{"points":"x"}`), "long": bytes.Repeat([]byte(" "), mostJSON+1),
		"not finite":  []byte(reportBytes[:len(reportBytes)-2] + "\xf0\x7f"),
		"many gammas": append([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x00"+string(make([]byte, 16))), 0xff, 0xff, 0xff, 0xff, 0x7f),
		"large count": []byte("\x01\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00" + string(make([]byte, 18))),
	} {
		if got, err := DecodeReduction(b); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, bad := range map[string]Reduction{"count": {Rows: -1}, "number": {Seconds: math.NaN()}, "stage": {Stages: []Stage{{Nu: math.Inf(1)}}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: written", name)
				}
			}()
			bad.AppendBinary(nil)
		}()
	}
}

// Every report is refused or is the very one that its contents are written as, and it
// takes little memory.
func FuzzDecodeReduction(f *testing.F) {
	f.Add([]byte(reportBytes))
	f.Add([]byte(oldReport))
	f.Add((&Reduction{MadeAt: time.Unix(0, 0)}).AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeReduction(b)
		if err != nil {
			return
		}
		if len(r.Gammas)*2+len(r.Stages)*2 > len(b) {
			t.Errorf("%d γ and %d stages of %d bytes", len(r.Gammas), len(r.Stages), len(b))
		}
		if b[0] == reportVersion && !bytes.Equal(r.AppendBinary(nil), b) {
			t.Errorf("%x came back as %x", b, r.AppendBinary(nil))
		}
	})
}
