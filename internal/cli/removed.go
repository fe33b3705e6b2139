package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Removed maps flags that serve no longer has to their replacements, because silently
// ignoring a given flag would be worse than an error.
var Removed = map[string]string{
	"body-budget":                 "all bodies together may have twice the bytes of --max-body",
	"cache-disk":                  "give the size with --cache-dir, such as --cache-dir /var/cache/ringmaster=16GiB",
	"check-weights":               "--verify-model checks the weights too; give it to all ranks or to none",
	"drain-timeout":               "a follower that gets SIGTERM waits for 30 seconds",
	"key-weights":                 "the file of --api-keys has the weight of each key, weight=3; see 'ringmaster key new'",
	"log-format":                  `use --log json, or with a level --log debug,json; in a file log = ["debug", "json"]`,
	"log-level":                   `use --log, such as --log debug; in a file log = "debug"`,
	"max-connections-per-address": "give it after a comma of --max-connections, such as --max-connections 1000,800; in a file max-connections = [1000, 800]",
	"micro-batches":               "every step is run in one; two halves in turns gained nothing on any link that was measured",
	"min-ranks":                   "give it with --on-loss, such as --on-loss continue:2",
	"mpi-library":                 "name the library in the environment variable MLX_MPI_LIBNAME",
	"offer-memory":                "give the rank a smaller share with --share on rank 0, such as --share experts:2,1,1",
	"orphan-timeout":              "a follower that lost its leader looks for it for --connect-timeout",
	"otlp-endpoint":               "set the environment variable OTEL_EXPORTER_OTLP_ENDPOINT",
	"otlp-sample":                 "set the environment variables OTEL_TRACES_SAMPLER=parentbased_traceidratio and OTEL_TRACES_SAMPLER_ARG=0.05",
	"overcommit":                  "use --memory unlimited",
	"prefill-chunk":               "a step has prompt tokens for all of --max-batch, beside answers for half of it and within --token-latency",
	"recover-timeout":             "requests wait for 2 minutes for the next epoch after a loss",
	"share-cache":                 "the file of --api-keys says which keys share the prefix cache, cache=shared; see 'ringmaster key new'",
	"rejoin-after":                "give it with --on-loss, such as --on-loss continue:1,10m",
	"session-timeout":             "use --cache-timeout",
	"sessions":                    "memory bounds the prefix cache; use --cache-entries for a smaller bound",
	"shares":                      "give them after a colon of --share, such as --share all:2,1,1 or --share experts:memory",
	"stuck-after":                 "/readyz reports the server as stuck after a fifth of --work-timeout",
	"wire":                        "partial sums travel as float16; --reduce exact gives the same result on any number of hosts",
}

// RemovedFlag returns the error for a removed flag, nil for any other name.
func RemovedFlag(name string) error {
	if instead := Removed[name]; instead != "" {
		return fmt.Errorf("--%s was removed: %s", name, instead)
	}
	return nil
}

// removedOnLine returns RemovedFlag for an error of parsing the command line.
func removedOnLine(err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return RemovedFlag(missing.GetSpecifiedName())
	}
	return nil
}

// refuseRemoved returns an error if the environment sets a removed flag that the command does
// not have.
func refuseRemoved(c *cobra.Command, lookup func(string) (string, bool)) error {
	for _, name := range slices.Sorted(maps.Keys(Removed)) {
		if c.Flags().Lookup(name) != nil {
			continue
		}
		if _, ok := lookup(Variable(name)); ok {
			return fmt.Errorf("environment variable %s: %w", Variable(name), RemovedFlag(name))
		}
	}
	return nil
}
