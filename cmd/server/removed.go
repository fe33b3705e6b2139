package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// removedFlags are flags that serve no longer has, each with what takes its place. A flag
// that is given and ignored would be worse than an error.
var removedFlags = map[string]string{
	"body-budget":     "all bodies together may have twice the bytes of --max-body",
	"drain-timeout":   "a follower that gets SIGTERM waits for 30 seconds",
	"mpi-library":     "name the library in the environment variable MLX_MPI_LIBNAME",
	"orphan-timeout":  "a follower that lost its leader looks for it for --connect-timeout",
	"otlp-endpoint":   "set the environment variable OTEL_EXPORTER_OTLP_ENDPOINT",
	"otlp-sample":     "set the environment variables OTEL_TRACES_SAMPLER=parentbased_traceidratio and OTEL_TRACES_SAMPLER_ARG=0.05",
	"recover-timeout": "requests wait for 2 minutes for the next epoch after a loss",
	"stuck-after":     "/readyz reports the server as stuck after a fifth of --work-timeout",
}

// removedFlag is the error for a removed flag, nil for any other name.
func removedFlag(name string) error {
	if instead := removedFlags[name]; instead != "" {
		return fmt.Errorf("--%s was removed: %s", name, instead)
	}
	return nil
}

// removedOnLine is removedFlag for what parsing the command line found wrong.
func removedOnLine(c *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok && runsModel(c) {
		return removedFlag(missing.GetSpecifiedName())
	}
	return nil
}

// refuseRemoved returns an error if the environment of a command that runs a model sets a
// removed flag.
func refuseRemoved(c *cobra.Command, lookup func(string) (string, bool)) error {
	if !runsModel(c) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(removedFlags)) {
		if _, ok := lookup(environmentName(name)); ok {
			return fmt.Errorf("environment variable %s: %w", environmentName(name), removedFlag(name))
		}
	}
	return nil
}
