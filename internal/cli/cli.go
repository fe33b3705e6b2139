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
	// Root builds the tree. Values are tried on the flags of a tree that is then dropped.
	Root func() *cobra.Command
}

// Names of the flags of every command that say how it logs.
const (
	logLevel  = "log-level"
	logFormat = "log-format"
)

// Register declares the flags of every command: how it logs, and the file of settings.
func Register(f *pflag.FlagSet) {
	level, format, file := "", "", ""
	flags.Parsed(f, &level, logLevel, "info", "debug, info, warn or error", func(s string) error { return new(slog.Level).UnmarshalText([]byte(s)) }, "minimum level of log messages: debug, info, warn or error")
	flags.OneOf(f, &format, logFormat, "text", []string{"text", "json"}, "form of log messages: text, or json, one object a line")
	flags.File(f, &file, settings.Flag, "`file` of settings; default is the first of ~/.config/ringmaster/ringmaster.toml and "+settings.SystemPath+" that exists; "+settings.None+" reads none")
}

// SetLogger sets the default logger by the values of the flags.
func SetLogger(w io.Writer, level, format string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("--log-level is %q; expected debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		slog.SetDefault(slog.New(slog.NewTextHandler(w, options)))
	case "json":
		slog.SetDefault(slog.New(slog.NewJSONHandler(w, options)))
	default:
		return fmt.Errorf("--log-format is %q; expected text or json", format)
	}
	return nil
}
