package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
)

// environmentPrefix begins the names of the variables of flags.
const environmentPrefix = "RINGMASTER_"

// environmentName is the environment variable of a flag.
func environmentName(flag string) string { return settings.Variable(environmentPrefix, flag) }

// guardFlags restrict who may call the API or join the group, or how much memory
// is used, or say which model is meant. An empty value, which an unset variable of a
// script gives, must not lift the restriction: without a name the API would be served on
// all addresses.
var guardFlags = []string{"model", "api-key", "allow-host", "cors-origin", "cluster-encrypt", "listen", "offer-memory", "memory"}

// guarded reports whether an empty value of a flag is refused: it is one of guardFlags, or
// the path of a file. Without a file the group would have no key, and another model than
// the one that was meant would answer.
func guarded(f *pflag.Flag) bool {
	v, ok := f.Value.(flags.Value)
	return slices.Contains(guardFlags, f.Name) || ok && (v.Kind() == flags.Input || v.Kind() == flags.Output)
}

// refuseEmpty returns an error if a guarded flag was given an empty value.
func refuseEmpty(set *pflag.FlagSet, origins settings.Origins) (err error) {
	set.VisitAll(func(f *pflag.Flag) {
		if err != nil || !f.Changed || !guarded(f) {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			return
		}
		if from := origins.Of(f); from.Source == settings.InFile {
			err = fmt.Errorf("%v: %s is empty; leave it out if that is meant", from, f.Name)
		} else {
			err = fmt.Errorf("--%s (or %s) is empty; leave it out if that is meant", f.Name, environmentName(f.Name))
		}
	})
	return err
}

// otherVariables are the variables with the prefix that are no flags: of libraries, of
// mkmodel and of the tests.
var otherVariables = regexp.MustCompile(`^RINGMASTER_(VERBS_LIBRARY|MKMODEL_.*|FULL|LEVEL|GOLDEN|HEADERS|PICTURES|TEST_.*|TCP_BENCH_.*)$`)

// kubernetesVariables are those that Kubernetes gives each container for a service named
// ringmaster...; RINGMASTER_PORT is one of them if it has an address.
var kubernetesVariables = regexp.MustCompile(`_SERVICE_HOST=|_SERVICE_PORT(_\w+)?=|_PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?=(tcp|udp|sctp)://|_PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=`)

// unknownVariables are warnings about the variables of an environment that look like flags
// and are none, each with the nearest name. Values, which may be keys, are not shown.
func unknownVariables(environ []string) (warnings []string) {
	var known []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(strings.ToUpper(name), environmentPrefix) || otherVariables.MatchString(name) || kubernetesVariables.MatchString(v) {
			continue
		}
		if known == nil {
			commands, _ := settingsOf(newRoot())
			for _, set := range commands {
				set.VisitAll(func(f *pflag.Flag) { known = append(known, environmentName(f.Name)) })
			}
		}
		if !slices.Contains(known, name) {
			warnings = append(warnings, fmt.Sprintf("environment variable %q is no setting and is ignored%s", name, settings.Nearest(strings.ToUpper(name), "%s", known)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// settle takes what a launcher says of the group of a command that runs a model.
func (o *clusterOptions) settle(cmd *cobra.Command, origins settings.Origins) error {
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
	for _, flag := range []string{"rank", "coordinator", "world-size"} {
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
	text, err := readInput(path, 16<<20)
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
