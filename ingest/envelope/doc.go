// Package envelope takes rows out of the messages that change data capture and event brokers wrap
// around them. It works on bytes, in front of package wire.
//
//	debezium     before, after, op and source of a change, or the row alone as Debezium's
//	             ExtractNewRecordState writes it; JSON with a schema or without, or framed for a
//	             schema registry
//	connect      schema and payload, as Kafka Connect's JsonConverter writes them; what is framed
//	             for a schema registry is a row as it is
//	cloudevents  CloudEvents 1.0 in JSON (structured), or with attributes in headers (binary)
//
// A message has one fate (Fate): it has a row, it retires the block of its key, it retires all
// blocks (Truncate), or it has no effect (Pass).
//
// # Debezium
//
//	op c, r, u             the after image is the key's new value
//	op d                   the key is retired
//	op t                   Truncate
//	op m                   Pass: a logical message is no row
//	only ts_ms             Pass: a heartbeat
//	a row                  the key's new value; "__deleted": "true" retires the key. Other fields
//	                       whose names begin with __ are left out.
//	ddl, transactions      refused: they belong to other topics
//
// A changed primary key comes as a d of the old key and a c of the new one.
//
// # Schema registries
//
// A message of Debezium, or a key, may be framed for a schema registry. In Avro and Protobuf it is
// turned into the JSON that Kafka Connect writes of the same values (wire.ConnectSchema,
// wire.ConnectMessage), with their types, and all that is said of JSON with a schema holds for it.
// The images before a change, its source and its transaction are passed over. A float of 32 bits is
// the decimal that JSON has for it. A message by a JSON Schema is JSON, whose types are what
// Connect's JsonSchemaConverter notes in the schema: title, connect.type and connect.parameters.
//
// Connect's ProtobufConverter has types for Connect's own dates, time stamps and decimals, and none
// for those of io.debezium.time: these are integers. An absent field without presence has its
// default, so without optional.for.nullables null is 0. A message that has a field twice is
// refused, though Protobuf allows it: no serializer writes one.
//
// # Values
//
// With a schema, values become those that package wire knows, by the schema's names:
//
//	Decimal, VariableScaleDecimal               the decimal number, digit for digit
//	Date                                        2024-01-31
//	Timestamp, MicroTimestamp, NanoTimestamp    2024-01-31T13:45:00.5Z
//	MicroDuration, NanoDuration                 seconds
//	Time, MicroTime, NanoTime                   refused: a time of day is no instant
//	bytes without a name                        refused
//
// Names are those of io.debezium.time, io.debezium.data and org.apache.kafka.connect.data. All
// other values stay as they are written, and so do all values of messages without a schema:
// there a date is a number of days, and nothing tells a decimal in base64 from a text. Most
// such texts are no numbers and are refused, with the setting of the connector that mends it. A
// text that happens to spell a number is read as one (about one in a thousand of three bytes), so
// that a connector without schemas needs decimal.handling.mode=string or double in any case. A
// VariableScaleDecimal says itself what it is, with a schema or without.
//
// A value that cannot be converted is refused if its column is learned from, and passed over if it
// is ignored. This package does not know which columns are: in place of the value it writes an
// object, which wire refuses as a feature, a label and a weight, and Reason has the reason.
//
// PostgreSQL does not log large values that an UPDATE leaves as they are. Debezium writes
// __debezium-unavailable-value in their place. It counts as a missing value, and in the label's
// column it is refused.
//
// # Keys
//
// Key makes a short text of a record's key. Of an object with one field it is the field's value,
// so that a user can type it: 17 for {"id":17}. Of several fields it is an object of JSON with the
// names in order. A schema around the key is left out, and a frame before it: a key has the same
// text in JSON and in all kinds of schemas. A framed key that cannot be read is an error. All other
// keys stand for themselves.
//
// # Bounds
//
// A message of JSON is read once, without recursion; brackets nest up to 512 deep, a schema has up
// to 1 MiB. Values of Avro nest up to 500 deep, messages of Protobuf 100. Outside of the row only
// strings and brackets are checked. Of schemas the last ones are kept, by their bytes or ids. As
// JSON a message of Avro or Protobuf has up to Options.Bytes, and a key 64 KiB. A message whose row
// needs no conversion is not copied.
package envelope
