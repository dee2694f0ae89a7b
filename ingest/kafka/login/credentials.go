package login

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// credentials are an AWS access key.
type credentials struct {
	id, secret string
	session    string    // session token; empty: a key for good
	expires    time.Time // zero: never
}

var keyID = regexp.MustCompile(`^[A-Za-z0-9_]{1,128}$`)

// check checks credentials without showing them.
func (c credentials) check() error {
	switch {
	case !keyID.MatchString(c.id):
		return errors.New("there is no access key id, or it is none")
	case c.secret == "" || len(c.secret) > 1024:
		return errors.New("there is no secret access key, or it is none")
	case len(c.session) > maxToken/2:
		return fmt.Errorf("the session token has %d bytes, want at most %d", len(c.session), maxToken/2)
	}
	return nil
}

// chain finds credentials where AWS's own libraries do, in their order:
//
//   - variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
//   - a role for a web identity (IRSA): AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN,
//     AWS_ROLE_SESSION_NAME
//   - a profile, AWS_PROFILE, with keys or with a role: AWS_CONFIG_FILE or ~/.aws/config,
//     AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials
//   - a container's role (EKS pod identity, ECS): AWS_CONTAINER_CREDENTIALS_FULL_URI or
//     _RELATIVE_URI, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or _TOKEN
//   - an EC2 instance's role, of its metadata service, version 2
//
// The first of them that is there is used, and an error of it is an error. But a profile that
// AWS_PROFILE names, and whose role is assumed by the variables (credential_source = Environment),
// comes before these.
type chain struct {
	region string
	getenv func(string) string
	cache  cached[credentials] // of those that expire
}

func newChain(region string, getenv func(string) string, log zerolog.Logger) *chain {
	c := &chain{region: region, getenv: getenv}
	c.cache = cached[credentials]{what: "AWS credentials", log: log, fetch: c.fetch}
	return c
}

// variables are the keys of the environment.
func (c *chain) variables() credentials {
	return credentials{id: c.getenv("AWS_ACCESS_KEY_ID"), secret: c.getenv("AWS_SECRET_ACCESS_KEY"), session: c.getenv("AWS_SESSION_TOKEN")}
}

// credentials returns credentials. Those that do not expire are looked up for each login.
func (c *chain) credentials(ctx context.Context) (credentials, error) {
	if found := c.variables(); (found.id != "" || found.secret != "") && !c.assumesByVariables() {
		return found, inSource("the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", found.check())
	}
	if p, err := c.profiles(); err == nil && !p.all[p.name].hasRole() {
		return c.profileCredentials(ctx, p, p.name, nil)
	} else if err != nil && !errors.Is(err, errNoProfile) {
		return credentials{}, err
	}
	return c.cache.get(ctx)
}

// assumesByVariables reports whether AWS_PROFILE has a role that is assumed by the variables.
func (c *chain) assumesByVariables() bool {
	if c.getenv("AWS_PROFILE") == "" {
		return false
	}
	p, err := c.readProfiles()
	return err == nil && p.all[p.name].hasRole() && p.all[p.name][setFrom] == fromVariables
}

// profiles are those to use. The error is errNoProfile if there are none, or if a web identity
// comes before them.
func (c *chain) profiles() (*profiles, error) {
	if c.getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" && !c.assumesByVariables() {
		return nil, errNoProfile
	}
	return c.readProfiles()
}

// inSource says where credentials come from that cannot be used.
func inSource(source string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return nil
}

// fetch asks a service for credentials.
func (c *chain) fetch(ctx context.Context) (credentials, time.Time, error) {
	var found credentials
	var err error
	var source string
	p, none := c.profiles()
	switch {
	case none == nil:
		source = "the shared files"
		found, err = c.profileCredentials(ctx, p, p.name, nil)
	case !errors.Is(none, errNoProfile):
		source, err = "the shared files", none
	case c.getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		source = "AWS_WEB_IDENTITY_TOKEN_FILE"
		role := c.getenv("AWS_ROLE_ARN")
		if role == "" {
			err = errors.New("AWS_ROLE_ARN is not set")
			break
		}
		found, err = c.webIdentity(ctx, c.getenv("AWS_WEB_IDENTITY_TOKEN_FILE"),
			url.Values{"RoleArn": {role}, "RoleSessionName": {cmp.Or(c.getenv("AWS_ROLE_SESSION_NAME"), "streamd")}})
	case c.getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" || c.getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		source = "the container's role"
		found, err = c.container(ctx)
	case strings.EqualFold(c.getenv("AWS_EC2_METADATA_DISABLED"), "true"):
		err = errors.New("there are none: no variables, no web identity, no file, no container's role, and AWS_EC2_METADATA_DISABLED is true")
		return credentials{}, time.Time{}, err
	default:
		source = "the EC2 instance's role (there are no variables, web identity, file or container's role)"
		found, err = c.instance(ctx)
	}
	if err == nil {
		err = found.check()
	}
	if err != nil {
		return credentials{}, time.Time{}, fmt.Errorf("%s: %w", source, err)
	}
	expires := found.expires
	if expires.IsZero() {
		expires = time.Now().Add(time.Hour)
	}
	return found, expires, nil
}

// get asks for an address.
func get(ctx context.Context, method, address string, header map[string]string, proxied bool) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	status, body, err := ask(req, nil, proxied)
	if err == nil && status != http.StatusOK {
		err = &answerError{status: status}
	}
	if err != nil {
		return body, fmt.Errorf("%s %w", address, err)
	}
	return body, nil
}

// webIdentity exchanges the token of a file for credentials of the role of a request.
func (c *chain) webIdentity(ctx context.Context, file string, request url.Values) (credentials, error) {
	token, err := TokenFile(file).Token(ctx)
	if err != nil {
		return credentials{}, err
	}
	request.Set("WebIdentityToken", token)
	return c.askSTS(ctx, "AssumeRoleWithWebIdentity", request, nil)
}

// askSTS has the security token service do an action, by a request that credentials sign, if there
// are any.
func (c *chain) askSTS(ctx context.Context, action string, request url.Values, by *credentials) (credentials, error) {
	domain := "amazonaws.com"
	if strings.HasPrefix(c.region, "cn-") {
		domain = "amazonaws.com.cn"
	}
	address := cmp.Or(c.getenv("AWS_ENDPOINT_URL_STS"), "https://sts."+c.region+"."+domain)
	if err := CheckURL(address); err != nil {
		return credentials{}, fmt.Errorf("AWS_ENDPOINT_URL_STS %q: %w", address, err)
	}
	request.Set("Action", action)
	request.Set("Version", "2011-06-15")
	body := request.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return credentials{}, err
	}
	header := map[string]string{"content-type": "application/x-www-form-urlencoded"}
	if by != nil {
		header = signPost(req.URL, c.region, "sts", header, []byte(body), *by, time.Now())
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	status, answer, err := ask(req, nil, true)
	if err == nil {
		var found credentials
		if found, err = readSTS(status, answer); err == nil {
			return found, nil
		}
	}
	return credentials{}, fmt.Errorf("%s %w", address, err)
}

// readSTS reads the answer of the security token service, in XML.
func readSTS(status int, body []byte) (credentials, error) {
	if status != http.StatusOK {
		var e struct {
			Code    string `xml:"Error>Code"`
			Message string `xml:"Error>Message"`
		}
		a := &answerError{status: status}
		if xml.Unmarshal(body, &e) == nil {
			a.reason = printable(strings.Trim(e.Code+": "+e.Message, ": "))
		}
		return credentials{}, a
	}
	type keys struct {
		ID      string    `xml:"AccessKeyId"`
		Secret  string    `xml:"SecretAccessKey"`
		Session string    `xml:"SessionToken"`
		Expires time.Time `xml:"Expiration"`
	}
	var answer struct {
		Role     keys `xml:"AssumeRoleResult>Credentials"`
		Identity keys `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
	}
	if xml.Unmarshal(body, &answer) != nil { // its text may show a secret
		return credentials{}, errors.New("answered 200 OK with something else than the XML of credentials")
	}
	k := answer.Role
	if k.ID == "" {
		k = answer.Identity
	}
	return credentials{k.ID, k.Secret, k.Session, k.Expires}, nil
}

// container asks for the credentials of a container's role.
func (c *chain) container(ctx context.Context) (credentials, error) {
	address := c.getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if path := c.getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		address = "http://169.254.170.2/" + strings.TrimPrefix(path, "/")
	}
	if err := checkContainerURL(address); err != nil {
		return credentials{}, err
	}
	header := map[string]string{}
	if file := c.getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		token, err := TokenFile(file).read()
		if err != nil {
			return credentials{}, err
		}
		header["Authorization"] = token
	} else if token := c.getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"); token != "" {
		header["Authorization"] = token
	}
	if strings.ContainsAny(header["Authorization"], "\r\n") {
		return credentials{}, errors.New("the authorization token has a line break")
	}
	body, err := get(ctx, http.MethodGet, address, header, false)
	if err != nil {
		return credentials{}, err
	}
	return readCredentials(body)
}

// checkContainerURL checks who is told the authorization token: this machine, the agents of ECS and
// EKS, or whoever has a certificate.
func checkContainerURL(address string) error {
	if err := CheckURL(address); err != nil {
		return fmt.Errorf("AWS_CONTAINER_CREDENTIALS_FULL_URI %q: %w", address, err)
	}
	u, _ := url.Parse(address)
	host := u.Hostname()
	ip, _ := netip.ParseAddr(host)
	agents := []string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}
	for _, agent := range agents {
		if ip == netip.MustParseAddr(agent) {
			return nil
		}
	}
	if u.Scheme == "https" || host == "localhost" || ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("AWS_CONTAINER_CREDENTIALS_FULL_URI names %s: without https it must be this machine or one of %s", host, strings.Join(agents, ", "))
}

// instance asks an EC2 instance's metadata service, version 2, for the credentials of its role.
func (c *chain) instance(ctx context.Context) (credentials, error) {
	// Outside of EC2 nobody answers at the address.
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout/2)
	defer cancel()
	service := strings.TrimSuffix(cmp.Or(c.getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "http://169.254.169.254"), "/")
	if err := CheckURL(service); err != nil {
		return credentials{}, fmt.Errorf("AWS_EC2_METADATA_SERVICE_ENDPOINT %q: %w", service, err)
	}
	token, err := get(ctx, http.MethodPut, service+"/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "300"}, false)
	if err != nil {
		return credentials{}, err
	}
	if !tokenText.Match(token) {
		return credentials{}, errors.New("the metadata service answered with something else than a token")
	}
	header := map[string]string{"X-aws-ec2-metadata-token": string(token)}
	roles := service + "/latest/meta-data/iam/security-credentials/"
	role, err := get(ctx, http.MethodGet, roles, header, false)
	if err != nil {
		return credentials{}, err
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(role)), "\n")
	if !roleName.MatchString(name) {
		return credentials{}, errors.New("the metadata service answered with something else than the name of a role")
	}
	body, err := get(ctx, http.MethodGet, roles+name, header, false)
	if err != nil {
		return credentials{}, err
	}
	return readCredentials(body)
}

// roleName is what IAM allows.
var roleName = regexp.MustCompile(`^[A-Za-z0-9_+=,.@-]{1,128}$`)

// readCredentials reads the JSON of a container's or an instance's credentials.
func readCredentials(body []byte) (credentials, error) {
	var answer struct {
		Code            string
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		Token           string
		Expiration      time.Time
	}
	if json.Unmarshal(body, &answer) != nil { // its text may show a secret
		return credentials{}, errors.New("an answer that is something else than the JSON of credentials")
	}
	if answer.Code != "" && answer.Code != "Success" {
		return credentials{}, fmt.Errorf("an answer with code %q instead of credentials", printable(answer.Code))
	}
	return credentials{answer.AccessKeyID, answer.SecretAccessKey, answer.Token, answer.Expiration}, nil
}
