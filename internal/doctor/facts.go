// Package doctor examines hosts that will run a model. Options.Report gathers facts on
// each host. Checks, which are plain functions of the facts, find what is wrong or slow,
// with the evidence and the cure.
package doctor

import "time"

// FactsVersion changes with the meaning of the fields of Facts. A host with another
// version runs another build and cannot be compared.
const FactsVersion = 1

// Facts are what is known about one host. A zero value means unknown unless noted
// otherwise; Errors says what could not be determined.
type Facts struct {
	Version int    `json:"version"`
	Host    string `json:"host"`   // as the command named it, or its own name
	System  string `json:"system"` // linux, darwin
	Arch    string `json:"arch"`
	Release string `json:"release"` // version of the kernel, or of macOS
	Build   string `json:"build"`   // version of the program
	Program string `json:"program"` // SHA-256 of its file
	Commit  string `json:"commit"`  // the commit that it was built from without changes
	Math    string `json:"math"`    // hash of the results of the C library's mathematical functions
	Backend string `json:"backend"` // cpu, or the GPU's name

	Levels     []string `json:"levels"` // instruction sets of the kernels, the best first
	Processors int      `json:"processors"`
	Quota      int      `json:"quota"`    // CPU quota of the control groups, in processors; 0: none
	Governor   string   `json:"governor"` // of the processor's frequency

	Memory     int64   `json:"memory"`      // bytes of the host or its control group
	Free       int64   `json:"free"`        // bytes available
	GPUMemory  int64   `json:"gpu_memory"`  // bytes that a GPU may use; 0: no GPU is used
	MemoryRate float64 `json:"memory_rate"` // measured, in bytes per second; 0: not measured
	Swap       int64   `json:"swap"`        // bytes of swap in use

	Files  Limit `json:"files"`  // open files of a process
	Locked Limit `json:"locked"` // locked memory of a process, in bytes

	Clock        time.Time     `json:"clock"`
	Ahead        time.Duration `json:"ahead_ns"`     // ahead of the clock of the host that asked; a lower bound, in either direction
	Synchronized string        `json:"synchronized"` // yes, no, or ""

	Addresses  []string    `json:"addresses"` // that the host's own name resolves to
	Interfaces []Interface `json:"interfaces"`
	Ports      []Port      `json:"ports"`
	Firewalls  []string    `json:"firewalls"` // active services

	Model *Model `json:"model,omitempty"`
	RDMA  RDMA   `json:"rdma"`
	Mac   *Mac   `json:"mac,omitempty"`
	// Vulkan is nil where the program was built without it.
	Vulkan *Vulkan `json:"vulkan,omitempty"`

	Errors []string `json:"errors,omitempty"`
}

// Limit is a limit of the system; Unlimited means none, and 0 unknown.
type Limit struct {
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Unlimited is the value of a Limit without a limit.
const Unlimited = ^uint64(0)

// Interface is a network interface that is up and not the loopback.
type Interface struct {
	Name      string   `json:"name"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses"` // with their prefix lengths
}

// Port is an address that the program will listen on.
type Port struct {
	Address string `json:"address"`
	Use     string `json:"use"`
	Error   string `json:"error,omitempty"` // why the program cannot listen there; "" if it can
}

// Model is a model's file on a host.
type Model struct {
	Path        string  `json:"path"`
	Error       string  `json:"error,omitempty"` // why it cannot be used
	Other       bool    `json:"other,omitempty"` // the file is valid, but this program does not run it
	Bytes       int64   `json:"bytes"`
	Parts       int     `json:"parts"`
	Fingerprint string  `json:"fingerprint"` // of the header and a sample of the weights
	Checked     bool    `json:"checked"`     // all weights were read and are finite
	FileSystem  string  `json:"file_system"` // type of the file system
	Network     bool    `json:"network"`     // the file system is on another host
	Cached      float64 `json:"cached"`      // share in the page cache, 0 to 1; -1: unknown
}

// RDMA is the report of rails here.
type RDMA struct {
	Library string       `json:"library,omitempty"`
	Devices []RDMADevice `json:"devices"`
	Notes   []string     `json:"notes,omitempty"`
}

// RDMADevice is an RDMA device.
type RDMADevice struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // why it cannot be the end of a rail, with the cure
}

// Mac holds the facts that only a Mac has.
type Mac struct {
	RDMA       string `json:"rdma"`         // output of rdma_ctl status; "" without the tool
	WiredLimit int64  `json:"wired_limit"`  // iogpu.wired_limit_mb in bytes; 0: the default
	Physical   int64  `json:"physical"`     // bytes of RAM
	Translated bool   `json:"translated"`   // the program is translated by Rosetta
	LowPower   bool   `json:"low_power"`    // low power mode is on
	Firewall   string `json:"app_firewall"` // output of socketfilterfw
}

// Vulkan is what a program on Linux sees of GPUs.
type Vulkan struct {
	Error   string         `json:"error,omitempty"`   // why there are no devices
	Cure    string         `json:"cure,omitempty"`    // of Error
	Drivers string         `json:"drivers,omitempty"` // the variable that names drivers and its value, such as VK_DRIVER_FILES=/x.json
	Chosen  string         `json:"chosen,omitempty"`  // number and name of the device that --backend vulkan takes
	Refused string         `json:"refused,omitempty"` // why it takes none
	Cards   []string       `json:"cards"`             // vendors of GPUs on the PCI bus
	Devices []VulkanDevice `json:"devices"`
}

// VulkanDevice is a device that Vulkan shows. Sizes are in bytes.
type VulkanDevice struct {
	Name          string       `json:"name"`
	Kind          string       `json:"kind"` // discrete, integrated, virtual, software or other
	Driver        string       `json:"driver"`
	Version       string       `json:"version"` // of Vulkan
	Missing       string       `json:"missing,omitempty"`
	Heaps         []VulkanHeap `json:"heaps"`
	Free          bool         `json:"free_known"`     // the driver says how much of its heaps is free
	Shared        bool         `json:"shared"`         // its memory is the host's
	Visible       int64        `json:"visible"`        // bytes of its own memory that the host sees; 0 if shared
	LargestBuffer int64        `json:"largest_buffer"` // bytes
	Workgroup     int          `json:"workgroup"`      // most threads
	SharedMemory  int          `json:"shared_memory"`  // bytes of a workgroup
	Subgroups     [2]int       `json:"subgroups"`      // least and most threads
}

// VulkanHeap is a heap of memory.
type VulkanHeap struct {
	Bytes int64 `json:"bytes"`
	Free  int64 `json:"free"`  // that this process may use now, a guess unless free_known
	Local bool  `json:"local"` // it is the device's own
}
