package main

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon"
	"streamd/config"
)

// runCmd is the daemon.
type runCmd struct {
	configFile
	Check bool `help:"Check the configuration, print it with the origin of each value, and exit."`
	config.Flags
}

func (c *runCmd) Run(ctx context.Context, s *surroundings) error {
	cfg, err := c.load(s, c.Given(), nil)
	if err != nil {
		return err
	}
	// It reads the files of kafka.tls, which are as much part of the configuration.
	if _, err := daemon.Cluster(cfg.Kafka); err != nil {
		return usageError{err}
	}
	log := s.log(cfg.Log)
	for _, warning := range cfg.Warnings() {
		if c.Check {
			fmt.Fprintln(s.stderr, "streamd: warning: "+warning)
		} else {
			log.Warn().Msg(warning)
		}
	}
	if c.Check {
		return cfg.WriteYAML(s.stdout)
	}
	d, err := daemon.New(daemon.Options{Config: cfg, Log: log, Version: thisBuild().String()})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// log writes to standard error, for people when they watch and for machines
// otherwise.
func (s *surroundings) log(c config.Log) zerolog.Logger {
	level, err := zerolog.ParseLevel(string(c.Level))
	if err != nil {
		panic(err) // the names are zerolog's
	}
	if c.Format == config.LogFormatConsole || c.Format == config.LogFormatAuto && isTerminal(s.stderr) {
		return consoleLog(s.stderr).Level(level)
	}
	return zerolog.New(s.stderr).With().Timestamp().Logger().Level(level)
}
