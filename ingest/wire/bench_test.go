package wire_test

import (
	"math/rand/v2"
	"testing"

	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// BenchmarkDecode decodes the block of a bulk message, 20,000 rows of 10
// float32, over and over with one decoder.
func BenchmarkDecode(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	block := randomBlock(rng, 20000, 10, []string{"1", "-1"}, []gram.Kind{gram.Float32})
	text := randomBlock(rng, 20000, 10, []string{"spam", "ham"}, []gram.Kind{gram.Float32})
	for _, c := range []struct {
		name   string
		format wire.Format
	}{{"arrow", wire.Arrow}, {"arrow-text-label", wire.Arrow}, {"json", wire.JSON}, {"csv", wire.CSV}, {"libsvm", wire.LIBSVM}} {
		b.Run(c.name, func(b *testing.B) {
			from := block
			if c.name == "arrow-text-label" {
				from = text
			}
			payload, err := wire.Encode(nil, c.format, from)
			if err != nil {
				b.Fatal(err)
			}
			d := newDecoder(b, wire.Options{})
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Decode(c.format.ContentType(), payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecodeRow decodes a message of one row.
func BenchmarkDecodeRow(b *testing.B) {
	d := newDecoder(b, wire.Options{})
	payload := []byte(`{"label":"spam","len":3.5,"caps":0.125,"links":12,"age":-4.75e-3}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode("application/json", payload); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncode encodes the block of BenchmarkDecode.
func BenchmarkEncode(b *testing.B) {
	block := randomBlock(rand.New(rand.NewPCG(1, 2)), 20000, 10, []string{"1", "-1"}, []gram.Kind{gram.Float32})
	for _, f := range wire.Formats() {
		b.Run(f.String(), func(b *testing.B) {
			e := wire.NewEncoder(f)
			var payload []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if payload, err = e.Append(payload[:0], block); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(payload)))
		})
	}
}
