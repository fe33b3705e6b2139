package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"ringmaster/internal/settings"
)

// Prefix begins the names of the environment variables of flags.
const Prefix = "RINGMASTER_"

// Variable returns the environment variable of a flag.
func Variable(flag string) string { return settings.Variable(Prefix, flag) }

// otherVariables matches the variables with the prefix that are not flags: of libraries and devices,
// of mkmodel and of the tests.
var otherVariables = regexp.MustCompile(`^RINGMASTER_(VERBS_LIBRARY|VULKAN_DEVICE|MKMODEL_.*|FULL|LEVEL|GOLDEN|HEADERS|PICTURES|TEST_.*|TCP_BENCH_.*)$`)

// kubernetesVariables matches those that Kubernetes gives each container for a service
// named ringmaster...; RINGMASTER_PORT is one of them if it has an address.
var kubernetesVariables = regexp.MustCompile(`_SERVICE_HOST=|_SERVICE_PORT(_\w+)?=|_PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?=(tcp|udp|sctp)://|_PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=`)

// Unknown returns warnings about environment variables that look like flags but are not,
// each with the nearest name. It does not show values, because they may be keys.
func (p Program) Unknown(environ []string) (warnings []string) {
	var known []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(strings.ToUpper(name), Prefix) || otherVariables.MatchString(name) || kubernetesVariables.MatchString(v) {
			continue
		}
		if known == nil {
			commands, _ := Settings(p.Root())
			for _, set := range commands {
				set.VisitAll(func(f *pflag.Flag) { known = append(known, Variable(f.Name)) })
			}
		}
		if !slices.Contains(known, name) {
			warnings = append(warnings, fmt.Sprintf("environment variable %q is no setting and is ignored%s", name, settings.Nearest(strings.ToUpper(name), "%s", known)))
		}
	}
	slices.Sort(warnings)
	return warnings
}
