package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/config"
)

// runCmd is the daemon.
type runCmd struct {
	configFile
	Check bool `help:"Check the configuration, print it with the origin of each value, and exit."`
	fromFlags
	config.Flags
}

func (c *runCmd) Run(ctx context.Context, s *surroundings) error {
	var cfg *config.Config
	err := within(ctx, interrupted, func() error {
		loaded, err := c.load(s, c.Given(), nil)
		cfg = loaded
		if err != nil {
			return err
		}
		// The files of kafka, format, http and snapshot are part of the configuration, too.
		_, formatErr := settings.TopicOptions(cfg, zerolog.Nop())
		_, clusterErr := settings.Cluster(cfg.Kafka, zerolog.Nop())
		_, accessErr := access.New(cfg.HTTP, zerolog.Nop())
		_, keyErr := settings.SnapshotKey(cfg.Snapshot, zerolog.Nop())
		if err = errors.Join(clusterErr, formatErr, accessErr, keyErr); err != nil {
			err = usageError{err}
		}
		return err
	})
	if errors.Is(err, context.Canceled) {
		return err
	}
	if c.Check {
		return c.check(s, cfg, err)
	}
	log := s.log(logSettings(cfg, err))
	if err != nil {
		return fatal(log, err)
	}
	for _, warning := range cfg.Warnings() {
		log.Warn().Msg(warning)
	}
	other, err := c.copyOf(ctx, s)
	if err != nil {
		return fatal(log, err)
	}
	var d *daemon.Daemon
	err = within(ctx, cfg.ShutdownTimeout, func() error {
		made, err := daemon.New(daemon.Options{Config: cfg, Log: log, Version: thisBuild().String(), Copy: other})
		d = made
		return err
	})
	if err == nil {
		err = d.Run(ctx)
	}
	return fatal(log, err)
}

// stopsWithin has no limit, as the daemon has its own: shutdown_timeout.
func (*runCmd) stopsWithin() time.Duration { return forever }

// check prints the configuration, or returns all errors in it.
func (c *runCmd) check(s *surroundings, cfg *config.Config, err error) error {
	if err != nil {
		return err
	}
	for _, warning := range cfg.Warnings() {
		fmt.Fprintln(s.stderr, "streamd: warning: "+warning)
	}
	return cfg.WriteYAML(s.stdout)
}

// logSettings has the settings of the log, also when the configuration could not be loaded.
func logSettings(cfg *config.Config, err error) config.Log {
	if wrong := (*config.Error)(nil); errors.As(err, &wrong) {
		return wrong.Log
	}
	return cfg.Log
}

// A loggedError has been logged already: main does not print it again.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

// fatal logs the error that ends the daemon, a line of the log for each of its
// lines, and returns it as a loggedError. Nil stays nil.
func fatal(log zerolog.Logger, err error) error {
	if err == nil {
		return nil
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		// Its Fatal would end the process at once.
		log.WithLevel(zerolog.FatalLevel).Int("exit_status", exitStatus(err)).Msg(line)
	}
	return loggedError{err}
}

// log writes to standard error: for people on a terminal, for machines otherwise.
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
