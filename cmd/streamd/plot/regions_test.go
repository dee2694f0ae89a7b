package plot

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg/draw"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
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

// drawn returns the picture as PNG, and the transforms between the features and its
// pixels.
func drawn(t *testing.T, p *Regions) (picture image.Image, toPixel, toFeatures func(x, y float64) (float64, float64)) {
	t.Helper()
	var b bytes.Buffer
	if err := p.PNG(&b); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	plot, _, err := p.plot()
	if err != nil {
		t.Fatal(err)
	}
	data := plot.DataCanvas(besideLegend(draw.New(newSVG(regionsWidth, regionsHeight))))
	width, height := float64(data.Max.X-data.Min.X), float64(data.Max.Y-data.Min.Y)
	if width < 400 || height < 400 {
		t.Fatalf("the data have only %g × %g of the picture", width, height)
	}
	const fine = 2 // pixels of a unit
	left, top := fine*float64(data.Min.X), fine*(regionsHeight-float64(data.Max.Y))
	toPixel = func(x, y float64) (float64, float64) {
		return left + fine*width*plot.X.Norm(x), top + fine*height*(1-plot.Y.Norm(y))
	}
	toFeatures = func(px, py float64) (float64, float64) {
		return plot.X.Min + (px-left)/(fine*width)*(plot.X.Max-plot.X.Min), plot.Y.Max - (py-top)/(fine*height)*(plot.Y.Max-plot.Y.Min)
	}
	return picture, toPixel, toFeatures
}

// Every pixel that is not on a border, a mark or a line has the colour of the class
// that the classifier gives its place.
func TestPixelsHaveTheColourOfTheirClass(t *testing.T) {
	for _, k := range []int{2, 3, 5} {
		value := randomClassifier(t, 1, k)
		for _, rule := range rules(value.Model.Classes) {
			testPixels(t, k, &Regions{Classifier: &model.Classifier{Features: value.Features, Map: value.Map, Model: value.Model, Rule: rule}})
		}
	}
}

// rules are of every kind, nil for the values, with curves that put borders elsewhere than values
// do.
func rules(classes []string) []*decision.Rule {
	var sigmoids, steps []calibration.Curve
	planes := len(classes)
	if planes == 2 {
		planes = 1
	}
	for p := range planes {
		sigmoids = append(sigmoids, calibration.Sigmoid{A: -1 - float64(p), B: 0.3 * float64(p)})
		steps = append(steps, calibration.Isotonic{
			Values: []float64{-2, -0.5, 0.25 * float64(p), 1, 3}, Probabilities: []float64{0.02 * float64(p), 0.2, 0.45, 0.6, 0.98 - 0.01*float64(p)},
		})
	}
	prices := []decision.Price{{Class: classes[0], Answer: classes[1], Cost: 1.2}}
	all := []*decision.Rule{
		nil, decision.ByProbability(sigmoids), decision.ByProbability(steps), decision.ByCost(classes, steps, prices),
	}
	if len(classes) == 2 {
		all = append(all, decision.ByThreshold(0.4, prices))
	}
	return all
}

func testPixels(t *testing.T, k int, p *Regions) {
	t.Helper()
	picture, toPixel, toFeatures := drawn(t, p)
	classAt := func(px, py float64) int {
		x, y := toFeatures(px, py)
		class := make([]int32, 1)
		p.Classifier.Classify(class, make([]float64, len(p.Classifier.Model.Planes)), []gram.Column{gram.ColumnOf([]float64{x}), gram.ColumnOf([]float64{y})})
		return int(class[0])
	}
	plot, _, err := p.plot()
	if err != nil {
		t.Fatal(err)
	}
	left, top := toPixel(plot.X.Min, plot.Y.Max)
	right, bottom := toPixel(plot.X.Max, plot.Y.Min)
	r := rand.New(rand.NewPCG(2, uint64(k)))
	compared, seen := 0, map[int]bool{}
	for range 4000 {
		px, py := left+4+r.Float64()*(right-left-8), top+4+r.Float64()*(bottom-top-8)
		class, inside := classAt(px, py), true
		const away = 5
		for _, d := range [][2]float64{{away, 0}, {-away, 0}, {0, away}, {0, -away}, {away, away}, {-away, -away}, {away, -away}, {-away, away}} {
			inside = inside && classAt(px+d[0], py+d[1]) == class
		}
		for _, z := range p.basis() {
			x, y := toPixel(z.X, z.Y)
			inside = inside && math.Hypot(x-px, y-py) > 18
		}
		if !inside {
			continue
		}
		compared++
		seen[class] = true
		if got := picture.At(int(px), int(py)); got != color.Color(pale(classColour(class))) {
			t.Fatalf("%d classes, by %s: pixel %.1f, %.1f of class %d is %v", k, p.Classifier.DecidesBy().Kind(), px, py, class, got)
		}
	}
	if compared < 3000 || len(seen) < 2 {
		t.Errorf("%d classes, by %s: only %d pixels of %d classes were compared", k, p.Classifier.DecidesBy().Kind(), compared, len(seen))
	}
}

// The border is drawn where the plane's value is 0, and nowhere beside.
func TestBorderLiesOnThePlane(t *testing.T) {
	plane := incremental.Plane{Class: "b", W: []float64{3, -2}, Gamma: 0.5}
	c, err := model.New([]string{"x", "y"}, []string{"a", "b"}, []incremental.Plane{plane}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &Regions{Classifier: c, Rows: &incremental.Block{
		Columns: []gram.Column{gram.ColumnOf([]float64{-1, 1}), gram.ColumnOf([]float64{-1, 1})}, Classes: []string{"a", "b"}, Codes: []int32{1, 0},
	}}
	picture, toPixel, _ := drawn(t, p)
	for x := -0.5; x <= 0.75; x += 0.05 {
		y := (plane.W[0]*x - plane.Gamma) / -plane.W[1]
		px, py := toPixel(x, y)
		if got := picture.At(int(px), int(py)); got != color.Color(ink) {
			t.Errorf("on the plane at %.2f, %.2f the picture is %v", x, y, got)
		}
		for class, side := range []float64{-6, 6} {
			if got := picture.At(int(px+side), int(py)); got != color.Color(pale(classColour(class))) {
				t.Errorf("beside the plane at %.2f, %.2f the picture of class %d is %v", x, y, class, got)
			}
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
			d := math.Hypot(float64(r-middle), float64(k-middle)) / cells
			values[r*nodes+k] = min(d-0.09, 0.21-d)
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
			area += (p.X*q.Y - q.X*p.Y) / 2
		}
	}
	if want := math.Pi * (0.21*0.21 - 0.09*0.09); math.Abs(math.Abs(area)-want) > 0.002*want {
		t.Errorf("its area is %g, not %g", area, want)
	}
	for i := range values {
		values[i] = 1
	}
	loops = contours(values)
	for _, loop := range loops {
		for _, p := range loop {
			if p.X > 0 && p.X < 1 && p.Y > 0 && p.Y < 1 {
				t.Fatalf("the border of all of the picture goes through %v", p)
			}
		}
	}
	if len(loops) != 1 {
		t.Errorf("all of the picture has %d loops", len(loops))
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

// A class that has a node of the grid, and nothing around it, does not spoil the path of its other
// areas.
func TestAreaOfANode(t *testing.T) {
	lead := make([]float64, nodes*nodes)
	for i := range lead {
		lead[i] = -1
	}
	at := (nodes + 1) * (nodes - 1) / 2
	lead[at/2], lead[at+at/2] = 0, 0
	for _, more := range []bool{false, true} {
		if more {
			lead[at], lead[at+1], lead[at+nodes] = 1, 1, 1
		}
		c := newSVG(100, 100)
		regions{[][]float64{lead}}.Plot(draw.New(c), nil)
		var b bytes.Buffer
		if _, err := c.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		paths := parse(t, b.String()).paths
		if more != (len(paths) == 2) { // area and border
			t.Errorf("%d paths", len(paths))
		}
		for _, path := range paths {
			if d := path.attributes["d"]; !strings.HasPrefix(d, "M") || strings.Contains(d, "ZZ") {
				t.Errorf("the path is %s", d)
			}
		}
	}
}

// The SVG is XML whatever labels there are, and shows all there is to show.
func TestSVG(t *testing.T) {
	p := &Regions{Classifier: randomClassifier(t, 3, 3)}
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
	parse(t, text)
	for _, want := range []string{"gaussian(gamma=0.8), 9 points", "a &lt; b &amp; c", "class 2", "&lt;script&gt;", "basis point", "unknown class", ">-3.1", ">110<"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not show %s", want)
		}
	}
	var again bytes.Buffer
	if err := p.SVG(&again); err != nil || again.String() != text {
		t.Errorf("drawn twice it differs, or fails: %v", err)
	}
}

// Names from outside take no room from the data, which drawn checks.
func TestLongNamesLeaveRoom(t *testing.T) {
	p := &Regions{Classifier: randomClassifier(t, 4, 40)}
	long := strings.Repeat("a\nlong name ", 10_000)
	p.Classifier.Features = []string{long, long}
	for i := range p.Classifier.Model.Classes {
		p.Classifier.Model.Classes[i] = long
	}
	drawn(t, p)
	var b bytes.Buffer
	if err := p.SVG(&b); err != nil {
		t.Fatal(err)
	}
	got := parse(t, b.String())
	if n := len(got.texts); n < 2+24 || n > 2+25+20 {
		t.Errorf("%d texts", n)
	}
	for _, text := range got.texts {
		if n := len([]rune(text)); n > mostLetters {
			t.Errorf("a text of %d letters", n)
		}
	}
}

// A picture for a phone has its legend below, at a size that can be read on one.
func TestNarrowPicture(t *testing.T) {
	for _, k := range []int{2, 30} {
		p := &Regions{Classifier: randomClassifier(t, 1, k), Narrow: true}
		var b bytes.Buffer
		if err := p.SVG(&b); err != nil {
			t.Fatal(err)
		}
		picture := parse(t, b.String())
		var width, height float64
		if _, err := fmt.Sscanf(b.String(), `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g"`, &width, &height); err != nil || width != narrowWidth || height < narrowWidth+15*float64(min(k, mostLegendLines)) {
			t.Errorf("%d classes: a picture of %g × %g, %v", k, width, height, err)
		}
		for _, text := range []string{"class 0", "class 1", "basis point", "x", "a < b & c"} {
			if !slices.Contains(picture.texts, text) {
				t.Errorf("%d classes: no %q in %q", k, text, picture.texts)
			}
		}
	}
}

func TestImpossiblePictures(t *testing.T) {
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
	for reason, p := range map[string]*Regions{
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
	one := &Regions{Classifier: linear("x", "y"), Rows: at(0, 0)}
	var b bytes.Buffer
	if err := one.PNG(&b); err != nil {
		t.Fatal(err)
	}
	if config, err := png.DecodeConfig(&b); err != nil || image.Pt(config.Width, config.Height) != image.Pt(2*regionsWidth, 2*regionsHeight) {
		t.Errorf("%+v, %v", config, err)
	}
}

func BenchmarkSVG(b *testing.B) {
	p := &Regions{Classifier: randomClassifier(&testing.T{}, 1, 3)}
	for b.Loop() {
		if err := p.SVG(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
