package login

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzTokenAnswer checks that what is taken as a token can be sent in a login, and that errors are
// short and show none.
func FuzzTokenAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"access_token":"abc.def.ghi","token_type":"Bearer","expires_in":300}`, `{"access_token":"a","expires_in":"1e999"}`,
		`{"error":"invalid_client","error_description":"no"}`, `{"access_token":"eyJh.eyJleHAiOjF9.x"}`, `{"access_token":"a.eyJleHAiOjFlMzAwfQ.x"}`, `[`, ``,
	} {
		f.Add(200, []byte(seed))
		f.Add(401, []byte(seed))
	}
	now := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if len(body) > maxReply {
			return
		}
		token, expires, err := readToken(status, body, now)
		if err != nil {
			if token != "" || len(err.Error()) > 700 || strings.ContainsAny(err.Error(), "\x00\x1b\n\r") {
				t.Errorf("%q, %q", token, err)
			}
			return
		}
		if status != 200 || token == "" || len(token) > maxToken || strings.ContainsAny(token, "\x00\x01 ,=\n") && strings.TrimRight(token, "=") == token {
			t.Errorf("%d: token %q", status, token)
		}
		if expires.Year() < 1970 || expires.Year() > 9999 {
			t.Errorf("it ends at %v", expires)
		}
	})
}

// FuzzCredentials checks that what is taken as credentials makes a token that can be sent.
func FuzzCredentials(f *testing.F) {
	for _, seed := range []string{
		`{"AccessKeyId":"A","SecretAccessKey":"b","Token":"c","Expiration":"2099-01-02T03:04:05Z","Code":"Success"}`, `{"Code":"x"}`,
		`<R><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>b</SecretAccessKey><SessionToken>c</SessionToken>` +
			`<Expiration>2099-01-02T03:04:05Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></R>`,
		`<ErrorResponse><Error><Code>a</Code><Message>b</Message></Error></ErrorResponse>`, "<a>", "[default]\naws_access_key_id=A\naws_secret_access_key=b\n",
	} {
		f.Add(200, []byte(seed))
		f.Add(403, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if len(body) > maxReply {
			return
		}
		all := map[string]credentials{}
		var err error
		if all["sts"], err = readSTS(status, body); err != nil && (len(err.Error()) > 700 || strings.ContainsAny(err.Error(), "\x00\x1b\n\r")) {
			t.Errorf("%q", err)
		}
		if all["json"], err = readCredentials(body); err != nil && len(err.Error()) > 700 {
			t.Errorf("%q", err)
		}
		for _, config := range []bool{false, true} {
			found := map[string]profile{}
			readSections(body, config, found)
			all[fmt.Sprint("file ", config)] = found["default"].keys()
		}
		for from, c := range all {
			if c.check() != nil {
				continue
			}
			if err := checkToken(mskToken("eu-central-1", c, time.Unix(1_800_000_000, 0))); err != nil && len(body) < 4096 {
				t.Errorf("%s: %v", from, err)
			}
		}
	})
}

// scripted is a connection whose other side says what was written down before.
type scripted struct {
	net.Conn
	in   *bytes.Reader
	sent bytes.Buffer
}

func (s *scripted) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *scripted) Write(p []byte) (int, error)      { return s.sent.Write(p) }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
func (s *scripted) Close() error                     { return nil }

// frame puts the head of an answer before a body.
func frame(id int, body []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	return append(binary.BigEndian.AppendUint32(head, uint32(id)), body...)
}

// FuzzBroker is a broker that answers a login with anything: raw bytes, or with challenges in
// messages that are right.
func FuzzBroker(f *testing.F) {
	f.Add([]byte("r=abc,s=AAAA,i=4096"), []byte("v=abcd"), int16(0), int64(3000), false)
	f.Add([]byte(`{"status":"invalid_token"}`), []byte{}, int16(58), int64(-1), false)
	f.Add([]byte{}, []byte{}, int16(0), int64(1<<62), false)
	f.Add(frame(1, new(kmsg.ApiVersionsResponse).AppendTo(nil)), frame(2, []byte{0, 0, 0, 0, 0, 0}), int16(0), int64(0), true)
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff}, []byte{}, int16(0), int64(0), true)
	f.Fuzz(func(t *testing.T, first, second []byte, code int16, lifetime int64, raw bool) {
		const hidden = "hidden-in-the-login"
		for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"} {
			var l *Login
			var err error
			if mechanism == "OAUTHBEARER" {
				l, err = Bearer(fixed(hidden), nil)
			} else {
				l, err = Password(mechanism, "ann", hidden)
			}
			if err != nil {
				t.Fatal(err)
			}
			steps, start, err := l.mechanism.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var script []byte
			if raw {
				script = append(append(script, first...), second...)
			} else {
				script = answers(start, first, second, code, lifetime)
			}
			conn := &scripted{in: bytes.NewReader(script)}
			s := &session{Conn: conn, login: l}
			err = s.open(t.Context(), steps, start)
			if err == nil {
				if mechanism == "SCRAM-SHA-256" {
					t.Error("a broker that does not know the password has proved that it does")
				}
				if !s.renew.IsZero() && (s.renew.After(s.expires) || time.Until(s.expires) > maxLifetime) {
					t.Errorf("renewed at %v, ends at %v", s.renew, s.expires)
				}
				io.Copy(io.Discard, s)
				s.Write([]byte{0, 0, 0, 1, 2})
				continue
			}
			if text := err.Error(); strings.Contains(text, hidden) || len(text) > 2000 || strings.ContainsAny(text, "\x00\x1b\n") {
				t.Errorf("%s: %q", mechanism, text)
			}
		}
	})
}

type fixed string

// answers are those of a broker that agrees to everything, and sends two challenges. In the first,
// the text NONCE stands for the client's.
func answers(start, first, second []byte, code int16, lifetime int64) []byte {
	if _, nonce, ok := bytes.Cut(start, []byte(",r=")); ok {
		first = append([]byte("r="+string(nonce)), bytes.TrimPrefix(first, []byte("r="))...)
	}
	versions := &kmsg.ApiVersionsResponse{ApiKeys: []kmsg.ApiVersionsResponseApiKey{{ApiKey: authenticateKey, MaxVersion: 2}}}
	script := frame(1, versions.AppendTo(nil))
	script = append(script, frame(2, (&kmsg.SASLHandshakeResponse{Version: 1}).AppendTo(nil))...)
	said := string(second)
	for i, challenge := range [][]byte{first, second, {}} {
		r := kmsg.SASLAuthenticateResponse{Version: 1, SASLAuthBytes: challenge, SessionLifetimeMillis: lifetime}
		if i == 1 {
			r.ErrorCode, r.ErrorMessage = code, &said
		}
		script = append(script, frame(3+i, r.AppendTo(nil))...)
	}
	return script
}

func (f fixed) Token(context.Context) (string, error) { return string(f), nil }
func (fixed) Discard()                                {}
