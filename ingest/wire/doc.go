// Package wire turns payloads into blocks and blocks into payloads.
//
// # Formats
//
// Six formats, each with a persistent id (Format) and a content type:
//
//	1 arrow   application/vnd.apache.arrow.stream
//	2 json    application/json, application/x-ndjson
//	3 csv     text/csv, with the parameter header=present or header=absent
//	4 libsvm  application/x-libsvm
//	5 avro    application/avro, avro/binary, application/vnd.apache.avro+binary
//
//	6 protobuf  application/x-protobuf, application/protobuf, application/vnd.google.protobuf
//
// A block whose rows were summed elsewhere is no format of rows: package summary has it.
//
// Parameters of a content type other than CSV's header are ignored. A payload that opens with a
// zero byte is framed for a schema registry (package registry). Options.Schemas says which format
// is behind the frame; without it such a payload is refused under that name, never misread.
//
// Arrow: an IPC stream of one or several record batches with a label column and
// columns of features. Columns are integers, floats, booleans, decimals, dates, time
// stamps or texts (utf8, large_utf8, utf8_view), a dictionary of those, or lists of
// integers or floats (list, large_list, fixed_size_list). The fields of a struct are columns with
// their names behind the struct's: address.country. In a struct that is null they are missing,
// whatever they have there. Structs nest up to 32 deep. Bodies may be compressed (LZ4 frame,
// Zstandard).
//
// JSON: one row, an array of rows, or one row per line, where a row is
// {"label": 1, "features": [0.5, 2]} or {"label": "spam", "len": 3.5, "caps": 0}.
// The second form names its features. Rows without labels may also be arrays in an
// array, [[0.5, 2], [1, 3]]: the numbers of all features in their order.
//
// CSV: RFC 4180; lines end in LF, CRLF or, without exception, in CR. Empty lines count for
// nothing, nor do those that begin with Options.Comment. Blanks around an unquoted field are
// dropped. Commas separate fields if the first line has one outside of quotes, else tabs,
// semicolons or bars (|): the first of these that it has. A line sep=; before all others names
// the separator. Decimals have a point and thousands nothing, unless Options.Numbers says
// otherwise.
//
// The first line of CSV is a header where the content type or Options.Header declares it, else
// where it has the label's name, or texts and no numbers. A label that is a place (first, last or
// a number) is no name, and one that rows can have for a value (0, -1, 1.0, NA) is one only in a
// line of texts. A line that could be both a header and a row is refused; one that is
// probably one of them is taken so, and Decoder.Doubt tells. The rule is a table in
// csv_header.go.
//
// LIBSVM: "label index:value …" per line, indices from 1 and ascending, absent
// ones zero, "#" opens a comment. A label with a comma is refused: it would be
// several, or a line of CSV taken for a label without features.
//
// Avro: a record, which is a row, or an array of records, in the binary encoding, behind a frame,
// as a single object (C3 01 and the fingerprint of the schema) or bare; or a container file, whose
// blocks may be compressed (deflate, snappy, zstandard). A file has its schema in its head and
// needs no content type. The schema of a frame is in Options.Schemas, and that of others is
// Options.Written. A record within a record has its fields' names behind its own: address.country.
// Maps, records in arrays, unions of several records, and records within themselves are no columns
// and have to be ignored. Fields that are ignored are passed over without being decoded.
//
// Protobuf: a message, which is a row, behind a frame and the indexes of its type, or bare.
// Messages within it are as Avro's records within records, and unknown fields are passed over. An
// absent field has its default where the language gives it one, as proto3 does without optional;
// it is missing where it has presence, as with optional, in a oneof, in wrappers and in messages
// that are absent as a whole.
//
// A byte order mark before JSON, CSV or LIBSVM is passed over.
//
// Parquet is a format of files (Reader), not of messages: its footer says where the rows
// are, so that it fits no stream, and its pages cost more than Arrow's columns to read. Its
// types are read as Arrow's of the same name, and its groups as structs. Another format of
// files is idx, MNIST's: a file of images and one of labels, in unsigned bytes.
//
// # Columns
//
// Without Options.Features every column but the label and the weight is a feature, unless
// a pattern of Options.Ignore matches its name. With features, in the options or as the
// first block has fixed them, any other column is unknown: an error, or ignored with
// Options.IgnoreUnknown. An ignored column may be of any type, nested ones included, and
// have any name, and nothing of it is decoded. In JSON its brackets, quotes and commas must be in
// their places, whatever is between them.
//
// A payload without names is taken by position, and its columns have the names x1, x2, …
// to patterns. Features with such names, in another order or with gaps, are taken by these
// names. CSV without a header has as many columns as there are features, and ignored ones;
// LIBSVM has as many or fewer, and indices beyond are unknown columns. A list of features
// is taken as it is.
//
// With Options.Schema the payload's columns are what the schema makes features of, and the
// features are those that it makes (package schema). Some of these columns are texts: a value is
// then the name that it would be as a label. A column named address.country is in JSON also the
// field country of the object address. Where the schema lets a value be missing, a row of JSON
// need not have the field.
//
// # Values
//
// A value means the same in all formats. A feature and a weight are the float64 nearest to
// it. A label is a name:
//
//	kind      feature             label                  spellings in a text
//	number    itself              its shortest decimal   1, +1, 1.0, 1e0
//	boolean   1 or 0              true or false          true True TRUE, false False FALSE
//	duration  seconds             as of a number         none
//	time      seconds since 1970  2024-01-31, or         2024-01-31, 2024-01-31 13:45,
//	                              2024-01-31T13:45:00Z   2024-01-31T13:45:00.5+01:00
//	list      its elements        refused
//	other     refused             itself                 all other texts
//
// Formats write them so:
//
//	kind      Arrow, Parquet                     JSON           CSV, LIBSVM
//	number    integer, float, decimal            1.5, "1.5"     1.5
//	boolean   boolean                            true, "True"   true
//	duration  duration                           5.5            5.5
//	time      date, time stamp                   "2024-01-31"   2024-01-31
//	list      list, large_list, fixed_size_list  [0.5, 2]       a column per element
//	other     texts: utf8, large_utf8, utf8_view "red"          red
//
//	kind      Avro
//	number    int, long, float, double, decimal, Debezium's VariableScaleDecimal
//	boolean   boolean
//	duration  Debezium's MicroDuration and NanoDuration
//	time      date, timestamp-*, local-timestamp-*, Debezium's and Connect's dates and time stamps
//	list      array
//	other     string, enum, uuid, and bytes and fixed without a logical type
//
//	kind      Protobuf
//	number    integers, float, double, confluent.type.Decimal, and their wrappers
//	boolean   bool, BoolValue
//	duration  google.protobuf.Duration
//	time      google.protobuf.Timestamp, google.type.Date
//	list      repeated, packed or not
//	other     string, bytes, and the names of an enum's values
//
// A union with null is the other type, whose value may be missing. Times of day and Avro's duration
// are refused.
//
// Bytes without a type (binary, large_binary, binary_view, fixed_size_binary, and Parquet's without
// a logical type) are texts, as old writers have them. Parquet knows durations by the Arrow schema
// that its writers add. Arrow's other types, such as times of day and maps, are refused.
//
// An entry of a dictionary means the same as in a plain column. A text stands for the value that
// it spells, whether the format knows texts (Arrow, JSON) or not (CSV, LIBSVM). So the number 1,
// the text "1.0" and the field 1 of CSV are one feature and one class, as are true and "True", and
// a date and its midnight in UTC.
//
// A list of numbers is a feature for each of its elements: those of emb are emb[0], emb[1],
// … All rows have lists of one length. CSV has a column for each element, under its name.
// The field metadata of an Arrow list may name the elements, under the key "features" as a
// JSON array of strings. The features of a list that is itself named features have no
// names, in Arrow as in JSON; it is then the only column of features.
//
// A time is a date, or a date and time of ISO 8601 with up to nine digits behind the
// second; without an offset it is in UTC. Its seconds since 1970 do not count leap seconds.
// As float64, those of today have steps of a quarter of a microsecond. A producer that
// rounds them to float32 is left with steps of 128 seconds: subtract a nearby time first.
// Integers are no times: pandas writes time stamps to JSON as milliseconds unless it is told
// date_format="iso".
//
// As labels, digits with leading zeros ("007") and integers of more than 53 bits are codes,
// not numbers, and stand for themselves. A label is refused that is NaN, infinite, invalid
// UTF-8 or longer than 128 bytes; so is an integer of more than 53 bits that Arrow or JSON
// send as a number, because its neighbours have the same float64.
//
// # Rows without a label
//
// A row has no label where the label is null in Arrow or JSON, where its field is absent
// in JSON, where its text is empty, and where it is of the class that
// Options.UnlabelledText names: "-1" means the number −1 and the text "-1.0", too, and
// "NaN" every NaN. Such a row is refused, or with Options.KeepUnlabelled it is of the class
// incremental.Unlabelled, which no label names. A label column that is missing as a whole
// is an error in Arrow and CSV: it is more likely to have another name. LIBSVM has a label
// in every row, so only Options.UnlabelledText can stand for none.
//
// # Missing values
//
// The value of a feature is missing where it is null in Arrow or JSON, where the text that
// stands for it is empty, NA, NaN, nan, null, NULL or None, and where it is NaN. A field of
// JSON that is absent is an error without a schema, and an absent index of LIBSVM is zero.
// Options.Missing says by feature what becomes of a missing value: the payload is refused, or
// the value is zero, without more or with a mark. Marks are a column beside the feature's that
// is 1 where the value is missing (incremental.MissingName). A feature has it in every block,
// with gaps or without, and no payload may bring a column of that name. A missing weight is an
// error.
//
// # Libraries
//
// A library reads a format unless it costs more than half of the rows per second through
// Kafka, or more than a peer may cost. Each format, and numbers, therefore have one file
// of plain Go:
//
//   - strconv reads numbers with exponents and those of 20 digits and more. One division
//     of 128 bits reads all others, to the same bits, in a third of the time.
//   - jsontext takes half of the rows per second for tokens alone, before a name is
//     looked up. encoding/json takes ten times as long, and allocates for each token.
//   - encoding/csv allocates for each record, and turns CRLF in quotes into LF.
//   - arrow-go reads the schema of each message anew, copies bodies and allocates for
//     each column, so that small blocks take ten times as long. It trusts metadata: a
//     stream of 536 bytes with a field that is its own child, or with 2³¹ children,
//     ends the process, and no recover prevents it. Nor does it read Parquet: see the
//     package parquet.
//   - twmb/avro parses schemas, once each. Its decoder fills a Go value for each row, with
//     a map or with reflection, which is then looked at field by field.
//   - protocompile and google.golang.org/protobuf read schemas, and protowire fields. A
//     dynamicpb.Message allocates for each message and each field that it has.
//
// # Refused payloads
//
// A block with one bad row is refused as a whole, with an *Error that names the
// first bad row: a number that is null, NaN, infinite or overflows float64, a
// wrong width, a missing or unknown field, a name used twice. Every number of a
// JSON, CSV or LIBSVM payload is checked here. The values of Arrow's feature
// columns are not looked at: their readers must notice NaN and infinities,
// and incremental.Block.FirstBadRow then names the row. All sizes that a peer
// can choose are bounded by Limits before memory is spent on them.
//
// # Memory
//
// A Decoder owns the block that it returns and all memory of it that does not alias
// the payload. All of it is valid until the decoder's next use, if the payload stays
// unchanged so long. Only strings (features, classes) and the Features slice may be
// kept. In steady state decoding allocates nothing. An Arrow stream of one
// uncompressed batch is viewed, not copied, unless its buffers are booleans or
// float16, or misaligned in memory on a processor that cannot read them there.
//
// A Decoder, an Encoder and a Reader are each for one goroutine at a time.
package wire
