package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// environmentName is the environment variable of a flag.
func environmentName(flag string) string {
	return "RINGMASTER_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that are not on the command line from their
// environment variables.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "version" {
			return
		}
		name := environmentName(f.Name)
		value, ok := lookup(name)
		if !ok || first != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			first = fmt.Errorf("environment variable %s=%q: %w", name, value, err)
		}
	})
	return first
}

// jacclNames are the environment variables of JACCL and MLX that correspond to a
// flag. The flag and its own variable come first, then the first of these that is
// set.
var jacclNames = map[string][]string{
	"rank":        {"JACCL_RANK", "MLX_RANK"},
	"coordinator": {"JACCL_COORDINATOR", "MLX_JACCL_COORDINATOR"},
	"world-size":  {"MLX_WORLD_SIZE"},
	"mpi-library": {"MLX_MPI_LIBNAME"},
}

// jacclSizeFiles are environment variables that name a JSON file with an entry
// for each rank, which determines the world size.
var jacclSizeFiles = []string{"JACCL_IBV_DEVICES", "MLX_IBV_DEVICES", "MLX_HOSTFILE"}

// fromJACCL sets the flags of a group from the environment variables of JACCL and
// MLX.
func (o *clusterOptions) fromJACCL(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	if !o.on {
		return nil
	}
	for _, flag := range []string{"rank", "coordinator", "world-size", "mpi-library"} {
		if flags.Changed(flag) {
			continue
		}
		for _, name := range jacclNames[flag] {
			value, ok := lookup(name)
			if !ok {
				continue
			}
			if err := flags.Set(flag, strings.TrimSpace(value)); err != nil {
				return fmt.Errorf("environment variable %s=%q: %w", name, value, err)
			}
			break
		}
	}
	if flags.Changed("world-size") {
		return nil
	}
	for _, name := range jacclSizeFiles {
		path, ok := lookup(name)
		if !ok {
			continue
		}
		n, err := entries(path)
		if err != nil {
			return fmt.Errorf("environment variable %s: %w", name, err)
		}
		return flags.Set("world-size", strconv.Itoa(n))
	}
	return nil
}

// entries returns the length of the array in a JSON file, or of its member
// "hosts".
func entries(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var list []json.RawMessage
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		var o struct{ Hosts []json.RawMessage }
		err = json.Unmarshal(text, &o)
		list = o.Hosts
	} else {
		err = json.Unmarshal(text, &list)
	}
	if err != nil || len(list) == 0 {
		return 0, fmt.Errorf("%s is not a JSON array with an entry for each rank", path)
	}
	return len(list), nil
}
