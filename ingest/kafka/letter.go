package kafka

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Reason says why a record was rejected.
type Reason struct {
	Stage   string // the step that failed, in Kafka Connect's words, such as "VALUE_CONVERTER"
	Class   string // the kind of trouble, one of a few words, to count by
	Message string // for people; cut after 4096 bytes
}

// maxReason bounds the reason's texts, so that the letter of a record that just fitted its
// topic is not much larger.
const maxReason = 4096

// A Letter is about one record, or about a stretch of refused ones.
type Letter struct {
	Record  *Record  // nil: Refused is set
	Refused *Refused // nil: Record is set
	Reason  Reason
}

func (l *Letter) offset() int64 {
	if l.Refused != nil {
		return l.Refused.First
	}
	return l.Record.Offset
}

// # The format of a dead letter
//
// A letter has the record's key, value and headers. Behind these headers always come all
// of Kafka Connect's, in this order:
//
//	__connect.errors.topic                     of the record
//	__connect.errors.partition                 decimal
//	__connect.errors.offset                    decimal
//	__connect.errors.connector.name            DeadLetterConfig.Connector
//	__connect.errors.stage                     Reason.Stage
//	__connect.errors.class.name                Reason.Class
//	__connect.errors.exception.class.name      Reason.Class
//	__connect.errors.exception.message         Reason.Message
//
// Then follow, where they apply:
//
//	streamd.timestamp        the record's time, decimal, in milliseconds since 1970;
//	                         the letter's own time is when it was written
//	streamd.value.size       the value was left out: its size, decimal,
//	streamd.value.sha256     and its SHA-256, in hexadecimal
//	streamd.key.size         the same for the key
//	streamd.key.sha256
//	streamd.headers.omitted  number of the record's headers that were left out, decimal
//	streamd.offset.last      the letter stands for all records up to this offset,
//	                         which could not be read; it has no key and no value
//	streamd.records          number of these records, by their record batch's header
//
// A record that has been a dead letter before has headers of the same names. The ones from
// the last __connect.errors.topic on count. ReadDeadLetter reads a letter back.
const (
	headerTopic     = "__connect.errors.topic"
	headerPartition = "__connect.errors.partition"
	headerOffset    = "__connect.errors.offset"
	headerConnector = "__connect.errors.connector.name"
	headerStage     = "__connect.errors.stage"
	headerClass     = "__connect.errors.class.name"
	headerException = "__connect.errors.exception.class.name"
	headerMessage   = "__connect.errors.exception.message"

	headerTime        = "streamd.timestamp"
	headerValueSize   = "streamd.value.size"
	headerValueDigest = "streamd.value.sha256"
	headerKeySize     = "streamd.key.size"
	headerKeyDigest   = "streamd.key.sha256"
	headerOmitted     = "streamd.headers.omitted"
	headerLast        = "streamd.offset.last"
	headerRecords     = "streamd.records"
)

// letterHeaders is the largest number of headers that a letter adds.
const letterHeaders = 16

// A short letter has no value, and keeps no more than these bytes of the rest.
const (
	shortKey     = 256
	shortHeaders = 1024
	shortMessage = 512
)

// record returns the parts of the record that stands for the letter. The letter is about a
// partition of the topic source.
func (l *Letter) record(source, connector string, partition int, short bool) (key, value []byte, headers []Header) {
	r := l.Record
	if r == nil {
		r = &Record{Offset: l.Refused.First}
	}
	key, value = r.Key, r.Value
	own, omitted := r.Headers, r.OmittedHeaders
	message := l.Reason.Message
	if len(own) > maxHeaders-letterHeaders { // with more the letter could not be read
		own, omitted = nil, omitted+len(own)
	}
	var more []Header
	number := func(name string, n int64) { more = append(more, Header{name, strconv.AppendInt(nil, n, 10)}) }
	digest := func(size, sum string, of []byte) {
		hash := sha256.Sum256(of)
		number(size, int64(len(of)))
		more = append(more, Header{sum, hex.AppendEncode(nil, hash[:])})
	}
	if !r.Time.IsZero() {
		number(headerTime, r.Time.UnixMilli())
	}
	if short {
		message = cut(message, shortMessage)
		if value != nil {
			digest(headerValueSize, headerValueDigest, value)
			value = nil
		}
		if len(key) > shortKey {
			digest(headerKeySize, headerKeyDigest, key)
			key = nil
		}
		kept, bytes := 0, 0
		for ; kept < len(own); kept++ {
			if bytes += len(own[kept].Key) + len(own[kept].Value) + 10; bytes > shortHeaders {
				break
			}
		}
		own, omitted = own[:kept], omitted+len(own)-kept
	}
	if omitted > 0 {
		number(headerOmitted, int64(omitted))
	}
	if l.Refused != nil {
		number(headerLast, l.Refused.Last)
		number(headerRecords, l.Refused.Records)
	}
	return key, value, slices.Concat(own, []Header{
		{headerTopic, []byte(source)},
		{headerPartition, strconv.AppendInt(nil, int64(partition), 10)},
		{headerOffset, strconv.AppendInt(nil, r.Offset, 10)},
		{headerConnector, bounded(connector)},
		{headerStage, bounded(l.Reason.Stage)},
		{headerClass, bounded(l.Reason.Class)},
		{headerException, bounded(l.Reason.Class)},
		{headerMessage, bounded(message)},
	}, more)
}

// bounded returns s as valid UTF-8, cut after maxReason bytes.
func bounded(s string) []byte {
	return []byte(strings.ToValidUTF8(cut(s, maxReason), "?"))
}

// cut returns s, or its beginning and an ellipsis, in no more than most bytes.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n := most - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// A DeadLetter is a letter that has been read back. It is a view of the record that it was
// read from.
type DeadLetter struct {
	Topic          string // of the record
	Partition      int
	Offset, Last   int64     // the same, except for a stretch of refused records
	Records        int64     // from Offset to Last
	Refused        bool      // the records could not be read: Key, Value and Headers mean nothing
	Time           time.Time // of the record; zero: it had none
	Key, Value     []byte    // as in the record, or nil when omitted
	Headers        []Header
	Connector      string
	Reason         Reason
	OmittedKey     *Omitted // nil: Key is the record's
	OmittedValue   *Omitted // nil: Value is the record's
	OmittedHeaders int64    // number of the record's headers that are not in Headers
}

// Omitted describes a key or a value that a letter was too small to hold.
type Omitted struct {
	Size   int64
	SHA256 [sha256.Size]byte
}

// Whole says that the letter holds the record as it was. It can be produced again.
func (l *DeadLetter) Whole() bool {
	return l.OmittedKey == nil && l.OmittedValue == nil && l.OmittedHeaders == 0 && !l.Refused
}

// ReadDeadLetter reads a letter back from its record. An error says that the record is no
// dead letter. Anybody may have written it.
func ReadDeadLetter(r *Record) (*DeadLetter, error) {
	own := len(r.Headers) - 1
	for own >= 0 && r.Headers[own].Key != headerTopic {
		own--
	}
	if own < 0 {
		return nil, fmt.Errorf("the record at offset %d is no dead letter: it has no header %s", r.Offset, headerTopic)
	}
	if r.OmittedHeaders > 0 {
		return nil, fmt.Errorf("the record at offset %d is no dead letter: it has %d headers", r.Offset, r.OmittedHeaders)
	}
	fields := make(map[string]string, letterHeaders)
	for _, h := range r.Headers[own:] {
		fields[h.Key] = string(h.Value)
	}
	var err error
	number := func(name string, absent, least int64) int64 {
		text, ok := fields[name]
		if !ok && absent >= least {
			return absent
		}
		n, failed := strconv.ParseInt(text, 10, 64)
		if (failed != nil || n < least) && err == nil {
			err = fmt.Errorf("the record at offset %d is no dead letter: header %s is %.50q", r.Offset, name, text)
		}
		return n
	}
	omitted := func(size, sum string) *Omitted {
		if _, ok := fields[size]; !ok {
			return nil
		}
		o := &Omitted{Size: number(size, -1, 0)}
		if n, failed := hex.Decode(o.SHA256[:], []byte(cut(fields[sum], 2*sha256.Size))); (failed != nil || n != sha256.Size) && err == nil {
			err = fmt.Errorf("the record at offset %d is no dead letter: header %s is %.50q", r.Offset, sum, fields[sum])
		}
		return o
	}
	l := &DeadLetter{
		Topic:          fields[headerTopic],
		Partition:      int(number(headerPartition, -1, 0)),
		Offset:         number(headerOffset, -1, 0),
		Key:            r.Key,
		Value:          r.Value,
		Headers:        r.Headers[:own:own],
		Connector:      fields[headerConnector],
		Reason:         Reason{Stage: fields[headerStage], Class: fields[headerClass], Message: fields[headerMessage]},
		OmittedKey:     omitted(headerKeySize, headerKeyDigest),
		OmittedValue:   omitted(headerValueSize, headerValueDigest),
		OmittedHeaders: number(headerOmitted, 0, 0),
	}
	_, l.Refused = fields[headerLast]
	l.Last = number(headerLast, l.Offset, l.Offset)
	l.Records = number(headerRecords, 1, 1)
	if _, ok := fields[headerTime]; ok {
		l.Time = time.UnixMilli(number(headerTime, -1, 0)).UTC()
	}
	return l, err
}
