package flags

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"ringmaster/internal/units"
)

// Limits are the numbers that a flag allows.
type Limits[T cmp.Ordered] struct {
	least, most T
	above       bool // least itself is not allowed
	open        bool // help does not show most, because it only catches slips
}

// Within allows the numbers from least to most.
func Within[T cmp.Ordered](least, most T) Limits[T] { return Limits[T]{least: least, most: most} }

// The largest value of a number without a limit of its own.
const (
	MostNumber   = 1_000_000_000
	MostDuration = 10 * 365 * 24 * time.Hour
)

// From allows whole numbers from least on.
func From(least int) Limits[int] { return Limits[int]{least: least, most: MostNumber, open: true} }

// FromFloat allows numbers from least on.
func FromFloat(least float64) Limits[float64] {
	return Limits[float64]{least: least, most: MostNumber, open: true}
}

// AboveZero allows positive numbers.
func AboveZero() Limits[float64] {
	return Limits[float64]{most: MostNumber, above: true, open: true}
}

// FromDuration allows durations from least on.
func FromDuration(least time.Duration) Limits[time.Duration] {
	return Limits[time.Duration]{least: least, most: MostDuration, open: true}
}

// AnyDuration allows positive durations.
func AnyDuration() Limits[time.Duration] {
	return Limits[time.Duration]{most: MostDuration, above: true, open: true}
}

// in reports whether x is allowed. NaN is not.
func (l Limits[T]) in(x T) bool {
	return x >= l.least && x <= l.most && (!l.above || x > l.least)
}

// words describes the limits for help, or with all for an error.
func (l Limits[T]) words(form func(T) string, all bool) string {
	switch {
	case l.open && !all && l.above:
		return "more than " + form(l.least)
	case l.open && !all:
		return form(l.least) + " or more"
	case l.above:
		return fmt.Sprintf("more than %s, at most %s", form(l.least), form(l.most))
	}
	return form(l.least) + " to " + form(l.most)
}

// numbers says how a type of number is read and written.
type numbers[T cmp.Ordered] struct {
	typ, what string
	parse     func(text string) (T, error)
	form      func(T) string
}

var (
	ints  = numbers[int]{"int", "a whole number", strconv.Atoi, strconv.Itoa}
	longs = numbers[int64]{"int64", "a whole number", func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) },
		func(n int64) string { return strconv.FormatInt(n, 10) }}
	seeds = numbers[uint64]{"uint64", "a whole number", func(s string) (uint64, error) { return strconv.ParseUint(s, 0, 64) },
		func(n uint64) string { return strconv.FormatUint(n, 10) }}
	floats = numbers[float64]{"float64", "a number", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) },
		func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }}
	durations = numbers[time.Duration]{"duration", "a duration such as 90s or 5m,", time.ParseDuration, units.Duration}
)

// checked returns a parser that enforces limits, and the description of the limits for
// errors.
func (n numbers[T]) checked(l Limits[T]) (parse func(string) (T, error), allowed string) {
	allowed = n.what + " from " + l.words(n.form, true)
	if l.above {
		allowed = n.what + " " + l.words(n.form, true)
	}
	return func(text string) (T, error) {
		x, err := n.parse(text)
		if err != nil || !l.in(x) {
			return x, expected(allowed)
		}
		return x, nil
	}, allowed
}

func number[T cmp.Ordered](f *pflag.FlagSet, n numbers[T], p *T, name string, def T, l Limits[T], usage string) {
	parse, allowed := n.checked(l)
	*p = def
	declare(f, &one[T]{p, n.typ, Number, allowed, parse, n.form}, name, usage, l.words(n.form, false))
}

func numberList[T cmp.Ordered](f *pflag.FlagSet, n numbers[T], p *[]T, name string, def []T, l Limits[T], usage string) {
	parse, allowed := n.checked(l)
	*p = def
	declare(f, &list[T]{p: p, typ: n.typ + "Slice", kind: Number, allowed: allowed, commas: true, parse: parse, form: n.form}, name, usage, l.words(n.form, false))
}

// Int declares a whole number.
func Int(f *pflag.FlagSet, p *int, name string, def int, l Limits[int], usage string) {
	number(f, ints, p, name, def, l, usage)
}

// Int64 declares a whole number.
func Int64(f *pflag.FlagSet, p *int64, name string, def int64, l Limits[int64], usage string) {
	number(f, longs, p, name, def, l, usage)
}

// Seed declares any whole number of 64 bits.
func Seed(f *pflag.FlagSet, p *uint64, name string, def uint64, usage string) {
	number(f, seeds, p, name, def, Limits[uint64]{most: math.MaxUint64, open: true}, usage)
}

// Float declares a number.
func Float(f *pflag.FlagSet, p *float64, name string, def float64, l Limits[float64], usage string) {
	number(f, floats, p, name, def, l, usage)
}

// Duration declares a duration.
func Duration(f *pflag.FlagSet, p *time.Duration, name string, def time.Duration, l Limits[time.Duration], usage string) {
	number(f, durations, p, name, def, l, usage)
}

// Ints declares whole numbers, separated by commas or given by repeating the flag.
func Ints(f *pflag.FlagSet, p *[]int, name string, def []int, l Limits[int], usage string) {
	numberList(f, ints, p, name, def, l, usage)
}

// Floats declares numbers, separated by commas or given by repeating the flag.
func Floats(f *pflag.FlagSet, p *[]float64, name string, def []float64, l Limits[float64], usage string) {
	numberList(f, floats, p, name, def, l, usage)
}
