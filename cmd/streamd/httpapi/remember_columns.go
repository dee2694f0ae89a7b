package httpapi

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/cmd/streamd/model"
	"streamd/ingest/wire"
)

// rowsWithIDColumn takes rows of CSV or Arrow apart, of which a column has ids. There are none
// if there is no such column, or no row has an id. What cannot be decoded is left to the decoder of
// rows, which has an error for it.
func (s *Server) rowsWithIDColumn(format wire.Format, contentType string, content []byte, served *model.Served) ([]rememberedRow, error) {
	var columns []string
	for _, name := range s.idFields(served) {
		if bytes.Contains(content, []byte(name)) { // rows without names would be taken by position
			columns = append(columns, name)
		}
	}
	if len(columns) == 0 {
		return nil, nil
	}
	ids, columns := s.readIDs(contentType, content, columns)
	switch {
	case len(columns) == 0:
		return nil, nil
	case len(columns) > 1:
		return nil, fail(CodeBadRequest, "the rows have the columns %s: give one of them", strings.Join(columns, " and "))
	case format != wire.CSV && format != wire.Arrow:
		return nil, fail(CodeBadRequest, "the rows have a column %s, and ids are read from rows of JSON, CSV and Arrow: send these, or one row with ?id=", columns[0])
	case len(ids) > maxRememberedRows:
		return nil, fail(CodeTooLarge, "%d rows have ids: a call remembers at most %d predictions", len(ids), maxRememberedRows)
	}
	seen := rowIDs{known: map[string]bool{}}
	for i, id := range ids {
		if err := seen.add(id); err != nil {
			return nil, err
		}
		if id == "" {
			continue
		}
		if err := checkID(id); err != nil {
			return nil, fail(CodeBadRequest, "row %d: the column %s: %v", i, columns[0], err)
		}
	}
	if err := seen.check(); err != nil || len(seen.known) == 0 {
		return nil, err
	}
	var parts [][]byte
	var err error
	if format == wire.CSV {
		parts, err = splitCSV(content, columns[0])
	} else {
		parts, err = splitArrow(content, columns[0], 4*s.config.MaxBodyBytes)
	}
	if err == nil && len(parts) != len(ids) {
		err = fmt.Errorf("it has %d rows, of which %d are read", len(parts), len(ids))
	}
	if err != nil {
		return nil, fail(CodeBadRequest, "the rows cannot be taken apart by their column %s: %v", columns[0], err)
	}
	rows := make([]rememberedRow, len(ids))
	for i, id := range ids {
		rows[i] = rememberedRow{id, contentType, parts[i]}
	}
	return rows, nil
}

// readIDs are the texts of the one column of these that the rows have, "" where one is missing, and
// which they have.
func (s *Server) readIDs(contentType string, content []byte, columns []string) (ids, have []string) {
	options := s.config.Rows
	options.Format, options.Schema, options.Features, options.Missing = 0, nil, nil, wire.Missing{}
	options.AsTexts, options.KeepUnlabelled = true, true
	options.Ignore = slices.DeleteFunc(slices.Clone(options.Ignore), func(pattern string) bool { return pattern == wire.PatternOf(s.config.IDField) })
	options.Limits.Bytes, options.Limits.Rows = s.config.MaxBodyBytes, s.config.MaxBodyBytes
	decoder, err := wire.NewDecoder(options)
	if err != nil {
		return nil, nil
	}
	rows, err := decoder.DecodeUnlabelled(contentType, content)
	if err != nil {
		return nil, nil
	}
	for _, name := range columns {
		j := slices.Index(rows.Features, name)
		if j < 0 {
			continue
		}
		have = append(have, name)
		texts := decoder.Texts()[j]
		ids = make([]string, rows.Rows)
		for i := range ids {
			if code := rows.Columns[j].At(i); code == code { // NaN: it is missing
				ids[i] = texts[int(code)]
			}
		}
	}
	return ids, have
}

// splitCSV makes a text of each row, with the line of names, without a column.
func splitCSV(content []byte, column string) (rows [][]byte, err error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if first, rest, _ := bytes.Cut(content, []byte("\n")); bytes.HasPrefix(first, []byte("sep=")) {
		content = rest
	}
	for _, separator := range ",\t;|" {
		r := csv.NewReader(bytes.NewReader(content))
		r.Comma = separator
		lines, err := r.ReadAll()
		if err != nil || len(lines) == 0 || len(lines[0]) < 2 {
			continue
		}
		at := slices.IndexFunc(lines[0], func(name string) bool { return strings.TrimSpace(name) == column })
		if at < 0 {
			continue
		}
		for i := range lines {
			lines[i] = slices.Delete(lines[i], at, at+1)
		}
		for _, line := range lines[1:] {
			var row bytes.Buffer
			w := csv.NewWriter(&row)
			w.Comma = separator
			if err := w.WriteAll([][]string{lines[0], line}); err != nil {
				return nil, err
			}
			rows = append(rows, row.Bytes())
		}
		return rows, nil
	}
	return nil, errors.New("no separator of fields makes a line of names with that column")
}

// atMost allocates so many bytes at most, in sum, and panics then.
type atMost struct {
	memory.Allocator
	left int
}

func (a *atMost) Allocate(size int) []byte {
	if a.left -= size; a.left < 0 {
		panic("it takes too much memory")
	}
	return a.Allocator.Allocate(size)
}

func (a *atMost) Reallocate(size int, b []byte) []byte {
	if a.left -= size; a.left < 0 {
		panic("it takes too much memory")
	}
	return a.Allocator.Reallocate(size, b)
}

// splitArrow makes a stream of each row, without a column. Its types are those of the whole, which
// may take so many bytes.
func splitArrow(content []byte, column string, limit int) (rows [][]byte, err error) {
	// The decoder of rows has taken the bytes, but the library's reader may see them otherwise, and
	// it also reads columns that are ignored.
	defer func() {
		if p := recover(); p != nil {
			rows, err = nil, fmt.Errorf("%v", p)
		}
	}()
	in, err := ipc.NewReader(bytes.NewReader(content), ipc.WithAllocator(&atMost{memory.DefaultAllocator, limit}))
	if err != nil {
		return nil, err
	}
	defer in.Release()
	schema := in.Schema()
	at := slices.IndexFunc(schema.Fields(), func(f arrow.Field) bool { return f.Name == column })
	if at < 0 {
		return nil, errors.New("it is in no field of its own")
	}
	schema = arrow.NewSchema(slices.Delete(slices.Clone(schema.Fields()), at, at+1), nil)
	for in.Next() {
		batch := in.RecordBatch()
		rest := array.NewRecordBatch(schema, slices.Delete(slices.Clone(batch.Columns()), at, at+1), batch.NumRows())
		for i := range rest.NumRows() {
			row := rest.NewSlice(i, i+1)
			var out bytes.Buffer
			w := ipc.NewWriter(&out, ipc.WithSchema(schema))
			err := errors.Join(w.Write(row), w.Close())
			row.Release()
			if err != nil {
				return nil, err
			}
			rows = append(rows, out.Bytes())
		}
		rest.Release()
	}
	return rows, in.Err()
}
