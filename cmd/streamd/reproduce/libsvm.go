package reproduce

import (
	"context"
	"fmt"
	"math"
	"time"

	"streamd/incremental/newton"
	"streamd/kernels"
	"streamd/kernels/svm"
)

// optima is a table of what LIBSVM 3.37 finds with -s 0 -t 2 -e 1e-9, on standardised features. Its
// objective is that of its dual variables with a kernel in float64: its own has float32's rounding.
type optima []optimum

type optimum struct {
	file      string
	nu        float64
	exponent  int // of the Gaussian's γ = 2^exponent
	objective float64
}

func (o optimum) dataSet() (name, file, remark string) { return o.file, o.file, "" }

// mostOff is the relative distance of the objectives that is allowed.
const mostOff = 1e-6

func (o optima) run(ctx context.Context, c *Config) ([]Result, error) {
	return eachSet(c, o, func(e optimum, s *set) ([]Result, error) {
		if err := s.standardise(); err != nil {
			return nil, err
		}
		kernel, err := kernels.Gaussian(math.Ldexp(1, e.exponent))
		if err != nil {
			return nil, err
		}
		rows := problem(newton.Blocks{s.block(0, s.rows())}, positive, false)
		began := time.Now()
		p, err := svm.SMO{Kernel: kernel, Tolerance: 1e-8}.Fit(ctx, rows, e.nu)
		if err != nil {
			return nil, err
		}
		vectors, off := float64(p.SupportVectors()), math.Abs(p.Objective/e.objective-1)
		r := Result{
			DataSet: e.file, Rows: s.rows(), Features: len(s.features), Method: "SMO", Nu: e.nu, Mu: math.Ldexp(1, e.exponent),
			SupportVectors: &vectors, Seconds: time.Since(began).Seconds(),
			Remark: fmt.Sprintf("the objective is %.10g, LIBSVM's %.10g.", p.Objective, e.objective),
		}
		if !(off <= mostOff) {
			r.Broken = fmt.Sprintf("the objectives %.10g and %.10g differ by %.1g; at most %.0g is expected", p.Objective, e.objective, off, mostOff)
		}
		return []Result{r}, nil
	})
}

var tableLIBSVM = optima{
	{"ionosphere", 1, -3, 56.40410862},
	{"bupa", 1, -3, 227.0330205},
	{"pima", 1, -3, 352.4254486},
	{"cleveland", 1, -4, 102.2337737},
	{"housing", 4, -3, 398.8375019},
	{"tic-tac-toe", 8, -3, 145.1977685},
	{"sonar", 8, -6, 111.2533864},
	{"wpbc60", 1, -5, 57.99317877},
	{"checkerboard", 512, 3, 4211.239052},
	{"promoters", 1, -8, 40.26001539},
	{"mushroom", 1, -4, 68.92781485},
}
