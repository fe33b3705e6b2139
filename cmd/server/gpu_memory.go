package main

import (
	"fmt"
	"sync/atomic"

	"ringmaster/groupplan"
	"ringmaster/internal/host"
	"ringmaster/internal/units"
)

// gpuMemory is what the GPU of this host may use, in bytes, once a backend runs on
// it; 0 without one. It is a limit of the process like the host's memory.
var gpuMemory atomic.Int64

// systemMemory is the memory that a model can have: the host's, or what the GPU that
// computes may use of it, which is three quarters or so.
func systemMemory() (host.Memory, bool) {
	m, known := host.ReadMemory()
	limit := gpuMemory.Load()
	if limit == 0 {
		return m, known
	}
	if !known {
		return host.Memory{Total: limit, Available: limit}, true
	}
	return host.Memory{Total: min(m.Total, limit), Available: min(m.Available, limit)}, true
}

// withWiredLimit adds to an error of planning or allocation that the GPU's limit, not
// the host's memory, is what binds, and how to raise it.
func withWiredLimit(err error) error {
	limit := gpuMemory.Load()
	m, known := host.ReadMemory()
	if err == nil || limit == 0 || known && m.Total <= limit {
		return err
	}
	return fmt.Errorf("%w (the GPU may use %s of this host's %s; %s)", err, units.Bytes(limit), units.Bytes(m.Total), groupplan.RaiseWiredLimit)
}
