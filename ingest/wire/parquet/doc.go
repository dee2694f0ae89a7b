// Package parquet reads the values of Parquet files, a column chunk and a page at a time, by the
// definition of the format (parquet.thrift and Encodings.md of apache/parquet-format).
//
// Open reads the footer. A Reader reads one leaf of the schema, one row group after the other:
// Levels gives the Dremel levels of the next values of a page, and Values the values that are
// present.
//
// It reads all physical types; pages of both versions; the encodings PLAIN, dictionaries, RLE,
// DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY and BYTE_STREAM_SPLIT, and levels
// also in the old BIT_PACKED; Snappy, gzip, Brotli, Zstandard, and LZ4 in its three framings. It
// checks the sums of pages that have one. Encrypted columns, LZO, and chunks in other files are
// errors, but only where they are read. Indexes, statistics and Bloom filters are passed over.
//
// # Memory
//
// The footer, a page and a dictionary have at most so many bytes as Open was told, compressed or
// not, and nothing is allocated for a length that the file itself cannot hold. The schema has at
// most so many columns. A Reader holds a page and a dictionary; values that a page's encoding
// makes longer than their bytes come in pieces of less than a mebibyte, or alone. What is corrupt
// is an error, never a panic.
//
// # Why not a library
//
// The encodings of arrow-go import its compute kernels for one use in the writer. With what they
// pull these were 28 % of streamd's file, and more than a third of the work of a first build. Its
// reader panics on corrupt pages, and takes old LZ4, groups without columns and pages without a
// value for what they are not.
// parquet-go/parquet-go believes a page's size without a limit. The tests write files by arrow-go.
package parquet
