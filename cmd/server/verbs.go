package main

import (
	"strconv"

	"ringmaster/distributed/rdma"
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
		return err
	}
	*p = verbsProcess(rdma.Helper)
	if in {
		*p = verbsProcess(rdma.InProcess)
	}
	return nil
}

func (p *verbsProcess) Type() string { return "bool" }
