package regions

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
)

// randomClassifier has k classes over a scaled basis of some points.
func randomClassifier(t *testing.T, seed uint64, k int) *model.Classifier {
	t.Helper()
	const points = 9
	r := rand.New(rand.NewPCG(seed, uint64(k)))
	normal := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		return x
	}
	kernel, err := kernels.Gaussian(0.8)
	if err != nil {
		t.Fatal(err)
	}
	m, err := kernels.NewMap(kernel, 2, normal(2*points))
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.Scaled([]float64{100, -3}, []float64{20, 0.1}); err != nil {
		t.Fatal(err)
	}
	var classes []string
	for c := range k {
		classes = append(classes, fmt.Sprint("class ", c))
	}
	var planes []incremental.Plane
	for _, class := range classes {
		planes = append(planes, incremental.Plane{Class: class, W: normal(points), Gamma: 0.3 * r.NormFloat64()})
	}
	if k == 2 {
		planes = planes[1:]
	}
	c, err := model.New([]string{"x", "a < b & c"}, classes, planes, model.NewBasisJSON(m, config.RegulariserIdentity))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Every pixel that is not on a border, a mark or a line has the colour of the
// class that the classifier gives its place.
func TestPixelsHaveTheColourOfTheirClass(t *testing.T) {
	for _, k := range []int{2, 3, 5} {
		p := &Picture{Classifier: randomClassifier(t, 1, k)}
		var b bytes.Buffer
		if err := p.PNG(&b); err != nil {
			t.Fatal(err)
		}
		drawn, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.frame(p.basis())
		if err != nil {
			t.Fatal(err)
		}
		classAt := func(px, py float64) int {
			x := f.low[0] + (f.high[0]-f.low[0])*(px-left)/side
			y := f.high[1] - (f.high[1]-f.low[1])*(py-top)/side
			class := make([]int32, 1)
			p.Classifier.Classify(class, make([]float64, len(p.Classifier.Model.Planes)), []gram.Column{gram.ColumnOf([]float64{x}), gram.ColumnOf([]float64{y})})
			return int(class[0])
		}
		r := rand.New(rand.NewPCG(2, uint64(k)))
		compared, seen := 0, map[int]bool{}
		for range 4000 {
			px, py := left+2+r.Float64()*(side-4), top+2+r.Float64()*(side-4)
			class, inside := classAt(px, py), true
			const away = 2.5
			for _, d := range [][2]float64{{away, 0}, {-away, 0}, {0, away}, {0, -away}, {away, away}, {-away, -away}, {away, -away}, {-away, away}} {
				inside = inside && classAt(px+d[0], py+d[1]) == class
			}
			for _, z := range p.basis() {
				at := f.at(z[0], z[1])
				inside = inside && math.Hypot(at.x-px, at.y-py) > 9
			}
			if !inside {
				continue
			}
			compared++
			seen[class] = true
			if got := drawn.At(int(fine*px), int(fine*py)); got != color.Color(pale(classColour(class))) {
				t.Fatalf("%d classes: pixel %.1f, %.1f of class %d is %v", k, px, py, class, got)
			}
		}
		if compared < 3000 || len(seen) < 2 {
			t.Errorf("%d classes: only %d pixels of %d classes were compared", k, compared, len(seen))
		}
	}
}

// The area within contours is that where values are positive, also where they
// touch the frame, and of holes.
func TestContoursOfARing(t *testing.T) {
	values := make([]float64, nodes*nodes)
	const middle = (nodes - 1) / 2
	for r := range nodes {
		for k := range nodes {
			d := cell * math.Hypot(float64(r-middle), float64(k-middle))
			values[r*nodes+k] = min(d-50, 120-d)
		}
	}
	loops := contours(values)
	if len(loops) != 2 {
		t.Fatalf("a ring has %d loops", len(loops))
	}
	area := 0.0 // by the shoelace formula, with the sign of the direction
	for _, loop := range loops {
		for i, p := range loop {
			q := loop[(i+1)%len(loop)]
			area += (p.x*q.y - q.x*p.y) / 2
		}
	}
	if want := math.Pi * (120*120 - 50*50); math.Abs(math.Abs(area)-want) > 0.002*want {
		t.Errorf("its area is %.1f, not %.1f", area, want)
	}
	for i := range values {
		values[i] = 1
	}
	if loops := contours(values); len(loops) != 1 || len(borders(loops)) != 0 {
		t.Errorf("all of the picture has %d loops, of which %d lines are not the frame", len(loops), len(borders(loops)))
	}
	for i := range values {
		values[i] = -1
	}
	if loops := contours(values); len(loops) != 0 {
		t.Errorf("nothing has %d loops", len(loops))
	}
	// Opposite corners are joined or not, as their middle is.
	for _, joined := range []bool{true, false} {
		for i := range values {
			values[i] = -1
		}
		at := (nodes+1)*middle + 1
		values[at], values[at+nodes+1] = 0.9, 0.9
		if joined {
			values[at], values[at+nodes+1] = 1.1, 1.1
		}
		want := 2
		if joined {
			want = 1
		}
		if loops := contours(values); len(loops) != want {
			t.Errorf("joined: %v: %d loops", joined, len(loops))
		}
	}
}

// The SVG is XML whatever labels there are, and shows all there is to show.
func TestSVG(t *testing.T) {
	p := &Picture{Classifier: randomClassifier(t, 3, 3)}
	p.Classifier.Model.Classes[1] = "<script>\x01"
	p.Rows = &incremental.Block{
		Columns: []gram.Column{gram.ColumnOf([]float64{100, 110, 90}), gram.ColumnOf([]float64{-3, -3.1, -2.9})},
		Classes: []string{"class 0", "never seen"}, Codes: []int32{0, 0, 1},
	}
	var b bytes.Buffer
	if err := p.SVG(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	elements := 0
	for d := xml.NewDecoder(&b); ; elements++ {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"gaussian(gamma=0.8), 9 points", "a &lt; b &amp; c", "class 2", "&lt;script&gt;", "basis point", "unknown class", ">-3.1", ">110<"} {
		if !strings.Contains(strings.ReplaceAll(text, "−", "-"), want) {
			t.Errorf("it does not show %s", want)
		}
	}
	var again bytes.Buffer
	if err := p.SVG(&again); err != nil || again.String() != text {
		t.Errorf("drawn twice it differs, or fails: %v", err)
	}
}

func TestWhatCannotBeDrawn(t *testing.T) {
	linear := func(features ...string) *model.Classifier {
		c, err := model.New(features, []string{"a", "b"}, []incremental.Plane{{Class: "b", W: make([]float64, len(features))}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	at := func(x, y float64) *incremental.Block {
		return &incremental.Block{
			Columns: []gram.Column{gram.ColumnOf([]float64{0, x}), gram.ColumnOf([]float64{0, y})}, Classes: []string{"a"}, Codes: []int32{0, 0},
		}
	}
	overflow, err := kernels.Polynomial(1e300, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	wild, err := model.New([]string{"x", "y"}, []string{"a", "b"}, []incremental.Plane{{Class: "b", W: []float64{1}}},
		&model.BasisJSON{Kernel: overflow, Points: [][]float64{{1, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for reason, p := range map[string]*Picture{
		"two features; the model has 3": {Classifier: linear("x", "y", "z")},
		"takes rows":                    {Classifier: linear("x", "y")},
		"feature y goes from":           {Classifier: linear("x", "y"), Rows: at(1, 1.7e308)},
		"the classifier's value at":     {Classifier: wild},
		"up to 128 classes":             {Classifier: randomClassifier(t, 1, MostClasses+1)},
	} {
		if err := p.PNG(io.Discard); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("want %q, got %v", reason, err)
		}
	}
	// One place only is drawn, with room around.
	one := &Picture{Classifier: linear("x", "y"), Rows: at(0, 0)}
	var b bytes.Buffer
	if err := one.PNG(&b); err != nil {
		t.Fatal(err)
	}
	if config, err := png.DecodeConfig(&b); err != nil || image.Pt(config.Width, config.Height) != image.Pt(fine*width, fine*height) {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0, 10, "[0 2 4 6 8 10]"}, {-6.7, 6.7, "[-5 0 5]"}, {0.1, 0.13, "[0.100 0.105 0.110 0.115 0.120 0.125 0.130]"},
		{1e6, 1e6 + 3, "[1000000.0 1000000.5 1000001.0 1000001.5 1000002.0 1000002.5 1000003.0]"}, {-2000, 40000, "[0 10000 20000 30000 40000]"},
	} {
		var got []string
		for _, tick := range ticks(c.low, c.high) {
			got = append(got, tick.text)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%g to %g: %v, not %s", c.low, c.high, got, c.want)
		}
	}
}

func BenchmarkSVG(b *testing.B) {
	p := &Picture{Classifier: randomClassifier(&testing.T{}, 1, 3)}
	for b.Loop() {
		if err := p.SVG(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
