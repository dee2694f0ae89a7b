package planes

import (
	"context"
	"fmt"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/sample"
)

// LabelRequests implements httpapi.Service. Rows with a label are clustered, too: a cluster
// whose middle has a label needs no other.
func (y *Studies) LabelRequests(ctx context.Context, count int) (*httpapi.LabelRequestsAnswer, error) {
	if !y.labelling.TryLock() {
		return nil, fmt.Errorf("choose rows to label: %w", httpapi.ErrBusy)
	}
	defer y.labelling.Unlock()
	var snap *sample.Snapshot
	var sigma []float64
	a, err := loop.Ask(ctx, y.Loop, func() (*httpapi.LabelRequestsAnswer, error) {
		switch {
		case !y.Live.HasSample():
			return nil, fmt.Errorf("choose rows to label: sample.rows is 0: %w", httpapi.ErrOff)
		case y.Live.Lacking() > 0:
			return nil, fmt.Errorf("choose rows to label: %w: %w", learning.ErrLacking, httpapi.ErrUnavailable)
		}
		a := &httpapi.LabelRequestsAnswer{Digest: y.Live.Features().Digest(), Features: y.Live.Features().Names()}
		if y.Live.Unlabelled() > 0 {
			snap = y.Live.Sample(0)
			_, sigma = y.Live.Features().Total().Scale()
		}
		return a, nil
	})
	if err != nil || snap == nil {
		return a, err
	}
	return a, y.Asked(loop.TaskLabels, func() error { return requestLabels(ctx, a, snap, sigma, count) })
}

// requestLabels puts the rows to label into an answer. sigma is the standard deviation of
// each feature, in whose units distances are measured.
func requestLabels(ctx context.Context, a *httpapi.LabelRequestsAnswer, snap *sample.Snapshot, sigma []float64, count int) error {
	with, without := snap.View(), snap.Unlabelled()
	labelled, open := atMost(with.Block, model.MostClustered), atMost(without.Block, model.MostClustered)
	labelled, open = sample.Weigh(labelled, with.Totals), sample.Weigh(open, without.Totals)
	chosen, err := model.ChooseToLabel(ctx, labelled, open, sigma, count)
	if err != nil {
		return fmt.Errorf("choose rows to label: %w", err)
	}
	a.Rows, a.Clusters, a.Labelled = chosen.Rows, chosen.Clusters, chosen.Labelled
	for _, c := range chosen.Requests {
		at := without.Places[c.Row]
		request := httpapi.LabelRequest{Block: at.Block, Row: at.Row, Share: c.Share}
		for _, column := range open.Columns {
			request.Values = append(request.Values, column.At(c.Row))
		}
		a.Requests = append(a.Requests, request)
	}
	return nil
}

// atMost returns the first rows of a block of a sample, which are a sample, too.
func atMost(b *incremental.Block, rows int) *incremental.Block {
	return b.Slice(0, min(b.Rows(), rows))
}
