//go:build production

package main

// A production build has no embedded broker, no benchmarks and no tables of papers.
type (
	demoCommand     struct{}
	measureCommands struct{}
)
