package forecast

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/kernels/cpu"
	"ringmaster/model/decoder"
)

// defaultThreads is the number of threads of a host if it is not given. It matters
// little, because the working buffers of the kernels that depend on it are small.
const defaultThreads = 16

// defaultOp is the default overhead of an op in seconds, beyond reading and computing:
// its call, and the start and end of threads or a GPU.
const defaultOp = 3e-6

// macWait is the default time in seconds from the end of a GPU's work on a Mac until the
// CPU sees it and the GPU continues. Others measured 150 to 200 us (ml-explore/mlx#1773) and
// 0.34 ms for each layer (antirez/ds4#1041); it was not measured here.
const macWait = 200e-6

// Host is a host of a plan.
type Host struct {
	Memory  int64   `json:"memory"`            // bytes
	Offer   int64   `json:"offer"`             // bytes of it for the model
	Limit   string  `json:"limit"`             // why not more
	Rate    float64 `json:"rate,omitempty"`    // of the memory in bytes per second; 0: unknown
	Compute float64 `json:"compute,omitempty"` // multiply-adds per second; 0: unknown
	Op      float64 `json:"op,omitempty"`      // overhead of an op in seconds, beyond reading and computing
	Wait    float64 `json:"wait,omitempty"`    // seconds before each exchange until the CPU sees that its GPU is done
	Threads int     `json:"threads,omitempty"`
	GPU     int64   `json:"gpu,omitempty"` // bytes that the model may use of a graphics card

	card   *groupplan.Card // what of the model is there, nil without a GPU
	island int             // the number of the value of --host
}

// The syntax of a host.
const (
	HostForm    = "MEMORY[,RATE][,SPEED][,mac][,op=TIME][,wait=TIME][,offer=SIZE][,gpu=SIZE][,threads=N][,xN]"
	HostExample = "512GiB,800GB/s,28TFLOP/s,mac"
	HostSyntax  = HostForm + ", such as " + HostExample
)

// Hosts is a number of equal hosts, as one value of --host.
type Hosts struct {
	Host
	Count int
	text  string
}

// String returns the text that ParseHosts read.
func (h Hosts) String() string { return h.text }

// ParseHosts reads a value of --host; xN stands for N equal hosts.
func ParseHosts(value string) (Hosts, error) {
	h, n, err := parseHost(value)
	return Hosts{h, n, value}, err
}

// expand lists the hosts of a group.
func expand(values []Hosts) ([]Host, error) {
	var hosts []Host
	for i, v := range values {
		v.island = i
		hosts = append(hosts, slices.Repeat([]Host{v.Host}, v.Count)...)
	}
	if len(hosts) == 0 || len(hosts) > groupplan.MaxRanks {
		return nil, usage.Errorf("%d hosts; give one to eight with --host %s", len(hosts), HostSyntax)
	}
	return hosts, nil
}

// parseHost reads one value of --host, and how many hosts it stands for.
func parseHost(value string) (h Host, n int, err error) {
	bad := func(part string) error {
		return fmt.Errorf("%q; expected %s", part, HostSyntax)
	}
	parts := strings.Split(value, ",")
	if h.Memory, err = units.ParseBytes(parts[0]); err != nil || h.Memory == 0 {
		return h, 0, bad(parts[0])
	}
	// What Linux leaves free on an otherwise idle host, and what the GPU of a Mac may use
	// by default.
	h.Offer, h.Limit = h.Memory-h.Memory/20, "95% of the memory"
	h.Threads, h.Op, n = defaultThreads, defaultOp, 1
	for _, p := range parts[1:] {
		name, text, _ := strings.Cut(p, "=")
		switch {
		case strings.HasSuffix(p, "GB/s"):
			rate, ok := positive(strings.TrimSuffix(p, "GB/s"))
			if !ok {
				return h, 0, bad(p)
			}
			h.Rate = rate * 1e9
		case strings.HasSuffix(p, "TFLOP/s"):
			rate, ok := positive(strings.TrimSuffix(p, "TFLOP/s"))
			if !ok {
				return h, 0, bad(p)
			}
			h.Compute = rate * 1e12 / 2
		case p == "mac":
			h.Offer, h.Limit, h.Threads, h.Wait = h.Memory/4*3, "75% of the memory: what a Mac's GPU may use by default", 0, macWait
		case name == "op" || name == "wait":
			d, err := time.ParseDuration(text)
			if err != nil || d < 0 || d > time.Second {
				return h, 0, bad(p)
			}
			if name == "op" {
				h.Op = d.Seconds()
			} else {
				h.Wait = d.Seconds()
			}
		case name == "offer":
			if h.Offer, err = units.ParseBytes(text); err != nil || h.Offer == 0 || h.Offer > h.Memory {
				return h, 0, bad(p)
			}
			h.Limit = "as given"
		case name == "gpu":
			if h.GPU, err = units.ParseBytes(text); err != nil || h.GPU == 0 {
				return h, 0, bad(p)
			}
		case name == "threads":
			if h.Threads, err = strconv.Atoi(text); err != nil || h.Threads < 1 || h.Threads > cpu.MaxThreads {
				return h, 0, bad(p)
			}
		case strings.HasPrefix(p, "x"):
			if n, err = strconv.Atoi(p[1:]); err != nil || n < 1 || n > groupplan.MaxRanks {
				return h, 0, bad(p)
			}
		default:
			return h, 0, bad(p)
		}
	}
	return h, n, nil
}

// members returns the hosts as a group would see them.
func members(hosts []Host) []cluster.Hello {
	out := make([]cluster.Hello, len(hosts))
	for i, h := range hosts {
		out[i] = cluster.Hello{Rank: i, Size: len(hosts), Memory: h.Offer, Threads: h.Threads}
		if h.card == nil {
			continue
		}
		switch h.card.On {
		case decoder.DenseOnGPU:
			out[i].OwnMemory = max(h.GPU-h.card.Weights+h.card.Program, 1) // buffers and KV caches are on the GPU
		case decoder.AllOnGPU:
			out[i].Memory += h.card.Program
		}
	}
	return out
}
