package config

import "streamd/kernels/reduce"

// choice is a string type with a closed set of values.
type choice interface{ choices() []string }

// Start is the place to begin in a partition without a saved offset.
type Start string

const (
	StartEarliest Start = "earliest"
	StartLatest   Start = "latest"
)

func (Start) choices() []string { return texts(StartEarliest, StartLatest) }

// OnGap is the action when the log does not have the saved offset.
type OnGap string

const (
	OnGapStop     OnGap = "stop"
	OnGapEarliest OnGap = "earliest"
	OnGapLatest   OnGap = "latest"
)

func (OnGap) choices() []string { return texts(OnGapStop, OnGapEarliest, OnGapLatest) }

// Mechanism is a SASL mechanism.
type Mechanism string

const (
	MechanismNone        Mechanism = "none"
	MechanismPlain       Mechanism = "plain"
	MechanismScramSHA256 Mechanism = "scram-sha-256"
	MechanismScramSHA512 Mechanism = "scram-sha-512"
)

func (Mechanism) choices() []string {
	return texts(MechanismNone, MechanismPlain, MechanismScramSHA256, MechanismScramSHA512)
}

// DeadLetterPolicy is the action for a message that cannot be used.
type DeadLetterPolicy string

const (
	DeadLettersQueue DeadLetterPolicy = "dlq"
	DeadLettersStop  DeadLetterPolicy = "stop"
	DeadLettersSkip  DeadLetterPolicy = "skip"
)

func (DeadLetterPolicy) choices() []string {
	return texts(DeadLettersQueue, DeadLettersStop, DeadLettersSkip)
}

// Unit is the content of a block.
type Unit string

const (
	UnitMessage Unit = "message"
	UnitOffsets Unit = "offsets"
	UnitTime    Unit = "time"
	UnitKey     Unit = "key"
)

func (Unit) choices() []string { return texts(UnitMessage, UnitOffsets, UnitTime, UnitKey) }

// Payload is the format of a message: see wire.ParseFormat.
type Payload string

func (Payload) choices() []string { return []string{"arrow", "json", "csv", "libsvm"} }

// CSVHeader says whether CSV messages begin with a line of column names.
type CSVHeader string

const (
	CSVHeaderAuto    CSVHeader = "auto"
	CSVHeaderPresent CSVHeader = "present"
	CSVHeaderAbsent  CSVHeader = "absent"
)

func (CSVHeader) choices() []string { return texts(CSVHeaderAuto, CSVHeaderPresent, CSVHeaderAbsent) }

// Switch is on, off, or the better of the two.
type Switch string

const (
	SwitchOff  Switch = "false"
	SwitchOn   Switch = "true"
	SwitchAuto Switch = "auto"
)

func (Switch) choices() []string { return texts(SwitchOff, SwitchOn, SwitchAuto) }

// Refine is the method of refinement.
type Refine string

const (
	RefineNone Refine = "none"
	RefineLine Refine = "line"
	RefineFull Refine = "full"
)

func (Refine) choices() []string { return texts(RefineNone, RefineLine, RefineFull) }

// Rows is the source of the rows for refinement.
type Rows string

const (
	RowsSample Rows = "sample"
	RowsLog    Rows = "log"
)

func (Rows) choices() []string { return texts(RowsSample, RowsLog) }

// Calibration is the curve from decision values to probabilities.
type Calibration string

const (
	CalibrationAuto     Calibration = "auto"
	CalibrationPlatt    Calibration = "platt"
	CalibrationIsotonic Calibration = "isotonic"
	CalibrationNone     Calibration = "none"
)

func (Calibration) choices() []string {
	return texts(CalibrationAuto, CalibrationPlatt, CalibrationIsotonic, CalibrationNone)
}

// Reduce is the method that chooses a basis: see reduce.Named.
type Reduce string

func (Reduce) choices() []string { return reduce.Names() }

// Regulariser is the size of a kernel classifier.
type Regulariser string

const (
	RegulariserIdentity Regulariser = "identity"
	RegulariserKernel   Regulariser = "kernel"
)

func (Regulariser) choices() []string { return texts(RegulariserIdentity, RegulariserKernel) }

// OnRetire is the action when a source block of the basis is retired.
type OnRetire string

const (
	OnRetireReduce OnRetire = "reduce"
	OnRetireKeep   OnRetire = "keep"
)

func (OnRetire) choices() []string { return texts(OnRetireReduce, OnRetireKeep) }

// Unread is the action for live blocks that the log lacks.
type Unread string

const (
	UnreadWait Unread = "wait"
	UnreadSkip Unread = "skip"
)

func (Unread) choices() []string { return texts(UnreadWait, UnreadSkip) }

// Keep says which blocks stay live.
type Keep string

const (
	KeepAll    Keep = "all"
	KeepBlocks Keep = "blocks"
	KeepRows   Keep = "rows"
	KeepAge    Keep = "age"
)

func (Keep) choices() []string { return texts(KeepAll, KeepBlocks, KeepRows, KeepAge) }

// Level is a log level: see zerolog.ParseLevel.
type Level string

func (Level) choices() []string { return []string{"trace", "debug", "info", "warn", "error"} }

// LogFormat is the form of log lines.
type LogFormat string

const (
	LogFormatAuto    LogFormat = "auto"
	LogFormatJSON    LogFormat = "json"
	LogFormatConsole LogFormat = "console"
)

func (LogFormat) choices() []string { return texts(LogFormatAuto, LogFormatJSON, LogFormatConsole) }

func texts[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// Role is a permission of callers over HTTP.
type Role string

const (
	RoleRead    Role = "read"    // the model, blocks, bases, metrics and the page
	RolePredict Role = "predict" // predictions
	RoleRetire  Role = "retire"  // retire blocks
	RoleAdmin   Role = "admin"   // all of these, and save, refine and reduce
)

func (Role) choices() []string { return texts(RoleRead, RolePredict, RoleRetire, RoleAdmin) }
