package jsonschema

import (
	"math/big"
	"strings"

	c "ringmaster/constraint"
)

// maxModulus bounds multipleOf, as an integer without its decimal point.
const maxModulus = 1024

// multiples makes the grammar of the multiples of modulus / 10^places. Numbers are read as
// integers of that many places more, from the first digit on, with the remainder so far.
type multiples struct {
	k       *compiler
	modulus int
	places  int  // behind the point
	point   bool // a point may be written

	made map[multipleAt]*c.Expr
	loop []*c.Rule // [modulus] any further digits before the point, by the remainder
}

// multipleAt is a place within numbers of so many digits.
type multipleAt struct {
	left      int    // digits before the point that follow; negative: behind it
	first     bool   // a digit must follow, because the point precedes
	low, high string // digits of the bounds that follow; "" is no bound
	remainder int
}

// multipleOf returns the grammar of the multiples that an alternative demands, nil if they
// cannot be enforced.
func (k *compiler) multipleOf(r *rules) *c.Expr {
	n := *r.multiple
	if !n.small() {
		return nil
	}
	modulus, places := n.rat(), n.fraction()
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil)
	m := new(big.Int).Mul(modulus.Num(), new(big.Int).Div(scale, modulus.Denom())) // modulus * scale
	if r.kinds&number == 0 && places > 0 {                                         // the integers among them
		m.Div(m, new(big.Int).GCD(nil, nil, m, scale))
		places, scale = 0, big.NewInt(1)
	}
	if !m.IsInt64() || m.Int64() > maxModulus {
		return nil
	}
	if !k.spend(32 * int(m.Int64())) {
		return c.Never()
	}
	g := &multiples{k: k, modulus: int(m.Int64()), places: places, point: r.kinds&number != 0, made: map[multipleAt]*c.Expr{}}
	var low, high *big.Int
	if r.low.set {
		exact := new(big.Rat).Mul(r.low.rat(), new(big.Rat).SetInt(scale))
		low = floor(exact)
		if r.low.open || !exact.IsInt() {
			low.Add(low, big.NewInt(1))
		}
	}
	if r.high.set {
		exact := new(big.Rat).Mul(r.high.rat(), new(big.Rat).SetInt(scale))
		high = floor(exact)
		if r.high.open && exact.IsInt() {
			high.Sub(high, big.NewInt(1))
		}
	}
	var out []*c.Expr
	if high == nil || high.Sign() >= 0 {
		from := new(big.Int)
		if low != nil && low.Sign() > 0 {
			from = low
		}
		out = append(out, g.between(from, high))
	}
	if low == nil || low.Sign() < 0 { // mirrored, without -0
		from, to := big.NewInt(1), (*big.Int)(nil)
		if high != nil && high.Sign() < 0 {
			from = new(big.Int).Neg(high)
		}
		if low != nil {
			to = new(big.Int).Neg(low)
		}
		out = append(out, c.Sequence(c.Literal("-"), g.between(from, to)))
	}
	return c.Choice(out...)
}

// between returns the multiples from low, at least 0, to high, nil for no bound; the bounds
// have the places of the multiples.
func (m *multiples) between(low, high *big.Int) *c.Expr {
	digits := func(n *big.Int) int { return max(1, len(n.String())-m.places) }
	power := func(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }
	most := digits(low)
	if high != nil {
		most = digits(high)
	}
	var out []*c.Expr
	for n := digits(low); n <= most && m.k.spend(8*(n+m.places)); n++ {
		from, to := new(big.Int), new(big.Int).Sub(power(n+m.places), big.NewInt(1))
		if n > 1 {
			from = power(n - 1 + m.places)
		}
		if from.Cmp(low) < 0 {
			from = low
		}
		if high != nil && to.Cmp(high) > 0 {
			to = high
		}
		if from.Cmp(to) > 0 {
			continue
		}
		pad := func(b *big.Int) string {
			s := b.String()
			return strings.Repeat("0", n+m.places-len(s)) + s
		}
		out = append(out, m.digits(multipleAt{left: n, low: pad(from), high: pad(to)}))
	}
	if high == nil { // longer ones
		rules := m.longer()
		for d := 1; d < 10; d++ {
			// As many digits as the longest above, and at least one more.
			e := c.Use(rules[d%m.modulus])
			out = append(out, c.Sequence(c.Literal(string(rune('0'+d))), m.more(most, d%m.modulus, e)))
		}
	}
	return c.Choice(out...)
}

// more returns n digits and then any number of them, after a remainder; e is any number of
// them.
func (m *multiples) more(n, remainder int, e *c.Expr) *c.Expr {
	if n == 0 {
		return e
	}
	key := multipleAt{left: n, low: "more", remainder: remainder}
	if e := m.made[key]; e != nil {
		return e
	}
	if !m.k.spend(32) {
		return c.Never()
	}
	var out []*c.Expr
	for d := range 10 {
		next := (10*remainder + d) % m.modulus
		out = append(out, c.Sequence(c.Literal(string(rune('0'+d))), m.more(n-1, next, c.Use(m.loop[next]))))
	}
	m.made[key] = c.Shared("a multiple", c.Choice(out...))
	return m.made[key]
}

// longer returns the rules of any number of digits before the point.
func (m *multiples) longer() []*c.Rule {
	if m.loop != nil {
		return m.loop
	}
	m.loop = make([]*c.Rule, m.modulus)
	for i := range m.loop {
		m.loop[i] = &c.Rule{Name: "a multiple"}
	}
	for i := range m.loop {
		out := []*c.Expr{m.rest(multipleAt{remainder: i})}
		for d := range 10 {
			out = append(out, c.Sequence(c.Literal(string(rune('0'+d))), c.Use(m.loop[(10*i+d)%m.modulus])))
		}
		m.loop[i].Body = c.Choice(out...)
	}
	return m.loop
}

// free drops bounds that no further digit can violate.
func (a multipleAt) free() multipleAt {
	if strings.Trim(a.low, "0") == "" {
		a.low = ""
	}
	if strings.Trim(a.high, "9") == "" {
		a.high = ""
	}
	return a
}

// digits returns a digit and what follows it.
func (m *multiples) digits(at multipleAt) *c.Expr {
	at = at.free()
	at.first = true
	if e := m.made[at]; e != nil {
		return e
	}
	if !m.k.spend(32) {
		return c.Never()
	}
	low, high := byte('0'), byte('9')
	if at.low != "" {
		low = at.low[0]
	}
	if at.high != "" {
		high = at.high[0]
	}
	var out []*c.Expr
	for d := low; d <= high; d++ {
		next := multipleAt{left: at.left - 1, remainder: (10*at.remainder + int(d-'0')) % m.modulus}
		if at.low != "" && d == low {
			next.low = at.low[1:]
		}
		if at.high != "" && d == high {
			next.high = at.high[1:]
		}
		if rest := m.rest(next.free()); !rest.IsNever() {
			out = append(out, c.Sequence(c.Literal(string(rune(d))), rest))
		}
	}
	e := c.Choice(out...)
	if !e.IsNever() {
		e = c.Shared("a multiple", e)
	}
	m.made[at] = e
	return e
}

// rest returns what follows a digit.
func (m *multiples) rest(at multipleAt) *c.Expr {
	if at.left > 0 {
		return m.digits(at)
	}
	behind := m.places + at.left // places that follow
	var out []*c.Expr
	remainder := at.remainder
	for range behind {
		remainder = 10 * remainder % m.modulus
	}
	if remainder == 0 && at.low == "" { // the places that are not written are zeros
		out = append(out, c.Empty())
	}
	switch {
	case at.left == 0 && m.point && behind > 0:
		out = append(out, c.Sequence(c.Literal("."), m.digits(at)))
	case at.left == 0 && m.point && remainder == 0:
		out = append(out, c.Sequence(c.Literal("."), c.Repeat(c.Literal("0"), 1, maxFraction)))
	case behind > 0:
		out = append(out, m.digits(at))
	case at.left < 0 && remainder == 0:
		out = []*c.Expr{c.Repeat(c.Literal("0"), 0, maxFraction-m.places)}
	}
	return c.Choice(out...)
}
