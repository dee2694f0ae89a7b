package login

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/segmentio/kafka-go/sasl"
)

// Tokens is a source of bearer tokens. It is safe for concurrent use.
type Tokens interface {
	// Token returns a token for a login that begins now.
	Token(ctx context.Context) (string, error)
	// Discard says that a broker has refused the latest token.
	Discard()
}

// Bearer logs in with tokens, by OAUTHBEARER. extensions are SASL extensions (KIP-342), such as
// Confluent Cloud's logicalCluster and identityPoolId.
func Bearer(tokens Tokens, extensions map[string]string) (*Login, error) {
	for name, value := range extensions {
		if err := CheckExtension(name, value); err != nil {
			return nil, err
		}
	}
	return &Login{mechanism: oauthBearer{tokens, maps.Clone(extensions)}, tokens: tokens}, nil
}

var (
	extensionName  = regexp.MustCompile(`^[A-Za-z]+$`)
	extensionValue = regexp.MustCompile(`^[\x21-\x7E \t\r\n]+$`)
)

// CheckExtension checks a SASL extension by the rules of RFC 7628.
func CheckExtension(name, value string) error {
	switch {
	case name == "auth":
		return errors.New("extension auth is the token's own name")
	case !extensionName.MatchString(name):
		return fmt.Errorf("extension %q: a name has letters only", name)
	case !extensionValue.MatchString(value):
		return fmt.Errorf("extension %s: a value has printable ASCII only, and is not empty", name)
	}
	return nil
}

// oauthBearer is the mechanism OAUTHBEARER of RFC 7628.
type oauthBearer struct {
	tokens     Tokens
	extensions map[string]string
}

// Name implements sasl.Mechanism.
func (oauthBearer) Name() string { return "OAUTHBEARER" }

// Start implements sasl.Mechanism.
func (o oauthBearer) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := o.tokens.Token(ctx)
	if err != nil {
		return nil, nil, err
	}
	first := []byte("n,,\x01auth=Bearer " + token + "\x01")
	for _, name := range slices.Sorted(maps.Keys(o.extensions)) {
		first = append(first, name+"="+o.extensions[name]+"\x01"...)
	}
	return new(bearer), append(first, 1), nil
}

// bearer is one login by OAUTHBEARER.
type bearer struct {
	challenge string // why the broker refuses the token, as it says
}

// errRefused says that the broker refuses a token.
var errRefused = errors.New("the broker refuses the token")

// Next implements sasl.StateMachine. A broker that refuses the token says why, in JSON, and reports
// the failure after the client has answered with 0x01 (RFC 7628, section 3.2.3).
func (b *bearer) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	switch {
	case b.challenge != "":
		return false, nil, fmt.Errorf("%w: %s", errRefused, b.challenge)
	case len(challenge) == 0:
		return true, nil, nil
	}
	if b.challenge = printable(string(challenge)); b.challenge == "" {
		b.challenge = "(no reason given)"
	}
	return false, []byte{1}, nil
}
