package wire

import (
	"fmt"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/registry"
)

// Table is a block without labels.
type Table struct {
	Features []string // names of the columns, as a block has them
	Columns  []gram.Column
	Rows     int
	Weights  []float64 // only with Options.WeighUnlabelled; nil: all weigh 1
}

// Decoder makes blocks of payloads. See the package comment for who owns the
// memory.
type Decoder struct {
	builder
	rows  textRows
	csv   csvReader
	json  jsonReader
	arrow arrowReader
	avro  avroReader
	proto protoReader

	schema *registry.Schema // of the last framed payload; nil: there was none
}

// NewDecoder checks the options and makes a decoder.
func NewDecoder(opts Options) (*Decoder, error) {
	opts.Limits = opts.Limits.withDefaults()
	if err := opts.Limits.check(); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	if opts.Format != 0 && !opts.Format.known() {
		return nil, fmt.Errorf("decoder: unknown %v", opts.Format)
	}
	if opts.Header > HeaderAbsent {
		return nil, fmt.Errorf("decoder: unknown header mode %d", opts.Header)
	}
	if err := CheckComment(opts.Comment); err != nil {
		return nil, fmt.Errorf("decoder: comments: %w", err)
	}
	if err := opts.Numbers.Check(); err != nil {
		return nil, fmt.Errorf("decoder: numbers: %w", err)
	}
	if opts.Label == "" {
		opts.Label = defaultLabel
	}
	if opts.Label == opts.Weight {
		return nil, fmt.Errorf("decoder: %q is both the label and the weight", opts.Label)
	}
	if err := CheckUnlabelledText(opts.UnlabelledText); err != nil {
		return nil, fmt.Errorf("decoder: the text for no label: %w", err)
	}
	for _, pattern := range opts.Ignore {
		if err := CheckPattern(pattern); err != nil {
			return nil, fmt.Errorf("decoder: %w", err)
		}
	}
	if opts.AsTexts {
		opts.Missing = Missing{Default: MissingNaN}
		return newDecoder(opts, features{}), nil
	}
	if opts.Schema != nil {
		opts, want, err := withSchema(opts)
		if err != nil {
			return nil, err
		}
		return newDecoder(opts, want), nil
	}
	if opts.Features == nil {
		return newDecoder(opts, features{}), nil
	}
	n := len(opts.Features)
	if n == 0 || n > opts.Limits.Features {
		return nil, fmt.Errorf("decoder: %d features: want 1 to %d", n, opts.Limits.Features)
	}
	if err := opts.checkNames(opts.Features); err != nil {
		return nil, err
	}
	columns := opts.Missing.Columns(opts.Features)
	if len(columns) > opts.Limits.Features {
		return nil, fmt.Errorf("decoder: %d features with the marks of missing values: want up to %d", len(columns), opts.Limits.Features)
	}
	list, twice := newNames(opts.Missing.Base(columns))
	if twice != "" {
		return nil, fmt.Errorf("decoder: feature %q is named twice", twice)
	}
	return newDecoder(opts, features{names: list, width: len(list.list), columns: columns}), nil
}

// checkNames says why a payload's columns of these names cannot be features.
func (o *Options) checkNames(list []string) error {
	for _, name := range list {
		if name == o.Label || name == o.Weight {
			return fmt.Errorf("decoder: feature %q is also the label or the weight", name)
		}
		if Matches(o.Ignore, name) {
			return fmt.Errorf("decoder: feature %q is also to be ignored", name)
		}
	}
	return nil
}

// newDecoder makes a decoder of options that have been checked.
func newDecoder(opts Options, want features) *Decoder {
	d := &Decoder{builder: builder{opts: opts, want: want, labels: newLabels(&opts)}}
	d.choose()
	d.prepareSchema()
	d.rows.builder = &d.builder
	d.csv.textRows, d.json.textRows = &d.rows, &d.rows
	d.arrow.builder = &d.builder
	d.avro.textRows, d.proto.textRows = &d.rows, &d.rows
	return d
}

// defaultLabel is the label's name where the options have none.
const defaultLabel = "label"

// Doubt says how the decoder took the first payload that could also mean something else, and which
// setting decides it. It is empty where there was none.
func (d *Decoder) Doubt() string { return d.doubt }

// Decode makes a block of a payload. The content type may be empty if the options name a format.
// The block's position is left unset. The error is an *Error, or the *registry.AwayError of
// Options.Schemas; the decoder stays usable.
func (d *Decoder) Decode(contentType string, payload []byte) (*incremental.Block, error) {
	d.unlabelled = false
	if err := d.decode(contentType, payload); err != nil {
		return nil, err
	}
	return &d.block, nil
}

// DecodeUnlabelled is Decode for rows whose labels are unknown or of no
// interest: a label is ignored where there is one, and so is a weight unless
// Options.WeighUnlabelled is set. CSV without a
// header has a label if it has one column more than Options.Features; with
// Features nil it has none.
func (d *Decoder) DecodeUnlabelled(contentType string, payload []byte) (Table, error) {
	d.unlabelled = true
	if err := d.decode(contentType, payload); err != nil {
		return Table{}, err
	}
	return Table{Features: d.block.Features, Columns: d.block.Columns, Rows: d.block.Columns[0].Len(), Weights: d.block.Weights}, nil
}

func (d *Decoder) decode(contentType string, payload []byte) error {
	d.format = 0
	if len(payload) > d.opts.Limits.Bytes {
		return d.fail(-1, "", "the payload has %d bytes, the limit is %d", len(payload), d.opts.Limits.Bytes)
	}
	if len(payload) == 0 {
		return d.fail(-1, "", "the payload is empty")
	}
	if payload[0] == 0 && !d.isRaw(contentType) {
		return d.framed(contentType, payload)
	}
	format, header := d.opts.Format, HeaderAuto
	if contentType != "" {
		var ok bool
		if format, header, ok = FormatOf(contentType); !ok {
			return d.unsupported(contentType)
		}
	} else if opensAvroFile(payload) { // it says itself what it is
		format = Avro
	} else if format == 0 {
		return d.fail(-1, "", "there is no content type and no format is configured")
	}
	d.begin(format, payload)
	d.arrow.dictionary = scalars{} // these may view memory of the last payload
	clear(d.arrow.dictionaries)
	if format < Avro && format != Arrow && opensArrow(payload) {
		return d.fail(-1, "", "this is an Arrow stream, whose content type is %s", Arrow.ContentType())
	}
	err := d.decodeAs(format, header, payload)
	if err == nil {
		return nil
	}
	if IsParquet(payload) && format < Avro {
		return d.fail(-1, "", "this is a Parquet file, which fits no message: send its rows as an Arrow stream, as streamd replay file does")
	}
	if name := otherFormat(payload); name != "" && format < Avro {
		return d.fail(-1, "", "the payload is %s", name)
	}
	return err
}

func (d *Decoder) unsupported(contentType string) *Error {
	return d.fail(-1, "", "content type %s is not supported: want %s, %s, %s, %s, %s, %s or %s", quoted([]byte(contentType)),
		Arrow.ContentType(), JSON.ContentType(), ndjsonContentType, CSV.ContentType(), LIBSVM.ContentType(), Avro.ContentType(), Protobuf.ContentType())
}

// decodeAs decodes a payload of the format.
func (d *Decoder) decodeAs(format Format, header HeaderMode, payload []byte) error {
	switch format {
	case Arrow:
		return d.arrow.decode(payload)
	case JSON:
		return d.json.decode()
	case CSV:
		if header == HeaderAuto {
			header = d.opts.Header
		}
		d.rows.endLines(true)
		return d.csv.decode(header)
	case Avro:
		return plainly(d.avro.bare(payload))
	case Protobuf:
		return plainly(d.proto.bare(payload))
	default:
		if d.labels.rows && !d.unlabelled {
			return d.fail(-1, d.opts.Label, "a row of LIBSVM has no place for an id")
		}
		d.rows.endLines(false)
		return d.rows.decodeLIBSVM()
	}
}

// begin starts a block of a payload, or of a text that is set later.
func (d *Decoder) begin(format Format, payload []byte) {
	d.builder.begin(format)
	d.rows.reset(payload)
	d.arrow.reset()
}
