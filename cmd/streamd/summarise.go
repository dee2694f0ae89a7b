package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"streamd/cmd/streamd/summarise"
	"streamd/config"
)

// summariseCmd is the stage before the daemon (package summarise).
type summariseCmd struct {
	configFile
	To     string `required:"" placeholder:"TOPIC" help:"Topic that blocks are written to, for streamd run --kafka.topic TOPIC. It is made with the partitions of kafka.topic if it is missing, and compacted with blocks.unit: key."`
	Sample int    `placeholder:"ROWS" default:"0" help:"Rows of each block that go with its sums, for the daemons' sample: their choices of nu, refinement and calibration use them. About so many, at most three times as many."`
	config.Flags
}

// Validate implements kong's interface.
func (c *summariseCmd) Validate() error {
	if c.Sample < 0 || c.Sample > maxSampled {
		return fmt.Errorf("--sample %d: must be 0 to %d", c.Sample, maxSampled)
	}
	return nil
}

// maxSampled bounds the rows that go with the sums of a block.
const maxSampled = 1 << 20

func (c *summariseCmd) Run(ctx context.Context, s *surroundings) error {
	var cfg *config.Config
	err := within(ctx, interrupted, func() error {
		loaded, err := c.load(s, c.Given(), nil)
		if cfg = loaded; err == nil {
			err = c.check(cfg)
		}
		return err
	})
	if errors.Is(err, context.Canceled) {
		return err
	}
	log := s.log(logSettings(cfg, err))
	if err != nil {
		return fatal(log, err)
	}
	for _, warning := range cfg.Warnings() {
		log.Warn().Msg(warning)
	}
	z, err := summarise.New(summarise.Options{Config: cfg, To: c.To, Rows: c.Sample, Log: log, Version: thisBuild().String()})
	if err == nil {
		log.Info().Str("topic", cfg.Kafka.Topic).Str("to", c.To).Str("group", cfg.Kafka.Group).Stringer("http", z.Addr()).Msg("summing")
		err = within(ctx, cfg.ShutdownTimeout, func() error { return z.Run(ctx) })
	}
	return fatal(log, err)
}

// stopsWithin has no limit, as Run has its own: shutdown_timeout.
func (*summariseCmd) stopsWithin() time.Duration { return forever }

// check says what a stage needs beside what a daemon needs, and names its group.
func (c *summariseCmd) check(cfg *config.Config) error {
	switch {
	case len(cfg.Format.Features) == 0:
		return usagef("format.features is empty: a stage keeps nothing, so it cannot have the features of the first block; name them in the order of the model")
	case cfg.Kernel.Function != config.KernelNone:
		return usagef("kernel.function is %s: a model with a kernel needs the rows of each block, so it cannot learn from sums", cfg.Kernel.Function)
	case c.To == cfg.Kafka.Topic:
		return usagef("--to %s: the blocks would go to the topic of the rows itself", c.To)
	}
	if !cfg.IsGiven("kafka.group") { // members share it, whatever their client_id
		cfg.Kafka.Group = fmt.Sprintf("streamd.%s.%s", cfg.Kafka.Topic, c.To)
	}
	return nil
}
