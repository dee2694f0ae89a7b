package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/httpapi"
	"streamd/retire/receipt"
)

// servedReport is what --model shows.
type servedReport struct {
	*audit.ModelReport
	Receipts int64 `json:"receipts"` // leaves of the log whose changes it has, by the owner's signature
	Includes bool  `json:"includes"` // the receipt is one of them
}

// openModel reads the model of --model, and the head of the log that it names under the owner's
// signature, if it names one.
func (c *receiptsVerifyCmd) openModel(public string) (a *httpapi.ModelAnswer, heads []*receipt.Checkpoint, err error) {
	if c.Model == "" {
		return nil, nil, nil
	}
	text, err := os.ReadFile(c.Model)
	if err != nil {
		return nil, nil, err
	}
	a = new(httpapi.ModelAnswer)
	if err := json.Unmarshal(text, a); err != nil {
		return nil, nil, fmt.Errorf("it is no answer of GET /v1/model: %w", err)
	}
	if a.Window != nil {
		return nil, nil, errors.New("it is the model of a window: want that of all live blocks, GET /v1/model without from, to and positions")
	}
	if _, err := a.Classifier(); err != nil || a.Signed == "" && a.Receipts == 0 {
		return a, nil, err
	}
	head, err := receipt.OpenModel([]byte(a.Signed), public, a.Fingerprint)
	if err == nil && head.Size != a.Receipts {
		err = fmt.Errorf("it says that it has the changes of %d receipts, and its signature is under %d", a.Receipts, head.Size)
	}
	return a, []*receipt.Checkpoint{head}, err
}

// served makes a model again from the snapshot, beside a receipt of that number.
func (c *receiptsVerifyCmd) served(ctx context.Context, a *httpapi.ModelAnswer, receipt int64) (*servedReport, error) {
	made, err := audit.Model(ctx, c.Snapshot, &audit.Served{
		Identity: a.Identity(), Figures: a.Figures(), Fingerprint: a.Fingerprint, Receipts: a.Receipts,
		Basis: a.Basis, Stale: a.BasisStale, Sample: a.Sample, Tuning: a.Tuning,
	})
	return &servedReport{made, a.Receipts, receipt < a.Receipts}, err
}

func (r *servedReport) rows(t *table) {
	if r == nil {
		return
	}
	t.row("served model", r.Fingerprint)
	if r.Includes {
		t.row("  signed", fmt.Sprintf("it has the changes of the first %d receipts, and of this one: it is without the blocks that these have taken out, unless they came again", r.Receipts))
	} else {
		t.row("  signed", fmt.Sprintf("it has the changes of the first %d receipts, and this one came later", r.Receipts))
	}
	for _, s := range r.Proved {
		t.row("  proved", s)
	}
	for _, s := range r.Unchecked {
		t.row("  not checked", s)
	}
}
