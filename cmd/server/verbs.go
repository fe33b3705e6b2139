package main

import (
	"fmt"
	"strconv"

	"ringmaster/distributed/rdma"
	"ringmaster/internal/flags"
)

// verbsProcess is the value of --rdma-in-process: a bool, or nothing for what suits
// the system.
type verbsProcess rdma.Process

// String, Set and Type are described at pflag.Value.
func (p *verbsProcess) String() string {
	switch rdma.Process(*p) {
	case rdma.InProcess:
		return "true"
	case rdma.Helper:
		return "false"
	}
	return ""
}

func (p *verbsProcess) Set(text string) error {
	in, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("expected %s", p.Allowed())
	}
	*p = verbsProcess(rdma.Helper)
	if in {
		*p = verbsProcess(rdma.InProcess)
	}
	return nil
}

func (p *verbsProcess) Type() string { return "bool" }

// Kind and Allowed are described at flags.Value.
func (p *verbsProcess) Kind() flags.Kind { return flags.Word }

func (p *verbsProcess) Allowed() string { return flags.TrueOrFalse }
