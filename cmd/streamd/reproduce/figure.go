package reproduce

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"streamd/incremental"
	"streamd/incremental/newton"
)

// unbalanced is figures 2.8 to 2.10.
func unbalanced(ctx context.Context, c *Config) ([]Result, error) {
	planes, s, err := unbalancedPlanes(ctx, c.Seed)
	if err != nil {
		return nil, err
	}
	const within = 5 // the points are others than the thesis's
	published := []figures{{train: 86, within: within}, {train: 84, within: within}, {train: 98, within: within}}
	var results []Result
	for i, p := range planes {
		r := Result{
			DataSet: p.figure, Rows: s.rows(), Features: len(s.features), Method: p.name, Nu: unbalancedNu,
			Train:  &p.all,
			Remark: fmt.Sprintf("%s: %.1f %% of the 85 and %.1f %% of the 15 are right", p.name, 100*p.large, 100*p.small),
		}
		published[i].compare(&r)
		results = append(results, r)
	}
	return results, nil
}

const unbalancedNu = 1

// unbalancedPlane is one of the three pictures.
type unbalancedPlane struct {
	figure, name      string
	model             *incremental.Model
	all, large, small float64 // correctness: of all, of the 85, of the 15
}

func unbalancedPlanes(ctx context.Context, seed uint64) ([]unbalancedPlane, *set, error) {
	s := unbalancedPoints(seed)
	small, large := s.block(0, unbalancedSmall), s.block(unbalancedSmall, s.rows())
	rows := newton.Blocks{small, large}
	state, err := stateOf(s.features, rows)
	if err != nil {
		return nil, nil, err
	}
	planes := []unbalancedPlane{{figure: "Figure 2.8", name: "PSVM"}, {figure: "Figure 2.9", name: "balanced"}, {figure: "Figure 2.10", name: "balanced, refined"}}
	for i, m := range []method{mpsvm, bMPSVM, brMPSVM} {
		p := &planes[i]
		if p.model, err = m.learn(ctx, part{state.Moments(), rows}, unbalancedNu, false); err != nil {
			return nil, nil, err
		}
		p.all = correctness(p.model, rows)
		p.large, p.small = correctness(p.model, newton.Blocks{large}), correctness(p.model, newton.Blocks{small})
	}
	return planes, s, nil
}

const unbalancedSmall = 15 // points of the small class, which come first

// unbalancedPoints makes what the thesis's pictures show: a large class that
// reaches far away from the border, and a small one close to it. The mean
// squared distance is therefore a bad guide to the place of the plane: plainly
// it drowns the small class, in balance it cuts into the large one.
func unbalancedPoints(seed uint64) *set {
	const large = 85
	r := rand.New(rand.NewPCG(seed, unbalancedSmall))
	s := &set{
		features: []string{"x1", "x2"}, classes: []string{"-1", "1"},
		columns: make([][]float64, 2), codes: make([]int32, unbalancedSmall+large),
	}
	for i := range s.codes {
		along := 2 * r.NormFloat64()
		across := -0.8 + 0.35*r.NormFloat64() // distance from the border
		if i >= unbalancedSmall {
			s.codes[i] = 1
			across = -0.3 + 10*math.Pow(r.Float64(), 1.25)
		}
		const slope = math.Pi / 6
		s.columns[0] = append(s.columns[0], along*math.Cos(slope)-across*math.Sin(slope))
		s.columns[1] = append(s.columns[1], along*math.Sin(slope)+across*math.Cos(slope))
	}
	return s
}

// drawUnbalanced draws figures 2.8 to 2.10 as an SVG picture: hollow circles are
// the 85 points, diamonds the 15, with the plane and, dashed, the two planes
// x'w = γ ± 1.
func drawUnbalanced(ctx context.Context, w io.Writer, c *Config) error {
	planes, s, err := unbalancedPlanes(ctx, c.Seed)
	if err != nil {
		return err
	}
	const side, margin, title = 300, 20, 60 // of a picture
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range s.columns {
		for _, x := range c {
			low, high = min(low, x-0.5), max(high, x+0.5)
		}
	}
	at := func(x float64) float64 { return side * (x - low) / (high - low) }
	width := len(planes)*(side+margin) + margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13" fill="none">`+"\n",
		width, title+side+margin, width, title+side+margin)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><clipPath id="frame"><rect width="%d" height="%d"/></clipPath>`+"\n", width, title+side+margin, side, side)
	for i, p := range planes {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)"><text y="-26" fill="#000" font-weight="bold">%s</text><text y="-9" fill="#000">%.0f %% right: %.1f and %.1f %% of the classes</text>`+"\n",
			margin+i*(side+margin), title, p.name, 100*p.all, 100*p.large, 100*p.small)
		fmt.Fprintf(&b, `<rect width="%d" height="%d" stroke="#999"/><g clip-path="url(#frame)">`+"\n", side, side)
		for row, code := range s.codes {
			x, y := at(s.columns[0][row]), side-at(s.columns[1][row])
			if code == 1 {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" stroke="#26c"/>`, x, y)
			} else {
				fmt.Fprintf(&b, `<path d="M%.1f %.1fl4.5 4.5l-4.5 4.5l-4.5 -4.5z" stroke="#c33"/>`, x, y-4.5)
			}
		}
		plane := p.model.Planes[0]
		for _, bound := range []float64{-1, 0, 1} {
			style := `stroke="#000" stroke-width="1.5"`
			if bound != 0 {
				style = `stroke="#666" stroke-dasharray="5 4"`
			}
			// From the point nearest the origin a picture's width both ways.
			size := plane.W[0]*plane.W[0] + plane.W[1]*plane.W[1]
			near, along := (plane.Gamma+bound)/size, 3*(high-low)/math.Sqrt(size)
			x0, y0 := near*plane.W[0], near*plane.W[1]
			dx, dy := -along*plane.W[1], along*plane.W[0]
			fmt.Fprintf(&b, "\n"+`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, at(x0-dx), side-at(y0-dy), at(x0+dx), side-at(y0+dy), style)
		}
		b.WriteString("\n</g></g>\n")
	}
	b.WriteString("</svg>\n")
	_, err = w.Write(b.Bytes())
	return err
}
