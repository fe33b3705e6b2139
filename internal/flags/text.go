package flags

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

func same(text string) string { return text }

// checkedText returns a parser of texts that check allows.
func checkedText(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) {
		if check == nil {
			return text, nil
		}
		return text, check(text)
	}
}

func wordIn(words []string) func(string) error {
	return func(text string) error {
		if !slices.Contains(words, text) {
			return expected(oneOf(words))
		}
		return nil
	}
}

// text declares a flag that takes every text.
func text(f *pflag.FlagSet, kind Kind, p *string, name, def, usage string) {
	*p = def
	declare(f, &one[string]{p, "string", kind, "", checkedText(nil), same}, name, usage, "")
}

func texts(f *pflag.FlagSet, kind Kind, p *[]string, name string, def []string, commas bool, usage, allowed string, check func(string) error) {
	typ := "stringArray"
	if commas {
		typ = "stringSlice"
	}
	*p = def
	declare(f, &list[string]{p: p, typ: typ, kind: kind, allowed: allowed, commas: commas, parse: checkedText(check), form: same}, name, usage, "")
}

// OneOf declares one of several words; usage names them. The empty text is allowed if the
// default is empty.
func OneOf(f *pflag.FlagSet, p *string, name, def string, words []string, usage string) *pflag.Flag {
	return WordOf(f, p, name, def, words, checkedText(nil), usage)
}

// SomeOf declares several of some words, separated by commas or given by repeating the
// flag; usage names them.
func SomeOf(f *pflag.FlagSet, p *[]string, name string, def, words []string, usage string) {
	texts(f, Word, p, name, def, true, usage, oneOf(words), wordIn(words))
	name, _, _ = strings.Cut(name, ",")
	Propose(f.Lookup(name), words...)
}

// Parsed declares a text. check decides whether it is allowed, and allowed describes
// that. The empty text is allowed if the default is empty.
func Parsed(f *pflag.FlagSet, p *string, name, def, allowed string, check func(string) error, usage string) {
	Typed(f, p, name, def, allowed, checkedText(check), usage)
}

// ParsedList declares such texts, by repeating the flag, or also separated by commas.
func ParsedList(f *pflag.FlagSet, p *[]string, name string, commas bool, allowed string, check func(string) error, usage string) {
	texts(f, Form, p, name, nil, commas, usage, allowed, func(s string) error { return explained(check(s), allowed) })
}

// typed is a flag that parses its text into a value of another type.
type typed[T any] struct {
	one[string]
	value *T
	read  func(text string) (T, error)
}

// Set is described at pflag.Value.
func (v *typed[T]) Set(text string) error {
	x, err := v.read(text)
	if err == nil {
		*v.value, *v.p = x, text
	}
	return err
}

func declareTyped[T any](f *pflag.FlagSet, p *T, kind Kind, name, def, allowed string, parse func(text string) (T, error), usage string) *pflag.Flag {
	read := func(text string) (x T, err error) {
		if text == "" && def == "" {
			return x, nil
		}
		if x, err = parse(text); err != nil {
			return x, explained(err, allowed)
		}
		return x, nil
	}
	check := func(text string) (string, error) {
		_, err := read(text)
		return text, err
	}
	text := ""
	v := &typed[T]{one[string]{&text, "string", kind, allowed, check, same}, p, read}
	if err := v.Set(def); err != nil {
		panic("flags: the default of --" + name + ": " + err.Error())
	}
	return declare(f, v, name, usage, "")
}

// Typed declares a text that parse turns into a value; allowed describes valid texts. The
// text is parsed when it is set, so that the value always comes from parse. An empty text
// is the zero value if the default is empty.
func Typed[T any](f *pflag.FlagSet, p *T, name, def, allowed string, parse func(text string) (T, error), usage string) *pflag.Flag {
	return declareTyped(f, p, Form, name, def, allowed, parse, usage)
}

// WordOf is Typed for one of several words; usage names them.
func WordOf[T any](f *pflag.FlagSet, p *T, name, def string, words []string, parse func(text string) (T, error), usage string) *pflag.Flag {
	allowed := oneOf(words)
	return Propose(declareTyped(f, p, Word, name, def, allowed, func(text string) (x T, err error) {
		if err = wordIn(words)(text); err == nil {
			x, err = parse(text)
		}
		return x, err
	}, usage), words...)
}

// TypedList is Typed for texts that may be repeated.
func TypedList[T fmt.Stringer](f *pflag.FlagSet, p *[]T, name string, commas bool, allowed string, parse func(text string) (T, error), usage string) {
	typ := "stringArray"
	if commas {
		typ = "stringSlice"
	}
	read := func(text string) (T, error) {
		x, err := parse(text)
		return x, explained(err, allowed)
	}
	declare(f, &list[T]{p: p, typ: typ, kind: Form, allowed: allowed, commas: commas, parse: read, form: T.String}, name, usage, "")
}

// Text declares any text.
func Text(f *pflag.FlagSet, p *string, name, def, usage string) {
	text(f, Any, p, name, def, usage)
}

// Texts declares any texts, by repeating the flag, or also separated by commas.
func Texts(f *pflag.FlagSet, p *[]string, name string, commas bool, usage string) {
	texts(f, Any, p, name, nil, commas, usage, "", nil)
}

// File declares a file that is read or must exist.
func File(f *pflag.FlagSet, p *string, name, usage string) {
	text(f, Input, p, name, "", usage)
}

// Out declares a file or directory to write.
func Out(f *pflag.FlagSet, p *string, name, def, usage string) {
	text(f, Output, p, name, def, usage)
}

// explained returns an error with what is allowed instead of a check's wording, unless
// the check says that too.
func explained(err error, allowed string) error {
	if err == nil || strings.HasSuffix(err.Error(), "expected "+allowed) {
		return err
	}
	return expected(allowed)
}

// TrueOrFalse describes the values of a switch.
const TrueOrFalse = "true or false"

// Bool declares a switch.
func Bool(f *pflag.FlagSet, p *bool, name string, def bool, usage string) {
	*p = def
	parse := func(text string) (bool, error) {
		x, err := strconv.ParseBool(text)
		if err != nil {
			return x, expected(TrueOrFalse)
		}
		return x, nil
	}
	declare(f, &one[bool]{p, "bool", Word, TrueOrFalse, parse, strconv.FormatBool}, name, usage, "").NoOptDefVal = "true"
}
