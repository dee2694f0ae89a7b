package config

import (
	"fmt"
	"reflect"
	"strings"

	"streamd/kernels/rules/document"
)

// setting is a key's value in one source.
type setting struct {
	key    *key
	origin origin
	items  []item
	broken bool // a problem was reported; items has the readable rest
}

type loader struct {
	config   *Config
	problems []document.Problem
	bad      map[string]bool // keys with a reported problem, whose consequences are not reported
	noTopic  bool            // see Sources.NoTopic
	noFiles  bool            // the files that keys name are those of another machine
}

// newLoader returns a loader with the defaults.
func newLoader() *loader {
	l := &loader{config: &Config{origins: map[string]origin{}}, bad: map[string]bool{}}
	for _, k := range table {
		k.in(l.config).Set(k.fallback)
	}
	return l
}

// spoil marks a key as bad, or all keys of a section, or all keys if the name is empty.
func (l *loader) spoil(name string) {
	for _, k := range table {
		if name == "" || k.Name == name || strings.HasPrefix(k.Name, name+".") {
			l.bad[k.Name] = true
		}
	}
}

// text sets a key from a variable or a flag.
func (l *loader) text(k *key, origin origin, text string) {
	items, err := k.split(text)
	if err != nil {
		l.bad[k.Name] = true
		l.problems = append(l.problems, document.Problem{Source: origin.Source, Key: k.Name, Value: text, Message: err.Error()})
		return
	}
	l.set(setting{key: k, origin: origin, items: items})
}

func (l *loader) set(s setting) {
	value, faults := s.key.decode(s.items)
	for _, f := range faults {
		l.bad[s.key.Name] = true
		p := document.Problem{Source: s.origin.Source, Line: f.line, Column: f.column, Key: s.key.Name, Value: f.text, Message: f.message}
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

// fault reports a wrong value of a key, unless another problem of the key was reported.
func (l *loader) fault(name, format string, args ...any) {
	if l.bad[name] {
		return
	}
	origin := l.config.origins[name]
	p := document.Problem{Source: origin.Source, Line: origin.Line, Column: origin.Column, Key: name, Message: fmt.Sprintf(format, args...)}
	if k := byName[name]; origin.Source != "" && k.typ.Kind() != reflect.Slice && k.typ.Kind() != reflect.Map {
		p.Value = formatScalar(k.in(l.config))
	}
	l.problems = append(l.problems, p)
}
