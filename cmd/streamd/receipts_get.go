package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
)

// receiptsGetCmd writes a receipt.
type receiptsGetCmd struct {
	Leaf int64  `arg:"" help:"Number of the receipt, as the answer to the retirement has it."`
	Out  string `short:"o" placeholder:"FILE" help:"File to write. The default is standard output."`
	daemonFlags
}

// Validate implements kong's interface.
func (c *receiptsGetCmd) Validate() error {
	if c.Leaf < 0 {
		return fmt.Errorf("%d is not the number of a receipt: want 0 or more", c.Leaf)
	}
	return nil
}

func (c *receiptsGetCmd) Run(ctx context.Context, s *surroundings) error {
	daemon, err := c.client(s)
	if err != nil {
		return err
	}
	proof, err := daemon.call(ctx, http.MethodGet, fmt.Sprintf("/v1/receipts/proof/%d", c.Leaf), answerTimeout, nil)
	if err != nil {
		return err
	}
	if c.Out != "" {
		return os.WriteFile(c.Out, append(proof, '\n'), 0o600)
	}
	return printAnswer(s.stdout, proof)
}
