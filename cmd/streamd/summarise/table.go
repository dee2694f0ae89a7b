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
	"path/filepath"
	"strings"

	"streamd/ingest/summary"
	"streamd/ingest/wire"
	"streamd/ingest/wire/parquet"
)

// A table of blocks has a row for each block, so any engine reads and writes it: lines of JSON,
// or Parquet. An engine that works in parts writes a folder of such files. The column bytes has the
// records of a topic of blocks (package summary), in JSON in base64.
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

// IsTable reports whether a file or a folder is a table of blocks: its first line is a row of one,
// or its columns are those.
func IsTable(path string) (bool, error) {
	parts, err := partsOf(path)
	if err != nil {
		return false, err
	}
	file, err := os.Open(parts[0])
	if err != nil {
		return false, err
	}
	defer file.Close()
	head := make([]byte, maxLine)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return false, err
	}
	if wire.IsParquet(head[:n]) {
		columns, err := openColumns(file, 0)
		// What is wrong with other files of Parquet is for their reader to say.
		return err == nil && columns != nil, nil
	}
	return bytes.HasPrefix(head[:n], []byte(`{"id":`)) && bytes.Contains(head[:n], []byte(`"bytes":`)), nil
}

// partsOf are the files of a table: of a folder those whose names do not begin with . or _, by
// which engines mark what is not data. An empty file has no rows.
func partsOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, e := range entries {
		if strings.ContainsAny(e.Name()[:1], "._") {
			continue
		}
		part := filepath.Join(path, e.Name())
		info, err := os.Stat(part)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			return nil, fmt.Errorf("%s is a folder; a table has its files in one", part)
		}
		if info.Size() > 0 {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s: the folder has no file of a table of blocks", path)
	}
	return parts, nil
}

// ReadTable calls take for each block of a table, with its record, which is valid until take
// returns. limit bounds the record. The blocks have been checked as a daemon does.
func ReadTable(path string, limit int, take func(b *summary.Block, value []byte) error) error {
	parts, err := partsOf(path)
	if err != nil {
		return err
	}
	var decoder summary.Decoder
	for _, part := range parts {
		err := readPart(part, limit, func(id string, value []byte) error {
			if len(value) > limit {
				return fmt.Errorf("a block of %d bytes, more than %d (kafka.max_message_bytes)", len(value), limit)
			}
			b, err := decoder.Decode(context.Background(), value)
			if err == nil && b.ID != id {
				err = fmt.Errorf("it is block %.100q, and the table says %.100q", b.ID, id)
			}
			if err != nil {
				return err
			}
			return take(b, value)
		})
		if err != nil && len(parts) > 1 {
			err = fmt.Errorf("%s: %w", filepath.Base(part), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readPart calls take for each row of a file. An error names the row.
func readPart(path string, limit int, take func(id string, value []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReader(file)
	if head, _ := in.Peek(8); wire.IsParquet(head) {
		return readColumns(file, limit, take)
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, limit/3*4+maxLine)
	n := 0
	for lines.Scan() {
		n++
		var row tableRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fmt.Errorf("line %d is no row of a table of blocks: %w", n, err)
		}
		if err := take(row.ID, row.Bytes); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than a block may be: %d bytes (kafka.max_message_bytes)", n+1, limit)
	}
	return lines.Err()
}

// columns are those of a table in Parquet that are read.
type columns struct {
	file      *parquet.File
	id, bytes int // leaves
}

// A page of Parquet has a few records at least, and a table has few columns.
const (
	minPage    = 64 << 20
	maxColumns = 64
)

// openColumns is nil without an error where the file has other columns than a table of blocks.
// limit bounds a record.
func openColumns(file *os.File, limit int) (*columns, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	c := &columns{id: -1, bytes: -1}
	if c.file, err = parquet.Open(file, info.Size(), parquet.Limits{Bytes: max(4*limit, minPage), Columns: maxColumns}); err != nil {
		return nil, err
	}
	for i := range c.file.Leaves {
		l := &c.file.Leaves[i]
		switch {
		case len(l.Path) != 1 || l.Type != parquet.ByteArray || l.Repetitions > 0:
		case l.Path[0] == "id":
			c.id = i
		case l.Path[0] == "bytes":
			c.bytes = i
		}
	}
	if min(c.id, c.bytes) < 0 {
		return nil, nil
	}
	return c, nil
}

// readColumns reads the rows of a table in Parquet. The records of pages are read one by one, so
// one page of each column is in memory.
func readColumns(file *os.File, limit int, take func(id string, value []byte) error) error {
	c, err := openColumns(file, limit)
	if err != nil {
		return err
	}
	if c == nil {
		return errors.New("its columns are not those of a table of blocks, which has id and bytes")
	}
	ids, values := parquet.NewReader[[]byte](c.file, c.id), parquet.NewReader[[]byte](c.file, c.bytes)
	row := int64(0)
	for group := range c.file.RowGroups() {
		if err := errors.Join(ids.Begin(group), values.Begin(group)); err != nil {
			return err
		}
		for range c.file.Rows(group) {
			id, err := one(ids)
			var value []byte
			if err == nil {
				value, err = one(values)
			}
			if err == nil {
				err = take(string(id), value)
			}
			if err != nil {
				return fmt.Errorf("row %d: %w", row, err)
			}
			row++
		}
	}
	return nil
}

// one reads the next value, which must be there. It is valid until the next call.
func one(r *parquet.Reader[[]byte]) ([]byte, error) {
	var definitions, repetitions [1]int16
	var value [1][]byte
	switch n, present, err := r.Levels(definitions[:], repetitions[:]); {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, errors.New("a column has fewer values than the file has rows")
	case present == 0:
		return nil, errors.New("a row of a table of blocks has an id and bytes, and this one has a null")
	}
	_, err := r.Values(value[:])
	return value[0], err
}
