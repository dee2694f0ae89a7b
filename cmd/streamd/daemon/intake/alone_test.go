package intake

import (
	"strings"
	"testing"

	"streamd/ingest/kafka"
)

// A label alone under the key of a row is refused by name, and retires nothing. Any other value
// that cannot be used retires the block of its key.
func TestLabelAloneRetiresNothing(t *testing.T) {
	for value, alone := range map[string]bool{
		`{"label":"spam"}`: true,
		`{"id":"a","label":"spam","time":"2024-01-31"}`:   true,
		`{"label":"spam","note":"by hand"}`:               true,
		`[{"label":"spam"}]`:                              true,
		`{"label":"spam","caps":1}`:                       false,
		`{"label":null}`:                                  false,
		`{"id":"a"}`:                                      false,
		`[{"label":"spam"},{"label":"ham"}]`:              false,
		`{"label":"spam"`:                                 false,
		`not json`:                                        false,
		`{"label":"spam","len":"many","caps":"too many"}`: false,
	} {
		for _, features := range []string{"", "len,caps"} {
			for _, inWorker := range []bool{false, true} {
				flags := map[string]string{"blocks.unit": "key", "dead_letters.policy": "skip", "format.features": features}
				if features != "" {
					flags["format.unknown"] = "ignore"
				}
				in := idle(t, flags)
				if features != "" {
					in.Live.Fix([]string{"len", "caps"})
				}
				alone := alone && (features != "" || !strings.Contains(value, "note")) // where others are passed over
				err := feed(t, in, inWorker,
					kafka.Record{Key: []byte("a"), Value: []byte(`{"label":"ham","len":3,"caps":0}`)},
					kafka.Record{Key: []byte("b"), Value: []byte(`{"label":"ham","len":3,"caps":0}`)},
					kafka.Record{Key: []byte("a"), Value: []byte(value)},
					kafka.Record{Key: []byte("never"), Value: []byte(value)})
				if err != nil {
					t.Fatal(err)
				}
				balances(t, in)
				r := in.Report()
				want := 1
				if alone {
					want = 2
				}
				if in.Live.Blocks() != want || r.Records.Rejected != 2 || strings.Contains(r.Latest.Reason, "labels.topic") != alone {
					t.Errorf("%s, features %q: %d blocks, %d records rejected: %s", value, features, in.Live.Blocks(), r.Records.Rejected, r.Latest.Reason)
				}
			}
		}
	}
}
