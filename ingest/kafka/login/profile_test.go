package login

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSignPost has two examples of AWS's test suite of Signature Version 4:
// post-x-www-form-urlencoded and post-sts-header-before.
func TestSignPost(t *testing.T) {
	address, err := url.Parse("https://example.amazonaws.com")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	key := credentials{id: "AKIDEXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	signed := signPost(address, "us-east-1", "service", map[string]string{"content-type": "application/x-www-form-urlencoded"}, []byte("Param1=value1"), key, now)
	const want = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=content-type;host;x-amz-date, " +
		"Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
	if signed["authorization"] != want || signed["x-amz-date"] != "20150830T123600Z" || signed["x-amz-security-token"] != "" {
		t.Errorf("got %v", signed)
	}
	key.session = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGd" +
		"QrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
	signed = signPost(address, "us-east-1", "service", map[string]string{}, nil, key, now)
	if !strings.HasSuffix(signed["authorization"], "SignedHeaders=host;x-amz-date;x-amz-security-token, Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead") {
		t.Errorf("got %v", signed)
	}
}

// sts is a double of the security token service, which gives credentials for roles. A role's key is
// the last part of its name.
type sts struct {
	*httptest.Server
	t        *testing.T
	asked    []url.Values
	signers  []string // keys that have signed, "" for none
	sessions []string // of the signers
	lifetime time.Duration
	answer   func(w http.ResponseWriter) bool // instead, if it says so
}

func newSTS(t *testing.T) *sts {
	s := &sts{t: t, lifetime: time.Hour}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *sts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := r.Body.Read(body); err != nil && len(body) == 0 {
		s.t.Error(err)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		s.t.Error(err)
	}
	action, signer := form.Get("Action"), ""
	if action == "AssumeRole" {
		_, after, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		signer, _, _ = strings.Cut(after, "/")
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || time.Since(at).Abs() > time.Minute {
			s.t.Errorf("the time is %s, %v", r.Header.Get("X-Amz-Date"), err)
		}
		by := credentials{id: signer, secret: exampleSecret, session: r.Header.Get("X-Amz-Security-Token")}
		want := signPost(&url.URL{Host: r.Host, Path: r.URL.Path}, "eu-central-1", "sts", map[string]string{"content-type": r.Header.Get("Content-Type")}, body, by, at)
		if r.Header.Get("Authorization") != want["authorization"] {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>see the secret</Message></Error></ErrorResponse>`)
			return
		}
	}
	s.asked, s.signers, s.sessions = append(s.asked, form), append(s.signers, signer), append(s.sessions, r.Header.Get("X-Amz-Security-Token"))
	if s.answer != nil && s.answer(w) {
		return
	}
	_, id, _ := strings.Cut(form.Get("RoleArn"), ":role/")
	fmt.Fprintf(w, `<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials><AccessKeyId>%[2]s</AccessKeyId><SecretAccessKey>%[3]s</SecretAccessKey>`+
		`<SessionToken>session of %[2]s</SessionToken><Expiration>%[4]s</Expiration></Credentials></%[1]sResult></%[1]sResponse>`,
		action, id, exampleSecret, time.Now().Add(s.lifetime).UTC().Format(time.RFC3339))
}

// shared makes the two files of a home, of which the config file has profiles that need others.
func shared(t *testing.T, config, keys string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config": config, "credentials": keys} {
		if err := os.WriteFile(filepath.Join(dir, ".aws", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A profile's role is assumed by the keys of another profile, of itself, of the environment, of a
// container, of an instance, or of another role, or by a web identity.
func TestProfilesWithRoles(t *testing.T) {
	services := newAWS(t)
	identity := file(t, "identity", "web.identity.token\n")
	keys := "[base]\naws_access_key_id = BASE\naws_secret_access_key = " + exampleSecret + "\n[own]\naws_access_key_id=OWN\naws_secret_access_key=" + exampleSecret + "\naws_session_token=session of OWN\n"
	const arn = "role_arn = arn:aws:iam::1:role/"
	config := "[default]\nregion = eu-west-1\n[profile reader]\n# a comment = x\n" + arn + "READER\nsource_profile = base\nexternal_id = outside\nduration_seconds = 900\nrole_session_name = reading\n" +
		"[sso-session reader]\nrole_arn = x\n[profile own]\n" + arn + "SELF\nsource_profile=own\n" +
		"[profile chained]\n" + arn + "CHAINED\nsource_profile = reader\n[profile variables]\n" + arn + "VARIABLES\ncredential_source = Environment\n" +
		"[profile pod]\n" + arn + "BYPOD\ncredential_source = EcsContainer\n[profile machine]\n" + arn + "BYMACHINE\ncredential_source = Ec2InstanceMetadata\n" +
		"[profile \"by name\"]\n" + arn + "IDENTITY\nweb_identity_token_file = " + identity + "\n[profile plain]\naws_access_key_id = PLAIN\naws_secret_access_key = x\n"
	for _, c := range []struct {
		profile, want, signers, sessions string
		last                             url.Values // of the last request, beside role and action
	}{
		{"reader", "READER", "BASE", "", url.Values{"ExternalId": {"outside"}, "DurationSeconds": {"900"}, "RoleSessionName": {"reading"}}},
		{"own", "SELF", "OWN", "session of OWN", url.Values{"RoleSessionName": {"streamd"}}},
		{"chained", "CHAINED", "BASE READER", " session of READER", url.Values{"RoleSessionName": {"streamd"}}},
		{"variables", "VARIABLES", "ENV", "session of ENV", url.Values{"RoleSessionName": {"streamd"}}},
		{"pod", "BYPOD", "POD", "session of POD", url.Values{"RoleSessionName": {"streamd"}}},
		{"machine", "BYMACHINE", "EC2", "session of EC2", url.Values{"RoleSessionName": {"streamd"}}},
		{"by name", "IDENTITY", "", "", url.Values{"RoleSessionName": {"streamd"}, "WebIdentityToken": {"web.identity.token"}}},
		{"plain", "PLAIN", "", "", nil},
	} {
		s := newSTS(t)
		env := map[string]string{
			"HOME": shared(t, config, keys), "AWS_PROFILE": c.profile, "AWS_ENDPOINT_URL_STS": s.URL,
			"AWS_CONTAINER_CREDENTIALS_FULL_URI": services.URL + "/pod", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod token", "AWS_EC2_METADATA_SERVICE_ENDPOINT": services.URL,
		}
		if c.profile == "variables" {
			env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], env["AWS_SESSION_TOKEN"] = "ENV", exampleSecret, "session of ENV"
			env["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/nowhere"
		}
		tokens := tokensOf(t, env)
		for range 3 { // one assumption is enough
			requireSigner(t, tokens, c.want, c.profile != "plain")
		}
		if got := strings.Join(s.signers, " "); got != c.signers || strings.Join(s.sessions, " ") != c.sessions {
			t.Errorf("%s: it was signed by %q with %q, want %q with %q", c.profile, got, s.sessions, c.signers, c.sessions)
		}
		if c.last == nil {
			continue
		}
		last := s.asked[len(s.asked)-1]
		for _, name := range []string{"Version", "Action", "RoleArn"} {
			if last.Get(name) == "" {
				t.Errorf("%s: the request has no %s", c.profile, name)
			}
			last.Del(name)
		}
		if last.Encode() != c.last.Encode() {
			t.Errorf("%s: asked with %v, want %v", c.profile, last, c.last)
		}
	}
}

// Credentials of a role are renewed before they expire, and discarded ones are asked for again.
func TestRolesAreRenewed(t *testing.T) {
	s := newSTS(t)
	s.lifetime = 2 * time.Second // the answer has whole seconds
	env := map[string]string{"HOME": shared(t, "[default]\nrole_arn = arn:aws:iam::1:role/R\nsource_profile = base\n", "[base]\naws_access_key_id=BASE\naws_secret_access_key="+exampleSecret+"\n"), "AWS_ENDPOINT_URL_STS": s.URL}
	c := tokensOf(t, env).chain
	for deadline := time.Now().Add(20 * time.Second); len(s.asked) < 3; time.Sleep(20 * time.Millisecond) {
		found, err := c.credentials(t.Context())
		if err != nil || !time.Now().Before(found.expires) {
			t.Fatalf("they expire at %v: %v", found.expires, err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests", len(s.asked))
		}
	}
	s.lifetime = time.Hour
	c.cache.discard()
	n := len(s.asked)
	for range 5 {
		if _, err := c.credentials(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.asked) != n+1 {
		t.Errorf("%d requests after they were discarded", len(s.asked)-n)
	}
}

// What is wrong with a profile is said, with its name and its file, and without a secret.
func TestProfilesThatCannotBe(t *testing.T) {
	const arn = "role_arn = arn:aws:iam::1:role/R\n"
	keys := "[base]\naws_access_key_id = BASE\naws_secret_access_key = " + exampleSecret + "\n"
	var long strings.Builder
	for i := range 9 {
		fmt.Fprintf(&long, "[profile p%d]\n%ssource_profile = p%d\n", i, arn, i+1)
	}
	for _, c := range []struct {
		name, config, want string
		answer             func(http.ResponseWriter) bool
	}{
		{"no source", "[profile p]\n" + arn, "role_arn needs source_profile, credential_source or web_identity_token_file", nil},
		{"two sources", "[profile p]\n" + arn + "source_profile = base\ncredential_source = Environment\n", "only one of them can count", nil},
		{"another source", "[profile p]\n" + arn + "credential_source = Elsewhere\n", `credential_source is "Elsewhere", want Environment, Ec2InstanceMetadata or EcsContainer`, nil},
		{"an unknown profile", "[profile p]\n" + arn + "source_profile = q\n", `profile "q" of`, nil},
		{"a profile without keys", "[profile p]\n" + arn + "source_profile = q\n[profile q]\nsso_session = x\n", "no sso, credential_process", nil},
		{"itself without keys", "[profile p]\n" + arn + "source_profile = p\n", "it is its own source_profile, and there is no access key id", nil},
		{"a circle", "[profile p]\n" + arn + "source_profile = q\n[profile q]\n" + arn + "source_profile = p\n", "goes round in a circle: p, q, p", nil},
		{"many", long.String() + "[profile p]\n" + arn + "source_profile = p0\n", "more than 5 roles", nil},
		{"a code", "[profile p]\n" + arn + "source_profile = base\nmfa_serial = arn:aws:iam::1:mfa/x\n", "mfa_serial needs somebody", nil},
		{"a duration", "[profile p]\n" + arn + "source_profile = base\nduration_seconds = 60\n", `duration_seconds is "60", want 900 to 43200`, nil},
		{"no variables", "[profile p]\n" + arn + "credential_source = Environment\n", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which are its credential_source: there is no access key id", nil},
		{"no identity", "[profile p]\n" + arn + "web_identity_token_file = /nowhere/token\n", "no such file", nil},
		{"a process", "[profile p]\ncredential_process = x\n", "no sso, credential_process", nil},
		{"a large file", "[profile p]\n" + strings.Repeat("#", mostFile), "more than 1048576 bytes", nil},
		{"refused", "[profile p]\n" + arn + "source_profile = base\n", "403 Forbidden: AccessDenied: not authorized to perform sts:AssumeRole", func(w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized to perform sts:AssumeRole</Message></Error></ErrorResponse>`)
			return true
		}},
		{"garbage", "[profile p]\n" + arn + "source_profile = base\n", "something else than the XML", func(w http.ResponseWriter) bool {
			fmt.Fprint(w, "<a>"+exampleSecret)
			return true
		}},
		{"nothing", "[profile p]\n" + arn + "source_profile = base\n", "no access key id", func(w http.ResponseWriter) bool {
			fmt.Fprint(w, "<AssumeRoleResponse/>")
			return true
		}},
		{"huge", "[profile p]\n" + arn + "source_profile = base\n", "more than 65536 bytes", func(w http.ResponseWriter) bool {
			fmt.Fprint(w, strings.Repeat("x", maxReply+1))
			return true
		}},
	} {
		s := newSTS(t)
		s.answer = c.answer
		env := map[string]string{"HOME": shared(t, c.config, keys), "AWS_PROFILE": "p", "AWS_ENDPOINT_URL_STS": s.URL}
		_, err := tokensOf(t, env).Token(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || c.name != "a large file" && !strings.Contains(err.Error(), `profile "`) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if text := fmt.Sprint(err); strings.Contains(text, exampleSecret) || strings.Contains(text, "web.identity") || len(text) > 700 {
			t.Errorf("%s: the error says %q", c.name, text)
		}
	}
	// A default profile that says nothing of credentials is none: the next source counts.
	env := map[string]string{"HOME": shared(t, "[default]\nregion = eu-west-1\n", ""), "AWS_EC2_METADATA_DISABLED": "true"}
	if _, err := tokensOf(t, env).Token(t.Context()); err == nil || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("a region alone: %v", err)
	}
}
