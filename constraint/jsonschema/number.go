package jsonschema

import (
	"math/big"
	"strings"

	c "ringmaster/constraint"
)

// The most digits of numbers, before the point and after it, so that no answer is endless
// digits.
const (
	maxDigits   = 100
	maxFraction = 40
)

func digits(low, high byte) *c.Expr {
	var s c.Set
	s.Add(low, high)
	return c.Bytes(s)
}

var (
	digit       = digits('0', '9')
	minus       = c.Optional(c.Literal("-"))
	natural     = c.Choice(c.Literal("0"), c.Sequence(digits('1', '9'), c.Repeat(digit, 0, maxDigits-1)))
	fraction    = c.Optional(c.Sequence(c.Literal("."), c.Repeat(digit, 1, maxFraction)))
	exponent    = c.Optional(c.Sequence(c.Choice(c.Literal("e"), c.Literal("E")), c.Optional(c.Choice(c.Literal("+"), c.Literal("-"))), c.Repeat(digit, 1, 3)))
	anyInteger  = c.Shared("an integer", c.Sequence(minus, natural))
	anyNumber   = c.Shared("a number", c.Sequence(minus, natural, fraction, exponent))
	zeros       = c.Repeat(c.Literal("0"), 0, maxFraction)
	anyFraction = c.Repeat(digit, 0, maxFraction)
)

// bound is an end of a range of numbers.
type bound struct {
	set  bool
	at   decimal // small
	open bool    // the number itself is out of range
}

// below reports whether a number satisfies a lower bound.
func (b bound) below(n decimal) bool {
	c := b.at.cmp(n)
	return !b.set || c < 0 || c == 0 && !b.open
}

// above reports whether a number satisfies an upper bound.
func (b bound) above(n decimal) bool {
	c := b.at.cmp(n)
	return !b.set || c > 0 || c == 0 && !b.open
}

// rat returns the bound itself, nil for none.
func (b bound) rat() *big.Rat {
	if !b.set {
		return nil
	}
	return b.at.rat()
}

// negated returns the bound of the negated numbers.
func (b bound) negated() bound {
	if b.at.digits != "" {
		b.at.negative = !b.at.negative
	}
	return b
}

// integers returns the integers of a range.
func integers(low, high bound) *c.Expr {
	lo, hi := low.rat(), high.rat()
	if lo == nil && hi == nil {
		return anyInteger
	}
	var a, b *big.Int
	if lo != nil {
		a = floor(lo)
		if low.open || !lo.IsInt() {
			a.Add(a, big.NewInt(1))
		}
	}
	if hi != nil {
		b = floor(hi)
		if high.open && hi.IsInt() {
			b.Sub(b, big.NewInt(1))
		}
	}
	return integerRange(a, b)
}

func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclidean, because the denominator is positive
}

// integerRange returns the integers from a to b; nil means no bound.
func integerRange(a, b *big.Int) *c.Expr {
	if a != nil && b != nil && a.Cmp(b) > 0 {
		return c.Never()
	}
	var out []*c.Expr
	one := big.NewInt(1)
	if a == nil || a.Sign() < 0 { // from 1 to -a, negated
		from, to := one, (*big.Int)(nil)
		if b != nil && b.Sign() < 0 {
			from = new(big.Int).Neg(b)
		}
		if a != nil {
			to = new(big.Int).Neg(a)
		}
		out = append(out, c.Sequence(c.Literal("-"), positive(from, to)))
	}
	if (a == nil || a.Sign() <= 0) && (b == nil || b.Sign() >= 0) {
		out = append(out, c.Literal("0"))
	}
	if b == nil || b.Sign() > 0 {
		from := one
		if a != nil && a.Sign() > 0 {
			from = a
		}
		out = append(out, positive(from, b))
	}
	return c.Choice(out...)
}

// positive returns the integers from a, at least 1, to b.
func positive(a, b *big.Int) *c.Expr {
	low := a.String()
	if b != nil {
		high := b.String()
		var out []*c.Expr
		for n := len(low); n <= len(high); n++ {
			from, to := "1"+strings.Repeat("0", n-1), strings.Repeat("9", n)
			if n == len(low) {
				from = low
			}
			if n == len(high) {
				to = high
			}
			out = append(out, sameLength(from, to))
		}
		return c.Choice(out...)
	}
	out := []*c.Expr{sameLength(low, strings.Repeat("9", len(low)))}
	if len(low) < maxDigits {
		out = append(out, c.Sequence(digits('1', '9'), c.Repeat(digit, len(low), maxDigits-1)))
	}
	return c.Choice(out...)
}

// sameLength returns the texts of digits from a to b, which have the same length.
func sameLength(a, b string) *c.Expr {
	n := len(a)
	if n == 0 {
		return c.Empty()
	}
	if a == strings.Repeat("0", n) && b == strings.Repeat("9", n) {
		return c.Repeat(digit, n, n)
	}
	if a[0] == b[0] {
		return c.Sequence(c.Literal(a[:1]), sameLength(a[1:], b[1:]))
	}
	out := []*c.Expr{
		c.Sequence(c.Literal(a[:1]), sameLength(a[1:], strings.Repeat("9", n-1))),
		c.Sequence(c.Literal(b[:1]), sameLength(strings.Repeat("0", n-1), b[1:])),
	}
	if a[0]+1 < b[0] {
		out = append(out, c.Sequence(digits(a[0]+1, b[0]-1), c.Repeat(digit, n-1, n-1)))
	}
	return c.Choice(out...)
}

// numbers returns the numbers of a range; with a bound they have no exponent.
func numbers(low, high bound) *c.Expr {
	if !low.set && !high.set {
		return anyNumber
	}
	var out []*c.Expr
	if !high.set || high.at.sign() >= 0 && !(high.open && high.at.sign() == 0) {
		from := bound{set: true}
		if low.set && low.at.sign() >= 0 {
			from = low
		}
		out = append(out, notNegative(from, high))
	}
	if !low.set || low.at.sign() < 0 { // mirrored, without -0
		from, to := bound{set: true, open: true}, bound{}
		if high.set && high.at.sign() < 0 {
			from = high.negated()
		}
		if low.set {
			to = low.negated()
		}
		out = append(out, c.Sequence(c.Literal("-"), notNegative(from, to)))
	}
	return c.Choice(out...)
}

// notNegative returns the numbers from low, at least 0, to high.
func notNegative(low, high bound) *c.Expr {
	a, fa := parts(low.rat())
	any := func(from, to *big.Int) *c.Expr { return c.Sequence(integerRange(from, to), fraction) }
	next := new(big.Int).Add(a, big.NewInt(1))
	if !high.set {
		return c.Choice(c.Sequence(c.Literal(a.String()), point(tail{low: &fa, lowOpen: low.open})), any(next, nil))
	}
	b, fb := parts(high.rat())
	switch a.Cmp(b) {
	case 1:
		return c.Never()
	case 0:
		return c.Sequence(c.Literal(a.String()), point(tail{&fa, &fb, low.open, high.open}))
	}
	return c.Choice(
		c.Sequence(c.Literal(a.String()), point(tail{low: &fa, lowOpen: low.open})),
		any(next, new(big.Int).Sub(b, big.NewInt(1))),
		c.Sequence(c.Literal(b.String()), point(tail{high: &fb, highOpen: high.open})),
	)
}

// parts returns the integer and the digits behind the point of a number that is not
// negative and has at most maxFraction of them.
func parts(r *big.Rat) (*big.Int, string) {
	text := strings.TrimRight(r.FloatString(maxFraction), "0")
	whole, behind, _ := strings.Cut(text, ".")
	n, _ := new(big.Int).SetString(whole, 10)
	return n, behind
}

// tail is the remaining digits of a fraction, from low to high.
type tail struct {
	low, high         *string // digits; nil: no bound
	lowOpen, highOpen bool
}

func zero(s string) bool { return strings.Trim(s, "0") == "" }

// nothing reports whether no more digits, which means zero, is within the bounds.
func (t tail) nothing() bool {
	return (t.low == nil || zero(*t.low) && !t.lowOpen) && (t.high == nil || !zero(*t.high) || !t.highOpen)
}

// point returns a fraction with its point, or none.
func point(t tail) *c.Expr {
	var out []*c.Expr
	if t.nothing() {
		out = append(out, c.Empty())
	}
	if some := t.digits(false); !some.IsNever() {
		out = append(out, c.Sequence(c.Literal("."), some))
	}
	return c.Choice(out...)
}

// digits returns the texts of digits within the bounds, with or without the empty one.
func (t tail) digits(empty bool) *c.Expr {
	if t.low == nil && t.high == nil {
		if empty {
			return anyFraction
		}
		return c.Repeat(digit, 1, maxFraction)
	}
	var out []*c.Expr
	if empty && t.nothing() {
		out = append(out, c.Empty())
	}
	a, b := byte('0'), byte('9')
	rest := func(s *string) (byte, *string) {
		if *s == "" {
			return '0', s
		}
		after := (*s)[1:]
		return (*s)[0], &after
	}
	var low, high *string
	if t.low != nil {
		a, low = rest(t.low)
	}
	if t.high != nil {
		b, high = rest(t.high)
	}
	if t.low != nil && *t.low == "" && t.high == nil { // anything, except zero if it is open
		if t.lowOpen {
			out = append(out, c.Sequence(zeros, digits('1', '9'), anyFraction))
		} else {
			out = append(out, c.Repeat(digit, 1, maxFraction))
		}
		return c.Choice(out...)
	}
	if t.high != nil && *t.high == "" && (t.low == nil || *t.low == "") { // zeros only
		if !t.highOpen && (t.low == nil || !t.lowOpen) {
			out = append(out, c.Repeat(c.Literal("0"), 1, maxFraction))
		}
		return c.Choice(out...)
	}
	for d := a; d <= b; d++ {
		next := tail{lowOpen: t.lowOpen, highOpen: t.highOpen}
		if t.low != nil && d == a {
			next.low = low
		}
		if t.high != nil && d == b {
			next.high = high
		}
		if more := next.digits(true); !more.IsNever() {
			out = append(out, c.Sequence(c.Literal(string(d)), more))
		}
	}
	return c.Choice(out...)
}
