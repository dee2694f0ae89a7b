package decision

import (
	"fmt"
	"math"
)

// MostCost bounds the cost of a pair of classes, so that sums of costs are finite.
const MostCost = 1e12

// CheckPrices reports costs that are not above 0 and at most MostCost, pairs of a class with
// itself, and pairs that are listed twice.
func CheckPrices(prices []Price) error {
	seen := make(map[Price]bool, len(prices))
	for _, p := range prices {
		pair := Price{Class: p.Class, Answer: p.Answer}
		switch {
		case !(p.Cost > 0) || p.Cost > MostCost || math.IsNaN(p.Cost):
			return fmt.Errorf("the cost of answering %q with %q is %v: want a number above 0, at most %g", p.Class, p.Answer, p.Cost, float64(MostCost))
		case p.Class == p.Answer:
			return fmt.Errorf("class %q with the answer %q costs nothing", p.Class, p.Answer)
		case seen[pair]:
			return fmt.Errorf("the cost of answering %q with %q is given twice", p.Class, p.Answer)
		}
		seen[pair] = true
	}
	return nil
}
