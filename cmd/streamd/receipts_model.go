package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/httpapi"
)

// servedReport is what --model shows.
type servedReport struct {
	*audit.ModelReport
	First bool `json:"first_without"` // the receipt names it as the first model that was served without the blocks
}

// served checks the model of --model with the snapshot.
func (c *receiptsVerifyCmd) served(ctx context.Context, r *receiptReport) (*servedReport, error) {
	text, err := os.ReadFile(c.Model)
	if err != nil {
		return nil, err
	}
	var a httpapi.ModelAnswer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("it is no answer of GET /v1/model: %w", err)
	}
	if _, err := a.Classifier(); err != nil {
		return nil, err
	}
	checked, err := audit.Model(ctx, c.Snapshot, &audit.Served{
		Identity: a.Identity(), Fingerprint: a.Fingerprint, Basis: a.Basis, Sample: a.Sample, Tuning: a.Tuning,
	})
	if err != nil {
		return nil, err
	}
	return &servedReport{checked, r.Without == checked.Fingerprint}, nil
}

func (r *servedReport) rows(t *table) {
	if r == nil {
		return
	}
	of := "the receipt names another one, or none yet, as the first without the blocks"
	if r.First {
		of = "the receipt names it as the first that was served without the blocks"
	}
	t.row("served model", r.Fingerprint+": "+of)
	for _, s := range r.Proved {
		t.row("  proved", s)
	}
	for _, s := range r.Unchecked {
		t.row("  not checked", s)
	}
}
