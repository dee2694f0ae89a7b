package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// Flags adds one flag per key to a kong command. Embed it and set it to NewFlags() before
// kong.New.
//
//	type run struct {
//		Config string `short:"c"`
//		config.Flags
//	}
//
// Kong only collects texts. Load reads them, so that it reports their errors with all
// others. A boolean flag needs no value. A repeated flag adds to a list or a map; for other
// values the last one counts.
type Flags struct {
	kong.Plugins // one pointer to a struct with a field per key
}

// flagText collects the texts of a flag.
type flagText []string

// Decode implements kong.MapperValue.
func (f *flagText) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("value", &text); err != nil {
		return err
	}
	*f = append(*f, text)
	return nil
}

// flagBool is a flagText with an optional value.
type flagBool []string

// IsBool implements kong.BoolMapperValue.
func (*flagBool) IsBool() bool { return true }

// Decode implements kong.MapperValue.
func (f *flagBool) Decode(ctx *kong.DecodeContext) error {
	text := "true"
	if next := ctx.Scan.Peek(); next.Type == kong.FlagValueToken {
		text = fmt.Sprint(ctx.Scan.Pop().Value)
	}
	*f = append(*f, text)
	return nil
}

// flagSwitch is a flagText with an optional value: a Switch.
type flagSwitch []string

// IsBool implements kong.BoolMapperValue.
func (*flagSwitch) IsBool() bool { return true }

// Decode implements kong.MapperValue.
func (f *flagSwitch) Decode(ctx *kong.DecodeContext) error {
	*f = append(*f, switchText(ctx))
	return nil
}

// switchText reads the value of a switch: true without one.
func switchText(ctx *kong.DecodeContext) string {
	next := ctx.Scan.Peek()
	text := fmt.Sprint(next.Value)
	switch Switch(text) {
	case SwitchOn, SwitchOff, SwitchAuto:
		if next.Type == kong.UntypedToken {
			ctx.Scan.Pop()
			return text
		}
	}
	if next.Type == kong.FlagValueToken {
		ctx.Scan.Pop()
		return text
	}
	return string(SwitchOn)
}

// IsBool implements kong.BoolMapperValue, for flags beside those of the configuration.
func (*Switch) IsBool() bool { return true }

// Decode implements kong.MapperValue. A switch without a value is on.
func (s *Switch) Decode(ctx *kong.DecodeContext) error {
	switch *s = Switch(switchText(ctx)); *s {
	case SwitchOn, SwitchOff, SwitchAuto:
		return nil
	}
	return fmt.Errorf("must be false, true or auto, not %s", *s)
}

// flagStruct has a field per key, in the order of the table, tagged for kong.
var flagStruct = func() reflect.Type {
	fields := make([]reflect.StructField, len(table))
	for i, k := range table {
		t := reflect.TypeFor[flagText]()
		if k.typ.Kind() == reflect.Bool {
			t = reflect.TypeFor[flagBool]()
		}
		if k.typ == reflect.TypeFor[Switch]() {
			t = reflect.TypeFor[flagSwitch]()
		}
		help := k.Help
		if k.Default != "" {
			help += " Default: " + k.Default + "."
		}
		group := k.section()
		if group == "" {
			group = "process"
		}
		fields[i] = reflect.StructField{
			Name: fmt.Sprintf("Key%d", i), // the tag has the flag's name for kong
			Type: t,
			Tag: reflect.StructTag(fmt.Sprintf("name:%q help:%q placeholder:%q group:%q",
				k.Name, strings.ReplaceAll(help, "$", "$$"), k.Type, group)),
		}
	}
	return reflect.StructOf(fields)
}()

// NewFlags returns flags without values.
func NewFlags() Flags {
	return Flags{kong.Plugins{reflect.New(flagStruct).Interface()}}
}

// Given returns the flags that were on the command line, for Sources.Flags.
func (f Flags) Given() map[string]string {
	given := map[string]string{}
	values := reflect.ValueOf(f.Plugins[0]).Elem()
	for i, k := range table {
		value := values.Field(i)
		n := value.Len()
		if n == 0 {
			continue
		}
		texts := value.Convert(reflect.TypeFor[[]string]()).Interface().([]string)
		switch k.typ.Kind() {
		case reflect.Slice, reflect.Map:
			given[k.Name] = strings.Join(texts, ",")
		default:
			given[k.Name] = texts[n-1]
		}
	}
	return given
}
