package login

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Password logs in with a password. The mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
func Password(mechanism, username, password string) (*Login, error) {
	if username == "" {
		return nil, fmt.Errorf("SASL mechanism %s needs a user name", mechanism)
	}
	if mechanism == "PLAIN" {
		return &Login{mechanism: plain.Mechanism{Username: username, Password: password}}, nil
	}
	algorithm, ok := map[string]scram.Algorithm{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}[mechanism]
	if !ok {
		return nil, fmt.Errorf("SASL mechanism %q has no password: want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", mechanism)
	}
	f := &frugal{algorithm: algorithm, username: username, password: password}
	if _, _, err := f.Start(context.Background()); err != nil { // a password that SCRAM cannot have
		return nil, err
	}
	return &Login{mechanism: f}, nil
}

const (
	// maxIterations bounds the work that a broker may ask of SCRAM. Apache Kafka's own limit is
	// 16,384. A million takes half a second.
	maxIterations = 1_000_000
	// maxChallenge bounds a message of SCRAM, in bytes.
	maxChallenge = 4096
	// maxSalts bounds the keys that are kept, one for each salt that a broker has sent.
	maxSalts = 1000
)

// frugal is SCRAM with bounds on the work and the memory that a broker asks for.
type frugal struct {
	algorithm          scram.Algorithm
	username, password string

	mu    sync.Mutex
	scram sasl.Mechanism // keeps the keys that it has derived, so that a further login is cheap
	used  int
}

// Name implements sasl.Mechanism.
func (f *frugal) Name() string { return f.algorithm.Name() }

// Start implements sasl.Mechanism.
func (f *frugal) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	f.mu.Lock()
	if f.used%maxSalts == 0 {
		m, err := scram.Mechanism(f.algorithm, f.username, f.password)
		if err != nil {
			f.mu.Unlock()
			return nil, nil, err
		}
		f.scram = m
	}
	f.used++
	m := f.scram
	f.mu.Unlock()
	steps, first, err := m.Start(ctx)
	return frugalSteps{steps}, first, err
}

type frugalSteps struct{ sasl.StateMachine }

// Next implements sasl.StateMachine.
func (f frugalSteps) Next(ctx context.Context, challenge []byte) (bool, []byte, error) {
	if len(challenge) > maxChallenge {
		return false, nil, fmt.Errorf("a message of SCRAM of %d bytes, want at most %d", len(challenge), maxChallenge)
	}
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
