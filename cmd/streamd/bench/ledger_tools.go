package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
	"streamd/ingest/ndc"
)

// toolScales are the factors of the values of the half that is retired.
var toolScales = []int{1, 1000}

// forgetTools are the ways to forget: streamd's, and those that are a mode of forget.py.
var forgetTools = []struct{ name, mode string }{
	{"streamd", ""},
	{"numpy, subtraction of sums", "subtract"},
	{"numpy, rank-one downdates", "downdate"},
	{"polars_ols, rolling window", "slide"},
	{"scikit-learn, refitting", "refit"},
}

// forgotten is the output of the script, and the same for streamd.
type forgotten struct {
	Version, Missing string
	One, Half        forgotOnce
}

type forgotOnce struct {
	Seconds, Digits, Share float64   // Share of the blocks that were to go
	Gone                   int64     // the rows before this one are gone
	Plane                  []float64 // w and γ; none where the tool has failed
}

// tools compares ways to take rows out of a model: streamd's, and those that Python offers. The
// points are those of replay ndc. Out of as many blocks one is retired, and half of them. Each time
// ends with a new plane. An operation is one retirement.
//
// digits_lost compares the plane with the same tool's fit of the rows that are left: it is
// log10 of the largest difference, relative to the largest coefficient and to 2^-52, at least 0
// and at most all digits. So it is the loss by forgetting alone. digits_off compares the plane in
// the same way with the exact one, so it also has what the tool loses in a fit. With retired_scale
// 1000 the values of the retired half are a thousand times as large as the others', as when a
// producer's unit was wrong.
func (c Ledger) tools(ctx context.Context, run *Run) error {
	dir, err := os.MkdirTemp(c.Dir, "streamd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	scripts, err := fs.Sub(peerScripts, "peers")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, scripts); err != nil {
		return err
	}
	run.cold = true
	before := len(run.results)
	for _, scale := range toolScales {
		w := &forgetting{Ledger: c, dir: dir}
		if err := w.make(scale); err != nil {
			return err
		}
		last := make([]forgotten, len(forgetTools))
		ones := make([][]Sample, len(forgetTools))
		var sides []side
		for i, tool := range forgetTools {
			sides = append(sides, side{tool.name, func(ctx context.Context, _ time.Duration) (s Sample, err error) {
				if last[i], err = w.forget(ctx, tool.mode); last[i].Missing != "" || err != nil {
					return s, err
				}
				ones[i] = append(ones[i], w.sample(1, &last[i].One))
				return w.sample(w.half(), &last[i].Half), nil
			}})
		}
		halves, err := run.alternate(ctx, "BenchmarkLedger/part=tools", sides...)
		if err != nil {
			return err
		}
		for i, tool := range forgetTools {
			missing, version := last[i].Missing, last[i].Version
			var details []Parameter
			if missing != "" {
				if err := run.lack(tool.name, missing); err != nil {
					return err
				}
				details = []Parameter{{"missing", missing}}
			} else if version != "" {
				details = []Parameter{{"version", version}}
			}
			for _, of := range []struct {
				retired int64
				samples []Sample
				forgot  *forgotOnce
			}{{1, ones[i], &last[i].One}, {w.half(), halves[i], &last[i].Half}} {
				r := Result{Benchmark: "ledger", Parameters: []Parameter{
					{"part", "tools"}, {"blocks", c.Blocks}, {"features", c.Features}, {"rows", c.BlockRows},
					{"retired_scale", scale}, {"retired", of.retired}, {"tool", tool.name},
				}, Details: details}
				if missing == "" {
					r.Samples = of.samples
					r.addSeconds()
					off, err := w.off(ctx, of.forgot)
					if err != nil {
						return err
					}
					r.set("digits_lost", of.forgot.Digits)
					r.set("digits_off", off)
					r.set("retired_share", of.forgot.Share)
				}
				if err := run.Add(r); err != nil {
					return err
				}
			}
		}
	}
	return run.table(forgetTable(run.results[before:]))
}

// forgetTable has a line for each tool: the time for one block, and for half of them the time, the
// digits lost and the digits off, for each scale.
func forgetTable(results []Result) (rows [][]string) {
	rows = [][]string{{"", "one block"}}
	for i := range results {
		r := &results[i]
		tool, scale, one := r.Text("tool"), r.Text("retired_scale"), r.Text("retired") == "1"
		at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == tool })
		if at < 0 {
			at, rows = len(rows), append(rows, []string{tool})
		}
		switch first := scale == strconv.Itoa(toolScales[0]); {
		case one && !first:
			continue
		case at == 1 && !one && first:
			rows[0] = append(rows[0], "half", "digits lost", "off")
		case at == 1 && !one:
			rows[0] = append(rows[0], "half, × "+scale, "digits lost", "off")
		}
		switch {
		case len(r.Samples) == 0:
			rows[at] = append(rows[at], "missing")
		case one:
			rows[at] = append(rows[at], brief(r.Figure("seconds")))
		default:
			took := brief(r.Figure("seconds"))
			if share := r.Figure("retired_share"); share < 1 {
				took = fmt.Sprintf("%.0f %% in %s", 100*share, took)
			}
			rows[at] = append(rows[at], took, fmt.Sprintf("%.1f", r.Figure("digits_lost")), fmt.Sprintf("%.1f", r.Figure("digits_off")))
		}
	}
	return rows
}

// brief writes a time with some two digits.
func brief(seconds float64) string {
	switch {
	case seconds >= 10:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds >= 1:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds >= 0.01:
		return fmt.Sprintf("%.0f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.2g ms", 1000*seconds)
}

// forgetting has the rows of one case.
type forgetting struct {
	Ledger
	dir     string
	columns [][]float32
	codes   []int32
	planes  map[int64][]*big.Float // exact ones, by the rows that are gone
}

func (w *forgetting) half() int64 { return int64(w.Blocks / 2) }

// make makes the rows, the first half of which is scaled, and writes them for the script.
func (w *forgetting) make(scale int) error {
	generator, err := ndc.New(ndc.Config{Features: w.Features, Separability: ndc.Easy, Seed: 1})
	if err != nil {
		return err
	}
	m := w.Blocks * w.BlockRows
	w.columns, w.codes = make([][]float32, w.Features), make([]int32, m)
	for j := range w.columns {
		w.columns[j] = make([]float32, m)
	}
	generator.NewSampler().Fill(w.columns, w.codes, ndc.Train, 0)
	for _, column := range w.columns {
		for i := range column {
			column[i] /= 10 // sums of whole numbers would be exact in float64, too
		}
		for i := range column[:int(w.half())*w.BlockRows] {
			column[i] *= float32(scale)
		}
	}
	file, err := os.Create(filepath.Join(w.dir, "rows"))
	if err != nil {
		return err
	}
	defer file.Close()
	labels := make([]float32, m)
	for i, code := range w.codes {
		labels[i] = float32(2*code - 1)
	}
	var b []byte
	for _, column := range append(slices.Clone(w.columns), labels) {
		for part := range slices.Chunk(column, 1<<16) {
			b = b[:0]
			for _, v := range part {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
			}
			if _, err := file.Write(b); err != nil {
				return err
			}
		}
	}
	return file.Close()
}

// sample is the retirement of so many blocks.
func (w *forgetting) sample(blocks int64, f *forgotOnce) Sample {
	return Sample{Ops: 1, Rows: int64(f.Share * float64(blocks*int64(w.BlockRows))), Seconds: f.Seconds}
}

// forget forgets by one of the script's modes, or as streamd does.
func (w *forgetting) forget(ctx context.Context, mode string) (r forgotten, err error) {
	if mode == "" {
		return w.streamd(ctx)
	}
	err = runPython(ctx, w.Python, w.dir, &r, "forget.py", mode, filepath.Join(w.dir, "rows"),
		"--features", strconv.Itoa(w.Features), "--blocks", strconv.Itoa(w.Blocks), "--block-rows", strconv.Itoa(w.BlockRows),
		"--nu", strconv.FormatFloat(Nu, 'g', -1, 64), "--seconds", strconv.FormatFloat(w.Budget.Seconds(), 'g', -1, 64))
	if err == nil && r.Missing == "" && (!(r.One.Seconds > 0) || !(r.Half.Seconds > 0)) {
		err = fmt.Errorf("forget.py %s: %v and %v s", mode, r.One.Seconds, r.Half.Seconds)
	}
	return r, err
}

// streamd forgets as the daemon does: blocks leave the ledger, and their summaries, in the
// bytes of the snapshot, the sums.
func (w *forgetting) streamd(ctx context.Context) (r forgotten, err error) {
	set := newLiveSums(w.Features)
	all := &incremental.Block{Classes: ndc.Classes(), Codes: w.codes}
	for _, column := range w.columns {
		all.Columns = append(all.Columns, gram.ColumnOf(column))
	}
	for i := range w.Blocks {
		if i%1024 == 0 && ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err := set.add(slice(all, i*w.BlockRows, (i+1)*w.BlockRows)); err != nil {
			return r, err
		}
	}
	// The first is retired to warm up, the second alone, and then the others of the first half.
	forget := func(from, to int) (f forgotOnce, err error) {
		began := time.Now()
		if err := set.retire(from, to); err != nil {
			return f, err
		}
		z, err := plane(set.state)
		if err != nil {
			return f, err
		}
		f = forgotOnce{Seconds: time.Since(began).Seconds(), Share: 1, Gone: int64(to * w.BlockRows), Plane: z}
		want, err := set.left(to)
		if err != nil {
			return f, err
		}
		var exactly []*big.Float
		for _, v := range want {
			exactly = append(exactly, big.NewFloat(v))
		}
		f.Digits = digitsLost(z, exactly)
		return f, nil
	}
	if err := set.retire(0, 1); err != nil {
		return r, err
	}
	if _, err := plane(set.state); err != nil {
		return r, err
	}
	if r.One, err = forget(1, 2); err != nil {
		return r, err
	}
	r.Half, err = forget(2, int(w.half()))
	return r, err
}

// off is the number of digits in which a tool's plane differs from the exact one.
func (w *forgetting) off(ctx context.Context, f *forgotOnce) (float64, error) {
	if len(f.Plane) == 0 {
		return allDigits, nil
	}
	want, err := w.exactPlane(ctx, f.Gone)
	return digitsLost(f.Plane, want), err
}

// exactPlane solves (I/ν + E'E) z = E'd for the rows from a number on. The products of float32
// numbers are exact in float64, their sums have 106 bits, and the system is solved in 256.
func (w *forgetting) exactPlane(ctx context.Context, gone int64) ([]*big.Float, error) {
	if z := w.planes[gone]; z != nil {
		return z, nil
	}
	n := len(w.columns) + 1
	sums := exact.NewVector(n * (n + 1)) // row by row, the right side last
	e := make([]float64, n)
	for i := int(gone); i < len(w.codes); i++ {
		if i%(1<<16) == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for j, column := range w.columns {
			e[j] = float64(column[i])
		}
		e[n-1] = -1
		for j, x := range e {
			for k := range j + 1 {
				sums.Add(j*(n+1)+k, float64(x*e[k]))
			}
			sums.Add(j*(n+1)+n, float64(x*float64(2*w.codes[i]-1)))
		}
	}
	const bits = 256
	number := func(j, k int) *big.Float {
		hi, lo := sums.Split(j*(n+1) + k)
		z := new(big.Float).SetPrec(bits).SetFloat64(hi)
		return z.Add(z, big.NewFloat(lo))
	}
	a := make([][]*big.Float, n)
	for j := range a {
		for k := range n {
			a[j] = append(a[j], number(max(j, k), min(j, k)))
		}
		a[j][j].Add(a[j][j], big.NewFloat(1/Nu))
		a[j] = append(a[j], number(j, n))
	}
	z := solvePositive(a)
	if w.planes == nil {
		w.planes = map[int64][]*big.Float{}
	}
	w.planes[gone] = z
	return z, nil
}

// solvePositive solves a system with the precision of its numbers. Each of its n rows has n numbers
// of a positive definite matrix, and the right side last. It writes into a.
func solvePositive(a [][]*big.Float) []*big.Float {
	n := len(a)
	// Gauss and Jordan. Any pivot of such a matrix will do.
	t, factor := new(big.Float), new(big.Float)
	for p := range n {
		for j := range n {
			if j == p {
				continue
			}
			factor.SetPrec(a[j][p].Prec()).Quo(a[j][p], a[p][p])
			t.SetPrec(factor.Prec())
			for k := p; k <= n; k++ {
				a[j][k].Sub(a[j][k], t.Mul(factor, a[p][k]))
			}
		}
	}
	z := make([]*big.Float, n)
	for j := range z {
		z[j] = a[j][n].Quo(a[j][n], a[j][j])
	}
	return z
}

// left returns the plane of a state that has seen no other blocks than those from a number on.
func (s *liveSums) left(from int) ([]float64, error) {
	state := incremental.NewState(s.state.Features())
	for _, b := range s.encoded[from:] {
		summary, err := incremental.DecodeSummary(b)
		if err != nil {
			return nil, err
		}
		state.Add(summary)
	}
	return plane(state)
}

func plane(state *incremental.State) ([]float64, error) {
	model, err := state.Moments().Solve(incremental.Options{Nu: Nu})
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(model.Planes[0].W), model.Planes[0].Gamma), nil
}

const ulp = 0x1p-52

// allDigits is the decimal digits of a float64.
var allDigits = -math.Log10(ulp)

// digitsLost is the number of decimal digits in which two planes differ.
func digitsLost(z []float64, want []*big.Float) float64 {
	var far, size float64
	for j, v := range want {
		apart, _ := new(big.Float).SetPrec(v.Prec()).Sub(big.NewFloat(z[j]), v).Float64()
		near, _ := v.Float64()
		far, size = max(far, math.Abs(apart)), max(size, math.Abs(near))
	}
	return min(max(math.Log10(far/size/ulp), 0), allDigits)
}
