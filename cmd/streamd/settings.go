package main

import (
	"errors"
	"io"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"streamd/config"
)

// configFile is part of the commands that read the daemon's configuration.
type configFile struct {
	Config string `short:"c" placeholder:"FILE" help:"Configuration file. The default is the file named by STREAMD_CONFIG, else streamd.yaml if it exists."`
}

const defaultConfigFile = "streamd.yaml"

// load reads the configuration. All its problems are one usageError. The error has the
// command's own names of flags: renamed has them by the daemon's names.
func (f *configFile) load(s *surroundings, given, renamed map[string]string) (*config.Config, error) {
	return f.loadFrom(s, config.Sources{Flags: given}, renamed)
}

// loadFrom is load with the flags and the demands of from.
func (f *configFile) loadFrom(s *surroundings, from config.Sources, renamed map[string]string) (*config.Config, error) {
	from.File, from.FileRequired, from.Env = f.Config, true, s.env
	if from.File == "" {
		from.File = s.variable(config.FileVariable)
	}
	if from.File == "" {
		from.File, from.FileRequired = defaultConfigFile, false
	}
	cfg, err := config.Load(from)
	if problems := (*config.Error)(nil); errors.As(err, &problems) {
		for i := range problems.Problems {
			p := &problems.Problems[i]
			for theirs, ours := range renamed {
				p.Message = strings.ReplaceAll(p.Message, theirs, ours)
				if p.Source == theirs {
					p.Source = ours
				}
			}
		}
		return nil, usageError{problems}
	}
	return cfg, err
}

// consoleLog is a log for people.
func consoleLog(w io.Writer) zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{Out: w, NoColor: !isTerminal(w), TimeFormat: time.TimeOnly}).With().Timestamp().Logger()
}
