package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parameter is a query parameter of a route. Its text is checked before the handler is
// called, so that handlers get a T from of, and never an error.
type parameter[T any] struct {
	name, meaning string
	kind          *kind[T]
	otherwise     T    // the default
	required      bool // the route refuses a query without it
}

// kind is the syntax of a parameter's text.
type kind[T any] struct {
	noun string // for errors
	// parse may fail with a failure. Its message then stands in place of the noun.
	parse  func(text string) (T, error)
	schema map[string]any // for the document
}

// described is a parameter of any type, for the mux and the document.
type described interface {
	// describe gives also the schema of the values and the default, nil when there is
	// none to show.
	describe() (name, meaning string, schema map[string]any, otherwise any)
	// needed says whether the route refuses a query without it.
	needed() bool
	// check refuses a text that is no value.
	check(text string) error
}

var (
	anyText = &kind[string]{
		parse:  func(text string) (string, error) { return text, nil },
		schema: map[string]any{"type": "string"},
	}
	trueOrFalse = &kind[bool]{
		noun: "true or false",
		parse: func(text string) (bool, error) {
			if text != "true" && text != "false" {
				return false, strconv.ErrSyntax
			}
			return text == "true", nil
		},
		schema: map[string]any{"type": "boolean"},
	}
	columnsOrRows = &kind[string]{
		noun: "columns or rows",
		parse: func(text string) (string, error) {
			if text != "columns" && text != "rows" {
				return "", strconv.ErrSyntax
			}
			return text, nil
		},
		schema: map[string]any{"type": "string", "enum": []string{"columns", "rows"}},
	}
	wholeNumber = &kind[int]{
		noun: "a whole number from 1 to 2147483647",
		parse: func(text string) (int, error) {
			n, err := strconv.ParseInt(text, 10, 32)
			if err == nil && n < 1 {
				err = strconv.ErrRange
			}
			return int(n), err
		},
		schema: map[string]any{"type": "integer", "minimum": 1, "maximum": 1<<31 - 1},
	}
	// patience is a duration in the syntax of time.ParseDuration, without a sign.
	patience = &kind[time.Duration]{
		noun: "a duration such as 30s",
		parse: func(text string) (time.Duration, error) {
			if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
				return 0, strconv.ErrSyntax
			}
			return time.ParseDuration(text)
		},
		schema: map[string]any{"type": "string", "pattern": `^(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`, "examples": []string{"30s"}},
	}
)

// oneOf is the kind of a text that is one of some words.
func oneOf(words ...string) *kind[string] {
	return &kind[string]{
		noun: "one of " + strings.Join(words, ", "),
		parse: func(text string) (string, error) {
			if !slices.Contains(words, text) {
				return "", strconv.ErrSyntax
			}
			return text, nil
		},
		schema: map[string]any{"type": "string", "enum": words},
	}
}

// of is the parameter's value in r.
func (p *parameter[T]) of(r *http.Request) T {
	text, given := r.URL.Query()[p.name]
	if !given {
		return p.otherwise
	}
	v, err := p.kind.parse(text[0])
	if err != nil {
		panic(fmt.Sprintf("httpapi: %s=%q was not checked", p.name, text[0])) // the route does not list it
	}
	return v
}

func (p *parameter[T]) check(text string) error {
	_, err := p.kind.parse(text)
	if err == nil {
		return nil
	}
	if why, ok := errors.AsType[*failure](err); ok {
		return fail(CodeBadRequest, "%s=%q: %s", p.name, text, why.message)
	}
	return fail(CodeBadRequest, "%s=%q is not %s", p.name, text, p.kind.noun)
}

func (p *parameter[T]) describe() (name, meaning string, schema map[string]any, otherwise any) {
	switch v := any(p.otherwise).(type) {
	case time.Duration:
		if p.check(v.String()) == nil { // not a zero that stands for none
			otherwise = v.String()
		}
	case bool:
		otherwise = v
	case string:
		if v != "" {
			otherwise = v
		}
	case int:
		if v > 0 {
			otherwise = v
		}
	}
	return p.name, p.meaning, p.kind.schema, otherwise
}

func (p *parameter[T]) needed() bool { return p.required }

// checkQuery refuses a query that is malformed, has an unknown parameter, or has one
// twice. A mistyped parameter must not pass for one that is left out.
func checkQuery(r *http.Request, known []described) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fail(CodeBadRequest, "the query cannot be read: %v", err)
	}
	check := map[string]func(string) error{}
	var names []string
	for _, p := range known {
		name, _, _, _ := p.describe()
		check[name] = p.check
		names = append(names, name)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		texts := given[name]
		switch {
		case check[name] == nil && len(names) == 0:
			return fail(CodeBadRequest, "unknown query parameter %q: this call has none", name)
		case check[name] == nil:
			return fail(CodeBadRequest, "unknown query parameter %q: those of this call are %s", name, strings.Join(names, ", "))
		case len(texts) > 1:
			return fail(CodeBadRequest, "query parameter %s is given %d times", name, len(texts))
		}
		if err := check[name](texts[0]); err != nil {
			return err
		}
	}
	return nil
}
