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

// MissingJSON says what a missing value of a feature counts as: 0 in the feature and 1 in the
// column. Where the policy is mean, that is the same as the mean in the feature.
type MissingJSON struct {
	Feature string         `json:"feature"`          // name of the feature
	Policy  config.Missing `json:"policy"`           // policy: zero, mean or indicator
	Column  string         `json:"column,omitempty"` // feature that is 1 where the value is missing, and 0 elsewhere; absent for zero
	Mean    *float64       `json:"mean,omitempty"`   // mean of the live rows that have a value; absent without the policy mean
}

// NewMissingJSON writes down how missing values of a classifier's features are treated: nil
// if they are all refused.
func NewMissingJSON(m wire.Missing, features []string, by *incremental.Model) (out []MissingJSON) {
	for _, name := range m.Base(features) {
		policy := m.Of(name)
		if policy == wire.MissingReject {
			continue
		}
		w := MissingJSON{Feature: name, Policy: config.Missing(policy.String())}
		if policy != wire.MissingZero {
			w.Column = incremental.MissingName(name)
		}
		for _, x := range by.Imputed {
			if by.Features[x.Feature] == name {
				w.Mean = &x.Mean
			}
		}
		out = append(out, w)
	}
	return out
}

// ReadMissing reads the treatment of missing values back, for a classifier of these
// features. Parts that do not fit together are an error.
func ReadMissing(all []MissingJSON, features []string) (m wire.Missing, imputed []incremental.Imputed, err error) {
	m.Features = make(map[string]wire.MissingPolicy, len(all))
	for _, w := range all {
		policy, err := wire.ParseMissing(string(w.Policy))
		at, column := slices.Index(features, w.Feature), slices.Index(features, incremental.MissingName(w.Feature))
		marks := policy == wire.MissingMean || policy == wire.MissingIndicator
		switch _, twice := m.Features[w.Feature]; {
		case err != nil:
			return m, nil, err
		case at < 0:
			return m, nil, fmt.Errorf("missing values are of %q, which is none of its features", w.Feature)
		case twice:
			return m, nil, fmt.Errorf("missing values of %q are treated in two ways", w.Feature)
		case marks && column < 0:
			return m, nil, fmt.Errorf("missing values of %q have no column", w.Feature)
		case w.Mean != nil && (policy != wire.MissingMean || math.IsNaN(*w.Mean)):
			return m, nil, fmt.Errorf("missing values of %q have a mean, but are %s", w.Feature, policy)
		}
		m.Features[w.Feature] = policy
		if w.Mean != nil {
			imputed = append(imputed, incremental.Imputed{Feature: at, Missing: column, Mean: *w.Mean})
		}
	}
	return m, imputed, nil
}
