package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"streamd/kernels/rules/document"
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
	min, max reflect.Value // bounds of a number; invalid: none
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
		path := append(slices.Clip(at), i)
		if field.Anonymous {
			keys = readTags(keys, field.Type, prefix, path)
			continue
		}
		name, ok := field.Tag.Lookup("key")
		if !ok {
			continue
		}
		name = prefix + name
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
	case t == schemaType:
		return "schema"
	case t == reduceType:
		return "reducer"
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

// unknown is the advice on a flag or a name in the file that is no key.
func unknown(kind, name string, withSections bool) string {
	return "unknown " + kind + document.DidYouMean(suggestKeys(name, withSections))
}

// suggestKeys returns the keys that an unknown name may stand for: those that end in it,
// because it may be in the wrong section, or those with a similar spelling.
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
	return document.Nearest(name, candidates)
}

// item is one scalar of a value as it was written: the value itself, an element of a list or
// an entry of a map.
type item struct {
	name         string // key of the entry; maps only
	text         string
	line, column int // place in a file, 1-based
}

// split divides a value from the environment or a flag into items.
func (k *key) split(text string) ([]item, error) {
	switch k.typ.Kind() {
	case reflect.Slice, reflect.Map:
	default:
		return []item{{text: text}}, nil
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var items []item
	for part := range strings.SplitSeq(text, ",") {
		it := item{text: strings.TrimSpace(part)}
		if k.typ.Kind() == reflect.Map {
			// The last = divides: a label may have one, a weight cannot.
			cut := strings.LastIndexByte(it.text, '=')
			if cut < 0 {
				return nil, errors.New("want name=value pairs separated by commas, such as spam=2,ham=1")
			}
			it.name, it.text = strings.TrimSpace(it.text[:cut]), strings.TrimSpace(it.text[cut+1:])
		}
		items = append(items, it)
	}
	return items, nil
}

// items are those that decode makes a value of.
func (k *key) items(v reflect.Value) (items []item) {
	switch k.typ.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			items = append(items, item{text: formatScalar(v.Index(i))})
		}
		return items
	case reflect.Map:
		for _, name := range v.MapKeys() {
			items = append(items, item{name: formatScalar(name), text: formatScalar(v.MapIndex(name))})
		}
		return items
	}
	return []item{{text: formatScalar(v)}}
}

// fault is a problem of one item.
type fault struct {
	item
	message string
}

// decode makes the key's value from its items. The value is valid when there are no
// faults.
func (k *key) decode(items []item) (reflect.Value, []fault) {
	var faults []fault
	scalar := func(t reflect.Type, it item) reflect.Value {
		v, err := parseScalar(t, it.text)
		if k.choices != nil {
			err = k.isChoice(it.text)
		} else if err == nil {
			err = k.inBounds(v)
		}
		if err != nil {
			faults = append(faults, fault{it, err.Error()})
		}
		return v
	}
	switch k.typ.Kind() {
	case reflect.Slice:
		list := reflect.MakeSlice(k.typ, 0, len(items))
		for _, it := range items {
			if it.text == "" {
				faults = append(faults, fault{it, "an entry of the list is empty"})
			}
			list = reflect.Append(list, scalar(k.typ.Elem(), it))
		}
		return list, faults
	case reflect.Map:
		m := reflect.MakeMapWithSize(k.typ, len(items))
		for _, it := range items {
			name, err := parseScalar(k.typ.Key(), it.name)
			switch {
			case err != nil:
				faults = append(faults, fault{it, "name: " + err.Error()})
			case it.name == "":
				faults = append(faults, fault{it, "an entry has no name"})
			case m.MapIndex(name).IsValid():
				faults = append(faults, fault{it, document.Quoted(it.name) + " is given twice"})
			}
			m.SetMapIndex(name, scalar(k.typ.Elem(), it))
		}
		return m, faults
	default:
		return scalar(k.typ, items[0]), faults
	}
}

// isChoice checks a text against the key's choices.
func (k *key) isChoice(text string) error {
	if slices.Contains(k.choices, text) {
		return nil
	}
	return fmt.Errorf("want %s%s", document.OneOf(k.choices), document.DidYouMean(document.Nearest(text, k.choices)))
}

// less compares two numbers of one type.
func less(a, b reflect.Value) bool {
	if a.CanFloat() {
		return a.Float() < b.Float()
	}
	return a.Int() < b.Int()
}

// inBounds checks a number against the key's bounds.
func (k *key) inBounds(v reflect.Value) error {
	if k.min.IsValid() && less(v, k.min) {
		return fmt.Errorf("want at least %s", formatScalar(k.min))
	}
	if k.max.IsValid() && less(k.max, v) {
		return fmt.Errorf("want at most %s", formatScalar(k.max))
	}
	if k.above != nil && v.Float() <= *k.above {
		return fmt.Errorf("want a number greater than %g", *k.above)
	}
	return nil
}
