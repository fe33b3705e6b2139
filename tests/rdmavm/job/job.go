// Package job defines what the host that boots a guest and the guest's first
// process exchange: the job goes in as a file of the initramfs, results come
// out as JSON lines on the second serial port.
package job

import (
	"fmt"
	"time"
)

// Path is where the guest finds its job.
const Path = "/job.json"

// Job is what a guest does before it turns itself off.
type Job struct {
	// Rails and Ports are the fabric: each rail is an Ethernet switch, each
	// port of it one soft-RoCE device. Device names a device.
	Rails, Ports int
	Modules      []string // files of the initramfs, in loading order
	Steps        []Step
}

// Step is one command. Steps run one after the other; a failed step does not
// prevent the next from running.
type Step struct {
	Name  string
	Args  []string // the first is the path of the program in the guest
	Env   []string // added to the guest's own
	Limit time.Duration
}

// Line is one line of the results.
type Line struct {
	Step   int    // index in Steps, -1: the guest itself
	Output []byte // of the step: stdout and stderr in the order they were written
	// Ended is set on the last line of a step. Exit is its status, or -1 with
	// Error if it was not run or was killed.
	Ended bool
	Exit  int
	Error string
	// Took is how long the step ran, or the guest's set-up.
	Took time.Duration
}

// Device is the name of the RDMA device at a port of a rail.
func Device(rail, port int) string { return fmt.Sprintf("rxe%d%d", rail, port) }

// Interface is the name of the network interface below it.
func Interface(rail, port int) string { return fmt.Sprintf("eth%d%d", rail, port) }

// Address is the IPv4 address of that interface.
func Address(rail, port int) string { return fmt.Sprintf("10.9.%d.%d", rail, port+1) }

// The environment variables that tell a step's program where it runs.
const (
	RailsVariable = "RDMAVM_RAILS"
	PortsVariable = "RDMAVM_PORTS"
)
