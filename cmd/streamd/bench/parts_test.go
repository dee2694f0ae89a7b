package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/ingest/wire"
)

// The baseline decodes the same values as our decoder.
func TestStandardLibraryDecodesTheSame(t *testing.T) {
	block := normalBlock(rand.New(rand.NewPCG(1, 1)), Float64, 50, 3, 2)
	for format, standard := range standardLibrary {
		payload, err := wire.Encode(nil, format, block)
		if err != nil {
			t.Fatal(err)
		}
		columns, _, err := standard.decode(payload)
		if err != nil || len(columns) != len(block.Columns) {
			t.Fatalf("%v: %d columns, %v", format, len(columns), err)
		}
		for j, c := range columns {
			if c.Len() != block.Rows() {
				t.Fatalf("%v: column %d has %d of %d rows", format, j, c.Len(), block.Rows())
			}
			for i := range block.Rows() {
				if got, want := c.At(i), block.Columns[j].At(i); got != want {
					t.Fatalf("%v: row %d of column %d is %v, want %v", format, i, j, got, want)
				}
			}
		}
	}
}

// The threads share all blocks. The bytes of a block are those of its columns and codes.
func TestStreamsShareTheBlocks(t *testing.T) {
	const rows, n, blocks = 96, 5, 20
	for _, typ := range []Type{Float32, Float64} {
		c := Gram{Features: []int{n, 2}, Threads: Threads{[]int{1, 3}}, Rows: rows}
		newStream := c.streams(typ, blocks*rows*n*typ.size())
		for _, threads := range c.list() {
			seen := map[*byte]bool{}
			for thread := range threads {
				s := newStream(thread, threads, rows, n)
				for i, b := range s.blocks {
					columns, codes := s.bytes[i][0], s.bytes[i][1]
					if seen[&columns[0]] || len(codes) != rows*codeSize || &codes[0] != &bytesOf(b.Codes)[0] {
						t.Fatalf("%s, thread %d of %d: a block is not its own", typ, thread, threads)
					}
					seen[&columns[0]] = true
					if len(b.Columns) != n || len(columns) != n*rows*typ.size() {
						t.Fatalf("%s, thread %d of %d: a block of %d columns has %d bytes", typ, thread, threads, len(b.Columns), len(columns))
					}
					last := decoded(typ, columns[len(columns)-typ.size():])
					if got := b.Columns[n-1].At(rows - 1); got != last {
						t.Fatalf("%s, thread %d of %d: the last number is %v, the last bytes are %v", typ, thread, threads, got, last)
					}
				}
			}
			if len(seen) != blocks {
				t.Errorf("%s, %d threads: %d blocks", typ, threads, len(seen))
			}
		}
	}
}

func decoded(t Type, b []byte) float64 {
	if t == Float32 {
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.NativeEndian.Uint64(b))
}
