package model

import (
	"fmt"
	"math"
	"slices"

	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/wire"
)

// MissingOf is the configured treatment of missing values.
func MissingOf(f config.Format) wire.Missing {
	if f.Schema != nil {
		return wire.Missing{Features: f.Schema.Missing()}
	}
	m := wire.Missing{Default: missingPolicy(f.Missing), Features: make(map[string]wire.MissingPolicy, len(f.MissingFeatures))}
	for name, policy := range f.MissingFeatures {
		m.Features[name] = missingPolicy(policy)
	}
	return m
}

func missingPolicy(text config.Missing) wire.MissingPolicy {
	if text == "" {
		return wire.MissingReject
	}
	policy, err := wire.ParseMissing(string(text))
	if err != nil {
		panic(err) // the choices are those of the key
	}
	return policy
}

// MissingJSON says what a missing value of a feature counts as. With zero it is 0. With mean it is
// the number `mean`; no feature marks it. With indicator it is 0, and the feature `column`,
// which is 0 in other rows, is 1.
type MissingJSON struct {
	Feature string         `json:"feature"`          // name of the feature
	Policy  config.Missing `json:"policy"`           // policy: zero, mean or indicator
	Column  string         `json:"column,omitempty"` // name of the feature that is 1 where the value is missing, and 0 elsewhere; absent unless the policy is indicator
	Mean    *float64       `json:"mean,omitempty"`   // number to put in place of the missing value: the mean of the live rows that have one, or 0 if none has; absent unless the policy is mean
}

// NewMissingJSON writes down how missing values of a classifier's features are treated: nil
// if they are all refused.
func NewMissingJSON(m wire.Missing, features []string, by *incremental.Model) (out []MissingJSON) {
	for _, name := range m.Base(features) {
		w := MissingJSON{Feature: name, Policy: config.Missing(m.Of(name).String())}
		switch m.Of(name) {
		case wire.MissingReject:
			continue
		case wire.MissingIndicator:
			w.Column = incremental.MissingName(name)
		case wire.MissingMean:
			w.Mean = new(float64)
			for _, x := range by.Imputed {
				if by.Features[x.Feature] == name {
					*w.Mean = x.Mean
				}
			}
		}
		out = append(out, w)
	}
	return out
}

// ReadMissing reads the treatment of missing values back, for a classifier of these
// features, and the mean of each feature whose missing values count as that. Parts that do not
// fit together are an error.
func ReadMissing(all []MissingJSON, features []string) (m wire.Missing, mean map[string]float64, err error) {
	m.Features, mean = make(map[string]wire.MissingPolicy, len(all)), map[string]float64{}
	for _, w := range all {
		policy, err := wire.ParseMissing(string(w.Policy))
		marks := slices.Contains(features, incremental.MissingName(w.Feature))
		switch _, twice := m.Features[w.Feature]; {
		case err != nil:
			return m, nil, err
		case !slices.Contains(features, w.Feature):
			return m, nil, fmt.Errorf("missing values are of %q, which is none of its features", w.Feature)
		case twice:
			return m, nil, fmt.Errorf("missing values of %q are treated in two ways", w.Feature)
		case policy == wire.MissingIndicator && !marks:
			return m, nil, fmt.Errorf("missing values of %q have no column", w.Feature)
		case policy == wire.MissingMean && marks:
			return m, nil, fmt.Errorf("missing values of %q are the mean, and have a column, too", w.Feature)
		case (w.Mean != nil) != (policy == wire.MissingMean) || w.Mean != nil && math.IsNaN(*w.Mean):
			return m, nil, fmt.Errorf("missing values of %q are %s: only with mean, and always with mean, there is a number that they count as", w.Feature, policy)
		}
		if m.Features[w.Feature] = policy; w.Mean != nil {
			mean[w.Feature] = *w.Mean
		}
	}
	return m, mean, nil
}
