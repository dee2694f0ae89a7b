package registrytest

import (
	"encoding/json"
	"strings"
)

// jsonTypes are the types of JSON Schema of Connect's.
var jsonTypes = map[string]string{
	"int8": "integer", "int16": "integer", "int32": "integer", "int64": "integer", "float": "number", "double": "number",
	"boolean": "boolean", "string": "string", "bytes": "string", "struct": "object",
}

// inJSONSchema is the JSON Schema of a type, which is the property of an index; −1: it is none.
func (t *connectType) inJSONSchema(index int) map[string]any {
	of := map[string]any{"type": jsonTypes[t.Type]}
	switch t.Type {
	case "struct":
		properties := map[string]any{}
		for i := range t.Fields {
			properties[t.Fields[i].Field] = t.Fields[i].inJSONSchema(i)
		}
		of["properties"] = properties
	case "float":
		of["connect.type"] = "float32"
	case "double":
		of["connect.type"] = "float64"
	case "int8", "int16", "int32", "int64", "bytes":
		of["connect.type"] = t.Type
	}
	if t.Name != "" {
		of["title"], of["connect.version"] = t.Name, 1
	}
	if len(t.Parameters) > 0 {
		of["connect.parameters"] = t.Parameters
	}
	if t.Optional {
		of = map[string]any{"oneOf": []any{map[string]any{"type": "null"}, of}}
	}
	if index >= 0 {
		of["connect.index"] = index
	}
	return of
}

// appendJSON appends a value in the order of the schema.
func (t *connectType) appendJSON(dst []byte, v any) ([]byte, error) {
	fields, ok := v.(map[string]any)
	if !ok {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		err := e.Encode(v)
		return append(dst, strings.TrimSuffix(text.String(), "\n")...), err
	}
	dst = append(dst, '{')
	for i := range t.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		f := &t.Fields[i]
		name, err := json.Marshal(f.Field)
		if err == nil {
			dst, err = f.appendJSON(append(append(dst, name...), ':'), fields[f.Field])
		}
		if err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}
