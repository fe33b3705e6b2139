package main

import (
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"ringmaster/internal/cli"
	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
)

// nonsense are values that no flag of a type means. That of a type with limits, or of a
// text with a form, must refuse them; zero it may take if its help says what zero is.
var nonsense = map[string][]string{
	"int":      {"-1", "x", "", "1.5", "NaN", "1e3", "0x", "9223372036854775807", "9223372036854775808"},
	"float64":  {"-1", "x", "", "NaN", "Inf", "-Inf", "1e300", "1e999", "0x"},
	"duration": {"-1s", "-1ns", "x", "", "1", "NaN", "2562047h47m16s", "9999999h"},
	"uint64":   {"-1", "x", "", "1.5", "NaN", "18446744073709551616"},
	"bool":     {"x", "2", "-1", "yes"},
	"string":   {"\x01", "nonsense of no form"},
}

// elementType is the type of a flag's value, or of each of a flag that may be repeated.
func elementType(v pflag.Value) string {
	t := strings.TrimSuffix(strings.TrimSuffix(v.Type(), "Slice"), "Array")
	if t == "int64" {
		return "int"
	}
	return t
}

// refused are the values that a flag must refuse; none if it takes all texts.
func refused(t *testing.T, where string, f *pflag.Flag) []string {
	v, ok := f.Value.(flags.Value)
	require.True(t, ok, "%s: declare it by package flags, which wants its limits", where)
	if k := v.Kind(); k == flags.Any || k == flags.Input || k == flags.Output {
		require.Empty(t, v.Allowed())
		return nil
	}
	require.NotEmpty(t, v.Allowed(), where)
	wrong := nonsense[elementType(v)]
	require.NotEmpty(t, wrong, "%s: what is nonsense for %s?", where, v.Type())
	return wrong
}

// errRan is that of a command that would have begun its work.
var errRan = errors.New("the command ran")

// harmless makes the commands of a tree say that they ran, in place of their work.
func harmless(root *cobra.Command) *cobra.Command {
	for _, c := range commandsOf(root) {
		if c.RunE != nil {
			c.RunE = func(*cobra.Command, []string) error { return errRan }
		}
		c.Args = cobra.ArbitraryArgs
	}
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root
}

// TestEveryFlagRefuses: every flag of every command refuses nonsense before the command
// begins, with one line that names the flag and says what is allowed, and exit code 2.
func TestEveryFlagRefuses(t *testing.T) {
	t.Setenv(cli.Variable(settings.Flag), settings.None)
	root := harmless(newRoot())
	tried := 0
	for _, c := range commandsOf(root) {
		path := strings.Fields(c.CommandPath())[1:]
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		all.AddFlagSet(c.Flags())
		all.AddFlagSet(c.InheritedFlags())
		all.VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "version" || !cli.ReadsFile(c) && f.Value.Type() == "bool" { // cobra's own
				return
			}
			where := c.CommandPath() + " --" + f.Name
			for _, text := range refused(t, where, f) {
				if text == "" && f.NoOptDefVal != "" || text == "" && elementType(f.Value) == "string" {
					continue
				}
				root.SetArgs(append(path[:len(path):len(path)], "--"+f.Name+"="+text))
				err := root.ExecuteContext(t.Context())
				requireRefused(t, err, where+"="+text, "--"+f.Name)
				if v, ok := f.Value.(flags.Value); ok {
					require.ErrorContains(t, err, "expected "+v.Allowed())
				}
				tried++
			}
		})
	}
	require.Greater(t, tried, 1300, "the walk has lost flags")
}

// requireRefused: the error is that of bad input, in one line that has the texts.
func requireRefused(t *testing.T, err error, what string, texts ...string) {
	t.Helper()
	require.Error(t, err, what)
	require.NotErrorIs(t, err, errRan, what)
	require.Equal(t, 2, exitCode(err), "%s: %v", what, err)
	require.NotContains(t, err.Error(), "\n", what)
	for _, text := range texts {
		require.ErrorContains(t, err, text, what)
	}
}

// TestZeroIsExplained: every flag has a help text; that of a flag that takes 0 says what 0
// is, and that of one that takes words says which.
func TestZeroIsExplained(t *testing.T) {
	for _, c := range commandsOf(newRoot()) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			where := c.CommandPath() + " --" + f.Name
			require.NotEmpty(t, f.Usage, where)
			v, ok := f.Value.(flags.Value)
			if !ok {
				return
			}
			if v.Kind() == flags.Word && v.Type() != "bool" {
				for word := range strings.SplitSeq(strings.ReplaceAll(v.Allowed(), " or ", ", "), ", ") {
					require.Contains(t, f.Usage, word, where)
				}
			}
			if v.Kind() != flags.Number {
				return
			}
			usage := f.Usage[:strings.LastIndex(f.Usage, " (")] // without the limits
			for _, zero := range []string{"0", "0s"} {
				if v.Set(zero) == nil {
					require.Regexp(t, `\b0\b`, usage, "%s takes 0", where)
				}
			}
		})
	}
}

// TestVariablesRefuse: the same values are refused from the environment, by the name of
// the variable.
func TestVariablesRefuse(t *testing.T) {
	for _, c := range commandsOf(newRoot()) {
		if !cli.ReadsFile(c) {
			continue
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "version" || settings.Secret(f) {
				return
			}
			for _, text := range refused(t, f.Name, f) {
				if text == "" {
					continue
				}
				name := cli.Variable(f.Name)
				_, err := tree().Bind(c, lookup(map[string]string{name: text}))
				require.ErrorContains(t, err, name)
				require.ErrorContains(t, err, "expected ", "%s=%q", name, text)
				require.NotContains(t, err.Error(), "\n")
				require.False(t, f.Changed)
			}
		})
	}
}

// TestLimitsAreTaken: a value at each end of what is allowed is taken, where that is told.
func TestLimitsAreTaken(t *testing.T) {
	root := newRoot()
	for _, c := range commandsOf(root) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			v, ok := f.Value.(flags.Value)
			if !ok || v.Kind() != flags.Number {
				return
			}
			_, limits, ok := strings.Cut(v.Allowed(), " from ")
			if !ok {
				return
			}
			least, most, ok := strings.Cut(limits, " to ")
			require.True(t, ok, limits)
			require.NoError(t, v.Set(least), f.Name)
			require.NoError(t, v.Set(most), f.Name)
			if n, err := strconv.ParseInt(most, 10, 64); err == nil && n < math.MaxInt64 {
				require.Error(t, v.Set(strconv.FormatInt(n+1, 10)), f.Name)
			} else if d, err := time.ParseDuration(most); err == nil {
				require.Error(t, v.Set((d + 1).String()), f.Name)
			}
		})
	}
}
