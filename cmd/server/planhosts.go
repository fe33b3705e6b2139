package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
)

// planThreads is the number of threads of a host if it is not given; the working
// buffers of the kernels, which depend on it, are small.
const planThreads = 16

// planOp is the seconds of an op beyond reading and computing if they are not given:
// its call, and threads or a GPU that begin and end.
const planOp = 3e-6

// macWait is the seconds from the end of a GPU's work on a Mac until the CPU sees it, if
// they are not given. Others measured 100 us and more for a shared event
// (docs/distributed-benchmark.md, predictions). It was not measured here.
const macWait = 100e-6

// planHost is a host of a plan.
type planHost struct {
	Memory  int64   `json:"memory"`            // bytes
	Offer   int64   `json:"offer"`             // bytes of it that the model may have
	Limit   string  `json:"limit"`             // why no more
	Rate    float64 `json:"rate,omitempty"`    // of the memory in bytes a second; 0: unknown
	Compute float64 `json:"compute,omitempty"` // multiplications with their additions a second; 0: unknown
	Op      float64 `json:"op,omitempty"`      // seconds of an op beyond reading and computing
	Wait    float64 `json:"wait,omitempty"`    // seconds before each exchange until the CPU sees that its GPU is done
	Threads int     `json:"threads,omitempty"`
}

// How a host is written.
const (
	hostForm    = "MEMORY[,RATE][,SPEED][,mac][,op=TIME][,wait=TIME][,offer=SIZE][,threads=N][,xN]"
	hostExample = "512GiB,800GB/s,28TFLOP/s,mac"
	hostSyntax  = hostForm + ", such as " + hostExample
)

// parseHosts reads the values of --host; one with xN stands for N hosts.
func parseHosts(values []string) ([]planHost, error) {
	var hosts []planHost
	for _, v := range values {
		h, n, err := parseHost(v)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, slices.Repeat([]planHost{h}, n)...)
	}
	if len(hosts) == 0 || len(hosts) > mostRanks {
		return nil, usage.Errorf("%d hosts; give one to eight with --host %s", len(hosts), hostSyntax)
	}
	return hosts, nil
}

// parseHost reads one value of --host, and how many hosts it stands for.
func parseHost(value string) (h planHost, n int, err error) {
	bad := func(part string) error {
		return fmt.Errorf("%q; expected %s", part, hostSyntax)
	}
	parts := strings.Split(value, ",")
	if h.Memory, err = units.ParseBytes(parts[0]); err != nil || h.Memory == 0 {
		return h, 0, bad(parts[0])
	}
	// What Linux leaves free on a host that runs nothing else, and what the GPU of a Mac
	// may use by default.
	h.Offer, h.Limit = h.Memory-h.Memory/20, "95% of the memory"
	h.Threads, h.Op, n = planThreads, planOp, 1
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
		case name == "threads":
			if h.Threads, err = strconv.Atoi(text); err != nil || h.Threads < 1 || h.Threads > mostThreads {
				return h, 0, bad(p)
			}
		case strings.HasPrefix(p, "x"):
			if n, err = strconv.Atoi(p[1:]); err != nil || n < 1 || n > mostRanks {
				return h, 0, bad(p)
			}
		default:
			return h, 0, bad(p)
		}
	}
	return h, n, nil
}

// members are the hosts as a group would see them.
func members(hosts []planHost) []cluster.Hello {
	out := make([]cluster.Hello, len(hosts))
	for i, h := range hosts {
		out[i] = cluster.Hello{Rank: i, Size: len(hosts), Memory: h.Offer, Threads: h.Threads}
	}
	return out
}

// positive reads a positive number of at most a million.
func positive(s string) (float64, bool) {
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil && x > 0 && x <= 1e6
}

// planLink is what connects the hosts of a plan.
type planLink struct {
	Rate    float64 // bytes a second of each direction
	Latency float64 // seconds of the shortest exchange between two hosts
	Cables  bool    // a cable for each two hosts instead of a switch
}

// macPorts is how many Thunderbolt ports a Mac has at most. More ranks than one more
// than that make a ring.
const macPorts = 6

// network is the link among these hosts.
func (l planLink) network(hosts []planHost) calibrate.Network {
	n := calibrate.Network{Latency: l.Latency, Rate: l.Rate, Hops: 1}
	if l.Cables && len(hosts) > macPorts+1 {
		n.Hops = len(hosts) / 2
	}
	for _, h := range hosts {
		n.Wait = max(n.Wait, h.Wait)
	}
	return n
}

// Latencies that were not measured here:
//   - Thunderbolt: published round trips are 7 to 14 us, and 6.4 to 8.9 GB/s of a cable
//     (docs/distributed-benchmark.md, predictions).
//   - RDMA over Ethernet: 2.3 us one way for 4 KiB (perftest), a switch and two copies.
//   - TCP: 16 us of the kernel's TCP_RR (Linux commit 3a336cb17183) and 11 us of our
//     combine over loopback.
const (
	thunderboltLatency = 10e-6
	roceLatency        = 5e-6
	tcpLatency         = 27e-6
)

// links are the links that have names.
var links = map[string]planLink{
	"rdma":     {6e9, thunderboltLatency, true},
	"roce-25g": {3.125e9, roceLatency, false}, "roce-100g": {12.5e9, roceLatency, false},
	"1g": {0.125e9, tcpLatency, false}, "2.5g": {0.3125e9, tcpLatency, false}, "10g": {1.25e9, tcpLatency, false}, "25g": {3.125e9, tcpLatency, false},
	"40g": {5e9, tcpLatency, false}, "100g": {12.5e9, tcpLatency, false}, "200g": {25e9, tcpLatency, false}, "400g": {50e9, tcpLatency, false},
}

// linkForm is how a link is written.
const linkForm = "rdma (a Thunderbolt 5 cable), roce-25g, roce-100g, TCP over 1g, 2.5g, 10g, 25g, 40g, 100g, 200g or 400g, or a rate such as 3GB/s, with the latency of an exchange 3GB/s,20us"

// parseLink reads a link by its name, a rate such as 3GB/s, or a rate and the latency of
// an exchange, such as 3GB/s,20us.
func parseLink(s string) (planLink, error) {
	if l, ok := links[s]; ok {
		return l, nil
	}
	text, latency, given := strings.Cut(s, ",")
	rate, ok := positive(strings.TrimSuffix(text, "GB/s"))
	l := planLink{Rate: rate * 1e9, Latency: tcpLatency}
	if given {
		d, err := time.ParseDuration(latency)
		ok = ok && err == nil && d > 0 && d <= time.Minute
		l.Latency = d.Seconds()
	}
	if !ok || !strings.HasSuffix(text, "GB/s") {
		return planLink{}, usage.Errorf("--link is %q; expected %s", s, linkForm)
	}
	return l, nil
}

// bounds are what no rank can be faster than, from bytes alone.
type bounds struct {
	// Decode is tokens a second of one sequence; 0: a rate of memory is unknown.
	Decode float64 `json:"decode_tokens_per_second,omitempty"`
	Bytes  []int64 `json:"bytes_per_token"` // of the weights that each rank reads for a token
	Wire   int64   `json:"wire_per_token"`  // bytes that each rank must receive for a token
	Slow   int     `json:"slowest_rank"`    // that bounds it
}

// decodeBounds are the bounds of a plan on hosts whose ranks read so many bytes of weights
// for a token, [ranks], and exchange so many sums of a row.
func decodeBounds(p decoder.Plan, reads []int64, hosts []planHost, link planLink, sums int) bounds {
	b := bounds{Bytes: reads}
	longest, known := 0.0, true
	for i := range reads {
		if known = known && hosts[i].Rate > 0; known {
			if t := float64(b.Bytes[i]) / hosts[i].Rate; t > longest {
				longest, b.Slow = t, i
			}
		}
	}
	if len(reads) > 1 { // a row of sums must reach every rank, in float16 at least
		b.Wire = int64(sums) * int64(p.Routed.Embd) * 2
		longest += float64(b.Wire) / link.Rate
	}
	if known && longest > 0 {
		b.Decode = 1 / longest
	}
	return b
}
