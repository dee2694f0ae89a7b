package kernels

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxDegree bounds the degree of a polynomial kernel. With a higher degree the values of
// ordinary data leave every useful range.
const MaxDegree = 32

// A Kernel is a kernel function with its parameters: a value that can be
// compared with ==. The zero Kernel is the linear one.
type Kernel struct {
	form   form
	a, b   float64 // a is γ for the Gaussian
	degree int
}

type form uint8

const (
	linear form = iota
	gaussian
	polynomial
	sigmoid
)

// Linear is x'z.
func Linear() Kernel { return Kernel{} }

// Gaussian is exp(−γ‖x−z‖²), γ > 0.
func Gaussian(gamma float64) (Kernel, error) {
	if !(gamma > 0) || math.IsInf(gamma, 0) {
		return Kernel{}, fmt.Errorf("gaussian kernel: gamma is %v, not a positive number", gamma)
	}
	return Kernel{form: gaussian, a: gamma}, nil
}

// Polynomial is (a·x'z + b)^degree, with a ≠ 0 and a degree from 1 to
// MaxDegree.
func Polynomial(a, b float64, degree int) (Kernel, error) {
	if err := checkLine("polynomial", a, b); err != nil {
		return Kernel{}, err
	}
	if degree < 1 || degree > MaxDegree {
		return Kernel{}, fmt.Errorf("polynomial kernel: degree is %d, not from 1 to %d", degree, MaxDegree)
	}
	return Kernel{form: polynomial, a: a, b: b + 0, degree: degree}, nil
}

// Sigmoid is tanh(a·x'z + b), with a ≠ 0.
func Sigmoid(a, b float64) (Kernel, error) {
	if err := checkLine("sigmoid", a, b); err != nil {
		return Kernel{}, err
	}
	return Kernel{form: sigmoid, a: a, b: b + 0}, nil
}

func checkLine(name string, a, b float64) error {
	if a == 0 || a-a != 0 {
		return fmt.Errorf("%s kernel: a is %v, not a finite number other than 0", name, a)
	}
	if b-b != 0 {
		return fmt.Errorf("%s kernel: b is %v, not a finite number", name, b)
	}
	return nil
}

// Radial reports whether K(x, z) is a function of ‖x−z‖² (the Gaussian) instead of x'z.
func (k Kernel) Radial() bool { return k.form == gaussian }

// Semidefinite reports whether K(Z, Z) is positive semidefinite for all Z, so that K is
// an inner product and w'K(Z, Z)w a squared norm. The sigmoid is not, nor is a polynomial
// with a negative a or b.
func (k Kernel) Semidefinite() bool {
	return k.form == linear || k.form == gaussian || k.form == polynomial && k.a > 0 && k.b >= 0
}

// Argument is the argument s of K as a function: ‖x−z‖² or x'z. It panics when x and z
// differ in length.
func (k Kernel) Argument(x, z []float64) float64 {
	if len(x) != len(z) {
		panic(fmt.Sprintf("kernels: points of %d and %d features", len(x), len(z)))
	}
	s := 0.0
	if k.Radial() {
		for j, xj := range x {
			d := xj - z[j]
			s = math.FMA(d, d, s)
		}
		return s
	}
	for j, xj := range x {
		s = math.FMA(xj, z[j], s)
	}
	return s
}

// Value is K as a function of its argument s.
func (k Kernel) Value(s float64) float64 {
	if s-s != 0 {
		return math.NaN()
	}
	var v float64
	switch k.form {
	case gaussian:
		return gaussianOf(k.a, s)
	case linear:
		v = s
	case polynomial:
		v = power(math.FMA(k.a, s, k.b), k.degree)
	case sigmoid:
		v = tanh(math.FMA(k.a, s, k.b))
	}
	if math.Abs(v) < smallest {
		return 0
	}
	return v
}

// ValueAndDerivative is K and dK/ds at the argument s. The derivatives with respect to
// the point z are
//
//	∂K(x, z)/∂z = dK/ds · 2(z − x)   for a radial kernel,   dK/ds · x   otherwise.
func (k Kernel) ValueAndDerivative(s float64) (value, derivative float64) {
	value = k.Value(s)
	switch k.form {
	case gaussian:
		return value, -k.a * value
	case polynomial:
		return value, float64(k.degree) * k.a * power(math.FMA(k.a, s, k.b), k.degree-1)
	case sigmoid:
		return value, k.a * (1 - float64(value*value))
	}
	return value, 1
}

// power is p^d by squaring, d ≥ 0.
func power(p float64, d int) float64 {
	v := 1.0
	for ; d > 0; d >>= 1 {
		if d&1 != 0 {
			v *= p
		}
		p *= p
	}
	return v
}

// String is the canonical text of the kernel, which Parse reads:
//
//	linear
//	gaussian(gamma=0.0078125)
//	polynomial(a=1,b=1,degree=3)
//	sigmoid(a=0.01,b=-1)
func (k Kernel) String() string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	switch k.form {
	case gaussian:
		return "gaussian(gamma=" + number(k.a) + ")"
	case polynomial:
		return "polynomial(a=" + number(k.a) + ",b=" + number(k.b) + ",degree=" + strconv.Itoa(k.degree) + ")"
	case sigmoid:
		return "sigmoid(a=" + number(k.a) + ",b=" + number(k.b) + ")"
	}
	return "linear"
}

// Parse reads the text form of a kernel: the name and all its parameters, in the order of
// String and without spaces. Numbers may have any decimal form. Parse inverts String.
func Parse(text string) (Kernel, error) {
	name, rest, parameters := strings.Cut(text, "(")
	p := parser{text: text, rest: rest}
	if parameters {
		var closed bool
		if p.rest, closed = strings.CutSuffix(rest, ")"); !closed {
			p.fail("a closing parenthesis is missing")
		}
	}
	var k Kernel
	var err error
	switch name {
	case "linear":
		if parameters {
			p.fail("linear has no parameters")
		}
	case "gaussian":
		gamma := p.number("gamma")
		if p.end(); p.err == nil {
			k, err = Gaussian(gamma)
		}
	case "polynomial":
		a, b, degree := p.number("a"), p.number("b"), p.integer("degree")
		if p.end(); p.err == nil {
			k, err = Polynomial(a, b, degree)
		}
	case "sigmoid":
		a, b := p.number("a"), p.number("b")
		if p.end(); p.err == nil {
			k, err = Sigmoid(a, b)
		}
	default:
		p.fail("the kernels are linear, gaussian(gamma=…), polynomial(a=…,b=…,degree=…) and sigmoid(a=…,b=…)")
	}
	if p.err != nil {
		return Kernel{}, p.err
	}
	if err != nil {
		return Kernel{}, fmt.Errorf("kernel %q: %w", text, err)
	}
	return k, nil
}

// ParseFor is Parse for rows of so many features, and reads names without parameters, too:
// polynomial is (x'z/n + 1)³ and sigmoid tanh(x'z/n) for n features. auto says that the text is
// gaussian, whose γ is to be chosen; k has 1.
func ParseFor(text string, features int) (k Kernel, auto bool, err error) {
	a := 1 / float64(features)
	switch text {
	case "gaussian":
		return Kernel{form: gaussian, a: 1}, true, nil
	case "polynomial":
		return Kernel{form: polynomial, a: a, b: 1, degree: 3}, false, nil
	case "sigmoid":
		return Kernel{form: sigmoid, a: a}, false, nil
	}
	k, err = Parse(text)
	return k, false, err
}

// Parameters returns the name and the parameters that String has: a is γ of gaussian, and those
// that a kernel does not have are 0.
func (k Kernel) Parameters() (name string, a, b float64, degree int) {
	names := [...]string{linear: "linear", gaussian: "gaussian", polynomial: "polynomial", sigmoid: "sigmoid"}
	return names[k.form], k.a, k.b, k.degree
}

// MarshalText is String.
func (k Kernel) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is Parse.
func (k *Kernel) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*k = parsed
	}
	return err
}

// parser reads a list of name=value. After a fault it returns zeros.
type parser struct {
	text, rest string
	err        error
}

func (p *parser) fail(format string, arguments ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("kernel %q: %s", p.text, fmt.Sprintf(format, arguments...))
	}
	p.rest = ""
}

func (p *parser) value(name string) string {
	item, rest, more := strings.Cut(p.rest, ",")
	value, ok := strings.CutPrefix(item, name+"=")
	if !ok || more && rest == "" || strings.Trim(value, "0123456789+-.eE") != "" {
		p.fail("%s=number is wanted where it has %q", name, p.rest)
		return ""
	}
	p.rest = rest
	return value
}

func (p *parser) number(name string) float64 {
	value := p.value(name)
	if p.err != nil {
		return 0
	}
	x, err := strconv.ParseFloat(value, 64)
	if err != nil {
		p.fail("%s: %q is not a number that fits a float64", name, value)
	}
	return x
}

func (p *parser) integer(name string) int {
	value := p.value(name)
	if p.err != nil {
		return 0
	}
	i, err := strconv.Atoi(value)
	if err != nil {
		p.fail("%s: %q is not a whole number", name, value)
	}
	return i
}

func (p *parser) end() {
	if p.rest != "" {
		p.fail("%q is in excess", p.rest)
	}
}
