package wire

import (
	"fmt"
	"mime"
	"slices"
	"strings"
)

// Format is a block format. Its number is persistent: it may be stored.
type Format uint8

// The formats. Zero is none.
const (
	Arrow  Format = 1
	JSON   Format = 2
	CSV    Format = 3
	LIBSVM Format = 4
	Avro   Format = 5

	Protobuf Format = 6
)

var formats = [...]struct {
	name        string
	contentType string
}{
	Arrow:  {"arrow", "application/vnd.apache.arrow.stream"},
	JSON:   {"json", "application/json"},
	CSV:    {"csv", "text/csv"},
	LIBSVM: {"libsvm", "application/x-libsvm"},
	Avro:   {"avro", "application/avro"},

	Protobuf: {"protobuf", "application/x-protobuf"},
}

const ndjsonContentType = "application/x-ndjson"

// moreContentTypes are further content types of formats.
var moreContentTypes = map[string]Format{
	ndjsonContentType:                    JSON,
	"avro/binary":                        Avro,
	"application/vnd.apache.avro+binary": Avro,
	"application/protobuf":               Protobuf,
	"application/vnd.google.protobuf":    Protobuf,
}

// Formats lists the formats that an Encoder writes, by id.
func Formats() []Format { return []Format{Arrow, JSON, CSV, LIBSVM} }

// String is the format's name: arrow, json, csv, libsvm, avro or protobuf.
func (f Format) String() string {
	if f.known() {
		return formats[f].name
	}
	return fmt.Sprintf("format %d", uint8(f))
}

// ContentType is the format's content type, for producers to declare. It is empty for
// an unknown format.
func (f Format) ContentType() string {
	if f.known() {
		return formats[f].contentType
	}
	return ""
}

// valid is whether an Encoder writes the format.
func (f Format) valid() bool { return f >= Arrow && f <= LIBSVM }

// known is whether a Decoder reads the format.
func (f Format) known() bool { return f >= Arrow && f <= Protobuf }

// ParseFormat is the inverse of String.
func ParseFormat(name string) (Format, error) {
	for f := Arrow; f.known(); f++ {
		if formats[f].name == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("unknown block format %q: want arrow, json, csv, libsvm, avro or protobuf", name)
}

// HeaderMode says whether CSV starts with a header line.
type HeaderMode uint8

// The header modes.
const (
	HeaderAuto HeaderMode = iota // decided by the first line, see the package comment
	HeaderPresent
	HeaderAbsent
)

var headerNames = []string{"auto", "present", "absent"}

// ParseHeader reads a header mode: auto, present or absent.
func ParseHeader(name string) (HeaderMode, error) {
	i := slices.Index(headerNames, name)
	if i < 0 {
		return 0, fmt.Errorf("%q says nothing about a header: want auto, present or absent", name)
	}
	return HeaderMode(i), nil
}

// FormatOf reads a content type. False: it is none of the formats'. The header
// mode is HeaderAuto unless the type is CSV's and declares otherwise.
func FormatOf(contentType string) (Format, HeaderMode, bool) {
	for f := Arrow; f.known(); f++ { // as our own producers write it: no parsing
		if contentType == formats[f].contentType {
			return f, HeaderAuto, true
		}
	}
	media, rest, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if f, ok := moreContentTypes[media]; ok {
		return f, HeaderAuto, true
	}
	for f := Arrow; f.known(); f++ {
		if media != formats[f].contentType {
			continue
		}
		header := HeaderAuto
		if f == CSV && rest != "" {
			// Parameters that cannot be parsed are ignored like all others.
			_, params, _ := mime.ParseMediaType(contentType)
			if mode, err := ParseHeader(strings.ToLower(params["header"])); err == nil {
				header = mode
			}
		}
		return f, header, true
	}
	return 0, HeaderAuto, false
}
