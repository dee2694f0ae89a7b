package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"streamd/ingest/schema"
	"streamd/kernels"
	"streamd/kernels/reduce"
	"streamd/kernels/rules/document"
)

// Size is a number of bytes.
type Size int64

// sizeUnits has the preferred units first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// String writes the size in the largest unit of 1024 that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits[:3] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

var errSize = errors.New("want a size, such as 8MiB, 64KB or a number of bytes")

func parseSize(text string) (Size, error) {
	number, unit := text, int64(1)
	for _, u := range sizeUnits {
		if cut := len(text) - len(u.name); cut > 0 && strings.EqualFold(text[cut:], u.name) {
			number, unit = strings.TrimRight(text[:cut], " "), u.bytes
			break
		}
	}
	n, err := parseInt(number, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, errSize
	}
	return Size(n * unit), nil
}

const day = 24 * time.Hour

var errDuration = errors.New("want a duration, such as 500ms, 1m30s or 7d")

// parseDuration reads a duration of time.ParseDuration after an optional whole number of
// days.
func parseDuration(text string) (time.Duration, error) {
	var days int64
	rest := text
	if number, tail, ok := strings.Cut(text, "d"); ok {
		n, err := parseInt(number, 64)
		if err != nil || n < 0 || n > int64(math.MaxInt64/day) {
			return 0, errDuration
		}
		if tail == "" {
			return time.Duration(n) * day, nil
		}
		days, rest = n, tail
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest != text && d < 0 || d > math.MaxInt64-time.Duration(days)*day {
		return 0, errDuration
	}
	return time.Duration(days)*day + d, nil
}

// FormatDuration writes a duration as the configuration has it: whole days with d, and leaves out
// zero minutes and seconds at the end: 7d, 1h, 1m30s.
func FormatDuration(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

var (
	errInt   = errors.New("want a whole number in decimal digits")
	errRange = errors.New("out of range")
)

// parseInt reads decimal digits with an optional minus. It refuses other forms of strconv
// and YAML, since 007 and 1_000 mean different things elsewhere.
func parseInt(text string, bits int) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || digits[0] == '+' || digits[0] == '-' || len(digits) > 1 && digits[0] == '0' {
		return 0, errInt
	}
	n, err := strconv.ParseInt(text, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errRange
	case err != nil:
		return 0, errInt
	}
	return n, nil
}

// Nu is a weight ν or μ > 0, or NuAuto.
type Nu float64

// NuAuto stands for a weight that is chosen on held-out folds.
const NuAuto Nu = 0

// String writes the number, or auto.
func (n Nu) String() string {
	if n == NuAuto {
		return "auto"
	}
	return strconv.FormatFloat(float64(n), 'g', -1, 64)
}

func parseNu(text string) (Nu, error) {
	if text == "auto" {
		return NuAuto, nil
	}
	f, err := parseNumber(text)
	if err == nil && !(f > 0) {
		err = errors.New("want a number greater than 0")
	}
	if err != nil {
		return 0, fmt.Errorf("%w, or auto", err)
	}
	return Nu(f), nil
}

// Function is a kernel as text (kernels.ParseFor), or KernelNone.
type Function string

const KernelNone Function = "none"

// Kernel is the kernel for rows of so many features, and whether its γ is to be chosen: see
// kernels.ParseFor. Do not call it on KernelNone.
func (f Function) Kernel(features int) (k kernels.Kernel, auto bool) {
	k, auto, err := kernels.ParseFor(string(f), features)
	if err != nil {
		panic(err) // UnmarshalText checked it
	}
	return k, auto
}

// UnmarshalText reads a kernel. Numbers get their usual form.
func (f *Function) UnmarshalText(text []byte) error {
	k, _, err := kernels.ParseFor(string(text), 1)
	switch {
	case string(text) == string(KernelNone), err == nil && !strings.Contains(string(text), "("):
		*f = Function(text)
	case err != nil:
		return fmt.Errorf("want none or a kernel: %w", err)
	default:
		*f = Function(k.String())
	}
	return nil
}

func parseFunction(text string) (f Function, err error) {
	err = f.UnmarshalText([]byte(text))
	return f, err
}

// Reduce is the method that chooses a basis, as text: see reduce.Parse.
type Reduce string

// Reducer returns the method for a basis of that many points.
func (r Reduce) Reducer(points int) reduce.Reducer {
	reducer, err := reduce.Parse(string(r), points)
	if err != nil {
		panic(err) // parseReduce checked it
	}
	return reducer
}

func parseReduce(text string) (Reduce, error) {
	_, err := reduce.Parse(text, 1)
	return Reduce(text), err
}

// Roles are names of roles in the order of their constants, joined by +. Empty: none.
type Roles string

const allRoles = Roles(RoleAdmin)

// ParseRoles reads roles in any order. The error does not repeat the text, which may be a
// misplaced secret.
func ParseRoles(text string) (Roles, error) {
	given := map[string]bool{}
	if text != "" {
		for name := range strings.SplitSeq(text, "+") {
			if !slices.Contains(roleNames, name) || given[name] {
				return "", errors.New("want some of read, predict, retire and admin, joined by + as in read+predict")
			}
			given[name] = true
		}
	}
	named := slices.DeleteFunc(slices.Clone(roleNames), func(name string) bool { return !given[name] })
	return Roles(strings.Join(named, "+")), nil
}

// Has reports whether r has the role, by its name or as admin.
func (r Roles) Has(role Role) bool {
	for name := range strings.SplitSeq(string(r), "+") {
		if name == string(role) || name == string(RoleAdmin) {
			return true
		}
	}
	return false
}

// With returns the union of both.
func (r Roles) With(others Roles) Roles {
	var both []string
	for _, name := range roleNames {
		if list := "+" + string(r) + "+" + string(others) + "+"; strings.Contains(list, "+"+name+"+") {
			both = append(both, name)
		}
	}
	return Roles(strings.Join(both, "+"))
}

var errNumber = errors.New("want a finite number in decimal digits, such as 0.5 or 1e-3")

func parseNumber(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || strings.ContainsAny(text, "_xX") {
		return 0, errNumber
	}
	return f, nil
}

var (
	rolesType    = reflect.TypeFor[Roles]()
	functionType = reflect.TypeFor[Function]()
	schemaType   = reflect.TypeFor[*schema.Schema]()
	reduceType   = reflect.TypeFor[Reduce]()
	nuType       = reflect.TypeFor[Nu]()
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
)

// parseScalar reads a value of a type other than a list or a map. The error names the
// expected syntax.
func parseScalar(t reflect.Type, text string) (reflect.Value, error) {
	v := reflect.New(t).Elem()
	var value any
	var err error
	switch {
	case t == durationType:
		value, err = parseDuration(text)
	case t == sizeType:
		value, err = parseSize(text)
	case t == nuType:
		value, err = parseNu(text)
	case t == functionType:
		value, err = parseFunction(text)
	case t == reduceType:
		value, err = parseReduce(text)
	case t == rolesType:
		value, err = ParseRoles(text)
	case t == schemaType:
		value, err = parseSchema(text)
	case t.Kind() == reflect.String:
		value, err = parseText(text)
	case t.Kind() == reflect.Bool:
		value, err = parseBool(text)
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		value, err = parseInt(text, t.Bits())
	case t.Kind() == reflect.Float64:
		value, err = parseNumber(text)
	default:
		panic(fmt.Sprintf("config: no values of type %s", t))
	}
	if err == nil {
		v.Set(reflect.ValueOf(value).Convert(t))
	}
	return v, err
}

func parseSchema(text string) (*schema.Schema, error) {
	switch text = strings.TrimSpace(text); {
	case text == "" || text == "{}":
		return nil, nil
	case text[0] == '{':
		return schema.Parse([]byte(text))
	}
	data, err := document.ReadFile(text, document.MaxFile)
	if err != nil {
		return nil, err
	}
	s, err := schema.Parse(data)
	if err != nil {
		err = fmt.Errorf("%s: %w", text, err)
	}
	return s, err
}

func parseBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, errors.New("want true or false")
	}
	return text == "true", nil
}

func parseText(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", errors.New("not valid UTF-8")
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return "", errors.New("control characters and line breaks are not allowed")
	}
	return text, nil
}

// formatScalar writes a value so that parseScalar reads it back.
func formatScalar(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return FormatDuration(time.Duration(v.Int()))
	case v.Type() == sizeType:
		return Size(v.Int()).String()
	case v.Type() == nuType:
		return Nu(v.Float()).String()
	case v.Type() == schemaType:
		return v.Interface().(*schema.Schema).String()
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	default:
		return v.String()
	}
}
