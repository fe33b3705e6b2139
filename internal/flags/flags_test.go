package flags

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// TestFlags: allowed values are set, and no other changes a value.
func TestFlags(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var (
		n, seed = 0, uint64(0)
		x       float64
		d       time.Duration
		list    []int
		word    string
		texts   []string
		size    string
		on      bool
	)
	Int(f, &n, "number,n", 3, Within(1, 8), "a number")
	Seed(f, &seed, "seed", 1, "a seed")
	Float(f, &x, "float", 1, AboveZero(), "a float")
	Duration(f, &d, "wait", 0, FromDuration(0), "a duration")
	Ints(f, &list, "list", []int{7}, From(0), "numbers")
	OneOf(f, &word, "word", "", []string{"a", "b", "c"}, "a, b or c")
	Texts(f, &texts, "text", false, "texts")
	Parsed(f, &size, "size", "1", "a size", func(s string) error {
		if s != "1" && s != "2" {
			return errors.New("wrong")
		}
		return nil
	}, "a size")
	Bool(f, &on, "on", false, "a switch")
	require.Contains(t, f.FlagUsages(), "-n, --number int         a number (1 to 8) (default 3)\n")
	require.Contains(t, f.FlagUsages(), "a duration (0s or more)\n", "a default of 0 is not shown")
	require.Contains(t, f.FlagUsages(), "a float (more than 0) (default 1)\n")

	require.NoError(t, f.Parse([]string{"-n8", "--seed", "18446744073709551615", "--float=1e-9", "--wait=1m", "--list=1,2", "--list=3",
		"--word=c", "--text=a,b", "--text=", "--size=2", "--on"}))
	check := func() {
		require.Equal(t, []any{8, uint64(math.MaxUint64), 1e-9, time.Minute, []int{1, 2, 3}, "c", []string{"a,b", ""}, "2", true},
			[]any{n, seed, x, d, list, word, texts, size, on})
	}
	check()
	for _, c := range []struct{ arg, want string }{
		{"-n0", `--number is "0"; expected a whole number from 1 to 8`},
		{"--number=9", `--number is "9"; expected a whole number from 1 to 8`},
		{"--float=NaN", `--float is "NaN"; expected a number more than 0, at most 1e+09`},
		{"--float=0", `--float is "0"; expected a number more than 0, at most 1e+09`},
		{"--wait=-1s", `--wait is "-1s"; expected a duration such as 90s or 5m, from 0s to 87600h`},
		{"--list=4,-1", `--list is "4,-1"; expected a whole number from 0 to 1000000000`},
		{"--word=d", `--word is "d"; expected a, b or c`},
		{"--size=", `--size is ""; expected a size`},
		{"--on=maybe", `--on is "maybe"; expected true or false`},
	} {
		require.EqualError(t, Explain(f.Parse([]string{c.arg})), c.want)
		check()
	}
}

// TestLists: a file gives all values of a list at once, each with its commas.
func TestLists(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var numbers []int
	Ints(f, &numbers, "list", []int{7}, Within(1, 9), "numbers")
	list := f.Lookup("list").Value.(pflag.SliceValue)
	require.Error(t, list.Replace([]string{"1", "10"}))
	require.Equal(t, []int{7}, numbers)
	require.NoError(t, list.Replace([]string{"1", "2"}))
	require.Error(t, list.Append("0"))
	require.NoError(t, list.Append("3"))
	require.Equal(t, []string{"1", "2", "3"}, list.GetSlice())
}

// TestUnset: a default that the flag does not allow counts as none.
func TestUnset(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var size, rank int
	Int(f, &size, "size", 0, Within(1, 8), "ranks")
	Int(f, &rank, "rank", 0, Within(0, 7), "rank")
	require.True(t, Unset(f.Lookup("size")))
	require.False(t, Unset(f.Lookup("rank")))
	require.NoError(t, f.Parse([]string{"--size", "2"}))
	require.False(t, Unset(f.Lookup("size")))
}

// TestUnder: a heading is that of the flags since the last one, and stays.
func TestUnder(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var a, b, c bool
	Bool(f, &a, "a", false, "first")
	Under(f, "One")
	Bool(f, &b, "b", false, "second")
	Under(f, "Two")
	Bool(f, &c, "c", false, "third")
	require.Equal(t, []string{"One", "Two", ""}, []string{Heading(f.Lookup("a")), Heading(f.Lookup("b")), Heading(f.Lookup("c"))})
}

// TestTypedList: values are parsed when they are set, and a text that is refused leaves them.
func TestTypedList(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var waits []time.Duration
	TypedList(f, &waits, "wait", true, "a duration", time.ParseDuration, "waits")
	require.NoError(t, f.Parse([]string{"--wait=1s,2m", "--wait=3h"}))
	require.EqualError(t, Explain(f.Parse([]string{"--wait=1s,soon"})), `--wait is "1s,soon"; expected a duration`)
	require.Equal(t, []time.Duration{time.Second, 2 * time.Minute, 3 * time.Hour}, waits)
	require.Equal(t, []string{"1s", "2m0s", "3h0m0s"}, f.Lookup("wait").Value.(pflag.SliceValue).GetSlice())
}

// TestTyped: the text is parsed when it is set, and shown as it was given; one that is
// refused leaves the value.
func TestTyped(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var wait, open time.Duration
	var level int
	parse := func(s string) (int, error) { return strings.Index("lmh", s[:1]), nil }
	Typed(f, &wait, "wait", "60s", "a duration", time.ParseDuration, "a wait")
	Typed(f, &open, "open", "", "a duration", time.ParseDuration, "a wait, or none")
	WordOf(f, &level, "level", "medium", []string{"low", "medium", "high"}, parse, "low, medium or high")
	require.Equal(t, []any{time.Minute, time.Duration(0), 1}, []any{wait, open, level})
	require.NoError(t, f.Parse([]string{"--wait=120s", "--open=1s", "--open=", "--level=high"}))
	check := func() {
		require.Equal(t, []any{2 * time.Minute, time.Duration(0), 2}, []any{wait, open, level})
		require.Equal(t, "120s", f.Lookup("wait").Value.String(), "as it was given")
	}
	check()
	for arg, want := range map[string]string{
		"--wait=":     `--wait is ""; expected a duration`,
		"--wait=soon": `--wait is "soon"; expected a duration`,
		"--open=x":    `--open is "x"; expected a duration`,
		"--level=h":   `--level is "h"; expected low, medium or high`,
	} {
		require.EqualError(t, Explain(f.Parse([]string{arg})), want)
		check()
	}
	require.Panics(t, func() { Typed(f, &wait, "bad", "soon", "a duration", time.ParseDuration, "a wait") })
}
