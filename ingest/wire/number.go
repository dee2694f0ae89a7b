package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"unsafe"
)

// number reads the decimal number that starts at b[i] and ends before b[end]:
// [+-] digits [. digits] [e [+-] digits], with a digit on at least one side of the
// point. The value is strconv.ParseFloat's, bit for bit, and infinite if it overflows
// float64. There is no number, and ok is false, where the bytes that numbers are made
// of spell none. Hexadecimal, "nan" and "inf" are none.
func number(b []byte, i int) (x float64, end int, ok bool) {
	if x, end, ok = strictNumber(b, i); ok {
		return x, end, true
	}
	return looseNumber(b, i)
}

// looseNumber is number for what strictNumber leaves.
func looseNumber(b []byte, i int) (x float64, end int, ok bool) {
	for end = i; end < len(b) && numeric[b[end]]; end++ {
	}
	if end == i {
		return 0, i, false
	}
	// The string views the text, which ParseFloat neither keeps nor changes.
	x, err := strconv.ParseFloat(unsafe.String(&b[i], end-i), 64)
	return x, end, err == nil || errors.Is(err, strconv.ErrRange)
}

// strictNumber is number for those that are numbers in JSON, too: [-] digits [. digits]
// [e [+-] digits] without leading zeros. It reads nearly all that programs write, and
// leaves the others to number: ok is false.
func strictNumber(b []byte, i int) (x float64, end int, ok bool) {
	if i >= len(b) {
		return 0, 0, false
	}
	// Signs are not foreseen, so there is no branch for them: 1 for a minus, else 0.
	sign := int((uint32(b[i]^'-') - 1) >> 31)
	i += sign
	first := i
	var mantissa uint64
	mantissa, i = digitByDigit(b, i, 0) // modulo 2^64; right with up to mostDigits digits
	count, scale := i-first, 0
	if count == 0 || count > 1 && b[first] == '0' {
		return 0, 0, false
	}
	if i < len(b) && b[i] == '.' {
		point := i
		mantissa, i = fraction(b, i+1, mantissa)
		scale = i - point - 1
		count += scale
		if scale == 0 {
			return 0, 0, false
		}
	}
	exponent := 0
	if i < len(b) && numeric[b[i]] {
		if b[i]|0x20 != 'e' {
			return 0, 0, false
		}
		if exponent, i, ok = shortExponent(b, i+1); !ok || i < len(b) && numeric[b[i]] {
			return 0, 0, false
		}
	}
	if count > mostDigits && count-leadingZeros(b[first:]) > mostDigits {
		return 0, 0, false
	}
	x, ok = scaled(mantissa, exponent-scale)
	return math.Float64frombits(math.Float64bits(x) | uint64(sign)<<63), i, ok
}

// leadingZeros are those before the first other digit, on both sides of a point.
func leadingZeros(b []byte) (n int) {
	for _, c := range b {
		switch c {
		case '0':
			n++
		case '.':
		default:
			return n
		}
	}
	return n
}

// mostDigits is the number of decimal digits that fit 64 bits in any case.
const mostDigits = 19

// fraction appends the digits at b[i], which end before b[end], to the number n, modulo 2^64.
// It reads eight bytes at a time (Lemire 2021, Number parsing at a gigabyte per second).
func fraction(b []byte, i int, n uint64) (sum uint64, end int) {
	for i+8 <= len(b) {
		v := binary.LittleEndian.Uint64(b[i : i+8])
		// The high bit of each byte that is no digit; right up to the first of them.
		others := ((v + 0x4646464646464646) | (v - 0x3030303030303030)) & 0x8080808080808080
		if v &= 0x0f0f0f0f0f0f0f0f; others == 0 {
			n, i = n*1e8+eightDigits(v), i+8
			continue
		}
		k := bits.TrailingZeros64(others) / 8
		half := uint(32-4*k) & 63 // of the bits that are no digits'
		return n*powers[k&15] + eightDigits(v<<half<<half), i + k
	}
	return digitByDigit(b, i, n)
}

func digitByDigit(b []byte, i int, n uint64) (sum uint64, end int) {
	for ; i < len(b) && b[i]-'0' < 10; i++ {
		n = 10*n + uint64(b[i]-'0')
	}
	return n, i
}

// eightDigits is the number of eight digits, one in each byte, the first in the lowest.
func eightDigits(v uint64) uint64 {
	v = v*10 + v>>8 // pairs of digits, in every other byte
	const pairs = 0x000000ff000000ff
	return (v&pairs*(100+1_000_000<<32) + v>>16&pairs*(1+10_000<<32)) >> 32
}

// shortExponent reads an exponent of up to four digits at b[i].
func shortExponent(b []byte, i int) (exponent, end int, ok bool) {
	negative := false
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		negative = b[i] == '-'
		i++
	}
	first := i
	for ; i < len(b) && b[i]-'0' < 10 && i-first < 5; i++ {
		exponent = 10*exponent + int(b[i]-'0')
	}
	if negative {
		exponent = -exponent
	}
	return exponent, i, i > first && i-first < 5
}

// tooLong stands for digits that do not fit 64 bits.
const tooLong = math.MaxUint64

// digits is the number of the digits at b[i], which end before b[end].
func digits(b []byte, i int) (n uint64, end int) {
	for ; i < len(b) && b[i]-'0' < 10; i++ {
		if n > tooLong/10-1 {
			n = tooLong
		} else {
			n = 10*n + uint64(b[i]-'0')
		}
	}
	return n, i
}

// powers of ten that fit 64 bits.
var powers = func() (p [20]uint64) {
	p[0] = 1
	for k := range len(p) - 1 {
		p[k+1] = 10 * p[k]
	}
	return p
}()

// scaled is the float64 nearest to m·10^k. It is not ok beyond the table, and where the first 128
// bits of the power leave that number open (Lemire 2021, algorithm 1).
func scaled(m uint64, k int) (x float64, ok bool) {
	if m < 1e15 && -22 <= k && k <= 0 { // both are float64 without rounding (Clinger 1990)
		return float64(int64(m)) / tens64[-k], true
	}
	if m == 0 {
		return 0, true
	}
	if k < -mostScale || k > mostScale {
		return 0, false
	}
	const bias, fraction, below = 1023, 52, 1<<9 - 1 // of float64, and the bits behind those that it keeps
	power := &tens[k+mostScale]
	up := bits.LeadingZeros64(m)
	m <<= up & 63
	high, low := bits.Mul64(m, power.high)
	if high&below == below && low+m < m { // what is behind the product's end may carry this far
		high2, low2 := bits.Mul64(m, power.low)
		var carry uint64
		low, carry = bits.Add64(low, high2, 0)
		high += carry
		if high&below == below && low == math.MaxUint64 && low2+m < m {
			return 0, false
		}
	}
	top := high >> 63
	mantissa := high >> ((top + 9) & 63) // 54 bits
	if low == 0 && high&below == 0 && mantissa&3 == 1 {
		return 0, false // half way between two numbers, perhaps
	}
	exponent := power.exponent + bias + 63 - up + int(top)
	mantissa = (mantissa + mantissa&1) >> 1
	// A carry out of the mantissa is one into the exponent, above which it leaves zeros.
	return math.Float64frombits(uint64(exponent-1)<<fraction + mantissa), true
}

// tens64 are powers of ten that float64 has without rounding.
var tens64 = [23]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// mostScale bounds the powers of the table. float64 has 10^±308, but long texts are rare there.
const mostScale = 60

// tens are the powers of ten from 10^-mostScale on.
var tens = func() (t [2*mostScale + 1]tenth) {
	for k := range mostScale + 1 {
		power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(k)), nil)
		n := power.BitLen()
		t[mostScale-k] = tenthOf(new(big.Int).Quo(new(big.Int).Lsh(big.NewInt(1), uint(127+n)), power), -n)
		t[mostScale+k] = tenthOf(new(big.Int).Lsh(power, 128), -1)
	}
	return t
}()

// tenth is a power of ten: high·2^64+low are the first 128 bits of it, the highest of which is
// set. With the point behind that one and times 2^exponent they are the power, rounded down.
type tenth struct {
	high, low uint64
	exponent  int
}

// tenthOf is v·2^(exponent-127), of 128 bits or more.
func tenthOf(v *big.Int, exponent int) tenth {
	more := v.BitLen() - 128
	v.Rsh(v, uint(more))
	low := new(big.Int).And(v, new(big.Int).SetUint64(math.MaxUint64))
	return tenth{v.Rsh(v, 64).Uint64(), low.Uint64(), exponent + more}
}

// numeric are the bytes that decimal numbers are made of. Of texts without other bytes
// ParseFloat accepts the decimal numbers only.
var numeric = func() (is [256]bool) {
	for _, c := range []byte("0123456789.-+eE") {
		is[c] = true
	}
	return is
}()
