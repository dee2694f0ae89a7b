package config

import (
	"slices"
	"strings"
)

// The closed sets of values. The tags of [Config] list the choices of each key.

// Start is the place to begin in a partition without a saved offset.
type Start string

const (
	StartEarliest Start = "earliest"
	StartLatest   Start = "latest"
)

// OnGap is the action when the log does not have the saved offset.
type OnGap string

const (
	OnGapStop     OnGap = "stop"
	OnGapEarliest OnGap = "earliest"
	OnGapLatest   OnGap = "latest"
)

// Mechanism is a SASL mechanism.
type Mechanism string

const (
	MechanismNone        Mechanism = "none"
	MechanismPlain       Mechanism = "plain"
	MechanismScramSHA256 Mechanism = "scram-sha-256"
	MechanismScramSHA512 Mechanism = "scram-sha-512"
	MechanismOAuthBearer Mechanism = "oauthbearer"
	MechanismAWSMSKIAM   Mechanism = "aws-msk-iam"
)

// DeadLetterPolicy is the action for a message that cannot be used.
type DeadLetterPolicy string

const (
	DeadLettersQueue DeadLetterPolicy = "dlq"
	DeadLettersStop  DeadLetterPolicy = "stop"
	DeadLettersSkip  DeadLetterPolicy = "skip"
)

// Unit is the content of a block.
type Unit string

const (
	UnitMessage Unit = "message"
	UnitOffsets Unit = "offsets"
	UnitTime    Unit = "time"
	UnitKey     Unit = "key"
)

// Unlabelled is the action for rows without a label.
type Unlabelled string

const (
	UnlabelledReject Unlabelled = "reject"
	UnlabelledKeep   Unlabelled = "keep"
)

// Late is the action for a label that is later than the horizon of its row.
type Late string

const (
	LateReplace Late = "replace"
	LateDrop    Late = "drop"
)

// NoDefault is the value of labels.default for no class.
const NoDefault = "none"

// Envelope is what messages have around their rows: see package envelope.
type Envelope string

const (
	EnvelopeNone        Envelope = "none"
	EnvelopeDebezium    Envelope = "debezium"
	EnvelopeConnect     Envelope = "connect"
	EnvelopeCloudEvents Envelope = "cloudevents"
)

// Truncate is the action for a TRUNCATE of Debezium.
type Truncate string

const (
	TruncateStop   Truncate = "stop"
	TruncateRetire Truncate = "retire"
	TruncateReject Truncate = "reject"
)

// Unknown is the action for columns that are none of the features.
type Unknown string

const (
	UnknownAuto   Unknown = "auto"
	UnknownReject Unknown = "reject"
	UnknownIgnore Unknown = "ignore"
)

// Missing is the treatment of missing values: see package wire.
type Missing string

const (
	MissingReject    Missing = "reject"
	MissingZero      Missing = "zero"
	MissingMean      Missing = "mean"
	MissingIndicator Missing = "indicator"
)

// CSVHeader says whether CSV messages begin with a line of column names.
type CSVHeader string

const (
	CSVHeaderAuto    CSVHeader = "auto"
	CSVHeaderPresent CSVHeader = "present"
	CSVHeaderAbsent  CSVHeader = "absent"
)

// CSVDecimal is the mark before decimals in CSV.
type CSVDecimal string

const (
	CSVDecimalPoint CSVDecimal = "point"
	CSVDecimalComma CSVDecimal = "comma"
)

// CSVThousands is the mark between thousands in CSV: see wire.Thousands.
type CSVThousands string

// CSVThousandsNone is the default.
const CSVThousandsNone CSVThousands = "none"

// Switch is on, off, or the better of the two.
type Switch string

const (
	SwitchOff  Switch = "false"
	SwitchOn   Switch = "true"
	SwitchAuto Switch = "auto"
)

// Objective is the figure by which settings are chosen.
type Objective string

const (
	ObjectiveAccuracy Objective = "accuracy"
	ObjectiveBalanced Objective = "balanced"
)

// Method is the way to read planes off the sums.
type Method string

const (
	MethodPSVM  Method = "psvm"
	MethodMeans Method = "means"
	MethodLasso Method = "lasso"
)

// Refine is the method of refinement.
type Refine string

const (
	RefineNone     Refine = "none"
	RefineLine     Refine = "line"
	RefineFull     Refine = "full"
	RefineLogistic Refine = "logistic"
	RefineAuto     Refine = "auto"

	// Machines of package svm.
	RefineHinge    Refine = "hinge"
	RefineSparse   Refine = "sparse"
	RefineMinimal  Refine = "minimal"
	RefineFeatures Refine = "features"
	RefineNLP      Refine = "nlp"
	// RefineUnlabelled learns from rows without a label, too.
	RefineUnlabelled Refine = "unlabelled"
)

// Program says whether planes are found by the program of a machine of package svm, which
// holds its rows in memory.
func (r Refine) Program() bool {
	switch r {
	case RefineNone, RefineLine, RefineFull, RefineLogistic, RefineAuto:
		return false
	}
	return true
}

// Rows is the source of the rows for refinement.
type Rows string

const (
	RowsSample Rows = "sample"
	RowsLog    Rows = "log"
)

// Calibration is the curve from decision values to probabilities.
type Calibration string

const (
	CalibrationAuto        Calibration = "auto"
	CalibrationPlatt       Calibration = "platt"
	CalibrationIsotonic    Calibration = "isotonic"
	CalibrationSoftmax     Calibration = "softmax"
	CalibrationTemperature Calibration = "temperature"
	CalibrationNone        Calibration = "none"
)

// Decision is the rule that decides labels.
type Decision string

const (
	DecisionProbability Decision = "probability"
	DecisionValue       Decision = "value"
	DecisionCost        Decision = "cost"
)

// Regulariser is the size of a kernel classifier.
type Regulariser string

const (
	RegulariserIdentity Regulariser = "identity"
	RegulariserKernel   Regulariser = "kernel"
)

// OnRetire is the action when a source block of the basis is retired.
type OnRetire string

const (
	OnRetireReduce OnRetire = "reduce"
	OnRetireKeep   OnRetire = "keep"
)

// Unread is the action for live blocks that the log lacks.
type Unread string

const (
	UnreadWait Unread = "wait"
	UnreadSkip Unread = "skip"
)

// Keep says which blocks stay live: all, or those within limits, joined by +.
type Keep string

const (
	KeepAll    Keep = "all"
	KeepBlocks Keep = "blocks"
	KeepRows   Keep = "rows"
	KeepAge    Keep = "age"
)

// Has reports whether k names the limit.
func (k Keep) Has(limit Keep) bool {
	return slices.Contains(strings.Split(string(k), "+"), string(limit))
}

// LogFormat is the form of log lines.
type LogFormat string

const (
	LogFormatAuto    LogFormat = "auto"
	LogFormatJSON    LogFormat = "json"
	LogFormatConsole LogFormat = "console"
)

// AnswerForm is the form of answers on a topic.
type AnswerForm string

const (
	AnswerJSON  AnswerForm = "json"
	AnswerRows  AnswerForm = "rows"
	AnswerCSV   AnswerForm = "csv"
	AnswerArrow AnswerForm = "arrow"
)

// Role is a permission of callers over HTTP.
type Role string

const (
	RoleRead    Role = "read"    // the model, blocks, bases, metrics and the page
	RolePredict Role = "predict" // predictions
	RoleRetire  Role = "retire"  // retire blocks
	RoleAdmin   Role = "admin"   // all of these, and save, refine and reduce
)

// roleNames lists the roles in their order.
var roleNames = []string{string(RoleRead), string(RolePredict), string(RoleRetire), string(RoleAdmin)}
