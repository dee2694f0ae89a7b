package login

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// profile has the settings of a profile, by name, of the shared config file and of the shared
// credentials file, which counts where both have one.
type profile map[string]string

// Settings of a profile that are read.
const (
	setRole        = "role_arn"
	setSource      = "source_profile"
	setFrom        = "credential_source"
	setIdentity    = "web_identity_token_file"
	setSession     = "role_session_name"
	setExternalID  = "external_id"
	setDuration    = "duration_seconds"
	setMFA         = "mfa_serial"
	setKeyID       = "aws_access_key_id"
	setSecret      = "aws_secret_access_key"
	setToken       = "aws_session_token"
	fromVariables  = "Environment"
	fromInstance   = "Ec2InstanceMetadata"
	fromContainer  = "EcsContainer"
	mostRoles      = 5 // that are assumed one by another
	mostFile       = 1 << 20
	shortest       = 900 // seconds of a role's credentials, by AWS
	longest        = 12 * 3600
	notReadProfile = "of a profile keys and roles are read, no sso, credential_process or login_session"
)

// says reports whether the profile says anything of credentials, such as what is not read.
func (p profile) says() bool {
	return slices.ContainsFunc([]string{setRole, setKeyID, setSecret, "credential_process", "login_session", "sso_session", "sso_start_url"}, func(name string) bool {
		return p[name] != ""
	})
}

// hasRole reports whether credentials of the profile are those of a role.
func (p profile) hasRole() bool { return p[setRole] != "" }

// keys are the access key of the profile.
func (p profile) keys() credentials {
	return credentials{id: p[setKeyID], secret: p[setSecret], session: p[setToken]}
}

// profiles are those of the shared files.
type profiles struct {
	all   map[string]profile
	name  string // of the one to use
	given bool   // a variable names it or a file, so that it must be there
	files string // for errors
}

// errNoProfile says that there is no profile to use.
var errNoProfile = errors.New("no profile in the shared files")

// readProfiles reads the shared files. The error is errNoProfile if there is none of the name, and
// nothing says that there should be.
func (c *chain) readProfiles() (*profiles, error) {
	p := &profiles{all: map[string]profile{}, name: cmp.Or(c.getenv("AWS_PROFILE"), "default"), given: c.getenv("AWS_PROFILE") != ""}
	var names []string
	for _, f := range []struct {
		variable, name string
		config         bool
	}{{"AWS_CONFIG_FILE", "config", true}, {"AWS_SHARED_CREDENTIALS_FILE", "credentials", false}} {
		path := c.getenv(f.variable)
		given := path != ""
		p.given = p.given || given && !f.config // a config file may have settings of other programs alone
		if home := c.getenv("HOME"); !given && home != "" {
			path = filepath.Join(home, ".aws", f.name)
		}
		if path == "" {
			continue
		}
		names = append(names, path)
		data, err := readShared(path)
		if errors.Is(err, fs.ErrNotExist) && !given {
			continue
		}
		if err != nil {
			return nil, err
		}
		readSections(data, f.config, p.all)
	}
	p.files = strings.Join(names, " and ")
	switch is := p.all[p.name]; {
	case is.says() || is != nil && p.given:
		return p, nil
	case p.given:
		return nil, p.fail(p.name, errors.New("there is no such profile"))
	}
	return nil, errNoProfile // a profile may have a region alone
}

// fail says which profile is wrong.
func (p *profiles) fail(name string, err error) error {
	return fmt.Errorf("profile %q of %s: %w", printable(name), p.files, err)
}

// readShared reads a file, which is not larger than it can be.
func readShared(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostFile+1))
	if err == nil && len(data) > mostFile {
		err = fmt.Errorf("%s has more than %d bytes", path, mostFile)
	}
	return data, err
}

// readSections adds the profiles of a file of sections [name] and lines setting = value. In the
// config file a section is [profile name], or [default].
func readSections(data []byte, config bool, all map[string]profile) {
	var in profile // nil: of something else
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(string(line))
		if section, found := strings.CutPrefix(text, "["); found {
			section, _, _ = strings.Cut(section, "]")
			section = strings.TrimSpace(section)
			if first, rest, several := strings.Cut(section, " "); config && several && first == "profile" {
				section = strings.Trim(strings.TrimSpace(rest), `"'`)
			} else if config && section != "default" {
				in = nil
				continue
			}
			if in = all[section]; in == nil {
				in = profile{}
				all[section] = in
			}
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		if ok && in != nil && text[0] != '#' && text[0] != ';' {
			in[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
}

// profileCredentials are those of a profile with keys, or, with a role, those that the security
// token service gives for it. via are the profiles that need them.
func (c *chain) profileCredentials(ctx context.Context, p *profiles, name string, via []string) (credentials, error) {
	is := p.all[name]
	switch {
	case is == nil:
		return credentials{}, p.fail(name, fmt.Errorf("there is no such profile, and %q has it as %s", printable(via[len(via)-1]), setSource))
	case !is.hasRole():
		found := is.keys()
		if err := found.check(); err != nil {
			return credentials{}, p.fail(name, fmt.Errorf("%w (%s)", err, notReadProfile))
		}
		return found, nil
	}
	found, err := c.roleCredentials(ctx, p, name, append(slices.Clip(via), name))
	if err == nil {
		err = found.check()
	}
	if err != nil && len(via) == 0 {
		err = p.fail(name, err)
	}
	return found, err
}

// roleCredentials are those of the role of a profile. via are the profiles up to it.
func (c *chain) roleCredentials(ctx context.Context, p *profiles, name string, via []string) (base credentials, err error) {
	is := p.all[name]
	if is[setMFA] != "" {
		return base, fmt.Errorf("%s needs somebody who types a code", setMFA)
	}
	request := url.Values{"RoleArn": {is[setRole]}, "RoleSessionName": {cmp.Or(is[setSession], c.getenv("AWS_ROLE_SESSION_NAME"), "streamd")}}
	if text := is[setDuration]; text != "" {
		if n, err := strconv.Atoi(text); err != nil || n < shortest || n > longest {
			return base, fmt.Errorf("%s is %q, want %d to %d", setDuration, printable(text), shortest, longest)
		}
		request.Set("DurationSeconds", text)
	}
	if is[setSource] == "" && is[setFrom] == "" && is[setIdentity] != "" {
		return c.webIdentity(ctx, is[setIdentity], request)
	}
	if is[setExternalID] != "" {
		request.Set("ExternalId", is[setExternalID])
	}
	switch source := is[setSource]; {
	case source != "" && is[setFrom] != "":
		return base, fmt.Errorf("it has %s and %s, and only one of them can count", setSource, setFrom)
	case source == name: // its keys are its own
		if base = is.keys(); base.check() != nil {
			err = fmt.Errorf("it is its own %s, and %w", setSource, base.check())
		}
	case slices.Contains(via, source):
		err = fmt.Errorf("%s goes round in a circle: %s", setSource, printable(strings.Join(append(via, source), ", ")))
	case source != "" && len(via) > mostRoles:
		err = fmt.Errorf("%s goes over more than %d roles", setSource, mostRoles)
	case source != "":
		base, err = c.profileCredentials(ctx, p, source, via)
	case is[setFrom] == fromVariables:
		base = c.variables()
		if err = base.check(); err != nil {
			err = fmt.Errorf("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which are its %s: %w", setFrom, err)
		}
	case is[setFrom] == fromInstance:
		base, err = c.instance(ctx)
	case is[setFrom] == fromContainer:
		base, err = c.container(ctx)
	case is[setFrom] != "":
		err = fmt.Errorf("%s is %q, want %s, %s or %s", setFrom, printable(is[setFrom]), fromVariables, fromInstance, fromContainer)
	default:
		err = fmt.Errorf("%s needs %s, %s or %s", setRole, setSource, setFrom, setIdentity)
	}
	if err == nil {
		err = base.check()
	}
	if err != nil {
		return credentials{}, err
	}
	return c.askSTS(ctx, "AssumeRole", request, &base)
}

// signPost is the header of a POST request with its signature, by AWS Signature Version 4.
func signPost(address *url.URL, region, service string, header map[string]string, body []byte, c credentials, now time.Time) map[string]string {
	stamp := now.UTC().Format("20060102T150405Z")
	signed := maps.Clone(header)
	signed["host"], signed["x-amz-date"] = address.Host, stamp
	if c.session != "" {
		signed["x-amz-security-token"] = c.session
	}
	names := slices.Sorted(maps.Keys(signed))
	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "%s:%s\n", name, signed[name])
	}
	request := strings.Join([]string{"POST", cmp.Or(address.EscapedPath(), "/"), "", lines.String(), strings.Join(names, ";"), hashOf(body)}, "\n")
	scope := []string{stamp[:8], region, service, "aws4_request"}
	signed["authorization"] = fmt.Sprintf("%s Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		signing, c.id, strings.Join(scope, "/"), strings.Join(names, ";"), signature(c.secret, stamp, scope, request))
	delete(signed, "host") // of the connection
	return signed
}
