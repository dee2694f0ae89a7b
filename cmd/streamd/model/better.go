package model

import (
	"fmt"
	"math"
	"strings"

	"streamd/incremental/study"
	"streamd/incremental/tuning"
)

// Better says that settings which auto would choose classify held-out blocks better than those
// that are given, by more than the standard error. Its figures flatter them a little: the folds
// that they are of have chosen, too.
type Better struct {
	Settings []string `json:"settings"` // lines of the configuration that have them chosen
	// correctness or balanced correctness of held-out rows of the sample; loss or balanced loss,
	// the mean squared error of the held-out blocks, read off their sums, where there are no rows
	Criterion     string  `json:"criterion"`
	Given         float64 `json:"given"`          // the figure of the given settings
	Chosen        float64 `json:"chosen"`         // the figure of those that auto would choose
	Gain          float64 `json:"gain"`           // how much better that is
	StandardError float64 `json:"standard_error"` // of the gain
	Nu            float64 `json:"nu"`             // ν that would be chosen
	Standardise   bool    `json:"standardise"`    // whether features would be scaled
}

// NewBetter is nil unless the chosen settings are better. scaled says that the scaling was
// looked at, too.
func NewBetter(b *study.Beside, scaled bool) *Better {
	if !b.Better() {
		return nil
	}
	out := &Better{
		Settings: []string{"model.nu: auto"}, Criterion: b.Criterion.String(), Given: b.Given, Chosen: b.Chosen,
		Gain: b.Gain, StandardError: b.Error, Nu: b.Nu, Standardise: b.Standardise,
	}
	if scaled {
		out.Settings = append(out.Settings, "model.standardise: auto")
	}
	return out
}

// String is a sentence.
func (b *Better) String() string {
	settings := strings.Join(b.Settings, " and ")
	if b.Criterion == tuning.Loss.String() || b.Criterion == tuning.BalancedLoss.String() {
		// As many digits as the gain shows in.
		digits := max(3, min(2+int(math.Ceil(math.Log10(b.Given/b.Gain))), 15))
		return fmt.Sprintf("by %s the squared %s of held-out blocks would be %.3g ± %.2g lower, %.*g in place of %.*g",
			settings, b.Criterion, b.Gain, b.StandardError, digits, b.Chosen, digits, b.Given)
	}
	return fmt.Sprintf("by %s the %s of held-out rows would be %.1f ± %.1f percentage points higher, %s in place of %s",
		settings, b.Criterion, 100*b.Gain, 100*b.StandardError, percent(b.Chosen), percent(b.Given))
}
