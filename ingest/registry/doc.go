// Package registry asks a schema registry for the schemas of framed messages.
//
// It speaks the two requests of Confluent's protocol that a reader needs, which Apicurio, Karapace
// and Redpanda answer, too:
//
//	GET /schemas/ids/{id}                       the text and the kind of a schema
//	GET /subjects/{name}/versions/{version}     one that it refers to
//
// # Frames
//
//	0      1          5
//	┌──────┬──────────┬─────────────────────────────────────────┐
//	│ 0x00 │ id, u32  │ the payload in the format of the schema │
//	└──────┴──────────┴─────────────────────────────────────────┘
//
// In Protobuf the indexes of the message's type come before the payload: package wire reads them.
//
// # Answers
//
// A schema belongs to its id for ever, so it is asked for once. What Get returns otherwise is one
// of two errors, and they mean opposite things:
//
//	*AwayError    nobody knows whether the message is good: the registry cannot be reached, does not
//	              let us in, or what answers is no registry. Ask again, and keep the message.
//	*BadIDError   the registry has answered, and the id has no schema that can be used. The message
//	              is at fault.
//
// Only an answer in the registry's own words says that an id is unknown: the 404 of a proxy, or of
// a wrong URL, is an AwayError.
//
// # Bounds
//
// An answer has up to 1 MiB and comes within ten seconds. Redirects are not followed, since they
// would take the password elsewhere. References nest up to 16 deep, and a schema has up to 64 of
// them, with up to 4 MiB of text. 1000 schemas with up to 64 MiB of text are kept; the one that has
// not been used for the longest time goes first. A BadIDError is kept for ten seconds. After an
// AwayError the registry is not asked for a while, which grows from a quarter of a second to ten.
//
// # Libraries
//
// franz-go's package sr has these requests, too. It reads answers of any length into memory, and
// does not tell a proxy's 404 from the registry's, so that most of this package would stand around
// it.
package registry
