package reduce

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// entry is a reducer that users can name.
type entry struct {
	name         string
	semidefinite bool // refuses kernels that are not positive semidefinite
	reducer      func(s *settings, points int) Reducer
}

// named lists the reducers in the order of Names.
var named = []entry{
	{"cs", false, func(s *settings, _ int) Reducer {
		return ChunkingSynthetic{
			Runs: s.count("runs", 1, 10), Synthetic: s.count("points", 1, 10), Candidates: s.count("candidates", 1, 100),
			Nu: s.positive("nu", 12), Alpha: s.positive("alpha", 1.25), Starts: s.count("starts", 1, 1),
			Unite: s.truth("union", false), Fresh: s.count("fresh", 0, 300), Chunks: s.chunks("stages"),
		}
	}},
	{"random", false, func(*settings, int) Reducer { return Subset{Nu: 1} }},
	{"stratified", false, func(*settings, int) Reducer { return Subset{Nu: 1, Stratified: true} }},
	{"kmeans", false, func(*settings, int) Reducer { return Clusters{Nu: 1, Norm: TwoNorm} }},
	{"kmedian", false, func(*settings, int) Reducer { return Clusters{Nu: 1, Norm: OneNorm} }},
	{"slmc", true, func(s *settings, _ int) Reducer {
		return s.direct(LargeMargin{Nu: s.positive("nu", 1)})
	}},
	{"rs", true, func(s *settings, _ int) Reducer {
		return s.direct(ReducedSet{Nu: s.positive("nu", 1)})
	}},
	{"skfd", true, func(s *settings, _ int) Reducer {
		return s.direct(Fisher{Mu: s.positive("mu", 1e-3)})
	}},
	{"lda", false, func(s *settings, _ int) Reducer {
		return Discriminant{Nu: 1, Eta: s.share("eta", defaultEta), Candidates: s.count("candidates", 1, selectionRows)}
	}},
	{"cholesky", true, func(s *settings, _ int) Reducer {
		return Cholesky{Nu: 1, Eta: s.share("eta", defaultEta)}
	}},
	{"eigen", true, func(s *settings, points int) Reducer {
		e := Eigen{Nu: 1, Points: s.count("points", 1, max(eigenRows, points))}
		if e.Points > mostEigenRows {
			s.fail("points is %d; eigen takes at most %d", e.Points, mostEigenRows)
		}
		return e
	}},
}

// Names lists the users' names of the reducers.
func Names() (names []string) {
	for _, r := range named {
		names = append(names, r.name)
	}
	return names
}

// Parse returns the reducer of a text for a basis of that many points: one of Names, and perhaps
// settings in parentheses, in any order.
//
//	cs(runs=10,points=10,candidates=100,nu=12,alpha=1.25,starts=1,union=false,fresh=300,
//	   stages=500:1.4/1000:1.6/2000:3/4000:6)
//	slmc(nu=1,starts=1,means=true)  rs(nu=1,starts=1,means=true)  skfd(mu=0.001,starts=1,means=true)
//	lda(eta=0.001,candidates=2000)  cholesky(eta=0.001)  eigen(points=1000)
//
// These are the defaults. Those of cs are the paper's, but with fresh rows, without which the
// candidates of later stages come from the 500 rows of the first chunks alone: see cs-1 of package
// reproduce of cmd/streamd. points are t in its stages before the last, a stage is its rows and ν,
// stages=none leaves the last alone, of all rows, and union is algorithm (5). The size of the basis
// is S of eigen, and points are L, by default 1000, or S if that is more.
//
// Errors do not repeat the text.
//
// The planes of the reducers' own 1-norm programs have ν = 1: callers that keep the points alone
// find better ones.
func Parse(text string, points int) (Reducer, error) {
	name, list, parentheses := strings.Cut(text, "(")
	i := slices.IndexFunc(named, func(e entry) bool { return e.name == name })
	if i < 0 {
		return nil, fmt.Errorf("want one of %s", strings.Join(Names(), ", "))
	}
	s := &settings{given: map[string]string{}}
	if parentheses {
		list, closed := strings.CutSuffix(list, ")")
		if !closed {
			return nil, errors.New("a closing parenthesis is missing")
		}
		for _, setting := range strings.Split(list, ",") {
			setting = strings.TrimSpace(setting)
			key, value, ok := strings.Cut(setting, "=")
			if _, twice := s.given[key]; !ok || twice {
				return nil, fmt.Errorf("a setting=value is wanted where it has %q, and each setting once", setting)
			}
			s.given[key] = value
		}
	}
	r := named[i].reducer(s, points)
	for key := range s.given {
		if !slices.Contains(s.known, key) {
			s.fail("%s has no setting %s; it has %s", name, key, strings.Join(s.known, ", "))
			if len(s.known) == 0 {
				s.err = fmt.Errorf("%s has no settings", name)
			}
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	return r, nil
}

// NeedsSemidefinite reports whether the reducer of a text refuses kernels that are not positive
// semidefinite.
func NeedsSemidefinite(text string) bool {
	name, _, _ := strings.Cut(text, "(")
	return slices.ContainsFunc(named, func(e entry) bool { return e.name == name && e.semidefinite })
}

// settings reads the settings of a reducer's text, and notes the first fault.
type settings struct {
	given map[string]string
	known []string
	err   error
}

func (s *settings) fail(format string, arguments ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, arguments...)
	}
}

// text returns the value of a setting, and whether it is given.
func (s *settings) text(key string) (string, bool) {
	s.known = append(s.known, key)
	value, ok := s.given[key]
	return value, ok
}

// mostCount bounds runs, starts and rows.
const mostCount = 1 << 20

func (s *settings) count(key string, least, otherwise int) int {
	text, ok := s.text(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > mostCount {
		s.fail("%s is %q, not a whole number from %d to %d", key, text, least, mostCount)
	}
	return n
}

func (s *settings) positive(key string, otherwise float64) float64 {
	text, ok := s.text(key)
	if !ok {
		return otherwise
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		s.fail("%s is %q, not a positive number", key, text)
	}
	return x
}

func (s *settings) share(key string, otherwise float64) float64 {
	x := s.positive(key, otherwise)
	if x >= 1 {
		s.fail("%s is %v, not below 1", key, x)
	}
	return x
}

func (s *settings) truth(key string, otherwise bool) bool {
	switch text, ok := s.text(key); {
	case !ok:
		return otherwise
	case text == "true":
		return true
	case text != "false":
		s.fail("%s is %q, neither true nor false", key, text)
	}
	return false
}

// chunks reads stages such as 500:1.4/1000:1.6, or none.
func (s *settings) chunks(key string) []Chunk {
	text, ok := s.text(key)
	if !ok {
		return nil
	}
	chunks := []Chunk{}
	if text == "none" {
		return chunks
	}
	for _, stage := range strings.Split(text, "/") {
		rows, nu, _ := strings.Cut(stage, ":")
		one := &settings{given: map[string]string{"rows": rows, "nu": nu}}
		chunks = append(chunks, Chunk{Rows: one.count("rows", 1, 1), Nu: one.positive("nu", 1)})
		if one.err != nil {
			s.fail("%s are %q, neither none nor ROWS:NU/…, such as 500:1.4/1000:1.6", key, text)
		}
	}
	return chunks
}

// direct is the direct method with the settings that its machines share. The hinge loss gives the
// points their coefficients.
func (s *settings) direct(machine Marginal) Reducer {
	return Direct{Machine: machine, Means: s.truth("means", true), Starts: s.count("starts", 1, 1), Nu: 1}
}
