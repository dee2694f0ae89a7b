package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// leaf reads a leaf of the schema, one column chunk after the other.
type leaf interface {
	begin(chunk file.ColumnChunkReader, levels int64) error
	// take appends so many rows of the chunk to a column, and takes their bytes off a
	// budget.
	take(rows int, to array.Builder, budget *int) error
}

// noLeaf is a column that is not read.
type noLeaf struct{}

func (noLeaf) begin(file.ColumnChunkReader, int64) error { return nil }

func (noLeaf) take(rows int, to array.Builder, _ *int) error {
	to.AppendNulls(rows)
	return nil
}

// levels are the definition levels of a column (Dremel, Melnik et al. 2010): of an element
// that is not null, of any element, and of a list that is not null.
type levels struct {
	value, element, list int16
	isList               bool
}

// typedLeaf is a leaf of a physical type.
type typedLeaf[T any] struct {
	levels
	chunk  typedChunk[T]
	left   int64 // levels of the chunk that have not been read
	append func(to array.Builder, x T) (bytes int, err error)

	values                   []T
	definitions, repetitions []int16
	at, end                  int // the levels that are left
	used, read               int // of the values
}

// typedChunk is a column chunk's reader.
type typedChunk[T any] interface {
	file.ColumnChunkReader
	ReadBatchInPage(n int64, values []T, definitions, repetitions []int16) (levels int64, read int, err error)
}

func (l *typedLeaf[T]) begin(chunk file.ColumnChunkReader, levels int64) error {
	if l.at < l.end {
		return errors.New("a row group has more values than rows")
	}
	typed, ok := chunk.(typedChunk[T])
	if !ok {
		return errors.New("a column chunk has another type than the schema")
	}
	l.chunk, l.left = typed, levels
	return nil
}

// more reads on where no level is left. It is false at the end of the chunk.
func (l *typedLeaf[T]) more() (bool, error) {
	if l.at < l.end {
		return true, nil
	}
	const most = 1 << 10
	if l.values == nil {
		l.values, l.definitions, l.repetitions = make([]T, most), make([]int16, most), make([]int16, most)
	}
	if more, err := l.moreInChunk(); !more {
		return false, err
	}
	// Levels that the column does not have are not written.
	n, read, err := l.chunk.ReadBatchInPage(most, l.values, l.definitions, l.repetitions)
	switch {
	case err != nil:
		return false, err
	case n == 0:
		// The library's own loops over pages would ask for ever.
		return false, errors.New("a page has fewer values than it says")
	}
	l.at, l.end, l.used, l.read = 0, int(n), 0, read
	l.left -= n
	return true, nil
}

// moreInChunk goes on to the next page with values. The library reports an empty page like the
// end of the chunk, so that the number of levels in the footer tells them apart.
func (l *typedLeaf[T]) moreInChunk() (bool, error) {
	const mostEmpty = 1 << 12 // pages one behind the other
	for range mostEmpty {
		if l.chunk.HasNext() {
			return true, nil
		}
		if err := l.chunk.Err(); err != nil || l.left <= 0 {
			return false, err
		}
	}
	return false, nil
}

// next appends the element of the next level.
func (l *typedLeaf[T]) next(to array.Builder, budget *int) error {
	isValue := l.value == 0 || l.definitions[l.at] == l.value
	l.at++
	if !isValue {
		to.AppendNull()
		return nil
	}
	if l.used == l.read {
		return errors.New("a page has fewer values than its levels say")
	}
	n, err := l.append(to, l.values[l.used])
	l.used++
	if *budget -= n; err == nil && *budget < 0 {
		err = errors.New("the rows take too much memory: write smaller ones, or fewer columns")
	}
	return err
}

func (l *typedLeaf[T]) take(rows int, to array.Builder, budget *int) error {
	for rows > 0 || l.isList {
		ok, err := l.more()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if !l.isList {
			rows--
			if err := l.next(to, budget); err != nil {
				return err
			}
			continue
		}
		list := to.(*array.ListBuilder)
		if l.repetitions[l.at] == 0 {
			if rows == 0 {
				return nil
			}
			rows--
			list.Append(l.definitions[l.at] >= l.list)
		}
		if l.definitions[l.at] < l.element {
			l.at++
		} else if err := l.next(list.ValueBuilder(), budget); err != nil {
			return err
		}
	}
	if rows > 0 {
		return fmt.Errorf("a row group lacks values of %d rows", rows)
	}
	return nil
}

// newLeaf makes the reader of leaf i of a schema, and the type of its top-level column.
func newLeaf(root *schema.Schema, i int, durations map[string]arrow.TimeUnit) (leaf, arrow.DataType) {
	column := root.Column(i)
	at := levels{value: column.MaxDefinitionLevel()}
	if path := column.ColumnPath(); column.MaxRepetitionLevel() > 0 || len(path) > 1 {
		top := root.Root().Field(root.Root().FieldIndexByName(path[0]))
		_, annotated := top.LogicalType().(schema.ListLogicalType)
		if column.MaxRepetitionLevel() != 1 || len(path) > 3 || len(path) > 1 && !annotated {
			return noLeaf{}, arrow.StructOf()
		}
		at.element = at.value
		if column.SchemaNode().RepetitionType() == parquet.Repetitions.Optional {
			at.element--
		}
		at.isList, at.list = true, at.element-1
	}
	l, typ := typedLeafOf(column, at)
	if unit, ok := durations[column.ColumnPath()[0]]; ok && !at.isList && typ.ID() == arrow.INT64 {
		typ = &arrow.DurationType{Unit: unit}
	}
	if _, none := l.(noLeaf); !none && at.isList {
		typ = arrow.ListOf(typ)
	}
	return l, typ
}

// typedLeafOf makes the reader of a column by its physical and logical type. Types that
// have no values come as nulls of a type that the decoder refuses.
func typedLeafOf(column *schema.Column, at levels) (leaf, arrow.DataType) {
	switch column.PhysicalType() {
	case parquet.Types.Boolean:
		return &typedLeaf[bool]{levels: at, append: func(to array.Builder, x bool) (int, error) {
			to.(*array.BooleanBuilder).Append(x)
			return 1, nil
		}}, arrow.FixedWidthTypes.Boolean
	case parquet.Types.Int32:
		return integers[int32](column.LogicalType(), at, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint32)
	case parquet.Types.Int64:
		return integers[int64](column.LogicalType(), at, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint64)
	case parquet.Types.Int96: // the time stamps of Impala and of old Spark
		var scratch []byte
		return &typedLeaf[parquet.Int96]{levels: at, append: func(to array.Builder, x parquet.Int96) (int, error) {
			scratch = appendInt96(scratch[:0], x)
			to.(*array.StringBuilder).BinaryBuilder.Append(scratch)
			return 8 + len(scratch), nil
		}}, arrow.BinaryTypes.String
	case parquet.Types.Float:
		return &typedLeaf[float32]{levels: at, append: func(to array.Builder, x float32) (int, error) {
			to.(*array.Float32Builder).Append(x)
			return 4, nil
		}}, arrow.PrimitiveTypes.Float32
	case parquet.Types.Double:
		return &typedLeaf[float64]{levels: at, append: func(to array.Builder, x float64) (int, error) {
			to.(*array.Float64Builder).Append(x)
			return 8, nil
		}}, arrow.PrimitiveTypes.Float64
	case parquet.Types.ByteArray:
		return bytesOf[parquet.ByteArray](column.LogicalType(), at)
	case parquet.Types.FixedLenByteArray:
		return bytesOf[parquet.FixedLenByteArray](column.LogicalType(), at)
	}
	return noLeaf{}, arrow.BinaryTypes.Binary
}

// integers makes the reader of a column of integers, of the type for those with or without
// a sign.
func integers[T int32 | int64](logical schema.LogicalType, at levels, signed, unsigned arrow.DataType) (leaf, arrow.DataType) {
	typ := signed
	l := &typedLeaf[T]{levels: at}
	switch logical := logical.(type) {
	case schema.IntLogicalType:
		if !logical.IsSigned() {
			typ = unsigned
		}
	case schema.DateLogicalType:
		typ = arrow.FixedWidthTypes.Date32
	case schema.TimestampLogicalType:
		units := map[schema.TimeUnitType]arrow.TimeUnit{
			schema.TimeUnitMillis: arrow.Millisecond, schema.TimeUnitMicros: arrow.Microsecond, schema.TimeUnitNanos: arrow.Nanosecond,
		}
		typ = &arrow.TimestampType{Unit: units[logical.TimeUnit()]}
	case schema.DecimalLogicalType:
		typ = &arrow.Decimal128Type{Precision: logical.Precision(), Scale: logical.Scale()}
	case schema.TimeLogicalType:
		return noLeaf{}, arrow.FixedWidthTypes.Time64us
	}
	l.append = func(to array.Builder, x T) (int, error) {
		switch to := to.(type) {
		case *array.Int32Builder:
			to.Append(int32(x))
		case *array.Uint32Builder:
			to.Append(uint32(x))
		case *array.Int64Builder:
			to.Append(int64(x))
		case *array.Uint64Builder:
			to.Append(uint64(x))
		case *array.Date32Builder:
			to.Append(arrow.Date32(x))
		case *array.TimestampBuilder:
			to.Append(arrow.Timestamp(x))
		case *array.DurationBuilder:
			to.Append(arrow.Duration(x))
		case *array.Decimal128Builder:
			to.Append(decimal128.FromI64(int64(x)))
		}
		return 8, nil
	}
	return l, typ
}

// appendInt96 appends the text of a time stamp of a day, by its Julian number, and nanoseconds. No
// type of Arrow has both its range and its precision. What is in no year that has four digits is a
// text that is no time.
func appendInt96(dst []byte, x parquet.Int96) []byte {
	const day1970 = 2440588
	nanos, day := int64(binary.LittleEndian.Uint64(x[:8])), int64(int32(binary.LittleEndian.Uint32(x[8:])))
	t := instantOf(nanos, 1e9)
	t.seconds += secondsPerDay * (day - day1970)
	if text, ok := t.appendLabel(dst); ok {
		return text
	}
	return fmt.Appendf(dst, "%d ns behind the Julian day %d", nanos, day)
}

// bytesOf makes the reader of a column of byte strings. Those without a logical type are texts
// more often than not: old writers do not say which are.
func bytesOf[T ~[]byte](logical schema.LogicalType, at levels) (leaf, arrow.DataType) {
	var typ arrow.DataType
	switch logical := logical.(type) {
	case schema.StringLogicalType, schema.EnumLogicalType, schema.JSONLogicalType:
		typ = arrow.BinaryTypes.String
	case schema.DecimalLogicalType:
		typ = &arrow.Decimal256Type{Precision: logical.Precision(), Scale: logical.Scale()}
	case schema.Float16LogicalType:
		typ = arrow.FixedWidthTypes.Float16
	case schema.NoLogicalType, nil:
		typ = arrow.BinaryTypes.Binary
	default:
		return noLeaf{}, arrow.StructOf()
	}
	return &typedLeaf[T]{levels: at, append: func(to array.Builder, x T) (int, error) {
		switch to := to.(type) {
		case *array.StringBuilder:
			to.BinaryBuilder.Append(x)
		case *array.BinaryBuilder:
			to.Append(x)
		case *array.Decimal256Builder:
			to.Append(decimal256.FromBigInt(bigEndian(x)))
		case *array.Float16Builder:
			to.Append(float16.FromBits(uint16(x[0]) | uint16(x[1])<<8))
		}
		return 8 + len(x), nil
	}}, typ
}

// bigEndian is an integer in two's complement.
func bigEndian(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}
