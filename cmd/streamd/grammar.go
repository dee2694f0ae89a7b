package main

// grammar is the command line. Kong reads names, defaults and help off it, and
// calls the Run method of the command that was given.
type grammar struct {
	Fit     fitCmd     `cmd:"" help:"Learn from a file: train, cross-validate and test offline, with the mathematics of the daemon."`
	Version versionCmd `cmd:"" help:"Say which streamd this is."`
}

func newGrammar() *grammar { return &grammar{} }

// jsonFlag is embedded by every command that reports something.
type jsonFlag struct {
	JSON bool `help:"Report as one JSON object, on the last line of the output."`
}
