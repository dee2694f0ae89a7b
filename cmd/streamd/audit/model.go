package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/retire"
	"streamd/snapshot"
)

// Served is an answer of GET /v1/model that is to be checked.
type Served struct {
	*model.Identity
	Fingerprint string           // that the answer has
	Basis       *model.BasisJSON // nil: the planes are in the features
	Forgetting  *model.Forgetting
}

// ModelReport is the result of checking a served model with a snapshot file.
type ModelReport struct {
	Fingerprint string `json:"fingerprint"` // computed from the other parts of the answer
	Digest      string `json:"state_digest"`
	Planes      int    `json:"planes"` // solved from the sums again, with the same bits; 0: they are not proved
	// Proved and Stated are sentences: what the snapshot shows of the model, and what it does not.
	Proved []string `json:"proved"`
	Stated []string `json:"stated"`
}

// Model checks a served model with the arithmetic of a snapshot file. The fingerprint is that of
// the answer's parts, the digest is that of the sums of the live blocks, and the planes are those
// of these sums with the answer's options, bit for bit. It is an error if one of them is another
// one. Planes that were not read off sums alone are not proved, which the report says.
func Model(path string, served *Served) (*ModelReport, error) {
	p := &ModelReport{Fingerprint: served.Identity.Fingerprint(), Digest: served.Digest}
	if p.Fingerprint != served.Fingerprint {
		return nil, fmt.Errorf("the model says that its fingerprint is %s, and that of its parts is %s: it has been changed", served.Fingerprint, p.Fingerprint)
	}
	p.Proved = append(p.Proved, "the fingerprint is that of its digest, options, planes, calibration and rule of labels")
	store, saved, err := snapshot.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if err := p.check(store, saved, served); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	const rows = "are made from rows of the sample, which sums do not have"
	if served.Calibration != nil || len(served.Planes) > 1 || served.Decision != nil && served.Decision.Threshold != nil && *served.Decision.Threshold != 0 {
		p.Stated = append(p.Stated, "calibration and the rule of labels: they "+rows)
	}
	p.Stated = append(p.Stated, "options: ν and other options are as the configuration or a study chose them; with chosen ones held-out rows took part")
	return p, nil
}

// check compares the model with the sums of the live blocks.
func (p *ModelReport) check(store *snapshot.Store, saved *snapshot.Contents, served *Served) error {
	in, coordinates, err := spaceOf(saved, served)
	if err != nil {
		return err
	}
	sums, weighted, err := sumsOf(store, saved, in, served.Forgetting)
	if err != nil {
		return err
	}
	if digest := hexDigest(sums); digest != served.Digest {
		return fmt.Errorf("its blocks add up to the digest %s, and the model is of %s: take a copy of the snapshot while the model is served", digest, served.Digest)
	}
	p.Proved = append(p.Proved, fmt.Sprintf("its sums are those of the %d live blocks of the snapshot", len(saved.Entries)))
	if weighted != nil {
		if digest := hexDigest(weighted); digest != served.Weighted {
			return fmt.Errorf("its blocks, weighted by their age, add up to the digest %s, and the model is of %s", digest, served.Weighted)
		}
		p.Proved = append(p.Proved, "its weighted sums are those of the blocks by their event times, which the snapshot states")
		sums = weighted
	}
	o, why := optionsOf(served)
	if why != "" {
		p.Stated = append(p.Stated, "planes: "+why)
		return nil
	}
	solved, err := coordinates.Moments(sums).Solve(o)
	if err != nil {
		return fmt.Errorf("the planes of its sums: %w", err)
	}
	if err := samePlanes(model.NewPlanesJSON(solved.WithoutMissing().Planes), served.Planes); err != nil {
		return err
	}
	p.Planes = len(served.Planes)
	p.Proved = append(p.Proved, "its planes are those of its sums with its options, bit for bit")
	return nil
}

// spaceOf finds the space of the model's planes. The coordinates are nil for the features.
func spaceOf(saved *snapshot.Contents, served *Served) (uint32, *basis.Coordinates, error) {
	if served.Identity.Basis == "" {
		return snapshot.Features, nil, nil
	}
	if served.Basis == nil {
		return 0, nil, errors.New("the model has the id of a basis, and no basis")
	}
	m, err := served.Basis.Map(len(served.Features))
	if err != nil {
		return 0, nil, fmt.Errorf("the model's basis: %w", err)
	}
	if digest := m.Digest(); hex.EncodeToString(digest[:]) != served.Identity.Basis {
		return 0, nil, fmt.Errorf("the model's basis has the id %x, and the model says %s", digest, served.Identity.Basis)
	}
	for _, space := range saved.Spaces {
		if space.Number == snapshot.Features {
			continue
		}
		is, err := kernels.DecodeMap(space.Basis)
		if err != nil {
			return 0, nil, err
		}
		if is.Digest() == m.Digest() {
			return space.Number, basis.New(m, served.Basis.Regulariser == config.RegulariserKernel), nil
		}
	}
	return 0, nil, errors.New("it has no sums in the model's basis: take a copy of the snapshot while the model is served")
}

// sumsOf adds up the live blocks in a space, and again with their weights by age.
func sumsOf(store *snapshot.Store, saved *snapshot.Contents, in uint32, f *model.Forgetting) (sums, weighted *incremental.State, err error) {
	space := saved.Space(in)
	if space == nil {
		return incremental.NewState(nil), nil, nil
	}
	features := space.State.Features()
	steps := stepsOf(saved.Entries, f)
	sums = incremental.NewState(features)
	parts := map[uint64]*incremental.State{} // by steps below the newest block
	err = store.Summaries(in, func(e retire.Entry, s *incremental.Summary) error {
		sums.Add(s)
		if f == nil {
			return nil
		}
		if d := steps[e.ID]; d <= retire.MostHalvings*retire.StepsPerHalving {
			if parts[d] == nil {
				parts[d] = incremental.NewState(features)
			}
			parts[d].Add(s)
		}
		return nil
	})
	if err != nil || f == nil {
		return sums, nil, err
	}
	var of []*incremental.State
	var weights []uint64
	for d, part := range parts {
		m, halvings, _ := retire.Multiplier(d)
		of, weights = append(of, part), append(weights, m<<(retire.MostHalvings-halvings))
	}
	return sums, incremental.WeightedSum(features, of, weights, retire.WeightBits+retire.MostHalvings), nil
}

// stepsOf is how many steps each block is below the newest. Nil: blocks have no age.
func stepsOf(live []retire.Entry, f *model.Forgetting) map[string]uint64 {
	if f == nil {
		return nil
	}
	half := retire.HalfLife{Time: time.Duration(math.Round(f.HalfLifeSeconds*1e3)) * time.Millisecond, Rows: f.HalfLifeRows}
	ledger := retire.NewLedger(retire.Policy{})
	for _, e := range live {
		ledger.Add(e)
	}
	end := ledger.End(half)
	newest := half.Step(end)
	steps := map[string]uint64{}
	for e, age := range ledger.Ages(half) {
		steps[e.ID] = uint64(newest - half.Step(end-age))
	}
	return steps
}

// optionsOf is the options of the solve. why says why planes are not read off sums alone.
func optionsOf(served *Served) (o incremental.Options, why string) {
	o = incremental.Options{
		Nu: served.Options.Nu, Balanced: served.Options.Balanced, ClassWeights: served.Options.ClassWeights,
		Standardise: served.Options.Standardise,
	}
	for _, m := range served.Missing {
		if m.Policy == config.MissingMean {
			o.Mean = append(o.Mean, m.Feature)
		}
	}
	for _, m := range []config.Method{config.MethodPSVM, config.MethodMeans, config.MethodLasso} {
		o.Solver = model.Solver(m)
		if model.SolvedBy(o) == served.Method {
			return o, ""
		}
	}
	if model.Refined(served.Method) {
		return o, fmt.Sprintf("they are refined (%s) on rows of the sample or of the log, which sums do not have; --replay reads the rows again, and a daemon of the same build and configuration that has read them finds the same planes", served.Method)
	}
	return o, fmt.Sprintf("the method %s takes rules beside the sums, which the snapshot does not have", served.Method)
}

// samePlanes compares the bits of planes. 0 and −0 are one number.
func samePlanes(solved, served []model.PlaneJSON) error {
	if len(solved) != len(served) {
		return fmt.Errorf("its sums have %d planes, and the model has %d", len(solved), len(served))
	}
	same := func(a, b float64) bool { return math.Float64bits(a+0) == math.Float64bits(b+0) }
	for i, p := range solved {
		q := served[i]
		if p.Class != q.Class || len(p.W) != len(q.W) {
			return fmt.Errorf("plane %d of its sums is of class %q with %d weights, and that of the model of class %q with %d", i+1, p.Class, len(p.W), q.Class, len(q.W))
		}
		if !same(p.Gamma, q.Gamma) {
			return fmt.Errorf("the plane of class %q has γ = %v by its sums, and %v in the model: the model is not that of the blocks", p.Class, p.Gamma, q.Gamma)
		}
		for j, w := range p.W {
			if !same(w, q.W[j]) {
				return fmt.Errorf("weight %d of the plane of class %q is %v by its sums, and %v in the model: the model is not that of the blocks", j+1, p.Class, w, q.W[j])
			}
		}
	}
	return nil
}

func hexDigest(s *incremental.State) string {
	digest := s.Digest()
	return hex.EncodeToString(digest[:])
}
