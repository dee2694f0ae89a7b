package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"streamd/cmd/streamd/model"
	"streamd/incremental/drift/concepts"
)

// conceptBlock is rows i to j of a stream as a message.
func conceptBlock(s *concepts.Stream, i, j int) message {
	var text strings.Builder
	for ; i < j; i++ {
		fmt.Fprint(&text, s.Labels[i])
		for _, column := range s.Columns {
			text.WriteString("," + strconv.FormatFloat(column[i], 'g', -1, 64))
		}
		text.WriteByte('\n')
	}
	return message{value: []byte(text.String()), contentType: "text/csv"}
}

// plain are flags of a daemon that serves the planes of the sums.
var plain = map[string]string{
	"format.csv_header": "absent", "model.decision": "value", "model.nu": "1", "sample.rows": "0",
}

// learn has a daemon learn the first rows of a stream, block by block. Each block is judged by the
// planes of all before it. It calls after with the rows so far and the reports.
func learn(t *testing.T, s *concepts.Stream, rows, block int, flags map[string]string, after func(rows int, p *model.Prequential)) {
	t.Helper()
	flags = maps.Clone(flags)
	maps.Copy(flags, plain)
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	for at := 0; at < rows; at += block {
		produce(t, name, conceptBlock(s, at, at+block))
		d.wait("planes of the block", func(m *model.Served) bool {
			return len(m.Offsets) == 1 && m.Offsets[0].Next == int64(at/block)+1 && (m.Model != nil || at == 0)
		})
		after(at+block, d.Prequential())
	}
	d.stop()
}

// SEA and a rotating hyperplane come as blocks. The error has grown for the daemon in the block in
// which it has for River's ADWIN, which had the errors of the same planes in the order of the rows,
// or in one beside it: the daemon judges the rows of a block in another order.
func TestAlarmsOnConcepts(t *testing.T) {
	text, err := os.ReadFile("../reproduce/testdata/drift.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Runs []struct {
			Stream            string
			Seed              uint32
			Each, Block, Keep int
			Change            float64
			Plane             struct{ Rises []int }
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, g := range golden.Runs {
		s, rows := (*concepts.Stream)(nil), 0
		switch {
		case g.Stream == "sea" && g.Seed == 30:
			s, rows = concepts.SEA(g.Seed, g.Each), 2*g.Each+1000
		case g.Stream == "hyperplane" && g.Seed == 3:
			s, rows = concepts.Hyperplane(g.Seed, 2*g.Each, g.Each, g.Change), g.Each+1500
		default:
			continue
		}
		tested++
		t.Run(g.Stream, func(t *testing.T) {
			t.Parallel()
			var rises []int // rows at the ends of blocks
			flags := map[string]string{"retire.keep": "blocks", "retire.blocks": fmt.Sprint(g.Keep)}
			var last *model.Prequential
			learn(t, s, rows, g.Block, flags, func(rows int, p *model.Prequential) {
				for range int(p.Drift.Error.Rises) - len(rises) {
					rises = append(rises, rows)
				}
				last = p
			})
			if judged := rows - g.Block; last.Rows != int64(judged) {
				t.Errorf("%d of %d rows are judged", last.Rows, judged)
			}
			river := slices.DeleteFunc(g.Plane.Rises, func(row int) bool { return row >= rows })
			t.Logf("alarms in the blocks that end at rows %d, River's at rows %d", rises, river)
			if !slices.EqualFunc(rises, river, func(end, row int) bool {
				block := end/g.Block - 1
				return row/g.Block-1 <= block && block <= row/g.Block+1
			}) {
				t.Error("the alarms differ")
			}
			if len(rises) == 0 {
				t.Error("there is no alarm")
			}
		})
	}
	if tested != 2 {
		t.Errorf("%d streams", tested)
	}
}
