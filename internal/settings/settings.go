// Package settings gives the flags of a command that are not on its command line
// their values, from environment variables and from a file, and keeps where each came
// from.
package settings

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// secretMark is the annotation of flags whose values are never shown.
const secretMark = "ringmaster_secret"

// MarkSecret makes errors, logs and lists of settings leave the values of flags out.
// It panics if there is no such flag.
func MarkSecret(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, secretMark, []string{"true"}); err != nil {
			panic(err)
		}
	}
}

// Secret reports whether the value of a flag is never shown.
func Secret(f *pflag.Flag) bool { return f.Annotations[secretMark] != nil }

// Source is what kind of place a value came from, in the order of precedence.
type Source int

// The kinds of places. What is given there is used before what is given at those
// above.
const (
	Default Source = iota
	InFile
	Environment
	CommandLine
)

var sourceNames = [...]string{Default: "default", InFile: "file", Environment: "environment", CommandLine: "command line"}

// String is the name of the kind.
func (s Source) String() string { return sourceNames[s] }

// Origin is the place of a value: its kind, and the name of the variable or the file
// with the line.
type Origin struct {
	Source Source
	Name   string // of the variable, or path of the file
	Line   int    // in the file, from 1; else 0
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

// Origins are the places of the values of flags, by the flags' names. Of a flag that is
// missing pflag tells: what is not from its command line is the default.
type Origins map[string]Origin

// Of is the place of a flag's value.
func (o Origins) Of(f *pflag.Flag) Origin {
	if from, ok := o[f.Name]; ok {
		return from
	}
	if f.Changed {
		return Origin{Source: CommandLine}
	}
	return Origin{}
}

// Given reports whether a flag is on the command line or in its own variable: whether
// other variables come too late.
func (o Origins) Given(flags *pflag.FlagSet, name string) bool {
	f := flags.Lookup(name)
	return f != nil && o.Of(f).Source >= Environment
}

// builtin are the flags that are no settings.
func builtin(name string) bool { return name == "help" || name == "version" }

// FromEnvironment sets the flags that are not on the command line from environment
// variables, whose names are prefix and the flag's name in capitals, with _ for -, and
// notes where they came from. An error quotes the value unless the flag is secret.
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

// Variable is the environment variable of a flag.
func Variable(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Value is the value of a flag as TOML has it: a bool, an int64, a float64, a string, or
// a list of strings or of numbers. Passwords within addresses are left out; whether the
// flag is secret is for the caller to ask.
func Value(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		out := []any{}
		for _, text := range list.GetSlice() {
			out = append(out, single(elementOf(f), text))
		}
		return out
	}
	return single(elementOf(f), f.Value.String())
}

// single is a value of a kind from its text.
func single(k kind, text string) any {
	if v, ok := k.parse(text); ok {
		return v
	}
	if k.name == kinds["duration"].name {
		if d, err := time.ParseDuration(text); err == nil {
			return shortDuration(d)
		}
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	return text
}

// shortDuration is a duration without units that are zero: 1h, not 1h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
