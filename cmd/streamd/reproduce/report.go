package reproduce

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"streamd/cmd/streamd/listing"
)

// Result has our figures and the published ones, for a data set and a method. Shares and
// probabilities are from 0 to 1. A figure that is not published, or has no meaning here, is
// absent.
type Result struct {
	Table   string `json:"table"`
	DataSet string `json:"data_set"`
	// Absent says why the data set could not be used. The other fields are empty then.
	Absent  string `json:"absent,omitempty"`
	missing bool   // a file is missing from the data folder

	Rows     int     `json:"rows,omitempty"` // m
	Features int     `json:"features,omitempty"`
	Method   string  `json:"method,omitempty"`
	Nu       float64 `json:"nu,omitempty"` // median over folds
	Mu       float64 `json:"mu,omitempty"` // of a Gaussian kernel, likewise

	Train      *float64 `json:"train,omitempty"` // correctness
	Test       *float64 `json:"test,omitempty"`
	PaperTrain *float64 `json:"paper_train,omitempty"`
	PaperTest  *float64 `json:"paper_test,omitempty"`
	// Difference is Test − PaperTest, or that of Train if there is no test.
	Difference *float64 `json:"difference,omitempty"`
	// StandardError is that of Difference: from one seed to the next, or of a single seed from one
	// fold, division or row to the next. It has Freedom degrees of freedom.
	StandardError *float64 `json:"standard_error,omitempty"`
	Freedom       int      `json:"degrees_of_freedom,omitempty"`
	Seeds         int      `json:"seeds,omitempty"` // that the figures are means over
	// P is the p-value of the paired t-test of the folds' test correctness against the method
	// Against, the median of the divisions.
	P       *float64 `json:"p,omitempty"`
	PaperP  *float64 `json:"paper_p,omitempty"`
	Against string   `json:"against,omitempty"`

	// Used is the number of features with w ≠ 0, or of points of a basis, and SupportVectors that
	// of rows with a dual variable above 0: means over folds.
	Used                *float64 `json:"used,omitempty"`
	PaperUsed           float64  `json:"paper_used,omitempty"`
	SupportVectors      *float64 `json:"support_vectors,omitempty"`
	PaperSupportVectors float64  `json:"paper_support_vectors,omitempty"`
	Programs            float64  `json:"programs,omitempty"` // mathematical programs solved, mean over folds

	Angle *float64 `json:"angle,omitempty"` // between the normal and the first one of the table, in degrees

	Alarms *Alarms `json:"alarms,omitempty"` // of changes in streams

	Seconds      float64 `json:"seconds,omitempty"`       // training, of all folds of a division, on one core
	TotalSeconds float64 `json:"total_seconds,omitempty"` // with tuning and testing
	PaperSeconds float64 `json:"paper_seconds,omitempty"` // training, on the paper's machine

	// Known is a difference that the remark explains; 0: none. The claim is that the expected
	// difference is at most Tolerance away from it. A check fails where the difference is more than
	// Allowed away: then a t-test refuses the claim (see doubt). 0: there is no claim.
	Known     float64 `json:"known_difference,omitempty"`
	Tolerance float64 `json:"tolerance,omitempty"`
	Allowed   float64 `json:"allowed,omitempty"`
	Better    bool    `json:"may_be_better,omitempty"` // by more than the tolerance
	Remark    string  `json:"remark,omitempty"`
	// Broken is a statement on the figures that ought to hold and does not, with the figures.
	Broken string `json:"broken,omitempty"`
}

// Fault returns the reason why a check fails: the distance from the published figure, a
// statement that does not hold, or a missing file. It is empty if the check passes.
func (r *Result) Fault() string {
	switch {
	case r.missing:
		return fmt.Sprintf("%s: %s: %s", r.Table, r.DataSet, r.Absent)
	case r.off():
		allowed := fmt.Sprintf("at most %.1f are allowed", 100*r.Tolerance)
		if r.Known != 0 {
			allowed = fmt.Sprintf("%+.1f ± %.1f is known", 100*r.Known, 100*r.Tolerance)
		}
		if r.Freedom > 0 {
			allowed += fmt.Sprintf(", and %.1f by chance", 100*(r.allowed(r.Tolerance)-r.Tolerance))
		}
		return fmt.Sprintf("%s: %s: %s: %s points beside the published figure, where %s",
			r.Table, r.DataSet, r.Method, strings.TrimSpace(r.difference()), allowed)
	case r.Broken != "":
		return fmt.Sprintf("%s: %s: %s: %s", r.Table, r.DataSet, r.Method, r.Broken)
	}
	return ""
}

func (r *Result) off() bool {
	if r.Tolerance == 0 || r.Difference == nil {
		return false
	}
	off := *r.Difference - r.Known
	return (math.Abs(off) > r.allowed(r.Tolerance)) && !(r.Better && off > 0)
}

// refusal is the most probability that a check refuses a claim that holds.
const refusal = 0.001

// An estimate is a mean of independent values.
type estimate struct {
	mean, deviation float64 // deviation is the standard error of the mean
	freedom         int     // degrees of freedom of the standard error; 0: there is none
}

// doubt is how far the mean may be on the wrong side of a claim by chance: the quantile of
// Student's distribution at refusal/2, times the standard error. It is 0 where there is none.
func (e estimate) doubt() float64 {
	if e.freedom == 0 {
		return 0
	}
	return e.deviation * distuv.StudentsT{Sigma: 1, Nu: float64(e.freedom)}.Quantile(1-refusal/2)
}

// estimated says how the figures were measured.
func (r *Result) estimated(e estimate) {
	r.StandardError, r.Freedom = nil, e.freedom
	if e.freedom > 0 {
		r.StandardError = &e.deviation
	}
}

// allowed is a tolerance with what the difference may have by chance.
func (r *Result) allowed(tolerance float64) float64 {
	if r.StandardError == nil {
		return tolerance
	}
	return tolerance + estimate{deviation: *r.StandardError, freedom: r.Freedom}.doubt()
}

// difference writes the difference with its standard error, in points.
func (r *Result) difference() string {
	text := fmt.Sprintf("%+5.1f", 100**r.Difference)
	if r.StandardError != nil {
		text += fmt.Sprintf(" ± %.1f", 100**r.StandardError)
	}
	return text
}

// measured says what the standard error is.
func (r *Result) measured() string {
	if r.Seeds > 1 {
		return fmt.Sprintf("± is the standard error of the mean of %d seeds.", r.Seeds)
	}
	return fmt.Sprintf("± is the standard error over the %d folds or rows of one seed.", r.Freedom+1)
}

// bound writes the difference at which a check fails.
func (r *Result) bound() string {
	if r.Allowed == 0 {
		return ""
	}
	low, high := 100*(r.Known-r.Allowed), fmt.Sprintf("%+.1f", 100*(r.Known+r.Allowed))
	if r.Better {
		high = "…"
	}
	return fmt.Sprintf("%+.1f to %s", low, high)
}

// Report has the results of tables.
type Report struct {
	Seed    uint64   `json:"seed"` // the first one
	Results []Result `json:"results"`
}

// Print writes a table for people.
func (r *Report) Print(w io.Writer, t *Table) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s\n", t.Name, t.Title)
	for _, line := range t.Notes {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	head := []string{
		"data set", "rows × n", "method", "ν", "train", "paper", "test", "paper", "difference", "allowed", "p", "paper", "seconds", "paper",
		"used", "paper", "SVs", "paper", "programs", "angle", "found", "false", "delay", "delays by seed",
	}
	rows := [][]string{head}
	var remarks []string
	remark := func(text string) {
		if !slices.Contains(remarks, text) {
			remarks = append(remarks, text)
		}
	}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Table != t.Name {
			continue
		}
		if x.Absent != "" {
			remark(x.DataSet + " is not at hand: " + x.Absent)
			continue
		}
		if x.Remark != "" {
			remark(x.DataSet + ": " + x.Remark)
		}
		difference := ""
		if x.Difference != nil {
			difference = x.difference()
			if x.StandardError != nil {
				remark(x.measured())
			}
			switch {
			case x.off():
				difference += " (!)"
				remark("(!) is farther from the paper, or from a known difference, than is allowed.")
			case x.Known != 0:
				difference += " (*)"
				remark("(*) is a known difference from the paper, larger than the tolerance.")
			}
		}
		parameters, size := "", "" // of a statement on several data sets
		if x.Rows > 0 {
			parameters, size = power(x.Nu), fmt.Sprintf("%d × %d", x.Rows, x.Features)
		}
		if x.Mu != 0 {
			parameters += ", " + power(x.Mu)
			head[3] = "ν, μ"
		}
		if x.Broken != "" {
			remark("(!) " + x.DataSet + ": " + x.Method + ": " + x.Broken)
		}
		cells := []string{
			x.DataSet, size, x.Method, parameters,
			percent(x.Train), percent(x.PaperTrain), percent(x.Test), percent(x.PaperTest),
			difference, x.bound(), probability(x.P), probability(x.PaperP), seconds(x.Seconds), seconds(x.PaperSeconds),
			number(x.Used), mean(x.PaperUsed), number(x.SupportVectors), mean(x.PaperSupportVectors), mean(x.Programs), degrees(x.Angle),
		}
		rows = append(rows, append(cells, x.Alarms.cells()...))
	}
	if err := align(&b, rows); err != nil {
		return err
	}
	for _, text := range remarks {
		fmt.Fprintf(&b, "  %s\n", text)
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// align writes rows in columns, without those that have a heading alone.
func align(w io.Writer, rows [][]string) error {
	var used []int
	for c := range rows[0] {
		if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[c] != "" }) {
			used = append(used, c)
		}
	}
	if len(used) == 0 {
		return nil
	}
	t := listing.New(w, "  ")
	for _, row := range rows {
		var cells []string
		for _, c := range used {
			cells = append(cells, row[c])
		}
		for len(cells) > 0 && cells[len(cells)-1] == "" { // no blanks at the end
			cells = cells[:len(cells)-1]
		}
		t.Row(cells...)
	}
	return t.Flush()
}

func degrees(angle *float64) string {
	if angle == nil {
		return ""
	}
	return number(angle) + "°"
}

func percent(share *float64) string {
	if share == nil {
		return ""
	}
	return fmt.Sprintf("%5.1f", 100**share)
}

func number(count *float64) string {
	if count == nil {
		return ""
	}
	return fmt.Sprintf("%.1f", *count)
}

// mean writes a mean number, or nothing for 0.
func mean(count float64) string {
	if count == 0 {
		return ""
	}
	return number(&count)
}

func probability(p *float64) string {
	switch {
	case p == nil:
		return ""
	case *p < 0.01:
		return fmt.Sprintf("%.0e", *p)
	}
	return fmt.Sprintf("%.2f", *p)
}

func seconds(s float64) string {
	switch {
	case s == 0:
		return ""
	case s >= 10:
		return fmt.Sprintf("%.0f", s)
	}
	return fmt.Sprintf("%.2g", s)
}

// power writes a power of two as such.
func power(nu float64) string {
	if fraction, exponent := math.Frexp(nu); fraction == 0.5 {
		return fmt.Sprintf("2^%d", exponent-1)
	}
	return fmt.Sprintf("%.3g", nu)
}
