package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"ringmaster/internal/flags"
	"ringmaster/internal/settings"
)

// guardFlags restrict who may call the API or join the group, or how much memory is used,
// or which model is meant. An empty value, as an unset variable of a script gives, must
// not lift the restriction: without a name the API would be served on all addresses.
var guardFlags = []string{"model", "api-key", "allow-host", "cors-origin", "cluster-encrypt", "listen", "memory", "key-file", "binary"}

// guarded reports whether an empty value of a flag is refused: the flag is one of
// guardFlags, or the path of a file. Without the file the group would have no key, or
// another model than the intended one would answer.
func guarded(f *pflag.Flag) bool {
	v, ok := f.Value.(flags.Value)
	return slices.Contains(guardFlags, f.Name) || ok && (v.Kind() == flags.Input || v.Kind() == flags.Output)
}

// refuseEmpty returns an error if a guarded flag has an empty value.
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
			err = fmt.Errorf("--%s (or %s) is empty; leave it out if that is meant", f.Name, Variable(f.Name))
		}
	})
	return err
}
