package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/retire/receipt"
)

// What second.py reads and writes.
type (
	secondBlock struct {
		Rows    [][]float64 `json:"rows"`
		Labels  []string    `json:"labels"`
		Weights []float64   `json:"weights"`
	}
	secondState struct {
		Features []string           `json:"features"`
		Blocks   []int              `json:"blocks"`
		Options  *model.OptionsJSON `json:"options"`
		Mean     []string           `json:"mean"`
		HalfLife *secondHalfLife    `json:"half_life"`
		Times    []int64            `json:"times"`
	}
	secondHalfLife struct {
		Time int64 `json:"time"` // ms
		Rows int64 `json:"rows"`
	}
	secondQuestion struct {
		Blocks []secondBlock         `json:"blocks"`
		States []secondState         `json:"states"`
		Models []httpapi.ModelAnswer `json:"models"`
		Trees  []secondTree          `json:"trees"`
		Proofs []secondProof         `json:"proofs"`
		Leaves []secondLeaf          `json:"leaves"`
	}
	secondTree struct {
		VRF   string       `json:"vrf"`
		Items []secondItem `json:"items"`
	}
	secondItem struct {
		ID     string `json:"id"`
		Proof  string `json:"proof"`
		Salt   string `json:"salt"`
		Digest string `json:"digest"`
	}
	secondProof struct {
		VRF   string `json:"vrf"`
		ID    string `json:"id"`
		Proof string `json:"proof"`
	}
	secondSide struct {
		Digest string `json:"digest"`
		Root   string `json:"root"`
	}
	secondLeaf struct {
		Kind      receipt.Kind      `json:"kind"`
		Blocks    int64             `json:"blocks"`
		Rows      int64             `json:"rows"`
		Passing   int64             `json:"passing"`
		Lacking   int64             `json:"lacking"`
		Earliest  int64             `json:"earliest"`
		Latest    int64             `json:"latest"`
		Durable   int64             `json:"durable"`
		LogUntil  int64             `json:"log_until"`
		Before    secondSide        `json:"before"`
		After     secondSide        `json:"after"`
		Items     string            `json:"items"`
		Settings  string            `json:"settings"`
		Request   string            `json:"request"`
		VRF       string            `json:"vrf"`
		Scope     map[string]string `json:"scope"`
		Principal string            `json:"principal"`
		Build     string            `json:"build"`
		Topic     string            `json:"topic"`
		Offsets   [][2]int64        `json:"offsets"`
	}
	secondPlane struct {
		Class string   `json:"class"`
		W     []string `json:"w"` // 8 bytes each, little endian, in hex
		Gamma string   `json:"gamma"`
	}
	// secondRange has one text of each number, or the least and the largest that it may be.
	secondRange struct {
		Class string     `json:"class"`
		W     [][]string `json:"w"`
		Gamma []string   `json:"gamma"`
	}
	secondAnswer struct {
		Blocks []string `json:"blocks"`
		States []struct {
			Digest string        `json:"digest"`
			Planes []secondRange `json:"planes"`
		} `json:"states"`
		Fingerprints []string `json:"fingerprints"`
		Roots        []string `json:"roots"`
		Keys         []string `json:"keys"`
		Leaves       []string `json:"leaves"`
		LeafHashes   []string `json:"leaf_hashes"`
	}
)

// ask has the second implementation compute.
func (q *secondQuestion) ask(t *testing.T) (a secondAnswer) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("STREAMD_REQUIRE_PROGRAMS") != "" {
			t.Fatal("STREAMD_REQUIRE_PROGRAMS is set: ", err)
		}
		t.Skip("the second implementation needs python3, which is not there: ", err)
	}
	in, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	var failed bytes.Buffer
	c := exec.CommandContext(t.Context(), python, filepath.Join("..", "..", "..", "testdata", "second", "second.py"))
	c.Stdin, c.Stderr = bytes.NewReader(in), &failed
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, failed.String())
	}
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func bitsOf(x float64) string {
	return hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x+0)))
}

func secondPlanes(planes []incremental.Plane) (out []secondPlane) {
	for _, p := range planes {
		s := secondPlane{Class: p.Class, Gamma: bitsOf(p.Gamma)}
		for _, w := range p.W {
			s.W = append(s.W, bitsOf(w))
		}
		out = append(out, s)
	}
	return out
}

// has reports whether the plane of the program is in the range of the second implementation, and
// for how many of its numbers rounding decides bits.
func (r *secondRange) has(p secondPlane) (ok bool, rounded int) {
	ok = r.Class == p.Class && len(r.W) == len(p.W)
	for j, of := range append(slices.Clone(r.W), r.Gamma) {
		got := p.Gamma
		if j < len(p.W) {
			got = p.W[j]
		}
		if len(of) == 1 {
			ok = ok && got == of[0]
			continue
		}
		rounded++
		ok = ok && numberOf(of[0]) <= numberOf(got) && numberOf(got) <= numberOf(of[1])
	}
	return ok, rounded
}

// numberOf is the number of bitsOf.
func numberOf(text string) float64 {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 8 {
		return math.NaN()
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(raw))
}

// secondRows makes a random block for a history. Its kinds are those that the rules of an origin,
// of lanes and of weights tell apart.
func secondRows(r *rand.Rand, n int, labels []string) (b secondBlock) {
	m := 1 + r.IntN(12)
	if r.IntN(6) == 0 {
		m = 250 + r.IntN(700) // more than a stretch of a class
	}
	weighted := r.IntN(3) == 0
	unlabelled := []float64{0, 0, 0, 0.3, 0.97}[r.IntN(5)]
	grid := []float64{0, 1, 256}[r.IntN(3)]                      // whole numbers and fractions have exact sums
	far := []float64{0, 0, 3.95, 4, 10, 25, 45, 1000}[r.IntN(8)] // in about standard deviations
	offset := 0.0
	if r.IntN(3) == 0 {
		offset = 1e4 * r.NormFloat64()
	}
	for i := range m {
		row := make([]float64, n)
		for j := range row {
			row[j] = offset + float64(j+1)*r.NormFloat64()
			if i == 0 || i == m/2 { // the rows that the origin is taken from
				row[j] = offset + far*float64(j+1)
			}
			if grid > 0 {
				row[j] = math.Round(grid*row[j]) / grid
			}
		}
		label := labels[r.IntN(len(labels))]
		if r.Float64() < unlabelled {
			label = incremental.Unlabelled
			row[0] += 30
		}
		b.Rows, b.Labels = append(b.Rows, row), append(b.Labels, label)
		if weighted {
			v := []float64{0, 1, 0.25, 0.1, 3}[r.IntN(5)]
			if i == 0 || i == m/2 { // so that they hardly move the mean
				v = 1.0 / 1024
			}
			b.Weights = append(b.Weights, v)
		}
	}
	if m == 1 && r.IntN(3) == 0 {
		b.Weights = []float64{0} // a block that weighs nothing
	}
	return b
}

// block is b as the program has it.
func (b *secondBlock) block() *incremental.Block {
	out := &incremental.Block{Weights: b.Weights}
	for j := range b.Rows[0] {
		column := make([]float64, len(b.Rows))
		for i := range column {
			column[i] = b.Rows[i][j]
		}
		out.Columns = append(out.Columns, gram.ColumnOf(column))
	}
	for _, label := range b.Labels {
		at := slices.Index(out.Classes, label)
		if at < 0 {
			at, out.Classes = len(out.Classes), append(out.Classes, label)
		}
		out.Codes = append(out.Codes, int32(at))
	}
	return out
}

// Of random histories the second implementation, which follows the documents, finds the same
// digests of blocks, states and weighted states, the same fingerprints, and the same bits of planes
// but for those that it says rounding decides.
func TestSecondImplementation(t *testing.T) {
	const histories = 200
	var q secondQuestion
	var blocks, digests, fingerprints []string
	var solved [][]secondPlane
	var summariser incremental.Summariser
	counts := map[string]int{}
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(91, seed))
		n := 1 + r.IntN(4)
		features := incremental.DefaultFeatures(n)
		var mean []string
		lacks := 0.0 // share of the missing values
		if seed%3 == 0 {
			features, mean, lacks = append(features, incremental.MissingName(features[0])), features[:1], []float64{0, 0.2, 0.6, 1}[r.IntN(4)]
		}
		labels := [][]string{{"0", "1"}, {"-1", "1"}, {"10", "9", "1e-06", "1.5e+15", "ß", "b"}, {"ham", "spam", "007"}}[r.IntN(4)]
		state := incremental.NewState(features)
		live := map[int]*incremental.Summary{}
		for range 4 + r.IntN(10) {
			if len(live) > 2 && r.IntN(3) == 0 {
				i := slices.Sorted(maps.Keys(live))[r.IntN(len(live))]
				state.Remove(live[i])
				delete(live, i)
			}
			b := secondRows(r, n, labels)
			for i := range b.Rows {
				if mean == nil {
					continue
				}
				mark := 0.0
				if r.Float64() < lacks {
					mark, b.Rows[i][0] = 1, 0
				}
				b.Rows[i] = append(b.Rows[i], mark)
			}
			s, err := summariser.Summarise(b.block())
			if err != nil {
				t.Fatal(err)
			}
			at := len(q.Blocks)
			if q.Blocks = append(q.Blocks, b); s.Rows() == 0 {
				blocks, counts["empty"] = append(blocks, ""), counts["empty"]+1
				continue
			}
			digest := s.Digest()
			blocks = append(blocks, hex.EncodeToString(digest[:]))
			live[at] = s
			state.Add(s)
		}
		times := map[int]int64{} // of live blocks
		add := func(state *incremental.State, half *secondHalfLife, o *incremental.Options) {
			asked := secondState{Features: features, Blocks: []int{}, HalfLife: half, Mean: mean}
			for i := range q.Blocks {
				if live[i] != nil {
					asked.Blocks, asked.Times = append(asked.Blocks, i), append(asked.Times, times[i])
				}
			}
			var planes []secondPlane
			if o != nil && state.Classes() > 1 {
				o.Mean = mean
				m, err := state.Moments().Solve(*o)
				if err != nil {
					t.Fatalf("history %d: %v", seed, err)
				}
				m = m.WithoutMissing()
				asked.Options, planes = new(model.NewOptionsJSON(*o)), secondPlanes(m.Planes)
				counts["solved"]++
				if half != nil {
					counts["solved by age"]++
				}
				if mean != nil && lacks > 0 {
					counts["solved with means"]++
				}
				q.Models = append(q.Models, answerOf(r, state, m))
				fingerprints = append(fingerprints, q.Models[len(q.Models)-1].Identity().Fingerprint())
			}
			digest := state.Digest()
			q.States = append(q.States, asked)
			digests, solved = append(digests, hex.EncodeToString(digest[:])), append(solved, planes)
		}
		for _, o := range []incremental.Options{
			{Nu: 1}, {Nu: math.Exp(3 * r.NormFloat64()), Standardise: true},
			{Nu: 0.3, Balanced: true, Standardise: r.IntN(2) == 0, ClassWeights: map[string]float64{labels[0]: 2.5, "absent": 3}},
		} {
			add(state, nil, &o)
		}
		ledger, ids := retire.NewLedger(retire.Policy{}), map[string]int{}
		spread := int64(1) << (1 + r.IntN(40))
		for i := range q.Blocks {
			if live[i] == nil {
				continue
			}
			times[i] = r.Int64N(3) * (r.Int64N(spread) - spread/3)
			e := retire.Entry{
				ID: fmt.Sprint(i), Position: incremental.Position{Topic: "t", Offset: int64(i)}, Last: int64(i),
				Time: time.UnixMilli(times[i]), Rows: live[i].Rows(),
			}
			ids[e.ID] = i
			ledger.Add(e)
		}
		for _, half := range []retire.HalfLife{
			{Time: time.Duration(8+r.Int64N(spread)) * time.Millisecond}, {Time: time.Duration(8+spread/100) * time.Millisecond},
			{Rows: 1 + r.Int64N(1000)}, {Rows: 1 + r.Int64N(20)},
		} {
			var parts []*incremental.State
			var weights []uint64
			end := ledger.End(half)
			for e, age := range ledger.Ages(half) {
				m, halvings, ok := retire.Multiplier(uint64(half.Step(end) - half.Step(end-age)))
				if !ok {
					counts["without weight"]++
					continue
				}
				part := incremental.NewState(features)
				part.Add(live[ids[e.ID]])
				parts, weights = append(parts, part), append(weights, m<<(retire.MostHalvings-halvings))
			}
			weighted := incremental.WeightedSum(features, parts, weights, retire.WeightBits+retire.MostHalvings)
			add(weighted, &secondHalfLife{half.Time.Milliseconds(), half.Rows}, &incremental.Options{Nu: 2, Balanced: r.IntN(2) == 0, Standardise: r.IntN(2) == 0})
		}
		for i, s := range live { // and nothing is left
			state.Remove(s)
			delete(live, i)
		}
		add(state, nil, nil)
	}
	got := q.ask(t)
	if !slices.Equal(got.Blocks, blocks) {
		at := slices.IndexFunc(got.Blocks, func(string) bool { return true })
		for at < len(blocks) && got.Blocks[at] == blocks[at] {
			at++
		}
		t.Errorf("block %d is %s, and %s by the second implementation: %+v", at, blocks[at], got.Blocks[at], q.Blocks[at])
	}
	if len(got.States) != len(digests) {
		t.Fatalf("%d states, want %d", len(got.States), len(digests))
	}
	for i, s := range got.States {
		if s.Digest != digests[i] {
			t.Errorf("state %d has the digest %s, and %s by the second implementation", i, digests[i], s.Digest)
		}
		if len(s.Planes) != len(solved[i]) {
			t.Fatalf("state %d has %d planes, and %d by the second implementation", i, len(solved[i]), len(s.Planes))
		}
		for j, p := range solved[i] {
			ok, rounded := s.Planes[j].has(p)
			if !ok {
				t.Errorf("state %d with %+v has the plane\n%v, and by the second implementation\n%v", i, q.States[i].Options, p, s.Planes[j])
			}
			counts["numbers"] += 1 + len(p.W)
			counts["decided by rounding"] += rounded
		}
	}
	if !slices.Equal(got.Fingerprints, fingerprints) {
		t.Errorf("fingerprints\n%v, and by the second implementation\n%v", fingerprints, got.Fingerprints)
	}
	none := sha256.Sum256(nil)
	if digests[len(digests)-1] != hex.EncodeToString(none[:]) {
		t.Error("the digest without rows is not that of no bytes")
	}
	if counts["empty"] < 3 || counts["solved"] < 2*histories || len(blocks) < 5*histories ||
		counts["solved by age"] < histories || counts["solved with means"] < histories/2 || counts["without weight"] < histories ||
		counts["decided by rounding"] == 0 || counts["decided by rounding"] > counts["numbers"]/50 {
		t.Errorf("the histories had %d blocks and %v: too little to compare", len(blocks), counts)
	}
}

// answerOf is an answer of GET /v1/model with planes of a state, and with whatever else a
// fingerprint has.
func answerOf(r *rand.Rand, state *incremental.State, m *incremental.Model) httpapi.ModelAnswer {
	digest := state.Digest()
	a := httpapi.ModelAnswer{
		Digest: hex.EncodeToString(digest[:]), Features: m.Features, Classes: m.Classes, Options: model.NewOptionsJSON(m.Options),
		Method: model.MethodPSVM, Planes: model.NewPlanesJSON(m.Planes),
	}
	var curves []calibration.Curve
	for range m.Planes {
		curves = append(curves, []calibration.Curve{
			calibration.Sigmoid{A: -r.ExpFloat64(), B: r.NormFloat64()},
			calibration.Isotonic{Values: []float64{-1, r.Float64()}, Probabilities: []float64{0.25, 1}},
			calibration.Softmax{Weights: []float64{r.NormFloat64(), math.Copysign(0, -1)}, Bias: 1},
		}[len(m.Classes)%3])
	}
	if r.IntN(3) > 0 {
		a.Calibration = model.NewCalibrationJSON(curves)
	}
	rule := decision.ByValue(len(m.Classes))
	if len(m.Classes) == 2 && r.IntN(2) == 0 {
		rule = decision.ByThreshold(r.NormFloat64(), []decision.Price{{Class: m.Classes[0], Answer: m.Classes[1], Cost: 5}})
	}
	a.Decision = model.NewDecisionJSON(rule, len(m.Classes), "a reason")
	switch r.IntN(3) {
	case 0:
		a.Missing = []model.MissingJSON{{Feature: "x1", Policy: config.MissingMean, Mean: new(r.NormFloat64())}, {Feature: "x2", Policy: config.MissingIndicator, Column: "x2 missing"}}
	case 1:
		a.Basis, a.BasisID = &model.BasisJSON{Regulariser: config.RegulariserKernel}, "ab"
		a.Forgetting = &model.Forgetting{Digest: "cd"}
	}
	return a
}

// randomHash has random bytes.
func randomHash(r *rand.Rand) (h receipt.Hash) {
	for i := range h {
		h[i] = byte(r.Uint32())
	}
	return h
}

func logKey(t *testing.T, r *rand.Rand) (key *receipt.Key) {
	t.Helper()
	seed := randomHash(r)
	private, err := receipt.GenerateKey(bytes.NewReader(seed[:]), "streamd/test")
	if err == nil {
		key, err = receipt.ParseKey(private)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// The second implementation finds the keys of items from ids and proofs, refuses the proofs that
// are refused here, and has the roots of the trees.
func TestSecondTree(t *testing.T) {
	var q secondQuestion
	var roots, keys []string
	r := rand.New(rand.NewPCG(92, 1))
	k := logKey(t, r)
	public := k.VRF()
	proved := func(vrf receipt.Hash, id string, proof []byte) {
		q.Proofs = append(q.Proofs, secondProof{hex.EncodeToString(vrf[:]), id, hex.EncodeToString(proof)})
		text := ""
		if key, err := receipt.ItemKeyOf(vrf, id, proof); err == nil {
			text = hex.EncodeToString(key[:])
		}
		keys = append(keys, text)
	}
	for n := range 24 {
		var tree receipt.Tree
		asked := secondTree{hex.EncodeToString(public[:]), []secondItem{}}
		for i := range n * n / 4 {
			id := incremental.Position{Topic: "orders", Partition: i % 3, Offset: int64(i)}.String()
			if i%29 == 0 {
				id = fmt.Sprintf("%sß-%d-%d", receipt.KeyedPrefix, n, i)
			}
			salt, digest, proof := randomHash(r), randomHash(r), k.ProveItemKey(id)
			tree.Put(receipt.Item{Key: k.ItemKey(id), Value: receipt.Commit(salt, string(digest[:]))})
			asked.Items = append(asked.Items, secondItem{id, hex.EncodeToString(proof), hex.EncodeToString(salt[:]), hex.EncodeToString(digest[:])})
		}
		root := tree.Root()
		q.Trees, roots = append(q.Trees, asked), append(roots, hex.EncodeToString(root[:]))
	}
	id := receipt.KeyedPrefix + "carol"
	proof := k.ProveItemKey(id)
	other := logKey(t, r).VRF()
	proved(public, id, proof)
	proved(public, id+"x", proof)
	proved(other, id, proof)
	proved(receipt.Hash{1}, id, proof) // a key of small order
	proved(public, id, nil)
	proved(public, "orders/0/1", nil)
	proved(public, "orders/0/1", proof)
	for i := range proof {
		bad := bytes.Clone(proof)
		bad[i] ^= 1 << r.IntN(8)
		proved(public, id, bad)
	}
	high := bytes.Clone(proof)
	high[len(high)-1] |= 0x10 // s + a multiple of 2^252
	proved(public, id, high)
	got := q.ask(t)
	if !slices.Equal(got.Roots, roots) {
		t.Errorf("roots\n%v, and by the second implementation\n%v", roots, got.Roots)
	}
	if !slices.Equal(got.Keys, keys) || keys[0] == "" || keys[5] == "" || slices.Contains(keys[1:5], keys[0]) {
		t.Errorf("keys\n%v, and by the second implementation\n%v", keys, got.Keys)
	}
}

// The second implementation writes leaves of every kind as they are.
func TestSecondLeaves(t *testing.T) {
	var q secondQuestion
	var leaves []string
	r := rand.New(rand.NewPCG(93, 1))
	text := func(h receipt.Hash) string { return hex.EncodeToString(h[:]) }
	natural := func() int64 { return r.Int64() >> r.IntN(63) }
	moment := func() time.Time { return time.UnixMilli(r.Int64N(1<<47) - 1<<45).UTC() }
	for i := range 20 * int(receipt.Kinds-1) {
		l := &receipt.Leaf{
			Kind: receipt.Retired + receipt.Kind(i)%(receipt.Kinds-1), Blocks: natural(), Rows: natural(), Passing: natural(), Earliest: moment(), Latest: moment(), Durable: moment(),
			Before: receipt.Side{Digest: randomHash(r), Root: randomHash(r)}, After: receipt.Side{Digest: randomHash(r), Root: randomHash(r)},
			Items: randomHash(r), Settings: randomHash(r), Request: randomHash(r), Principal: "ops", Build: "v1.0 ß", Topic: "orders",
		}
		if r.IntN(2) == 0 {
			l.LogUntil = moment()
		}
		for p := range l.Scope {
			l.Scope[p] = receipt.Status(r.IntN(int(receipt.Partial)))
		}
		if r.IntN(2) == 0 {
			l.Scope[receipt.Sample], l.Lacking = receipt.Partial, 1+natural()/2
		}
		if l.Kind == receipt.Begun {
			l.Blocks, l.VRF, l.After = 0, randomHash(r), l.Before
		}
		asked := secondLeaf{
			Kind: l.Kind, Blocks: l.Blocks, Rows: l.Rows, Passing: l.Passing, Lacking: l.Lacking, Earliest: l.Earliest.UnixMilli(), Latest: l.Latest.UnixMilli(), Durable: l.Durable.UnixMilli(), LogUntil: l.LogUntil.UnixMilli(),
			Before: secondSide{text(l.Before.Digest), text(l.Before.Root)}, After: secondSide{text(l.After.Digest), text(l.After.Root)},
			Items: text(l.Items), Settings: text(l.Settings), Request: text(l.Request), VRF: text(l.VRF), Scope: l.Scope.Names(), Principal: l.Principal, Build: l.Build, Topic: l.Topic, Offsets: [][2]int64{},
		}
		for p := range r.IntN(4) {
			o := receipt.Next{Partition: uint32(3 * p), Offset: natural()}
			l.Offsets, asked.Offsets = append(l.Offsets, o), append(asked.Offsets, [2]int64{int64(o.Partition), o.Offset})
		}
		encoded := l.AppendBinary(nil)
		if again, err := receipt.DecodeLeaf(encoded); err != nil || !bytes.Equal(again.AppendBinary(nil), encoded) {
			t.Fatalf("leaf %d: %v", i, err)
		}
		q.Leaves, leaves = append(q.Leaves, asked), append(leaves, hex.EncodeToString(encoded))
	}
	got := q.ask(t)
	if len(got.Leaves) != len(leaves) || len(got.LeafHashes) != len(leaves) {
		t.Fatalf("%d leaves and %d hashes, want %d", len(got.Leaves), len(got.LeafHashes), len(leaves))
	}
	for i, leaf := range leaves {
		if got.Leaves[i] != leaf {
			t.Errorf("a leaf of kind %s is\n%s, and by the second implementation\n%s", q.Leaves[i].Kind, leaf, got.Leaves[i])
		}
		raw, _ := hex.DecodeString(leaf)
		if h := tlog.RecordHash(raw); hex.EncodeToString(h[:]) != got.LeafHashes[i] {
			t.Errorf("leaf %d has the hash %x, and %s by the second implementation", i, h, got.LeafHashes[i])
		}
	}
}
