package main

import (
	"streamd/config"
)

// grammar is the command line. Kong reads names, defaults and help off it, and
// calls the Run method of the command that was given.
type grammar struct {
	ShowVersion versionFlag `name:"version" help:"Say which streamd this is, and exit."`

	demoCommand
	Run        runCmd        `cmd:"" help:"Run the daemon: learn from a topic and serve the model over HTTP."`
	Summarise  summariseCmd  `cmd:"" help:"Sum the rows of a topic for daemons that learn from the sums: any number of processes share the work."`
	Replay     replayCmd     `cmd:"" help:"Write labelled blocks to a topic."`
	Schema     schemaCmd     `cmd:"" help:"Propose and check a schema of features: what is made of texts, times and numbers."`
	Fit        fitCmd        `cmd:"" help:"Learn from a file: train, cross-validate and test offline, with the mathematics of the daemon."`
	Predict    predictCmd    `cmd:"" help:"Classify rows by the model of a running daemon, or by a saved one."`
	Export     exportCmd     `cmd:"" help:"Write a model down for other runtimes: ONNX, SQL, C, scikit-learn or MLflow."`
	Model      modelCmd      `cmd:"" help:"Show the model of a running daemon."`
	Compare    compareCmd    `cmd:"" help:"Compare the planes of two windows of the live and archived blocks."`
	History    historyCmd    `cmd:"" help:"Show a running daemon's figures over time."`
	Windows    windowsCmd    `cmd:"" help:"Show the planes of successive windows of the live and archived blocks."`
	Status     statusCmd     `cmd:"" help:"Say whether a running daemon learns, is right, is behind, and what needs somebody."`
	Health     healthCmd     `cmd:"" help:"Ask whether a running daemon is alive, or ready."`
	Plot       plotCmd       `cmd:"" help:"Draw the regions of a saved classifier of two features."`
	Refine     refineCmd     `cmd:"" help:"Make a running daemon refine its planes now."`
	Reduce     reduceCmd     `cmd:"" help:"Make a running daemon choose a new basis for its kernel, and learn in its coordinates."`
	Epoch      epochCmd      `cmd:"" help:"Show the basis of a running daemon, and how far the next one is."`
	Tuning     tuningCmd     `cmd:"" help:"Show how a running daemon chose nu."`
	Quality    qualityCmd    `cmd:"" help:"Show how often a running daemon is right, and how far its probabilities hold."`
	Labels     labelsCmd     `cmd:"" help:"Show which rows of a running daemon, or of a file, should be labelled next."`
	Blocks     blocksCmd     `cmd:"" help:"List the live or the archived blocks of a running daemon."`
	Retire     retireCmd     `cmd:"" help:"Take blocks out of the model of a running daemon, by their ids, keys, headers, positions or event times."`
	Control    controlCmd    `cmd:"" help:"List, put in force and take back the selectors of the control topic: their blocks stay retired in every replica."`
	Receipts   receiptsCmd   `cmd:"" help:"Get receipts of retirements, and check them."`
	Snapshot   snapshotCmd   `cmd:"" help:"Inspect and verify snapshot files; make a running daemon save one."`
	Letters    lettersCmd    `cmd:"" help:"List, show and replay dead letters."`
	Version    versionCmd    `cmd:"" help:"Say which streamd this is."`
	Completion completionCmd `cmd:"" help:"Print a script that makes a shell complete streamd's commands and flags."`
	Man        manCmd        `cmd:"" hidden:"" help:"Write the manual pages."`
	measureCommands
}

func newGrammar() *grammar {
	g := &grammar{}
	g.Run.Flags, g.Summarise.Flags = config.NewFlags(), config.NewFlags()
	return g
}

// jsonFlag is embedded by every command that reports something.
type jsonFlag struct {
	JSON bool `name:"json" help:"Report as one JSON object, on the last line of the output."`
}
