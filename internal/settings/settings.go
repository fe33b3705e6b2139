// Package settings sets the flags of a command that are not on its command line, from
// environment variables (FromEnvironment) and from a file (Find, Parse, File.Apply), and
// records where each value came from.
package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// secretMark is the annotation of secret flags, which are never shown.
const secretMark = "ringmaster_secret"

// MarkSecret makes errors, logs and lists of settings hide the values of flags. It panics
// for an unknown flag.
func MarkSecret(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, secretMark, []string{"true"}); err != nil {
			panic(err)
		}
	}
}

// Secret reports whether the value of a flag is never shown.
func Secret(f *pflag.Flag) bool { return f.Annotations[secretMark] != nil }

// Source is the kind of place that a value came from, in the order of precedence.
type Source int

// The kinds of places. A later one takes precedence over an earlier one.
const (
	Default Source = iota
	InFile
	Environment
	CommandLine
)

var sourceNames = [...]string{Default: "default", InFile: "file", Environment: "environment", CommandLine: "command line"}

// String returns the name of the kind.
func (s Source) String() string { return sourceNames[s] }

// Origin is the place of a value: its kind, and the name of the variable or the file with
// the line.
type Origin struct {
	Source Source
	Name   string // of the variable, or path of the file
	Line   int    // in the file, from 1; otherwise 0
}

// String names the place.
func (o Origin) String() string {
	switch o.Source {
	case Environment:
		return "environment " + o.Name
	case InFile:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	default:
		return o.Source.String()
	}
}

// Origins maps flags to the places of their values. For a flag that is not listed, pflag
// knows whether it came from the command line; otherwise it has its default.
type Origins map[string]Origin

// Of returns the place of a flag's value.
func (o Origins) Of(f *pflag.Flag) Origin {
	if from, ok := o[f.Name]; ok {
		return from
	}
	if f.Changed {
		return Origin{Source: CommandLine}
	}
	return Origin{}
}

// Given reports whether a flag is on the command line or in its own variable, so that
// other variables do not count.
func (o Origins) Given(flags *pflag.FlagSet, name string) bool {
	f := flags.Lookup(name)
	return f != nil && o.Of(f).Source >= Environment
}

// builtin reports whether a flag is not a setting.
func builtin(name string) bool { return name == "help" || name == "version" }

// FromEnvironment sets the flags that are not on the command line from environment
// variables, and records where they came from. A variable has the name prefix plus the
// flag's name in capitals, with _ for -. An error quotes the value unless the flag is
// secret.
func FromEnvironment(flags *pflag.FlagSet, prefix string, lookup func(string) (string, bool), origins Origins) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || builtin(f.Name) || err != nil {
			return
		}
		name := Variable(prefix, f.Name)
		value, ok := lookup(name)
		if !ok {
			return
		}
		switch e := flags.Set(f.Name, value); {
		case e == nil:
			origins[f.Name] = Origin{Source: Environment, Name: name}
		case Secret(f):
			err = fmt.Errorf("environment variable %s: not a value of --%s", name, f.Name)
		default:
			err = fmt.Errorf("environment variable %s=%q: %w", name, value, e)
		}
	})
	return err
}

// Variable returns the environment variable of a flag.
func Variable(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Value returns the value of a flag as TOML has it: a bool, an int64, a float64, a
// string, or a list of strings or of numbers. It omits passwords within addresses; the
// caller must check whether the flag is secret.
func Value(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		out := []any{}
		for _, text := range list.GetSlice() {
			out = append(out, elementOf(f).value(text))
		}
		return out
	}
	return elementOf(f).value(f.Value.String())
}
