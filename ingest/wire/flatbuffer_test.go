package wire

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

// TestHostileSchemas: metadata of a few hundred bytes cannot exhaust the stack or the
// memory. The first stream has a field that is its own child, the others announce
// vectors of 2³¹ elements.
func TestHostileSchemas(t *testing.T) {
	const (
		schemaFields   = 1 // of format/Schema.fbs
		fieldChildren  = 5
		fieldMetadata  = 6
		messageHeader  = 2
		vectors        = 1 << 31
		messageHeading = 8 // bytes before the metadata
	)
	whole, err := os.ReadFile("../../testdata/wire/list_named.arrow")
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(f *flatbuffer, schema, list table){
		"a field that is its own child": func(f *flatbuffer, _, list table) {
			child, n := f.vectorField(list, fieldChildren, 4)
			if n != 1 {
				t.Fatalf("%d children", n)
			}
			binary.LittleEndian.PutUint32(f.b[child:], uint32(list.pos-child))
		},
		"children": func(f *flatbuffer, _, list table) {
			start, _ := f.vectorField(list, fieldChildren, 4)
			binary.LittleEndian.PutUint32(f.b[start-4:], vectors)
		},
		"metadata": func(f *flatbuffer, _, list table) {
			start, _ := f.vectorField(list, fieldMetadata, 4)
			binary.LittleEndian.PutUint32(f.b[start-4:], vectors)
		},
		"fields": func(f *flatbuffer, schema, _ table) {
			start, _ := f.vectorField(schema, schemaFields, 4)
			binary.LittleEndian.PutUint32(f.b[start-4:], vectors)
		},
	} {
		t.Run(name, func(t *testing.T) {
			payload := bytes.Clone(whole)
			f := &flatbuffer{b: payload[messageHeading : messageHeading+int(binary.LittleEndian.Uint32(payload[4:]))]}
			schema, _ := f.tableField(f.root(), messageHeader)
			start, n := f.vectorField(schema, schemaFields, 4)
			list := f.element(start, n-1)
			if f.bad {
				t.Fatal("the fixture is not as expected")
			}
			damage(f, schema, list)
			d, err := NewDecoder(Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Decode(Arrow.ContentType(), payload); err == nil {
				t.Error("the stream is accepted")
			}
		})
	}
}
