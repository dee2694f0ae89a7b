package model

// Forgetting says how live rows are weighted by age. With the steps of the weights
// (retire.HalfLife) the planes are a function of the live blocks and their event times.
type Forgetting struct {
	HalfLifeSeconds float64 `json:"half_life_seconds,omitempty"` // age in event time at which a block weighs half
	HalfLifeRows    int64   `json:"half_life_rows,omitempty"`    // number of newer live rows at which a block weighs half
	Rows            int64   `json:"rows"`                        // live rows with a weight: at 32 half-lives it falls to zero
	Weight          float64 `json:"weight"`                      // sum of the weights of the live rows, where the newest count fully
	Digest          string  `json:"digest"`                      // SHA-256 of the weighted sums that planes are solved from, hex
}

// SameSums reports whether a and b are solved from the same sums in the features, or in one basis.
func (a *Served) SameSums(b *Served) bool {
	if a.Forgetting == nil || b.Forgetting == nil {
		return a.Digest == b.Digest && a.Forgetting == b.Forgetting
	}
	return a.Digest == b.Digest && a.Forgetting.Digest == b.Forgetting.Digest
}

// SumsDigest is the digest of the sums that planes are solved from: with forgetting of the weighted
// ones.
func (s *Served) SumsDigest() string {
	if s.Forgetting != nil {
		return s.Forgetting.Digest
	}
	return s.Digest
}
