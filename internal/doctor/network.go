package doctor

import (
	"context"
	"strings"
)

// Network returns the findings on this host's network that a rank should log when it
// starts: no findings of severity OK, and none that take time to measure.
func Network(ctx context.Context, s *Source) []Finding {
	h := Facts{System: s.System}
	var err error
	if h.Interfaces, err = s.Interfaces(); err != nil {
		return nil // without an answer nothing is known
	}
	bounded, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	if h.Host, err = s.Hostname(); err == nil {
		h.Addresses, _ = s.Resolve(bounded, h.Host) // a name that does not resolve does not concern a rank
	}
	switch s.System {
	case "linux":
		h.Firewalls = s.firewalls(bounded)
	case "darwin":
		if strings.Contains(s.program(bounded, "/usr/libexec/ApplicationFirewall/socketfilterfw", "--getglobalstate"), "enabled") {
			h.Firewalls = []string{"the application firewall of macOS"}
		}
	}
	var out []Finding
	for _, f := range append(checkNetwork(&h), checkPorts(&h)...) {
		if f.Severity != OK {
			out = append(out, f)
		}
	}
	return out
}
