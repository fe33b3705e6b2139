// Package doctor examines hosts that shall run a model: facts are gathered on each,
// and checks, which are plain functions of the facts, find what is wrong or slow, with
// the evidence and the cure.
package doctor

import "time"

// FactsVersion changes with the meaning of the fields of Facts: hosts with another one
// run another build, and cannot be compared.
const FactsVersion = 1

// Facts are what is known of one host. A zero value means unknown unless it says
// otherwise; what could not be determined is in Errors.
type Facts struct {
	Version int    `json:"version"`
	Host    string `json:"host"`   // as it was addressed, or its own name
	System  string `json:"system"` // linux, darwin
	Arch    string `json:"arch"`
	Release string `json:"release"` // of the kernel, or of macOS
	Build   string `json:"build"`   // version of the program
	Program string `json:"program"` // SHA-256 of its file
	Commit  string `json:"commit"`  // that it was built from without changes
	Math    string `json:"math"`    // hash of what the mathematical functions of the C library return
	Backend string `json:"backend"` // what computes: cpu, or the GPU's name

	Levels     []string `json:"levels"` // instruction sets of the kernels, the best first
	Processors int      `json:"processors"`
	Quota      int      `json:"quota"`    // of the control groups, in processors; 0: none
	Governor   string   `json:"governor"` // of the processor's frequency

	Memory     int64   `json:"memory"`      // bytes of the host or its control group
	Free       int64   `json:"free"`        // bytes available
	GPUMemory  int64   `json:"gpu_memory"`  // bytes that a GPU may use; 0: none computes
	MemoryRate float64 `json:"memory_rate"` // measured, bytes a second; 0: not measured
	Swap       int64   `json:"swap"`        // bytes of swap in use

	Files  Limit `json:"files"`  // open files of a process
	Locked Limit `json:"locked"` // locked memory of a process, in bytes

	Clock        time.Time     `json:"clock"`
	Ahead        time.Duration `json:"ahead_ns"`     // of the clock of the host that asked; at least, in either direction
	Synchronized string        `json:"synchronized"` // yes, no, or ""

	Addresses  []string    `json:"addresses"` // that the host's own name stands for
	Interfaces []Interface `json:"interfaces"`
	Ports      []Port      `json:"ports"`
	Firewalls  []string    `json:"firewalls"` // services that are active

	Model *Model `json:"model,omitempty"`
	RDMA  RDMA   `json:"rdma"`
	Mac   *Mac   `json:"mac,omitempty"`

	Errors []string `json:"errors,omitempty"`
}

// Limit is a limit of the system; Unlimited is none, and 0 unknown.
type Limit struct {
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Unlimited is a Limit's value for none.
const Unlimited = ^uint64(0)

// Interface is one of the network that is up and is no loopback.
type Interface struct {
	Name      string   `json:"name"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses"` // with the length of their prefix
}

// Port is an address that the program shall listen on.
type Port struct {
	Address string `json:"address"`
	Use     string `json:"use"`
	Error   string `json:"error,omitempty"` // why it cannot; "" if it can
}

// Model is a model's file on a host.
type Model struct {
	Path        string  `json:"path"`
	Error       string  `json:"error,omitempty"` // why it cannot be used
	Other       bool    `json:"other,omitempty"` // the file is sound, and this program does not run it
	Bytes       int64   `json:"bytes"`
	Parts       int     `json:"parts"`
	Fingerprint string  `json:"fingerprint"` // of header and a sample of the weights
	Checked     bool    `json:"checked"`     // all weights were read and found finite
	FileSystem  string  `json:"file_system"` // its type
	Network     bool    `json:"network"`     // the file system is another host's
	Cached      float64 `json:"cached"`      // share in the page cache, 0 to 1; -1: unknown
}

// RDMA is what rails here reports.
type RDMA struct {
	Library string       `json:"library,omitempty"`
	Devices []RDMADevice `json:"devices"`
	Notes   []string     `json:"notes,omitempty"`
}

// RDMADevice is one device of RDMA.
type RDMADevice struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // it cannot be the end of a rail, with the cure
}

// Mac is what only a Mac has.
type Mac struct {
	RDMA       string `json:"rdma"`         // the word of rdma_ctl status; "" without the tool
	WiredLimit int64  `json:"wired_limit"`  // iogpu.wired_limit_mb in bytes; 0: the default
	Physical   int64  `json:"physical"`     // bytes of RAM
	Translated bool   `json:"translated"`   // the program is translated by Rosetta
	LowPower   bool   `json:"low_power"`    // low power mode is on
	Firewall   string `json:"app_firewall"` // what socketfilterfw says
}
