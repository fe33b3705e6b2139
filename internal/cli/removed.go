package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Removed are flags that serve no longer has, each with what takes its place. A flag
// that is given and ignored would be worse than an error.
var Removed = map[string]string{
	"body-budget":     "all bodies together may have twice the bytes of --max-body",
	"drain-timeout":   "a follower that gets SIGTERM waits for 30 seconds",
	"mpi-library":     "name the library in the environment variable MLX_MPI_LIBNAME",
	"orphan-timeout":  "a follower that lost its leader looks for it for --connect-timeout",
	"otlp-endpoint":   "set the environment variable OTEL_EXPORTER_OTLP_ENDPOINT",
	"otlp-sample":     "set the environment variables OTEL_TRACES_SAMPLER=parentbased_traceidratio and OTEL_TRACES_SAMPLER_ARG=0.05",
	"recover-timeout": "requests wait for 2 minutes for the next epoch after a loss",
	"stuck-after":     "/readyz reports the server as stuck after a fifth of --work-timeout",
}

// RemovedFlag is the error for a removed flag, nil for any other name.
func RemovedFlag(name string) error {
	if instead := Removed[name]; instead != "" {
		return fmt.Errorf("--%s was removed: %s", name, instead)
	}
	return nil
}

// removedOnLine is RemovedFlag for what parsing the command line found wrong.
func removedOnLine(c *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok && RunsModel(c) {
		return RemovedFlag(missing.GetSpecifiedName())
	}
	return nil
}

// refuseRemoved returns an error if the environment of a command that runs a model sets a
// removed flag.
func refuseRemoved(c *cobra.Command, lookup func(string) (string, bool)) error {
	if !RunsModel(c) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(Removed)) {
		if _, ok := lookup(Variable(name)); ok {
			return fmt.Errorf("environment variable %s: %w", Variable(name), RemovedFlag(name))
		}
	}
	return nil
}
