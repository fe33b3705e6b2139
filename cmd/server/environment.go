package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/settings"
)

// environmentPrefix begins the names of the variables of flags.
const environmentPrefix = "RINGMASTER_"

// environmentName is the environment variable of a flag.
func environmentName(flag string) string { return settings.Variable(environmentPrefix, flag) }

// guardFlags restrict who may call the API or join the group, or how much memory
// is used. An empty value, which an unset variable of a script gives, must not
// lift the restriction: without a name the API would be served on all addresses,
// without a file the group would have no key.
var guardFlags = []string{"api-key", "api-keys", "audit-log", "tls-cert", "tls-key", "allow-host", "cors-origin", "cluster-key-file", "cluster-encrypt", "listen", "offer-memory", "memory", settings.Flag}

// refuseEmpty returns an error if one of guardFlags was given an empty value.
func refuseEmpty(flags *pflag.FlagSet, origins settings.Origins) error {
	for _, name := range guardFlags {
		f := flags.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			if from := origins.Of(f); from.Source == settings.InFile {
				return fmt.Errorf("%v: %s is empty; leave it out if that is meant", from, name)
			}
			return fmt.Errorf("--%s (or %s) is empty; leave it out if that is meant", name, environmentName(name))
		}
	}
	return nil
}

// settle refuses empty guards among the flags of a command that runs a model, and takes
// what a launcher says of its group.
func (o *clusterOptions) settle(cmd *cobra.Command, origins settings.Origins) error {
	if err := refuseEmpty(cmd.Flags(), origins); err != nil {
		return err
	}
	if cmd.Name() == sharingName {
		o.on = true
	}
	for _, name := range []string{"rank", "world-size", "coordinator"} {
		// A rank that served alone would answer, and the others would wait for it.
		if f := cmd.Flags().Lookup(name); !o.on && f != nil && origins.Of(f).Source == settings.CommandLine {
			return fmt.Errorf("--%s needs --distributed, with which every rank of a group is started", name)
		}
	}
	return o.fromJACCL(cmd.Flags(), os.LookupEnv, origins)
}

// jacclNames are the environment variables of JACCL and MLX that correspond to a
// flag. The flag and its own variable come first, then the first of these that is
// set, then the file: a launcher sets them for each process, and the file may be the
// same on all hosts.
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
func (o *clusterOptions) fromJACCL(flags *pflag.FlagSet, lookup func(string) (string, bool), origins settings.Origins) error {
	if !o.on {
		return nil
	}
	for _, flag := range []string{"rank", "coordinator", "world-size", "mpi-library"} {
		if origins.Given(flags, flag) {
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
			origins[flag] = settings.Origin{Source: settings.Environment, Name: name}
			break
		}
	}
	if origins.Given(flags, "world-size") {
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
		origins["world-size"] = settings.Origin{Source: settings.Environment, Name: name}
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
