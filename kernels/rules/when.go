package rules

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"streamd/kernels/rules/document"
)

// parseWhen reads the conditions of a rule:
//
//	conditions = comparison { "and" comparison }
//	comparison = sum relation sum [ relation sum ]
//	relation   = "<=" | ">=" | "="
//	sum        = [ "+" | "-" ] term { ( "+" | "-" ) term }
//	term       = number [ "*" feature ] | feature
//	feature    = word | "`" any text "`"
//
// A word is a letter or _, followed by letters, digits, _ and dots.
func parseWhen(text string) ([]comparison, error) {
	if len(text) > maxWhen {
		return nil, fmt.Errorf("has %d bytes, more than %d; divide the rule", len(text), maxWhen)
	}
	p := whenParser{rest: text}
	if err := p.next(); err != nil {
		return nil, err
	}
	var all []comparison
	for {
		some, err := p.comparison()
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		switch p.token {
		case "":
			return all, nil
		case "and":
			if err := p.next(); err != nil {
				return nil, err
			}
		default:
			return nil, p.unexpected("and, or the end")
		}
	}
}

// whenParser reads one token after the other.
type whenParser struct {
	rest  string // after the token
	token string // sign, number, word; empty: the end
	kind  kindOfToken
	name  string // of a feature
}

type kindOfToken int

const (
	signToken kindOfToken = iota
	numberToken
	featureToken
)

func (p *whenParser) next() error {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	if p.rest == "" {
		p.token, p.kind = "", signToken
		return nil
	}
	take := func(length int, kind kindOfToken) {
		p.token, p.rest, p.kind = p.rest[:length], p.rest[length:], kind
	}
	first, size := utf8.DecodeRuneInString(p.rest)
	switch {
	case first == '`':
		end := strings.IndexByte(p.rest[1:], '`')
		if end < 1 {
			return fmt.Errorf("after %s a name and a closing backquote are missing", document.Quoted(p.rest))
		}
		p.name = p.rest[1 : 1+end]
		take(end+2, featureToken)
	case unicode.IsLetter(first) || first == '_':
		length := wordLength(p.rest)
		p.name = p.rest[:length]
		take(length, featureToken)
		if p.token == "and" {
			p.kind = signToken
		}
	case first >= '0' && first <= '9' || first == '.':
		take(numberLength(p.rest), numberToken)
	case strings.HasPrefix(p.rest, "<=") || strings.HasPrefix(p.rest, ">="):
		take(2, signToken)
	case strings.HasPrefix(p.rest, "=="):
		return errors.New("an equation has one sign: write = instead of ==")
	case first == '≤' || first == '≥':
		return fmt.Errorf("write <= or >= instead of %c", first)
	case first == '<' || first == '>':
		return fmt.Errorf("a set has its border: write %c= instead of %c", first, first)
	case strings.ContainsRune("=+-*", first):
		take(size, signToken)
	default:
		return fmt.Errorf("%s begins with neither a number, a feature nor a sign; write names like `this one` in backquotes", document.Quoted(p.rest))
	}
	return nil
}

// isWord reports whether a name needs no backquotes.
func isWord(name string) bool {
	return name != "" && name != "and" && wordLength(name) == len(name)
}

// wordLength is the length of the word that a text begins with.
func wordLength(text string) int {
	for i, c := range text {
		if !(unicode.IsLetter(c) || c == '_' || i > 0 && (unicode.IsDigit(c) || c == '.')) {
			return i
		}
	}
	return len(text)
}

// numberLength is the length of the number that a text begins with.
func numberLength(text string) int {
	length := 0
	for length < len(text) {
		c := text[length]
		exponent := (c == '+' || c == '-') && length > 0 && (text[length-1] == 'e' || text[length-1] == 'E')
		if !(c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || exponent) {
			break
		}
		length++
	}
	return length
}

func (p *whenParser) unexpected(want string) error {
	if p.token == "" {
		return fmt.Errorf("want %s; found the end", want)
	}
	return fmt.Errorf("want %s; found %s", want, document.Quoted(p.token+p.rest))
}

// comparison reads a comparison, or the two of low <= sum <= high.
func (p *whenParser) comparison() ([]comparison, error) {
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	var all []comparison
	for before := ""; len(all) < 2; {
		relation := p.token
		if relation != "<=" && relation != ">=" && relation != "=" {
			if all != nil {
				break
			}
			return nil, p.unexpected("<=, >= or =")
		}
		if all != nil && (relation == "=" || relation != before) {
			return nil, fmt.Errorf("%s after %s: a comparison of three sums goes up, a <= b <= c, or down", relation, before)
		}
		before = relation
		if err := p.next(); err != nil {
			return nil, err
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		c, err := compare(left, relation, right)
		if err != nil {
			return nil, err
		}
		all, left = append(all, c), right
	}
	return all, nil
}

// linear is a sum of features, in their order, and a number.
type linear struct {
	terms  []factor
	number float64
}

// add adds a feature, or a number for an empty name.
func (s *linear) add(feature string, value float64) {
	if feature == "" {
		s.number += value
		return
	}
	for i := range s.terms {
		if s.terms[i].feature == feature {
			s.terms[i].factor += value
			return
		}
	}
	s.terms = append(s.terms, factor{feature, value})
}

func (p *whenParser) sum() (linear, error) {
	var s linear
	for first := true; ; first = false {
		sign := 1.0
		switch {
		case p.token == "+" || p.token == "-":
			if p.token == "-" {
				sign = -1
			}
			if err := p.next(); err != nil {
				return s, err
			}
		case !first:
			return s, nil
		}
		value, feature := 1.0, ""
		switch p.kind {
		case featureToken:
			feature = p.name
		case numberToken:
			var err error
			if value, err = strconv.ParseFloat(p.token, 64); err != nil {
				return s, fmt.Errorf("%s is not a finite number", document.Quoted(p.token))
			}
		default:
			return s, p.unexpected("a number or a feature")
		}
		number := p.kind == numberToken
		if err := p.next(); err != nil {
			return s, err
		}
		if number && p.token == "*" {
			if err := p.next(); err != nil {
				return s, err
			}
			if p.kind != featureToken {
				return s, p.unexpected("a feature")
			}
			feature = p.name
			if err := p.next(); err != nil {
				return s, err
			}
		}
		s.add(feature, sign*value)
	}
}

// compare brings features to the left and numbers to the right. The first factor is positive.
func compare(left linear, relation string, right linear) (comparison, error) {
	c := comparison{relation: relation, bound: right.number - left.number}
	difference := linear{terms: append([]factor(nil), left.terms...)}
	for _, term := range right.terms {
		difference.add(term.feature, -term.factor)
	}
	for _, term := range difference.terms {
		if term.factor != 0 {
			c.terms = append(c.terms, term)
		}
	}
	if len(c.terms) == 0 {
		return c, errors.New("a comparison has no feature, or its features cancel out")
	}
	for _, term := range c.terms {
		if math.Abs(term.factor) > math.MaxFloat64 {
			return c, fmt.Errorf("the factor of %s is too large", document.Quoted(term.feature))
		}
	}
	if math.Abs(c.bound) > math.MaxFloat64 {
		return c, errors.New("a bound is too large")
	}
	if c.terms[0].factor < 0 { // 4 <= tumor reads tumor >= 4
		c.bound = 0 - c.bound
		for i := range c.terms {
			c.terms[i].factor = -c.terms[i].factor
		}
		c.relation = map[string]string{"<=": ">=", ">=": "<=", "=": "="}[relation]
	}
	return c, nil
}
