// Package cli binds the flags of a tree of commands to the environment and to a file of
// settings, shows where each value came from, and prints help and errors of usage.
package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
)

// Program is a tree of commands.
type Program struct {
	// Root builds the tree. Values are tried on the flags of a second tree.
	Root func() *cobra.Command
	// Terse reports whether a command logs warnings and errors only if --log is not given;
	// nil: none does.
	Terse func(*cobra.Command) bool
}

// logFlag is the flag of every command that says how it logs.
const logFlag = "log"

// verbose is short for the log that there is without a terminal. It is no flag of its own,
// because it would say the same as --log.
const verbose = "-v"

// Expand replaces what is short for several words on a command line.
func Expand(args []string) []string {
	var out []string
	for i, arg := range args {
		switch arg {
		case "--":
			return append(out, args[i:]...)
		case verbose:
			out = append(out, "--"+logFlag, "info")
		default:
			out = append(out, arg)
		}
	}
	return out
}

// logWords are its words.
var logWords = []string{"debug", "info", "warn", "error", "json"}

// Register declares the flags of every command: its log, and the file of settings.
func Register(f *pflag.FlagSet) {
	words, file := []string{}, ""
	flags.SomeOf(f, &words, logFlag, []string{"info"}, logWords, "log messages: the least level, debug, info, warn or error, and json for one object a line, such as debug,json; -v is short for --log info, which shows on a terminal what serve shows elsewhere")
	flags.File(f, &file, settings.Flag, "`file` of settings; default is the first of ~/.config/ringmaster/ringmaster.toml and "+settings.SystemPath+" that exists; "+settings.None+" reads none")
}

// SetLogger makes the default logger write to w as the words of --log say.
func SetLogger(w io.Writer, words []string) error {
	options := &slog.HandlerOptions{}
	level, json := "", false
	for _, word := range words {
		switch {
		case word == "json":
			json = true
		case level != "" && level != word:
			return fmt.Errorf("--%s has the levels %s and %s; expected one", logFlag, level, word)
		default:
			level = word
		}
	}
	if level != "" {
		var l slog.Level
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return fmt.Errorf("--%s: %w", logFlag, err)
		}
		options.Level = l
	}
	if json {
		slog.SetDefault(slog.New(slog.NewJSONHandler(w, options)))
		return nil
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(w, options)))
	return nil
}
