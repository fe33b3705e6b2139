// Package flags declares flags with the values that they allow. A flag refuses another
// value when it is set, wherever the value comes from, and help shows the limits.
//
// A name such as "ctx,c" has a shorthand after the comma.
package flags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Kind says what the texts of a flag mean.
type Kind int

// The kinds. A flag of kind Any takes every text; the others refuse some.
const (
	Number Kind = iota
	Word        // one of a few
	Form        // a text that is parsed: a size, an address, a rate
	Any         // a name, a key, a message
	Input       // a file to read; it is not checked before it is read
	Output      // a file or directory to write
)

// Value is the value of a flag of this package.
type Value interface {
	pflag.Value
	// Kind returns what the texts mean.
	Kind() Kind
	// Allowed says which values are valid, in words that follow "expected"; empty if all.
	Allowed() string
}

// declare adds a flag; help shows limits (numbers only).
func declare(f *pflag.FlagSet, v Value, name, usage, limits string) *pflag.Flag {
	name, short, _ := strings.Cut(name, ",")
	if limits != "" {
		usage += " (" + limits + ")"
	}
	flag := f.VarPF(v, name, short, usage)
	switch flag.DefValue {
	case "0s", "[]": // so that help leaves out a default of 0
		flag.DefValue = ""
	}
	return flag
}

// one is a flag with one value.
type one[T any] struct {
	p       *T
	typ     string // in pflag's terms
	kind    Kind
	allowed string
	parse   func(text string) (T, error)
	form    func(T) string
}

func (v *one[T]) String() string {
	if v.p == nil { // pflag calls this on an empty value
		return ""
	}
	return v.form(*v.p)
}

func (v *one[T]) Type() string    { return v.typ }
func (v *one[T]) Kind() Kind      { return v.kind }
func (v *one[T]) Allowed() string { return v.allowed }

func (v *one[T]) Set(text string) error {
	x, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.p = x
	return nil
}

// list is a flag that may be repeated.
type list[T any] struct {
	p       *[]T
	typ     string
	kind    Kind
	allowed string
	commas  bool // values may be separated by commas, as in 1,2,4
	parse   func(text string) (T, error)
	form    func(T) string
	given   bool // a value has replaced the default
}

func (v *list[T]) Type() string    { return v.typ }
func (v *list[T]) Kind() Kind      { return v.kind }
func (v *list[T]) Allowed() string { return v.allowed }

func (v *list[T]) String() string {
	if v.p == nil {
		return "[]"
	}
	return "[" + strings.Join(v.GetSlice(), ",") + "]"
}

func (v *list[T]) Set(text string) error {
	texts := []string{text}
	if v.commas {
		texts = strings.Split(text, ",")
	}
	values, err := v.all(texts)
	if err != nil {
		return err
	}
	if v.given {
		values = append(*v.p, values...)
	}
	*v.p, v.given = values, true
	return nil
}

func (v *list[T]) all(texts []string) ([]T, error) {
	values := make([]T, len(texts))
	for i, text := range texts {
		var err error
		if values[i], err = v.parse(text); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Append adds a value.
func (v *list[T]) Append(text string) error {
	x, err := v.parse(text)
	if err == nil {
		*v.p, v.given = append(*v.p, x), true
	}
	return err
}

// Replace replaces all values.
func (v *list[T]) Replace(texts []string) error {
	values, err := v.all(texts)
	if err == nil {
		*v.p, v.given = values, true
	}
	return err
}

// GetSlice returns the texts of the values.
func (v *list[T]) GetSlice() []string {
	out := make([]string, len(*v.p))
	for i, x := range *v.p {
		out[i] = v.form(x)
	}
	return out
}

// oneOf joins words for a sentence: a, b or c.
func oneOf(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

// Explain gives the error of a flag set the wording of the other errors of flags.
func Explain(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	how := errors.Unwrap(bad)
	sign := "; "
	if !strings.HasPrefix(how.Error(), "expected ") {
		sign = ": "
	}
	return fmt.Errorf("--%s is %q%s%w", bad.GetFlag().Name, bad.GetValue(), sign, how)
}

// Unset reports whether a flag has no valid value: none was given, and it has no default.
func Unset(f *pflag.Flag) bool {
	v, ok := f.Value.(interface{ unset() bool })
	return ok && v.unset()
}

func (v *one[T]) unset() bool {
	_, err := v.parse(v.form(*v.p))
	return err != nil
}

// expected returns the error for a value that is not allowed.
func expected(allowed string) error { return fmt.Errorf("expected %s", allowed) }
