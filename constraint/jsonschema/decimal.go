package jsonschema

import (
	"cmp"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// decimal is an exact number in the one form that equal numbers share: 0.DIGITS * 10^exp,
// where the digits neither begin nor end with 0. Zero has no digits. Comparing two costs
// no more than comparing their texts, however large they are.
type decimal struct {
	negative bool
	digits   string
	exp      int
}

// maxExponent bounds the exponents of numbers that can be told apart.
const maxExponent = 1 << 30

// parseDecimal reads a number of JSON; false: its exponent is beyond maxExponent.
func parseDecimal(text string) (d decimal, ok bool) {
	text, d.negative = strings.CutPrefix(text, "-")
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exp, err := strconv.Atoi(text[i+1:])
		if err != nil || exp > maxExponent || exp < -maxExponent {
			return decimal{}, false
		}
		text, d.exp = text[:i], exp
	}
	whole, fraction, _ := strings.Cut(text, ".")
	d.exp += len(whole)
	d.digits = whole + fraction
	n := len(d.digits)
	d.digits = strings.TrimLeft(d.digits, "0")
	d.exp -= n - len(d.digits)
	d.digits = strings.TrimRight(d.digits, "0")
	if d.digits == "" {
		d = decimal{}
	}
	return d, true
}

// isInt reports whether d is an integer.
func (d decimal) isInt() bool { return d.fraction() == 0 }

// whole returns the number of digits before the point, without leading zeros.
func (d decimal) whole() int { return max(0, d.exp) }

// fraction returns the number of digits behind the point.
func (d decimal) fraction() int {
	if d.digits == "" {
		return 0
	}
	return max(0, len(d.digits)-d.exp)
}

// sign returns -1, 0 or 1.
func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// cmp compares two numbers.
func (d decimal) cmp(e decimal) int {
	if c := cmp.Compare(d.sign(), e.sign()); c != 0 || d.digits == "" {
		return c
	}
	c := cmp.Compare(d.exp, e.exp)
	if c == 0 {
		c = strings.Compare(d.digits, e.digits)
	}
	return c * d.sign()
}

// key is equal for equal numbers only.
func (d decimal) key() string {
	sign := ""
	if d.negative {
		sign = "-"
	}
	return sign + d.digits + "e" + strconv.Itoa(d.exp)
}

// small reports whether d has so few digits that computing with it costs little.
func (d decimal) small() bool { return d.whole() <= maxDigits+1 && d.fraction() <= maxFraction }

// rat returns a small number as a fraction.
func (d decimal) rat() *big.Rat {
	out, ok := new(big.Rat).SetString(d.text())
	if !ok {
		panic(fmt.Sprintf("jsonschema: %q is not a number", d.text()))
	}
	return out
}

// text returns a small number without an exponent.
func (d decimal) text() string {
	sign := ""
	if d.negative {
		sign = "-"
	}
	switch {
	case d.digits == "":
		return "0"
	case d.exp <= 0:
		return sign + "0." + strings.Repeat("0", -d.exp) + d.digits
	case d.exp >= len(d.digits):
		return sign + d.digits + strings.Repeat("0", d.exp-len(d.digits))
	}
	return sign + d.digits[:d.exp] + "." + d.digits[d.exp:]
}
