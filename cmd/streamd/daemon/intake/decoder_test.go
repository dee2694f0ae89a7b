package intake

import (
	"testing"
	"time"

	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// Of several content types the last one counts, as Kafka's own clients take headers: a proxy that
// adds its own says what is true.
func TestLastContentType(t *testing.T) {
	d, err := NewDecoder(new(config.Config), wire.Options{Format: wire.JSON}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	record := func(types ...string) *kafka.Record {
		r := &kafka.Record{Value: []byte("a 1:2\n"), Time: time.UnixMilli(1)}
		for _, typ := range types {
			r.Headers = append(r.Headers, kafka.Header{Key: "content-type", Value: []byte(typ)}, kafka.Header{Key: "other", Value: []byte("x")})
		}
		return r
	}
	if _, err := d.Decode(record("application/json", "application/x-libsvm")); err != nil {
		t.Error(err)
	}
	if _, err := d.Decode(record("application/x-libsvm", "application/json")); err == nil {
		t.Error("the first of two content types counts")
	}
}
