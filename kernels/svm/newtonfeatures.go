package svm

import (
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"streamd/incremental/gram"
)

// features is a matrix A'D of n features and m rows. Its rows are dense ones one after the other,
// or those of sparse columns.
type features struct {
	m     int
	dense blas64.General // n × m; no rows where there are sparse columns
	// Of each feature the rows with a number other than 0, and the numbers.
	at [][]int32
	x  [][]float64
}

// newFeatures makes it of columns of all rows, for some of them with labels d.
func newFeatures(columns []gram.Column, rows []int, d []float64, all int) features {
	m := len(rows)
	f := features{m: m}
	if slices.ContainsFunc(columns, func(c gram.Column) bool { return c.Kind() == gram.Sparse }) {
		place := make([]int32, all) // of a row among those that count, or −1
		for i := range place {
			place[i] = -1
		}
		for k, i := range rows {
			place[i] = int32(k)
		}
		for _, c := range columns {
			var at []int32
			var x []float64
			keep := func(i int32, v float64) {
				if k := place[i]; k >= 0 && v != 0 {
					at, x = append(at, k), append(x, d[k]*v)
				}
			}
			if places, numbers, ok := c.NonZero(); ok {
				for l, i := range places {
					keep(i, numbers[l])
				}
			} else {
				for i := range all {
					keep(int32(i), c.At(i))
				}
			}
			f.at, f.x = append(f.at, at), append(f.x, x)
		}
		return f
	}
	f.dense = blas64.General{Rows: len(columns), Cols: m, Stride: max(1, m), Data: make([]float64, len(columns)*m)}
	numbers := make([]float64, all)
	for j, column := range columns {
		column.Copy(numbers, 0)
		for k, i := range rows {
			f.dense.Data[j*m+k] = d[k] * numbers[i]
		}
	}
	return f
}

// times writes the product with u to t.
func (f *features) times(t, u []float64) {
	if f.at == nil {
		if len(t) > 0 && len(u) > 0 {
			blas64.Gemv(blas.NoTrans, 1, f.dense, vector(u), 0, vector(t))
		}
		return
	}
	for j, at := range f.at {
		var sum float64
		for l, i := range at {
			sum += float64(f.x[j][l] * u[i])
		}
		t[j] = sum
	}
}

// add adds r times row j to v.
func (f *features) add(v []float64, r float64, j int) {
	if f.at == nil {
		floats.AddScaled(v, r, f.dense.Data[j*f.dense.Stride:][:f.m])
		return
	}
	for l, i := range f.at[j] {
		v[i] += float64(r * f.x[j][l])
	}
}

// appendRow appends row j to h.
func (f *features) appendRow(h []float64, j int) []float64 {
	if f.at == nil {
		return append(h, f.dense.Data[j*f.dense.Stride:][:f.m]...)
	}
	from := len(h)
	h = append(h, make([]float64, f.m)...)
	for l, i := range f.at[j] {
		h[from+int(i)] = f.x[j][l]
	}
	return h
}
