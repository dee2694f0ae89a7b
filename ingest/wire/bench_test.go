package wire_test

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"streamd/incremental"
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

// BenchmarkFile reads the block of BenchmarkDecode from a file. It is decoded where it
// is read, or only cut into pieces for others to decode.
func BenchmarkFile(b *testing.B) {
	const rows = 20000
	block := randomBlock(rand.New(rand.NewPCG(1, 2)), rows, 10, []string{"1", "-1"}, []gram.Kind{gram.Float32})
	for _, f := range []wire.Format{wire.JSON, wire.CSV, wire.LIBSVM} {
		payload, err := wire.Encode(nil, f, block)
		if err != nil {
			b.Fatal(err)
		}
		path := filepath.Join(b.TempDir(), "rows."+f.String())
		if err := os.WriteFile(path, payload, 0o600); err != nil {
			b.Fatal(err)
		}
		options := wire.Options{Features: incremental.DefaultFeatures(10)}
		for _, c := range []struct {
			name string
			next func(*wire.Reader, *wire.Piece) error
		}{
			{"next", func(r *wire.Reader, _ *wire.Piece) error { _, err := r.Next(); return err }},
			{"cut", func(r *wire.Reader, p *wire.Piece) error { _, err := r.Cut(p); return err }},
		} {
			b.Run(f.String()+"/"+c.name, func(b *testing.B) {
				b.SetBytes(int64(len(payload)))
				var piece wire.Piece
				for b.Loop() {
					r, err := wire.OpenFile(path, options, 1000)
					for err == nil {
						err = c.next(r, &piece)
					}
					r.Close()
					if err != io.EOF {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
			})
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
