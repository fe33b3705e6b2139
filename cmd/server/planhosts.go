package main

import (
	"slices"
	"strconv"
	"strings"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/usage"
	"ringmaster/model/decoder"
)

// planThreads is the number of threads of a host if it is not given; the working
// buffers of the kernels, which depend on it, are small.
const planThreads = 16

// planHost is a host of a plan.
type planHost struct {
	Memory  int64   `json:"memory"`         // bytes
	Offer   int64   `json:"offer"`          // bytes of it that the model may have
	Limit   string  `json:"limit"`          // why no more
	Rate    float64 `json:"rate,omitempty"` // of the memory in bytes a second; 0: unknown
	Threads int     `json:"threads,omitempty"`
}

// hostSyntax is how a host is written.
const hostSyntax = "MEMORY[,RATE][,mac][,offer=SIZE][,threads=N][,xN], such as 512GiB,800GB/s,mac"

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
	if len(hosts) == 0 || len(hosts) > 8 {
		return nil, usage.Errorf("%d hosts; give one to eight with --host %s", len(hosts), hostSyntax)
	}
	return hosts, nil
}

// parseHost reads one value of --host, and how many hosts it stands for.
func parseHost(value string) (h planHost, n int, err error) {
	bad := func(part string) error {
		return usage.Errorf("--host %s: %q; expected %s", value, part, hostSyntax)
	}
	parts := strings.Split(value, ",")
	if h.Memory, err = parseBytes(parts[0]); err != nil || h.Memory == 0 {
		return h, 0, bad(parts[0])
	}
	// What Linux leaves free on a host that runs nothing else, and what the GPU of a Mac
	// may use by default.
	h.Offer, h.Limit = h.Memory-h.Memory/20, "95% of the memory"
	h.Threads, n = planThreads, 1
	for _, p := range parts[1:] {
		name, text, _ := strings.Cut(p, "=")
		switch {
		case strings.HasSuffix(p, "GB/s"):
			rate, err := strconv.ParseFloat(strings.TrimSuffix(p, "GB/s"), 64)
			if err != nil || !(rate > 0) || rate > 1e6 {
				return h, 0, bad(p)
			}
			h.Rate = rate * 1e9
		case p == "mac":
			h.Offer, h.Limit, h.Threads = h.Memory/4*3, "75% of the memory: what a Mac's GPU may use by default", 0
		case name == "offer":
			if h.Offer, err = parseBytes(text); err != nil || h.Offer == 0 || h.Offer > h.Memory {
				return h, 0, bad(p)
			}
			h.Limit = "as given"
		case name == "threads":
			if h.Threads, err = strconv.Atoi(text); err != nil || h.Threads < 1 || h.Threads > 4096 {
				return h, 0, bad(p)
			}
		case strings.HasPrefix(p, "x"):
			if n, err = strconv.Atoi(p[1:]); err != nil || n < 1 || n > 8 {
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

// links are the data rates of links in bytes a second, of each direction.
var links = map[string]float64{"rdma": 6.5e9, "1g": 0.125e9, "2.5g": 0.3125e9, "10g": 1.25e9, "25g": 3.125e9, "40g": 5e9, "100g": 12.5e9, "200g": 25e9, "400g": 50e9}

// parseLink is the rate of a link by its name, or of one such as 3GB/s.
func parseLink(s string) (float64, error) {
	if rate, ok := links[s]; ok {
		return rate, nil
	}
	rate, err := strconv.ParseFloat(strings.TrimSuffix(s, "GB/s"), 64)
	if err != nil || !strings.HasSuffix(s, "GB/s") || !(rate > 0) || rate > 1e6 {
		return 0, usage.Errorf("--link is %q; expected rdma (a Thunderbolt 5 cable), 1g, 2.5g, 10g, 25g, 40g, 100g, 200g, 400g, or a rate such as 3GB/s", s)
	}
	return rate * 1e9, nil
}

// bounds are what no rank can be faster than, from bytes alone.
type bounds struct {
	// Decode is tokens a second of one sequence; 0: a rate of memory is unknown.
	Decode float64 `json:"decode_tokens_per_second,omitempty"`
	Bytes  []int64 `json:"bytes_per_token"` // of the weights that each rank reads for a token
	Wire   int64   `json:"wire_per_token"`  // bytes that each rank must receive for a token
	Slow   int     `json:"slowest_rank"`    // that bounds it
}

// decodeBounds are the bounds of a plan on hosts; embedding is the bytes of the
// embedding, of which a token reads one row.
func decodeBounds(p decoder.Plan, ranks []decoder.RankPlan, hosts []planHost, link float64, exchanges int, embedding int64) bounds {
	b := bounds{Bytes: make([]int64, len(ranks))}
	longest, known := 0.0, true
	for i, r := range ranks {
		// Of its experts a rank reads on average the share of those that a token uses.
		b.Bytes[i] = r.DenseBytes - embedding + int64(float64(r.ExpertBytes)*float64(p.Used)/float64(p.Sizes.Experts))
		if known = known && hosts[i].Rate > 0; known {
			if t := float64(b.Bytes[i]) / hosts[i].Rate; t > longest {
				longest, b.Slow = t, i
			}
		}
	}
	if len(ranks) > 1 { // a row of sums must reach every rank, in float16 at least
		b.Wire = int64(p.Layers) * int64(exchanges) * int64(p.Routed.Embd) * 2
		longest += float64(b.Wire) / link
	}
	if known && longest > 0 {
		b.Decode = 1 / longest
	}
	return b
}
