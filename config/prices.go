package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"streamd/incremental/decision"
	"streamd/kernels/rules/document"
)

// ParsePrices reads costs by CLASS>ANSWER, as of model.costs, in the order of the pairs.
func ParsePrices(costs map[string]float64) (prices []decision.Price, err error) {
	for _, pair := range slices.Sorted(maps.Keys(costs)) {
		class, answer, ok := strings.Cut(pair, ">")
		if !ok || class == "" || answer == "" || strings.Contains(answer, ">") {
			return nil, fmt.Errorf("%s: want CLASS>ANSWER, such as fraud>ham", document.Quoted(pair))
		}
		prices = append(prices, decision.Price{Class: class, Answer: answer, Cost: costs[pair]})
	}
	return prices, decision.CheckPrices(prices)
}
