package model

import "time"

// Comparison compares the planes of two windows of the live and archived blocks.
type Comparison struct {
	A Compared `json:"a"` // first window
	B Compared `json:"b"` // second window
	// SHA-256 of the basis, hex, in whose coordinates the planes and their angles are; absent: they
	// are in the features.
	BasisID string `json:"basis_id,omitempty"`
	// Whether angles count each feature in units of its standard deviation over the rows of
	// the second window, as where features are scaled for the solve; otherwise in its own.
	Scaled bool             `json:"scaled"`
	Planes []ComparedPlanes `json:"planes"` // planes of the classes that have one in both models
	Lacks  []string         `json:"lacks"`  // figures that sums do not have, with the reason, and what `window.lacks` of a model names
}

// Compared is a window of a comparison.
type Compared struct {
	Window
	Digest    string      `json:"state_digest"` // digest of the sum of its blocks
	Blocks    int         `json:"blocks"`       // number of its blocks
	Rows      int64       `json:"rows"`         // number of their rows
	Classes   []string    `json:"classes"`      // classes of the rows
	ClassRows []int64     `json:"class_rows"`   // rows of each class
	Options   OptionsJSON `json:"options"`      // options of the solve of its planes, those of both windows
}

// ComparedPlanes compares the planes of a class. A loss is the mean of (x'w − γ ∓ 1)² over rows,
// with 1 for rows of the class and −1 for others. Rows count by their weights and those of their
// classes and, where planes are balanced, each side as half of all. The angle leaves out the
// columns NAME missing of features whose missing values count as the mean: their weights follow the
// mean.
type ComparedPlanes struct {
	Class string   `json:"class"`  // class on the positive side
	Angle *float64 `json:"angle"`  // angle between the normals in degrees, from 0 to 180; null if one is zero
	AOnA  *float64 `json:"a_on_a"` // loss of the first window's plane on the rows of the first window; null if it has no row that counts
	AOnB  *float64 `json:"a_on_b"` // loss of the first window's plane on the rows of the second
	BOnA  *float64 `json:"b_on_a"` // loss of the second window's plane on the rows of the first
	BOnB  *float64 `json:"b_on_b"` // loss of the second window's plane on the rows of the second
	// Correctness of each plane on either window. It is that of the plane alone: a row is right if
	// it is on its own side, which is x'w − γ ≥ 0 for rows of the class and x'w − γ < 0 for others.
	// With two classes that is its label by the value. A decision by probability or cost may label
	// otherwise.
	Correctness         PlanesCorrectness `json:"correctness"`          // share of the rows that are right
	BalancedCorrectness PlanesCorrectness `json:"balanced_correctness"` // mean of the shares of both sides; null if one has no row that counts
}

// PlanesCorrectness is the correctness of two planes on the rows of two windows, from sums. Rows
// count by their own weights alone.
type PlanesCorrectness struct {
	AOnA *Correctness `json:"a_on_a"` // of the first window's plane on the first window; null if it has no row that counts
	AOnB *Correctness `json:"a_on_b"` // of the first window's plane on the second window
	BOnA *Correctness `json:"b_on_a"` // of the second window's plane on the first window
	BOnB *Correctness `json:"b_on_b"` // of the second window's plane on the second window
}

// Correctness bounds and estimates a share of rows from the means and covariances of the classes.
// The bounds always hold, up to rounding: they are those of Cantelli's inequality for each class.
// The estimate assumes that the values x'w − γ of each class are normally distributed.
type Correctness struct {
	Estimate float64 `json:"estimate"` // estimated share, from 0 to 1
	AtLeast  float64 `json:"at_least"` // lower bound of the share
	AtMost   float64 `json:"at_most"`  // upper bound of the share
}

// Steps are the planes of successive windows of event time.
type Steps struct {
	StepSeconds   float64   `json:"step_seconds"`   // time from the end of a window to that of the next
	WindowSeconds float64   `json:"window_seconds"` // length of a window
	From          time.Time `json:"from"`           // beginning of the first window; windows end at whole steps since 1970, or where `from` and `to` cut them
	To            time.Time `json:"to"`             // end of the last window
	Features      []string  `json:"features"`       // names of the features or coordinates that w has numbers for
	// SHA-256 of the basis, hex, in whose coordinates the planes and their angles are; absent: they
	// are in the features.
	BasisID string `json:"basis_id,omitempty"`
	// Whether angles count each feature in units of its standard deviation over all rows, as
	// where features are scaled for the solve; otherwise in its own.
	Scaled  bool        `json:"scaled"`
	Options OptionsJSON `json:"options"` // options of the solve of the planes
	Steps   []Step      `json:"steps"`   // windows in the order of their times; each is exact for the moment when it was summed
	Lacks   []string    `json:"lacks"`   // parts of a served model that these planes do not have, with the reason
}

// Step is a window of Steps.
type Step struct {
	From      time.Time   `json:"from"`                   // event time of its first blocks
	To        time.Time   `json:"to"`                     // event time that its blocks are before
	Digest    string      `json:"state_digest,omitempty"` // digest of the sum of its blocks; absent without blocks
	Blocks    int         `json:"blocks"`                 // number of its blocks
	Rows      int64       `json:"rows"`                   // number of their rows
	Classes   []string    `json:"classes"`                // classes of the rows
	ClassRows []int64     `json:"class_rows"`             // rows of each class
	Planes    []StepPlane `json:"planes"`                 // planes; none where there is a problem
	Problem   string      `json:"problem,omitempty"`      // why there are no planes
}

// StepPlane is a plane with its angles, in degrees, to the plane of its class in other steps.
// Angles leave out the columns that those of ComparedPlanes leave out.
type StepPlane struct {
	PlaneJSON
	ToFirst *float64 `json:"angle_to_first"` // angle to the first step that has such a plane; null if a normal is zero
	ToLast  *float64 `json:"angle_to_last"`  // angle to the last step that has such a plane; null if a normal is zero
}
