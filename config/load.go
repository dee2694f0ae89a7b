package config

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"streamd/kernels/rules/document"
)

// Sources are the inputs of Load.
type Sources struct {
	File         string            // the YAML file; empty: none
	FileRequired bool              // whether File must exist
	Env          []string          // as from os.Environ
	Flags        map[string]string // by key, without dashes: the result of Flags.Given
	NoTopic      bool              // kafka.topic may be empty, since the caller reads and writes other topics
}

// maxSecret bounds the file of a secret, in bytes.
const maxSecret = 1 << 12

// Load reads and checks the configuration. The error is an *Error.
func Load(from Sources) (*Config, error) {
	l := newLoader()
	l.noTopic = from.NoTopic
	if from.File != "" {
		l.file(from.File, from.FileRequired)
	}
	l.environment(from.Env)
	l.flags(from.Flags)
	l.derive()
	l.check()
	l.config.Kafka.SASL.Password = l.secret("kafka.sasl.password_file", password)
	l.config.Kafka.SASL.OAuth.ClientSecret = l.secret("kafka.sasl.oauth.client_secret_file", password)
	l.config.Format.Registry.Password = l.secret("format.registry.password_file", password)
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, inOrder)
		return nil, &Error{l.problems, l.config.Log}
	}
	return l.config, nil
}

func (l *loader) file(name string, required bool) {
	data, err := document.ReadFile(name, document.MaxFile)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return
	}
	if err != nil {
		l.problems = append(l.problems, document.Problem{Source: name, Message: err.Error()})
		l.spoil("")
		return
	}
	settings, problems := parseYAML(name, data)
	for _, p := range problems {
		l.spoil(p.Key)
	}
	l.problems = append(l.problems, problems...)
	for _, s := range settings {
		l.set(s)
	}
}

// serviceLink matches the variables that Kubernetes sets in every pod for a service named
// streamd or streamd-something. No key has such a variable.
var serviceLink = regexp.MustCompile(`^STREAMD_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func (l *loader) environment(env []string) {
	values := map[string]string{}
	for _, entry := range env {
		name, value, ok := strings.Cut(entry, "=")
		if ok && strings.HasPrefix(name, envPrefix) && name != FileVariable && name != URLVariable && !serviceLink.MatchString(name) {
			values[name] = value // the last one counts, as for a new process
		}
	}
	for _, k := range table {
		if value, ok := values[k.Env]; ok {
			l.text(k, origin{Source: k.Env}, value)
			delete(values, k.Env)
		}
	}
	known := names(func(k *key) string { return k.Env })
	for _, name := range slices.Sorted(maps.Keys(values)) {
		l.problems = append(l.problems, document.Problem{Source: name, Key: name, Message: "unknown variable" + document.DidYouMean(document.Nearest(name, known))})
	}
}

func (l *loader) flags(given map[string]string) {
	for _, k := range table {
		if value, ok := given[k.Name]; ok {
			l.text(k, origin{Source: k.Flag}, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if byName[name] == nil {
			l.problems = append(l.problems, document.Problem{
				Source:  "--" + name,
				Key:     name,
				Message: unknown("flag", name, false),
			})
		}
	}
}

// derive fills in the values that depend on others or on the machine.
func (l *loader) derive() {
	c := l.config
	if c.Kafka.ClientID == "" {
		c.Kafka.ClientID = "streamd"
		if host, err := os.Hostname(); err == nil && host != "" {
			c.Kafka.ClientID += "-" + host
		}
	}
	if c.Kafka.Group == "" {
		c.Kafka.Group = "streamd." + c.Kafka.Topic + "." + c.Model.Name + "." + c.Kafka.ClientID
	}
	if c.DeadLetters.Topic == "" && c.Kafka.Topic != "" {
		c.DeadLetters.Topic = LettersOf(c.Kafka.Topic)
	}
	if p := &c.Predict; p.Topic != "" {
		p.Output = cmp.Or(p.Output, p.Topic+".answers")
		p.Group = cmp.Or(p.Group, PredictGroup(p.Topic, p.Output))
	}
	if c.HTTP.MaxConnections == 0 {
		c.HTTP.MaxConnections = int(min(1024, max(1, descriptors()/2)))
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
}

var password = regexp.MustCompile(`^\P{C}+$`) // no control characters

// secret reads the file that a key names, if any. No error shows its content.
func (l *loader) secret(name string, want *regexp.Regexp) Secret {
	file := byName[name].in(l.config).String()
	if file == "" || l.bad[name] {
		return Secret{}
	}
	data, err := document.ReadFile(file, maxSecret)
	if err != nil {
		l.fault(name, "%v", err)
		return Secret{}
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case text == "":
		l.fault(name, "the file is empty")
	case !utf8.ValidString(text) || !want.MatchString(text):
		l.fault(name, "the file holds characters that the secret cannot have; want one line that matches %s", want)
	}
	return Secret{text}
}

// LettersOf names the topic of a topic's dead letters where none is configured.
func LettersOf(topic string) string { return topic + ".dlq" }

// PredictGroup names the group of those who answer a topic's rows where none is configured.
func PredictGroup(topic, output string) string { return "streamd.predict." + topic + "." + output }
