package forecast

import (
	"slices"

	"ringmaster/distributed/cluster"
	"ringmaster/groupplan"
	"ringmaster/internal/usage"
	"ringmaster/model/decoder"
)

// defaultThreads is the number of threads of a host if it is not given. It matters
// little, because the working buffers of the kernels that depend on it are small.
const defaultThreads = 16

// Host is a host of a plan.
type Host struct {
	Memory   int64  `json:"memory"` // bytes
	Offer    int64  `json:"offer"`  // bytes of it for the model
	Limit    string `json:"limit"`  // why not more
	Rates           // of the processor, or of a Mac's GPU
	Threads  int    `json:"threads,omitempty"`
	GPU      int64  `json:"gpu,omitempty"`       // bytes that the model may use of a graphics card
	GPURates *Rates `json:"gpu_rates,omitempty"` // of the card, nil without one

	card   *groupplan.Card // what of the model is there, nil without a GPU
	own    ownMemory       // set with card
	island int             // the number of the value of --host
}

// ownMemory is what a host with a graphics card offers where the card does not have all of the
// model.
type ownMemory struct {
	offer   int64
	limit   string
	threads int
}

// The syntax of a host.
const (
	HostForm    = "MEMORY[,RATE][,SPEED][,mac][,op=TIME][,wait=TIME][,offer=SIZE][,threads=N]" + CardForm + "[,xN]"
	CardForm    = "[,gpu=SIZE[,RATE][,SPEED][,op=TIME][,wait=TIME]]" // parts behind gpu= are the card's
	HostExample = "512GiB,800GB/s,28TFLOP/s,mac"
	CardExample = "96GiB,80GB/s,2TFLOP/s,gpu=12GiB,504GB/s,30TFLOP/s"
	HostSyntax  = HostForm + ", such as " + HostExample + " or " + CardExample
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
