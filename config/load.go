package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sources are the inputs of Load.
type Sources struct {
	File         string            // the YAML file; empty: none
	FileRequired bool              // whether File must exist
	Env          []string          // as from os.Environ
	Flags        map[string]string // by key, without dashes: the result of Flags.Given
}

// Problem is one mistake in a configuration.
type Problem struct {
	Source       string // file name, variable, or flag with its dashes; empty: a default or a missing key
	Line, Column int    // 1-based, in a file only
	Key          string // empty: the source as a whole
	Value        string // as it was written; empty: no single value
	Message      string // the mistake and the expected form
}

// String writes the problem on one line, with long names and values cut.
func (p Problem) String() string {
	var b strings.Builder
	if p.Source != "" {
		b.WriteString(shown(p.Source))
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	// The name of a variable or a flag already names the key.
	if p.Key != "" && (p.Source == "" || p.Line > 0) {
		b.WriteString(shown(p.Key) + ": ")
	}
	if p.Value != "" {
		b.WriteString(quoted(p.Value) + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// quoted is the text between quotes, cut to a length that identifies it.
func quoted(text string) string {
	const most = 80 // characters
	if head := []rune(text); len(head) > most {
		return strconv.Quote(string(head[:most])) + "..."
	}
	return strconv.Quote(text)
}

// shown is the text itself unless it would break the line.
func shown(text string) string {
	if len(text) > 256 || strings.ContainsFunc(text, unicode.IsControl) {
		return quoted(text)
	}
	return text
}

// Error has all problems of a configuration: those of the file by position, then those of
// variables, of flags, and of missing keys.
type Error struct {
	Problems []Problem // at least one
	Log      Log       // the log's configuration, with defaults where its own keys are wrong
}

// Error writes one problem per line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxFile bounds the configuration file, and maxSecret the file of a secret, in bytes.
const (
	maxFile   = 1 << 20
	maxSecret = 1 << 12
)

// Load reads and checks the configuration. The error is an *Error.
func Load(from Sources) (*Config, error) {
	l := newLoader()
	if from.File != "" {
		l.file(from.File, from.FileRequired)
	}
	l.environment(from.Env)
	l.flags(from.Flags)
	l.derive()
	l.check()
	l.config.Kafka.SASL.Password = l.secret("kafka.sasl.password_file", password)
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, inOrder)
		return nil, &Error{l.problems, l.config.Log}
	}
	return l.config, nil
}

// setting is a key's value in one source.
type setting struct {
	key    *key
	origin origin
	items  []item
	broken bool // a problem was reported; items has the readable rest
}

type loader struct {
	config   *Config
	problems []Problem
	bad      map[string]bool // keys with a reported problem; its consequences are not reported
}

// newLoader returns a loader with the defaults.
func newLoader() *loader {
	l := &loader{config: &Config{origins: map[string]origin{}}, bad: map[string]bool{}}
	for _, k := range table {
		k.in(l.config).Set(k.fallback)
	}
	return l
}

func (l *loader) file(name string, required bool) {
	data, err := readBounded(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return
	}
	if err != nil {
		l.problems = append(l.problems, Problem{Source: name, Message: err.Error()})
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

// spoil marks a key as bad, or all keys of a section, or all keys if the name is empty.
func (l *loader) spoil(name string) {
	for _, k := range table {
		if name == "" || k.Name == name || strings.HasPrefix(k.Name, name+".") {
			l.bad[k.Name] = true
		}
	}
}

// inOrder sorts problems as Error promises.
func inOrder(p, q Problem) int {
	return cmp.Or(
		cmp.Compare(p.rank(), q.rank()),
		cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.Column, q.Column),
	)
}

func (p Problem) rank() int {
	switch {
	case p.Source == "":
		return 3
	case strings.HasPrefix(p.Source, "--"):
		return 2
	case strings.HasPrefix(p.Source, envPrefix):
		return 1
	default:
		return 0
	}
}

// readBounded reads a small file. Its errors do not repeat the name.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot open: %w", bare(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read: %w", bare(err))
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("larger than %s", Size(most))
	}
	return data, nil
}

func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
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
		message := "unknown variable" + didYouMean(nearest(name, known))
		for key, instead := range retiredKeys {
			if variable(key) == name {
				message = instead
			}
		}
		l.problems = append(l.problems, Problem{Source: name, Key: name, Message: message})
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
			l.problems = append(l.problems, Problem{
				Source:  "--" + name,
				Key:     name,
				Message: unknown("flag", name, false),
			})
		}
	}
}

// text sets a key from a variable or a flag.
func (l *loader) text(k *key, origin origin, text string) {
	items, err := k.split(text)
	if err != nil {
		l.bad[k.Name] = true
		l.problems = append(l.problems, Problem{Source: origin.Source, Key: k.Name, Value: text, Message: err.Error()})
		return
	}
	l.set(setting{key: k, origin: origin, items: items})
}

func (l *loader) set(s setting) {
	value, faults := s.key.decode(s.items)
	for _, f := range faults {
		l.bad[s.key.Name] = true
		p := Problem{Source: s.origin.Source, Line: f.line, Column: f.column, Key: s.key.Name, Value: f.text, Message: f.message}
		if f.name != "" {
			p.Key += "." + f.name
		}
		l.problems = append(l.problems, p)
	}
	if len(faults) == 0 && !s.broken {
		s.key.in(l.config).Set(value)
		l.config.origins[s.key.Name] = s.origin
	}
}

// derive fills in the values that depend on others or on the machine.
func (l *loader) derive() {
	c := l.config
	if c.Kafka.Group == "" {
		c.Kafka.Group = "streamd." + c.Kafka.Topic + "." + c.Model.Name
	}
	if c.Kafka.ClientID == "" {
		c.Kafka.ClientID = "streamd"
		if host, err := os.Hostname(); err == nil && host != "" {
			c.Kafka.ClientID += "-" + host
		}
	}
	if c.DeadLetters.Topic == "" && c.Kafka.Topic != "" {
		c.DeadLetters.Topic = c.Kafka.Topic + ".dlq"
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
	data, err := readBounded(file, maxSecret)
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

// fault reports a wrong value of a key, unless another problem of the key was reported.
func (l *loader) fault(name, format string, args ...any) {
	if l.bad[name] {
		return
	}
	origin := l.config.origins[name]
	p := Problem{Source: origin.Source, Line: origin.Line, Column: origin.Column, Key: name, Message: fmt.Sprintf(format, args...)}
	if k := byName[name]; origin.Source != "" && k.typ.Kind() != reflect.Slice && k.typ.Kind() != reflect.Map {
		p.Value = formatScalar(k.in(l.config))
	}
	l.problems = append(l.problems, p)
}
