package summarise

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"streamd/ingest/summary"
)

// A table of blocks has a line of JSON for each block, so any engine reads and writes it. The
// column bytes has the records of a topic of blocks (package summary), in base64.
type tableRow struct {
	ID       string `json:"id"`
	Source   string `json:"source"`
	FirstRow int64  `json:"first_row"`
	Rows     int64  `json:"rows"`
	Digest   string `json:"digest"` // SHA-256 of the sums, hex
	Bytes    []byte `json:"bytes"`
}

// WriteRow adds a block to a table.
func WriteRow(to io.Writer, b *Made) error {
	line, err := json.Marshal(tableRow{b.ID, b.Source, b.FirstRow, b.Rows, b.Digest, b.Value})
	if err == nil {
		_, err = to.Write(append(line, '\n'))
	}
	return err
}

// maxLine bounds a line of a table beside its record.
const maxLine = 16 << 10

// IsTable reports whether a file is a table of blocks: its first line is a row of one.
func IsTable(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	head := make([]byte, maxLine)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return false, err
	}
	return bytes.HasPrefix(head[:n], []byte(`{"id":`)) && bytes.Contains(head[:n], []byte(`"bytes":`)), nil
}

// ReadTable calls take for each block of a table, with its record, which is valid until take
// returns. limit bounds the record. The blocks have been checked as a daemon does.
func ReadTable(path string, limit int, take func(b *summary.Block, value []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, limit/3*4+maxLine)
	var decoder summary.Decoder
	n := 0
	for lines.Scan() {
		n++
		var row tableRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fmt.Errorf("line %d is no row of a table of blocks: %w", n, err)
		}
		if len(row.Bytes) > limit {
			return fmt.Errorf("line %d: a block of %d bytes, more than %d (kafka.max_message_bytes)", n, len(row.Bytes), limit)
		}
		b, err := decoder.Decode(context.Background(), row.Bytes)
		if err == nil && b.ID != row.ID {
			err = fmt.Errorf("it is block %.100q, and the line says %.100q", b.ID, row.ID)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := take(b, row.Bytes); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than a block may be: %d bytes (kafka.max_message_bytes)", n+1, limit)
	}
	return lines.Err()
}
