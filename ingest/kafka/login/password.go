package login

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Password logs in with a password. The mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
func Password(mechanism, username, password string) (*Login, error) {
	if username == "" {
		return nil, fmt.Errorf("SASL mechanism %s needs a user name", mechanism)
	}
	var m sasl.Mechanism
	var err error
	switch mechanism {
	case "PLAIN":
		m = plain.Mechanism{Username: username, Password: password}
	case "SCRAM-SHA-256":
		m, err = scram.Mechanism(scram.SHA256, username, password)
	case "SCRAM-SHA-512":
		m, err = scram.Mechanism(scram.SHA512, username, password)
	default:
		err = fmt.Errorf("SASL mechanism %q has no password: want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", mechanism)
	}
	if err != nil {
		return nil, err
	}
	if mechanism != "PLAIN" {
		m = frugal{m}
	}
	return &Login{mechanism: m}, nil
}

// maxIterations bounds the work that a broker may ask of SCRAM. Apache Kafka's own limit is
// 16,384. A million takes half a second.
const maxIterations = 1_000_000

// frugal is SCRAM with a bound on the iterations that a broker asks for.
type frugal struct{ sasl.Mechanism }

// Start implements sasl.Mechanism.
func (f frugal) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	steps, first, err := f.Mechanism.Start(ctx)
	return frugalSteps{steps}, first, err
}

type frugalSteps struct{ sasl.StateMachine }

// Next implements sasl.StateMachine.
func (f frugalSteps) Next(ctx context.Context, challenge []byte) (bool, []byte, error) {
	if err := checkIterations(challenge); err != nil {
		return false, nil, err
	}
	return f.StateMachine.Next(ctx, challenge)
}

// checkIterations checks the i of the server's first message: r=NONCE,s=SALT,i=COUNT (RFC 5802).
func checkIterations(challenge []byte) error {
	for field := range bytes.SplitSeq(challenge, []byte(",")) {
		count, ok := bytes.CutPrefix(field, []byte("i="))
		if !ok {
			continue
		}
		n, err := strconv.Atoi(string(count))
		if err != nil || n < 1 {
			return errors.New("SCRAM with no number of iterations")
		}
		if n > maxIterations {
			return fmt.Errorf("SCRAM with %d iterations, want at most %d", n, maxIterations)
		}
	}
	return nil
}
