package login

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// The keys are AWS's own examples.
const (
	exampleID     = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

// TestPresigned has the example of "Authenticating Requests: Using Query Parameters" of the Amazon
// S3 API reference.
func TestPresigned(t *testing.T) {
	p := presigned{
		host: "examplebucket.s3.amazonaws.com", path: "/test.txt", region: "us-east-1", service: "s3",
		lifetime: 86400 * time.Second, payload: "UNSIGNED-PAYLOAD",
	}
	const want = "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256" +
		"&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z" +
		"&X-Amz-Expires=86400&X-Amz-SignedHeaders=host" +
		"&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
	if got := p.sign(credentials{id: exampleID, secret: exampleSecret}, time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)); got != want {
		t.Errorf("got %s", got)
	}
}

// TestMSKToken has the signatures that aws-msk-iam-sasl-signer-go v1.0.4 makes of these keys.
func TestMSKToken(t *testing.T) {
	now := time.Date(2026, 11, 29, 20, 26, 53, 0, time.UTC)
	for session, want := range map[string]string{
		"":                                  "424ffa4c943e3e453af2400299f0df0634e1cc2ed88e55d61c9fad9f39549f02",
		"IQoJb3JpZ2luX2VjE+/=session token": "5d6704655d4541f0b19f378dd8051096c850fbcefcbb5ff4d7206dd0a8940f5a",
	} {
		token := mskToken("eu-central-1", credentials{id: exampleID, secret: exampleSecret, session: session}, now)
		if err := checkToken(token); err != nil {
			t.Error(err)
		}
		text, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if u.Scheme+"://"+u.Host+u.Path != "https://kafka.eu-central-1.amazonaws.com/" || q.Get("Action") != "kafka-cluster:Connect" ||
			q.Get("X-Amz-Expires") != "900" || q.Get("User-Agent") != "streamd" || q.Get("X-Amz-Security-Token") != session ||
			q.Get("X-Amz-Date") != "20261129T202653Z" || q.Get("X-Amz-SignedHeaders") != "host" {
			t.Errorf("%s", text)
		}
		if q.Get("X-Amz-Signature") != want {
			t.Errorf("signature %s, want %s", q.Get("X-Amz-Signature"), want)
		}
	}
}

// aws is a double of AWS's services that give credentials.
type aws struct {
	*httptest.Server
	t      *testing.T
	asked  int
	answer func(w http.ResponseWriter, r *http.Request) bool // instead, if it says so
}

const expiration = "2099-01-02T03:04:05Z"

func (a *aws) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked++
	r.ParseForm()
	if a.answer != nil && a.answer(w, r) {
		return
	}
	give := func(id string) {
		json.NewEncoder(w).Encode(map[string]any{
			"Code": "Success", "AccessKeyId": id, "SecretAccessKey": exampleSecret, "Token": "session of " + id, "Expiration": expiration,
		})
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /":
		if r.PostForm.Get("Action") != "AssumeRoleWithWebIdentity" || r.PostForm.Get("Version") != "2011-06-15" ||
			r.PostForm.Get("RoleArn") != "arn:aws:iam::1:role/a" || r.PostForm.Get("WebIdentityToken") != "web.identity.token" || r.PostForm.Get("RoleSessionName") != "streamd" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>`)
			return
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>`+
			`<SubjectFromWebIdentityToken>s</SubjectFromWebIdentityToken><Credentials><SessionToken>session of STS</SessionToken><SecretAccessKey>%s</SecretAccessKey>`+
			`<Expiration>%s</Expiration><AccessKeyId>STS</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, exampleSecret, expiration)
	case "GET /pod":
		if r.Header.Get("Authorization") != "pod token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		give("POD")
	case "PUT /latest/api/token":
		if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, "imds==")
	case "GET /latest/meta-data/iam/security-credentials/", "GET /latest/meta-data/iam/security-credentials/my-role":
		switch {
		case r.Header.Get("X-aws-ec2-metadata-token") != "imds==":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, "my-role"):
			give("EC2")
		default:
			fmt.Fprint(w, "my-role")
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func newAWS(t *testing.T) *aws {
	a := &aws{t: t}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tokensOf are tokens of MSK in an environment.
func tokensOf(t *testing.T, env map[string]string) *mskTokens {
	t.Helper()
	tokens, err := MSK{Region: "eu-central-1", Getenv: func(name string) string { return env[name] }, Log: zerolog.Nop()}.NewTokens()
	if err != nil {
		t.Fatal(err)
	}
	return tokens.(*mskTokens)
}

// TestCredentials has each source of credentials.
func TestCredentials(t *testing.T) {
	a := newAWS(t)
	shared := file(t, "credentials", "# keys\n[default]\naws_access_key_id = FILE\naws_secret_access_key="+exampleSecret+"\n\n"+
		"[other]\naws_access_key_id=OTHER\naws_secret_access_key = "+exampleSecret+"\naws_session_token = session of OTHER\n[role]\nrole_arn = a\n")
	everything := map[string]string{
		"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": exampleSecret, "AWS_SESSION_TOKEN": "session of ENV",
		"AWS_WEB_IDENTITY_TOKEN_FILE": file(t, "identity", "web.identity.token\n"), "AWS_ROLE_ARN": "arn:aws:iam::1:role/a", "AWS_ENDPOINT_URL_STS": a.URL,
		"AWS_SHARED_CREDENTIALS_FILE":            shared,
		"AWS_CONTAINER_CREDENTIALS_FULL_URI":     a.URL + "/pod",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file(t, "pod", "pod token\n"), "AWS_EC2_METADATA_SERVICE_ENDPOINT": a.URL + "/",
		"HOME": t.TempDir(),
	}
	// The sources in their order: each is gone when its first variable is.
	for _, step := range []struct{ without, want string }{
		{"", "ENV"}, {"AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY", "STS"}, {"AWS_WEB_IDENTITY_TOKEN_FILE", "FILE"},
		{"AWS_SHARED_CREDENTIALS_FILE", "POD"}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "EC2"},
	} {
		for _, name := range strings.Fields(step.without) {
			delete(everything, name)
		}
		tokens := tokensOf(t, everything)
		before := a.asked
		for range 3 {
			requireSigner(t, tokens, step.want, step.want != "FILE")
		}
		if n := a.asked - before; n > 3 {
			t.Errorf("%s: %d requests, so credentials are not kept", step.want, n)
		}
	}
	// The environment of a pod may have the token itself, and a person a profile at home.
	for want, env := range map[string]map[string]string{
		"POD":   {"AWS_CONTAINER_CREDENTIALS_FULL_URI": a.URL + "/pod", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod token"},
		"OTHER": {"AWS_SHARED_CREDENTIALS_FILE": shared, "AWS_PROFILE": "other"},
		"HOME":  {"HOME": home(t, "[default]\naws_access_key_id=HOME\naws_secret_access_key=x\n")},
		// A file without the default profile is none, and the next source counts.
		"EC2": {"HOME": home(t, "[work]\naws_access_key_id=HOME\naws_secret_access_key=x\n"), "AWS_EC2_METADATA_SERVICE_ENDPOINT": a.URL},
	} {
		if c, err := tokensOf(t, env).chain.credentials(t.Context()); err != nil || c.id != want {
			t.Errorf("%s: %q, %v", want, c.id, err)
		}
	}
}

func home(t *testing.T, text string) string {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".aws", "credentials"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestNoCredentials has what can be wrong with each source. No error shows a secret.
func TestNoCredentials(t *testing.T) {
	a := newAWS(t)
	identity := file(t, "identity", "web.identity.token")
	irsa := map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": identity, "AWS_ROLE_ARN": "arn:aws:iam::1:role/a", "AWS_ENDPOINT_URL_STS": a.URL}
	pod := map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": a.URL + "/pod", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod token"}
	ec2 := map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": a.URL}
	write := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut || strings.HasSuffix(r.URL.Path, "credentials/") {
				return false
			}
			fmt.Fprint(w, text)
			return true
		}
	}
	for _, test := range []struct {
		name   string
		env    map[string]string
		answer func(http.ResponseWriter, *http.Request) bool
		want   string
	}{
		{"half a key", map[string]string{"AWS_ACCESS_KEY_ID": "a"}, nil, "no secret access key"},
		{"nothing", map[string]string{"AWS_EC2_METADATA_DISABLED": "true"}, nil, "there are none"},
		{"no role", map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": identity}, nil, "AWS_ROLE_ARN is not set"},
		{"no identity", map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere/token", "AWS_ROLE_ARN": "a"}, nil, "no such file"},
		{"another role", map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": identity, "AWS_ROLE_ARN": "b", "AWS_ENDPOINT_URL_STS": a.URL}, nil, "403 Forbidden: AccessDenied: Not authorized"},
		{"STS: garbage", irsa, write("<a><b></a>" + exampleSecret), "something else than the XML"},
		{"STS: deep", irsa, write(strings.Repeat("<a>", 20000)), "something else than the XML"},
		{"STS: nothing", irsa, write("<AssumeRoleWithWebIdentityResponse/>"), "no access key id"},
		{"STS: huge", irsa, write(strings.Repeat("x", maxReply+1)), "more than 65536 bytes"},
		{"no profile", map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file(t, "credentials", "[a]\nrole_arn=x\n"), "AWS_PROFILE": "b"}, nil, "there is no such profile"},
		{"a role's profile", map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file(t, "credentials", "[a]\nrole_arn=x\n"), "AWS_PROFILE": "a"}, nil, "needs source_profile"},
		{"no file", map[string]string{"AWS_SHARED_CREDENTIALS_FILE": "/nowhere/credentials"}, nil, "no such file"},
		{"pod: token", map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": a.URL + "/pod"}, nil, "401 Unauthorized"},
		{"pod: elsewhere", map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/pod"}, nil, "without https it must be this machine"},
		{"pod: garbage", pod, write("{" + exampleSecret), "something else than the JSON"},
		{"pod: depth", pod, write(strings.Repeat("[", maxReply-1)), "something else than the JSON"},
		{"pod: code", pod, write(`{"Code":"AssumeRoleUnauthorizedAccess"}`), `code "AssumeRoleUnauthorizedAccess"`},
		{"pod: expired", pod, write(`{"AccessKeyId":"A","SecretAccessKey":"` + exampleSecret + `","Expiration":"2001-01-01T00:00:00Z"}`), "has expired already"},
		{"EC2: no role", ec2, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "credentials/") {
				w.WriteHeader(http.StatusNotFound)
				return true
			}
			return false
		}, "404 Not Found"},
		{"EC2: role", ec2, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "credentials/") {
				fmt.Fprint(w, "../../user-data")
				return true
			}
			return false
		}, "something else than the name of a role"},
		{"EC2: away", map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}, nil, "cannot be asked"},
	} {
		a.answer = test.answer
		_, err := tokensOf(t, test.env).Token(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "AWS credentials: ") {
			t.Errorf("%s: %v", test.name, err)
		}
		if text := fmt.Sprint(err); strings.Contains(text, exampleSecret) || strings.Contains(text, "pod token") || strings.Contains(text, "web.identity") || len(text) > 600 {
			t.Errorf("%s: the error says %q", test.name, text)
		}
	}
}

func TestRegion(t *testing.T) {
	env := map[string]string{}
	m := MSK{Getenv: func(name string) string { return env[name] }, Log: zerolog.Nop()}
	if _, err := m.NewTokens(); err == nil || !strings.Contains(err.Error(), "no region given") {
		t.Errorf("got %v", err)
	}
	for _, step := range [][2]string{{"AWS_DEFAULT_REGION", "eu-west-1"}, {"AWS_REGION", "us-gov-east-1"}} {
		env[step[0]] = step[1]
		if tokens, err := m.NewTokens(); err != nil || tokens.(*mskTokens).region != step[1] {
			t.Errorf("%s: %v", step[1], err)
		}
	}
	for _, bad := range []string{"", "Frankfurt", "eu-central-1.evil.example/", "eu", "eu-central-1a"} {
		if CheckRegion(bad) == nil {
			t.Errorf("%q is a region", bad)
		}
	}
}

func TestContainerURL(t *testing.T) {
	for address, want := range map[string]bool{
		"http://169.254.170.2/v2/credentials/1": true, "http://169.254.170.23/v1/credentials": true, "http://[fd00:ec2::23]/v1/credentials": true,
		"http://localhost:1/a": true, "http://127.0.0.1/a": true, "https://example.com/a": true,
		"http://example.com/a": false, "http://169.254.170.2.example.com/": false, "file:///etc/passwd": false, "": false, "http://169.254.169.254/": false,
	} {
		if err := checkContainerURL(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// requireSigner checks who has signed the next token, in a session of theirs or in none.
func requireSigner(t *testing.T, tokens *mskTokens, name string, inSession bool) {
	t.Helper()
	token, err := tokens.Token(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text, _ := base64.RawURLEncoding.DecodeString(token)
	u, _ := url.Parse(string(text))
	session := ""
	if inSession {
		session = "session of " + name
	}
	if q := u.Query(); !strings.HasPrefix(q.Get("X-Amz-Credential"), name+"/") || q.Get("X-Amz-Security-Token") != session {
		t.Errorf("want the credentials of %s: %s", name, text)
	}
}
