package reproduce

import "context"

// eachSeed runs a table of made points or random starts once for each seed, and returns the means
// of its figures. judge, unless nil, states what ought to hold of them.
func eachSeed(run func(ctx context.Context, c *Config) ([]Result, error), judge func(*Result)) func(ctx context.Context, c *Config) ([]Result, error) {
	return func(ctx context.Context, c *Config) ([]Result, error) {
		var all [][]Result
		for i := range max(1, c.Seeds) {
			one := *c
			one.Seed, one.Seeds = c.Seed+uint64(i), 1
			of, err := run(ctx, &one)
			if err != nil {
				return nil, err
			}
			all = append(all, of)
		}
		means := all[0]
		for i := range means {
			var of []*Result
			for _, results := range all {
				of = append(of, &results[i])
			}
			if means[i].Absent != "" {
				continue
			}
			means[i] = meanOf(of)
			if judge != nil {
				judge(&means[i])
			}
		}
		return means, nil
	}
}

// meanOf is the mean of a result over seeds. A remark on one of several seeds is dropped. One seed
// keeps the standard error that its own rows give it.
func meanOf(of []*Result) Result {
	r := *of[0]
	r.Seeds = len(of)
	if len(of) == 1 {
		return r
	}
	r.Remark = ""
	mean := func(figure func(*Result) *float64) (m *float64, e estimate) {
		var values []float64
		for _, o := range of {
			if v := figure(o); v != nil {
				values = append(values, *v)
			}
		}
		if len(values) < len(of) {
			return nil, e
		}
		e = estimateOf(values)
		return &e.mean, e
	}
	r.Train, _ = mean(func(r *Result) *float64 { return r.Train })
	r.Test, _ = mean(func(r *Result) *float64 { return r.Test })
	r.Used, _ = mean(func(r *Result) *float64 { return r.Used })
	r.SupportVectors, _ = mean(func(r *Result) *float64 { return r.SupportVectors })
	programs, _ := mean(func(r *Result) *float64 { return &r.Programs })
	seconds, _ := mean(func(r *Result) *float64 { return &r.Seconds })
	total, _ := mean(func(r *Result) *float64 { return &r.TotalSeconds })
	r.Programs, r.Seconds, r.TotalSeconds = *programs, *seconds, *total
	var e estimate
	if r.Difference, e = mean(func(r *Result) *float64 { return r.Difference }); r.Difference != nil {
		r.estimated(e)
		r.Allowed = r.allowed(r.Tolerance)
	}
	return r
}
