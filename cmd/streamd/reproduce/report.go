package reproduce

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
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
	// StandardError is that of Difference, from one seed to the next. The paper's figure is that of
	// one seed as a rule, whose standard error is √Seeds times this one.
	StandardError *float64 `json:"standard_error,omitempty"`
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

	// Known is a difference that the remark explains; 0: none. Tolerance bounds the distance of
	// the difference from it. The mean of a few seeds may be certainty standard errors farther
	// away, in which the difference itself may still lie.
	Known     float64 `json:"known_difference,omitempty"`
	Tolerance float64 `json:"tolerance,omitempty"`
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
		if r.StandardError != nil {
			allowed += fmt.Sprintf(", and %d standard errors", certainty)
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

// certainty is the number of standard errors that a figure has to be on the wrong side by, before
// a check fails. A reader's seeds then fail about as often as once in a thousand figures.
const certainty = 3

// allowed is a tolerance with what the difference may have by chance.
func (r *Result) allowed(tolerance float64) float64 {
	if r.StandardError != nil {
		tolerance += certainty * *r.StandardError
	}
	return tolerance
}

// difference writes the difference with its standard error, in points.
func (r *Result) difference() string {
	text := fmt.Sprintf("%+5.1f", 100**r.Difference)
	if r.StandardError != nil {
		text += fmt.Sprintf(" ± %.1f", 100**r.StandardError)
	}
	return text
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
		"data set", "rows × n", "method", "ν", "train", "paper", "test", "paper", "difference", "p", "paper", "seconds", "paper",
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
				remark(fmt.Sprintf("± is the standard error of the mean of %d seeds.", x.Seeds))
			}
			switch {
			case x.off():
				difference += " (!)"
				remark(fmt.Sprintf("(!) is farther from the paper, or from a known difference, than the tolerance and %d standard errors.", certainty))
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
			difference, probability(x.P), probability(x.PaperP), seconds(x.Seconds), seconds(x.PaperSeconds),
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
	var columns []int
	for c := range rows[0] {
		if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[c] != "" }) {
			columns = append(columns, c)
		}
	}
	if len(columns) == 0 {
		return nil
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		var cells []string
		for _, c := range columns {
			cells = append(cells, row[c])
		}
		fmt.Fprintln(tab, "  "+strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return tab.Flush()
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
