package daemon

import (
	"context"
	"fmt"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/sample"
)

// LabelRequests implements httpapi.Service. Rows with a label are clustered, too: a cluster
// whose middle has a label needs no other.
func (d *Daemon) LabelRequests(ctx context.Context, count int) (*httpapi.LabelRequestsAnswer, error) {
	if !d.labelling.TryLock() {
		return nil, fmt.Errorf("choose rows to label: %w", httpapi.ErrBusy)
	}
	defer d.labelling.Unlock()
	var snap *sample.Snapshot
	var sigma []float64
	a, err := inLoop(ctx, d.jobs, func() (*httpapi.LabelRequestsAnswer, error) {
		switch {
		case !d.live.HasSample():
			return nil, fmt.Errorf("choose rows to label: sample.rows is 0: %w", httpapi.ErrOff)
		case d.live.Lacking() > 0:
			return nil, fmt.Errorf("choose rows to label: %w: %w", learning.ErrLacking, httpapi.ErrUnavailable)
		}
		a := &httpapi.LabelRequestsAnswer{Digest: d.live.Features().Digest(), Features: d.live.Features().Names()}
		if d.live.Unlabelled() > 0 {
			snap = d.live.Sample(0)
			_, sigma = d.live.Features().Total().Scale()
		}
		return a, nil
	})
	if err != nil || snap == nil {
		return a, err
	}
	return a, d.asked(taskLabels, func() error { return requestLabels(ctx, a, snap, sigma, count) })
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
