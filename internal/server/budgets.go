package server

import (
	"os"
	"runtime"

	"ringmaster/api"
	"ringmaster/distributed/accept"
	"ringmaster/internal/host"
)

// goroutinesOf is the most goroutines of a connection: that of net/http, its reader in
// the background, a writer's timer and a stream's reader.
const goroutinesOf = 4

// goroutinesAtRest bounds those that do not belong to a connection of a client: the
// runtime's, the engine's, those of the control and data connections of 8 ranks.
const goroutinesAtRest = 256

// budgets returns those of the process; see api.Budget. atMost is the plan's bound in
// bytes, 0 if it is not known.
func budgets(s *api.Server, atMost int64) []api.Budget {
	connections := s.Budget()
	return []api.Budget{
		connections,
		{
			Name: "memory of the process (bytes)", Set: "`--memory`", Refusal: "by the budgets above",
			Limit: func() float64 { return float64(atMost) },
			Used:  func() float64 { _, own := host.ResidentMiB(); return own * (1 << 20) },
		},
		{
			Name: "files", Set: "`ulimit -n`", Refusal: "a connection without a request, or of a stranger, is closed",
			Limit: func() float64 { return float64(accept.FileLimit()) }, Used: openFiles,
		},
		{
			Name: "goroutines", Set: "`--max-connections`", Refusal: "by the budget of connections",
			Limit: func() float64 { return goroutinesOf*connections.Limit() + goroutinesAtRest },
			Used:  func() float64 { return float64(runtime.NumGoroutine()) },
		},
	}
}

// openFiles returns how many files the process has open, 0 if the system does not say.
func openFiles() float64 {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if list, err := os.ReadDir(dir); err == nil {
			return float64(len(list))
		}
	}
	return 0
}
