package intake

import (
	"context"
	"slices"

	"streamd/incremental/exact"
	"streamd/ingest/summary"
)

// mostTogether bounds the records that are decoded together.
const mostTogether = 128

// together is the memory of records that are decoded together.
type together struct {
	payloads [][]byte
	windows  []exact.Window
}

// together makes the results of record i of a task and of those behind it, where they are rows to
// be gathered of one row each: what process makes of them, for less. It returns how many they are.
// It is 0 where they have to be processed one by one, as when one of them has a fault.
func (w *worker) together(ctx context.Context, t *task, i int) int {
	if i < t.alone || !Gathers(w.Config.Blocks) || w.Labels != nil || w.opener != nil || w.deletes || ctx.Err() != nil {
		return 0
	}
	features := w.Live.Target().Features
	if features == nil || w.prepare(features) != nil {
		return 0
	}
	first := &t.records[i]
	contentType := w.contentType(first)
	if summary.Is(contentType) {
		return 0
	}
	y := &w.taken
	y.payloads = y.payloads[:0]
	for k := i; k < min(len(t.records), i+mostTogether); k++ {
		r := &t.records[k]
		if check(r) != nil || w.contentType(r) != contentType {
			break
		}
		y.payloads = append(y.payloads, r.Value)
	}
	n := len(y.payloads)
	if n < 2 {
		return 0
	}
	t.alone = i + mostTogether // unless it works
	b, ok := w.decoder.DecodeRows(contentType, y.payloads)
	if !ok || slices.Contains(b.Weights, 0) || b.FirstBadRow() != nil || w.keeper.Check(ctx, b, w.Live.Target()) != nil {
		return 0
	}
	t.alone = 0
	each := rowBytesOf(b)
	inHand := func(payload []byte) int64 { // as for a record that is processed alone
		if w.admits != nil {
			return 0
		}
		return max(0, each-int64(len(payload)))
	}
	all := int64(0)
	for _, payload := range y.payloads {
		all += inHand(payload)
	}
	if w.inHand.Add(all) > w.room.Load() && all > 0 {
		w.inHand.Add(-all)
		return 0
	}
	w.tellDoubt(t.partition, first)
	w.holdRows(t)
	at := t.rows.Len()
	t.rows.AppendBlock(b)
	y.windows = b.Windows(y.windows[:0])
	results := len(t.results)
	for k := range n {
		z := result{
			rows: 1, fixed: w.features, i: at + k, j: at + k + 1, window: y.windows[k],
			inHand: inHand(y.payloads[k]),
		}
		if counts(b, k) {
			label := b.Classes[b.Codes[k]]
			z.ends = ends{label, label}
		}
		t.results = append(t.results, z)
	}
	by := w.Served(w.features)
	w.judge.each(b, by, &w.allowance, func(k int, of judgement) {
		of.follow(by, w.Config.Kafka.Topic, t.partition, t.records[i+k].Offset)
		t.results[results+k].judged = of
	})
	return n
}
