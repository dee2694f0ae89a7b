package calibration

import "math"

// AUC is the area under the curve of true positive rates over false positive rates: the
// weighted share of pairs of a row of the plane's class and another row in which the first
// has the larger value. A tie counts one half (Hanley and McNeil 1982). It is NaN without
// rows of both kinds.
func (o *Outcomes) AUC() float64 {
	var plus, minus, pairs float64 // of the rows so far; pairs that are in order
	for from := 0; from < len(o.rows); {
		var here group
		here.value = o.rows[from].value
		for ; from < len(o.rows) && o.rows[from].value == here.value; from++ {
			here.add(&o.rows[from])
		}
		pairs += float64(here.plus*minus) + float64(here.plus*here.minus/2)
		plus += here.plus
		minus += here.minus
	}
	if plus == 0 || minus == 0 {
		return math.NaN()
	}
	return pairs / plus / minus
}

// Threshold returns the value from which on rows are taken for the plane's class at the least
// cost. missed is the cost of a row of the plane's class below the threshold, and alarm that
// of another row at it or above. The threshold is in the middle between the values of two
// rows; of equal costs, nearest to zero. It is math.MaxFloat64 where no row is best taken
// for the plane's class, and −math.MaxFloat64 where all are. Without rows it is zero.
func (o *Outcomes) Threshold(missed, alarm float64) float64 {
	rows, err := o.groups()
	if err != nil {
		return 0
	}
	var cost float64 // of the threshold below all rows
	for i := range rows {
		cost += float64(alarm * rows[i].minus)
	}
	best, at := cost, -math.MaxFloat64
	for i := range rows {
		cost += float64(missed*rows[i].plus) - float64(alarm*rows[i].minus)
		between := math.MaxFloat64
		if i+1 < len(rows) {
			between = float64(rows[i].value/2) + float64(rows[i+1].value/2)
			if between <= rows[i].value { // neighbouring numbers
				between = rows[i+1].value
			}
		}
		if cost < best || cost == best && math.Abs(between) < math.Abs(at) {
			best, at = cost, between
		}
	}
	return at
}
