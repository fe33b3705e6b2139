package main

import (
	"log/slog"

	"ringmaster/gguf"
	"ringmaster/model/arch"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// How long the ranks of an epoch need to read what is new to them.

// readRate is how fast this host reads the model's file, in bytes per second; 0 for the
// built-in model, which is in memory.
func (o *modelOptions) readRate() (int64, error) {
	if o.path == "" {
		return 0, nil
	}
	parts, err := gguf.Parts(o.path)
	if err != nil {
		return 0, err
	}
	return gguf.ReadRate(parts)
}

// freshBytes is the bytes of the weights that member i of a placement reads and did not
// need for the part before; nil: it has read nothing.
func (o *modelOptions) freshBytes(f *gguf.File, s replica.Settings, i int, before *parallel.Part) int64 {
	open, err := o.openOptions()
	if err == nil {
		open.Context = s.Context
		plan, failed := arch.Plan(f, open, 1)
		if failed == nil {
			return plan.Fresh(before, s.Placement[i], s.Placement[len(s.Placement)-1])
		}
		err = failed
	}
	slog.Warn("how long the ranks have to read is unknown", "error", err) // the plan itself has succeeded
	return 0
}
