package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
)

// jacclNames has the environment variables of JACCL and MLX that correspond to a flag.
// The flag and its own variable take precedence, then the first of these that is set,
// then the file, because a launcher sets them for each process, and the file may be the
// same on all hosts.
var jacclNames = map[string][]string{
	"rank":        {"JACCL_RANK", "MLX_RANK"},
	"coordinator": {"JACCL_COORDINATOR", "MLX_JACCL_COORDINATOR"},
	"world-size":  {"MLX_WORLD_SIZE"},
}

// jacclSizeFiles are environment variables that name a JSON file with an entry for each
// rank; its length is the world size.
var jacclSizeFiles = []string{"JACCL_IBV_DEVICES", "MLX_IBV_DEVICES", "MLX_HOSTFILE"}

// FromJACCL sets the flags of a group from the environment variables of JACCL and
// MLX.
func FromJACCL(set *pflag.FlagSet, lookup func(string) (string, bool), origins settings.Origins) error {
	for _, flag := range []string{"rank", "coordinator", "world-size"} {
		if origins.Given(set, flag) {
			continue
		}
		for _, name := range jacclNames[flag] {
			value, ok := lookup(name)
			if !ok {
				continue
			}
			if err := set.Set(flag, strings.TrimSpace(value)); err != nil {
				return fmt.Errorf("environment variable %s=%q: %w", name, value, err)
			}
			origins[flag] = settings.Origin{Source: settings.Environment, Name: name}
			break
		}
	}
	if origins.Given(set, "world-size") {
		return nil
	}
	for _, name := range jacclSizeFiles {
		path, ok := lookup(name)
		if !ok {
			continue
		}
		n, err := Entries(path)
		if err != nil {
			return fmt.Errorf("environment variable %s: %w", name, err)
		}
		origins["world-size"] = settings.Origin{Source: settings.Environment, Name: name}
		return set.Set("world-size", strconv.Itoa(n))
	}
	return nil
}

// Entries returns the length of the array in a JSON file, or of its member
// "hosts".
func Entries(path string) (int, error) {
	text, err := flags.ReadInput(path, 16<<20)
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
