package live

import (
	"streamd/cmd/streamd/model"
	"streamd/snapshot"
)

// reportOf is the snapshot's record of a reduction.
func reportOf(r *model.Reduction) []byte {
	record := snapshot.Reduction{
		Basis: r.Basis, Kernel: r.Kernel, Method: r.Method, Pruned: r.Pruned, Digest: r.Digest, Unjudged: r.Unjudged,
		Points: r.Points, Rows: r.Rows, Live: r.Live, MadeAt: r.MadeAt, Seconds: r.Seconds,
	}
	for _, g := range r.Gammas {
		record.Gammas = append(record.Gammas, snapshot.Gamma(g))
	}
	for _, s := range r.Stages {
		record.Stages = append(record.Stages, snapshot.Stage(s))
	}
	return record.AppendBinary(nil)
}

// reductionOf is the reduction in a record.
func reductionOf(report []byte) (*model.Reduction, error) {
	record, err := snapshot.DecodeReduction(report)
	if err != nil {
		return nil, err
	}
	r := &model.Reduction{
		Basis: record.Basis, Kernel: record.Kernel, Method: record.Method, Pruned: record.Pruned, Digest: record.Digest, Unjudged: record.Unjudged,
		Points: record.Points, Rows: record.Rows, Live: record.Live, MadeAt: record.MadeAt, Seconds: record.Seconds,
	}
	for _, g := range record.Gammas {
		r.Gammas = append(r.Gammas, model.Gamma(g))
	}
	for _, s := range record.Stages {
		r.Stages = append(r.Stages, model.Stage(s))
	}
	return r, nil
}
