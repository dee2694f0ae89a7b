package login

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// MSK makes tokens for Amazon MSK. A token is the address of a request kafka-cluster:Connect that
// is signed with AWS credentials (Signature Version 4), as in AWS's own libraries.
type MSK struct {
	// Region is that of the cluster. Empty: AWS_REGION or AWS_DEFAULT_REGION.
	Region string
	// Getenv looks up variables of the environment, which say where credentials are.
	Getenv func(string) string
	Log    zerolog.Logger
}

// mskTokenLifetime is the lifetime that AWS's own libraries give a token, and the longest that
// brokers take.
const mskTokenLifetime = 900 * time.Second

var region = regexp.MustCompile(`^[a-z]{2}[a-z0-9-]{1,30}[0-9]$`)

// CheckRegion checks the name of an AWS region, which becomes part of a host's name.
func CheckRegion(name string) error {
	if !region.MatchString(name) {
		return fmt.Errorf("region %q is not a name such as eu-central-1", name)
	}
	return nil
}

// mskTokens signs tokens.
type mskTokens struct {
	region string
	chain  *chain
}

// NewTokens returns a source of tokens. It looks for credentials when a token is first needed.
func (m MSK) NewTokens() (Tokens, error) {
	name := cmp.Or(m.Region, m.Getenv("AWS_REGION"), m.Getenv("AWS_DEFAULT_REGION"))
	if name == "" {
		return nil, errors.New("no region given, and neither AWS_REGION nor AWS_DEFAULT_REGION is set")
	}
	if err := CheckRegion(name); err != nil {
		return nil, err
	}
	return &mskTokens{name, newChain(name, m.Getenv, m.Log)}, nil
}

// Token implements Tokens. Signing is cheap, so each login has a token of its own.
func (m *mskTokens) Token(ctx context.Context) (string, error) {
	c, err := m.chain.credentials(ctx)
	if err != nil {
		return "", fmt.Errorf("AWS credentials: %w", err)
	}
	return mskToken(m.region, c, time.Now()), nil
}

// Discard implements Tokens. The credentials may have been withdrawn.
func (m *mskTokens) Discard() { m.chain.cache.discard() }

// mskToken signs a token.
func mskToken(region string, c credentials, now time.Time) string {
	p := presigned{
		host: "kafka." + region + ".amazonaws.com", path: "/", region: region, service: "kafka-cluster",
		lifetime: mskTokenLifetime, payload: hashOf(nil),
		query: map[string]string{"Action": "kafka-cluster:Connect"},
	}
	// Brokers log the parameter, which is not part of what is signed.
	address := p.sign(c, now) + "&User-Agent=streamd"
	return base64.RawURLEncoding.EncodeToString([]byte(address))
}

// presigned is a GET request whose signature is part of its address.
type presigned struct {
	host, path      string
	region, service string
	lifetime        time.Duration
	payload         string            // hash of the body
	query           map[string]string // beside the signature's own parameters
}

// sign returns the address of the request with its signature, by AWS Signature Version 4.
func (p presigned) sign(c credentials, now time.Time) string {
	stamp := now.UTC().Format("20060102T150405Z")
	scope := []string{stamp[:8], p.region, p.service, "aws4_request"}
	query := url.Values{
		"X-Amz-Algorithm":     {signing},
		"X-Amz-Credential":    {c.id + "/" + strings.Join(scope, "/")},
		"X-Amz-Date":          {stamp},
		"X-Amz-Expires":       {strconv.Itoa(int(p.lifetime / time.Second))},
		"X-Amz-SignedHeaders": {"host"},
	}
	for name, value := range p.query {
		query.Set(name, value)
	}
	if c.session != "" {
		query.Set("X-Amz-Security-Token", c.session)
	}
	// Encode sorts by name. AWS wants a space as %20.
	encoded := strings.ReplaceAll(query.Encode(), "+", "%20")
	request := strings.Join([]string{"GET", p.path, encoded, "host:" + p.host + "\n", "host", p.payload}, "\n")
	return "https://" + p.host + p.path + "?" + encoded + "&X-Amz-Signature=" + signature(c.secret, stamp, scope, request)
}

// signing is the algorithm of signatures.
const signing = "AWS4-HMAC-SHA256"

func hashOf(b []byte) string {
	hash := sha256.Sum256(b)
	return hex.EncodeToString(hash[:])
}

// signature signs a request in its canonical form, at the time of a stamp.
func signature(secret, stamp string, scope []string, request string) string {
	text := strings.Join([]string{signing, stamp, strings.Join(scope, "/"), hashOf([]byte(request))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(slices.Clip(scope), text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}
