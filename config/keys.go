package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// envPrefix begins the name of every environment variable.
const envPrefix = "STREAMD_"

// FileVariable may name the configuration file. Load ignores it: the caller chooses the
// file.
const FileVariable = envPrefix + "CONFIG"

// URLVariable may have a daemon's address for its clients. Load ignores it: a daemon and its
// clients often share an environment.
const URLVariable = envPrefix + "URL"

// key has the tags of one field of Config.
type key struct {
	Name    string // kafka.max_message_bytes
	Flag    string // --kafka.max_message_bytes
	Env     string // STREAMD_KAFKA_MAX_MESSAGE_BYTES
	Type    string // string, bool, int, number or auto, kernel, roles, size, duration, list, map, or the choices: a|b|c
	Default string // as written in the environment or in a flag
	Help    string // one or two sentences

	typ      reflect.Type
	index    []int // place of the field in Config
	fallback reflect.Value
	choices  []string      // nil: none are listed
	min, max reflect.Value // bounds of a whole number; invalid: none
	above    *float64      // strict lower bound of a number; nil: none
}

func (k *key) in(c *Config) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(k.index) }

// section is the part of the name before the last dot.
func (k *key) section() string {
	return k.Name[:max(0, strings.LastIndexByte(k.Name, '.'))]
}

var (
	table    = readTags(nil, reflect.TypeFor[Config](), "", nil)
	byName   = indexBy(func(k *key) string { return k.Name })
	_        = indexBy(func(k *key) string { return k.Env }) // no two keys have the same variable
	sections = sectionNames()
)

// readTags appends the keys of a struct to the table. A wrong tag is a mistake in this
// package and panics at start.
func readTags(keys []*key, t reflect.Type, prefix string, at []int) []*key {
	for i := range t.NumField() {
		field := t.Field(i)
		name, ok := field.Tag.Lookup("key")
		if !ok {
			continue
		}
		name = prefix + name
		path := append(slices.Clip(at), i)
		if field.Type.Kind() == reflect.Struct {
			keys = readTags(keys, field.Type, name+".", path)
			continue
		}
		k := &key{
			Name:    name,
			Flag:    "--" + name,
			Env:     variable(name),
			Type:    typeName(field.Type),
			Default: field.Tag.Get("default"),
			Help:    field.Tag.Get("help"),
			typ:     field.Type,
			index:   path,
		}
		if choices := field.Tag.Get("choices"); choices != "" {
			k.Type, k.choices = choices, strings.Split(choices, "|")
		}
		k.min = k.bound(field.Tag.Get("min"))
		k.max = k.bound(field.Tag.Get("max"))
		if text, ok := field.Tag.Lookup("above"); ok {
			least, err := strconv.ParseFloat(text, 64)
			if err != nil {
				panic(fmt.Sprintf("config: bound of %s: %v", name, err))
			}
			k.above = &least
		}
		items, err := k.split(k.Default)
		value, faults := k.decode(items)
		if err != nil || len(faults) > 0 || k.Help == "" {
			panic(fmt.Sprintf("config: tags of %s: %v %v", name, err, faults))
		}
		k.fallback = value
		keys = append(keys, k)
	}
	return keys
}

// variable is the name of a key's environment variable.
func variable(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

func (k *key) bound(text string) reflect.Value {
	if text == "" {
		return reflect.Value{}
	}
	v, err := parseScalar(k.typ, text)
	if err != nil {
		panic(fmt.Sprintf("config: bound of %s: %v", k.Name, err))
	}
	return v
}

func typeName(t reflect.Type) string {
	switch {
	case t == durationType:
		return "duration"
	case t == sizeType:
		return "size"
	case t == nuType:
		return "number or auto"
	case t == functionType:
		return "kernel"
	case t == rolesType:
		return "roles"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	case reflect.Int, reflect.Int64:
		return "int"
	default:
		return t.Kind().String()
	}
}

func indexBy(name func(*key) string) map[string]*key {
	m := make(map[string]*key, len(table))
	for _, k := range table {
		if m[name(k)] != nil {
			panic("config: two keys named " + name(k))
		}
		m[name(k)] = k
	}
	return m
}

func sectionNames() map[string]bool {
	names := map[string]bool{}
	for _, k := range table {
		for s := k.section(); s != ""; s = s[:max(0, strings.LastIndexByte(s, '.'))] {
			names[s] = true
		}
	}
	return names
}

// names lists all keys in one of their three forms.
func names(of func(*key) string) []string {
	list := make([]string, len(table))
	for i, k := range table {
		list[i] = of(k)
	}
	return list
}

// retiredKeys has the keys of earlier versions with advice on their replacement.
var retiredKeys = map[string]string{
	"http.admin_token_file": "is no key any more: set http.tokens_file to a file with the line \"ops admin TOKEN\", and http.anonymous: read+predict if reading and predicting shall stay open",
}

// unknown is the advice on a flag or a name in the file that is no key.
func unknown(kind, name string, withSections bool) string {
	if instead, ok := retiredKeys[name]; ok {
		return instead
	}
	return "unknown " + kind + didYouMean(suggestKeys(name, withSections))
}

// suggestKeys returns the keys that an unknown name may mean: those that end in it, since it
// may be in the wrong section, or those with a similar spelling.
func suggestKeys(name string, withSections bool) []string {
	candidates := names(func(k *key) string { return k.Name })
	if withSections {
		candidates = append(candidates, slices.Sorted(maps.Keys(sections))...)
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	var same []string
	for _, c := range candidates {
		if strings.HasSuffix(c, "."+last) {
			same = append(same, c)
		}
	}
	if len(same) > 0 {
		return same
	}
	return nearest(name, candidates)
}

// nearest returns the candidates with the fewest edits from name, if these are few for its
// length.
func nearest(name string, candidates []string) []string {
	const longest = 64 // bytes; bounds the work for a hostile file
	if len(name) > longest {
		return nil
	}
	best := 1 + len(name)/6
	var near []string
	for _, c := range candidates {
		switch d := edits(strings.ToLower(name), strings.ToLower(c)); {
		case d < best:
			best, near = d, []string{c}
		case d == best:
			near = append(near, c)
		}
	}
	return near
}

// edits is the number of insertions, deletions, replacements and swaps of neighbouring bytes
// that turn a into b (Damerau 1964).
func edits(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

func didYouMean(names []string) string {
	const most = 3 // more are no hint
	if len(names) == 0 || len(names) > most {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}
