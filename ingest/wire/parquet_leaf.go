package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/float16"

	"streamd/ingest/wire/parquet"
)

// leaf reads a leaf of the schema, one row group after the other.
type leaf interface {
	begin(group int) error
	// take appends so many rows of the row group to a column, and takes their bytes off a
	// budget.
	take(rows int, to array.Builder, budget *int) error
}

// noLeaf is a column that is not read.
type noLeaf struct{}

func (noLeaf) begin(int) error { return nil }

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
type typedLeaf[T parquet.Value] struct {
	levels
	reader *parquet.Reader[T]
	append func(to array.Builder, x T) (bytes int, err error)

	definitions, repetitions []int16
	at, end                  int // the levels that are left
	present                  int // values of these that have not been read
	values                   []T
	used, read               int // of the values
}

func (l *typedLeaf[T]) begin(group int) error {
	if l.at < l.end {
		return errors.New("a row group has more values than rows")
	}
	return l.reader.Begin(group)
}

// more reads on where no level is left. It is false at the end of the row group.
func (l *typedLeaf[T]) more() (bool, error) {
	if l.at < l.end {
		return true, nil
	}
	const most = 1 << 10
	if l.values == nil {
		l.values, l.definitions, l.repetitions = make([]T, most), make([]int16, most), make([]int16, most)
	}
	n, present, err := l.reader.Levels(l.definitions, l.repetitions)
	if n == 0 || err != nil {
		return false, err
	}
	l.at, l.end, l.present, l.used, l.read = 0, n, present, 0, 0
	return true, nil
}

// next appends the element of the next level.
func (l *typedLeaf[T]) next(to array.Builder, budget *int) (err error) {
	isValue := l.value == 0 || l.definitions[l.at] == l.value
	l.at++
	if !isValue {
		to.AppendNull()
		return nil
	}
	if l.used == l.read {
		if l.read, err = l.reader.Values(l.values[:l.present]); err != nil {
			return err
		}
		l.present -= l.read
		l.used = 0
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

// columnName is the name of the column of a leaf: that of a field of a group is behind the group's.
func columnName(l parquet.Leaf) string { return strings.Join(l.Path[:l.Column], ".") }

// newLeaf makes the reader of leaf i of a file, and the type of its top-level column.
func newLeaf(in *parquet.File, i int, durations map[string]arrow.TimeUnit) (leaf, arrow.DataType) {
	column := in.Leaves[i]
	at := levels{value: column.Definitions}
	if within := len(column.Path) - column.Column; within > 0 || column.Repetitions > 0 {
		if column.Repetitions != 1 || within > 2 || within > 0 && !column.InList {
			return noLeaf{}, arrow.StructOf()
		}
		at.element = at.value
		if column.Optional {
			at.element--
		}
		at.isList, at.list = true, at.element-1
	}
	l, typ := typedLeafOf(in, i, at)
	if unit, ok := durations[columnName(column)]; ok && !at.isList && typ.ID() == arrow.INT64 {
		typ = &arrow.DurationType{Unit: unit}
	}
	if _, none := l.(noLeaf); !none && at.isList {
		typ = arrow.ListOf(typ)
	}
	return l, typ
}

// typedLeafOf makes the reader of leaf i by its physical and logical type. Types that
// have no values come as nulls of a type that the decoder refuses.
func typedLeafOf(in *parquet.File, i int, at levels) (leaf, arrow.DataType) {
	switch in.Leaves[i].Type {
	case parquet.Boolean:
		return typed(in, i, at, func(to array.Builder, x bool) (int, error) {
			to.(*array.BooleanBuilder).Append(x)
			return 1, nil
		}), arrow.FixedWidthTypes.Boolean
	case parquet.Int32:
		return integers[int32](in, i, at, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint32)
	case parquet.Int64:
		return integers[int64](in, i, at, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint64)
	case parquet.Int96: // the time stamps of Impala and of old Spark
		var scratch []byte
		return typed(in, i, at, func(to array.Builder, x [12]byte) (int, error) {
			scratch = appendInt96(scratch[:0], x)
			to.(*array.StringBuilder).BinaryBuilder.Append(scratch)
			return 8 + len(scratch), nil
		}), arrow.BinaryTypes.String
	case parquet.Float:
		return typed(in, i, at, func(to array.Builder, x float32) (int, error) {
			to.(*array.Float32Builder).Append(x)
			return 4, nil
		}), arrow.PrimitiveTypes.Float32
	case parquet.Double:
		return typed(in, i, at, func(to array.Builder, x float64) (int, error) {
			to.(*array.Float64Builder).Append(x)
			return 8, nil
		}), arrow.PrimitiveTypes.Float64
	}
	return texts(in, i, at)
}

// typed makes the reader of leaf i, which appends its values so.
func typed[T parquet.Value](in *parquet.File, i int, at levels, append func(array.Builder, T) (int, error)) *typedLeaf[T] {
	return &typedLeaf[T]{levels: at, reader: parquet.NewReader[T](in, i), append: append}
}

// integers makes the reader of a column of integers, of the type for those with or without
// a sign.
func integers[T int32 | int64](in *parquet.File, i int, at levels, signed, unsigned arrow.DataType) (leaf, arrow.DataType) {
	typ := signed
	switch logical := in.Leaves[i].Logical; logical.Kind {
	case parquet.Integer:
		if !logical.Signed {
			typ = unsigned
		}
	case parquet.Date:
		typ = arrow.FixedWidthTypes.Date32
	case parquet.Timestamp:
		units := map[int]arrow.TimeUnit{3: arrow.Millisecond, 6: arrow.Microsecond, 9: arrow.Nanosecond}
		typ = &arrow.TimestampType{Unit: units[logical.Unit]}
	case parquet.Decimal:
		typ = &arrow.Decimal128Type{Precision: int32(logical.Precision), Scale: int32(logical.Scale)}
	case parquet.Time:
		return noLeaf{}, arrow.FixedWidthTypes.Time64us
	case parquet.Other:
		return noLeaf{}, arrow.StructOf()
	}
	return typed(in, i, at, func(to array.Builder, x T) (int, error) {
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
	}), typ
}

// appendInt96 appends the text of a time stamp of a day, by its Julian number, and nanoseconds. No
// type of Arrow has both its range and its precision. What is in no year that has four digits is a
// text that is no time.
func appendInt96(dst []byte, x [12]byte) []byte {
	const day1970 = 2440588
	nanos, day := int64(binary.LittleEndian.Uint64(x[:8])), int64(int32(binary.LittleEndian.Uint32(x[8:])))
	t := instantOf(nanos, 1e9)
	t.seconds += secondsPerDay * (day - day1970)
	if text, ok := t.appendLabel(dst); ok {
		return text
	}
	return fmt.Appendf(dst, "%d ns behind the Julian day %d", nanos, day)
}

// texts makes the reader of a column of byte arrays. Those without a logical type are texts
// more often than not: old writers do not say which are.
func texts(in *parquet.File, i int, at levels) (leaf, arrow.DataType) {
	var typ arrow.DataType
	switch logical := in.Leaves[i].Logical; logical.Kind {
	case parquet.Text:
		typ = arrow.BinaryTypes.String
	case parquet.Decimal:
		typ = &arrow.Decimal256Type{Precision: int32(logical.Precision), Scale: int32(logical.Scale)}
	case parquet.Float16:
		typ = arrow.FixedWidthTypes.Float16
	case parquet.None:
		typ = arrow.BinaryTypes.Binary
	default:
		return noLeaf{}, arrow.StructOf()
	}
	return typed(in, i, at, func(to array.Builder, x []byte) (int, error) {
		switch to := to.(type) {
		case *array.StringBuilder:
			to.BinaryBuilder.Append(x)
		case *array.BinaryBuilder:
			to.Append(x)
		case *array.Decimal256Builder:
			n := bigEndian(x)
			if n.BitLen() > 255 {
				return 0, errors.New("a decimal has more than 76 digits")
			}
			to.Append(decimal256.FromBigInt(n))
		case *array.Float16Builder:
			to.Append(float16.FromBits(uint16(x[0]) | uint16(x[1])<<8))
		}
		return 8 + len(x), nil
	}), typ
}

// bigEndian is an integer in two's complement.
func bigEndian(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}
