package forecast

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"ringmaster/model/calibrate"
)

// Link connects the hosts of a plan.
type Link struct {
	Rate    float64 // bytes per second of each direction
	Latency float64 // seconds of the shortest exchange between two hosts
	Cables  bool    // a cable between every two hosts instead of a switch
	// Inside, if given, links the hosts of an island, which are those of one value of --host;
	// the link itself is then that of different islands.
	Inside *Link
	text   string
}

// String returns the text that ParseLink read.
func (l Link) String() string { return l.text }

// macPorts is the most Thunderbolt ports of a Mac. If each Mac cannot have a cable to
// every other, they form a ring.
const macPorts = 6

// network returns the link among these hosts.
func (l Link) network(hosts []Host) calibrate.Network {
	n := calibrate.Network{Latency: l.Latency, Rate: l.Rate, Hops: 1}
	if l.Cables && len(hosts) > macPorts+1 {
		n.Hops = len(hosts) / 2
	}
	if l.Inside != nil {
		for _, h := range hosts {
			n.Islands = append(n.Islands, h.island)
		}
		inside := l.Inside.network(hosts)
		n.Inside = &inside
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

// links maps names to links.
var links = map[string]Link{
	"rdma":     {Rate: 6e9, Latency: thunderboltLatency, Cables: true},
	"roce-25g": {Rate: 3.125e9, Latency: roceLatency}, "roce-100g": {Rate: 12.5e9, Latency: roceLatency},
	"1g": {Rate: 0.125e9, Latency: tcpLatency}, "2.5g": {Rate: 0.3125e9, Latency: tcpLatency}, "10g": {Rate: 1.25e9, Latency: tcpLatency}, "25g": {Rate: 3.125e9, Latency: tcpLatency},
	"40g": {Rate: 5e9, Latency: tcpLatency}, "100g": {Rate: 12.5e9, Latency: tcpLatency}, "200g": {Rate: 25e9, Latency: tcpLatency}, "400g": {Rate: 50e9, Latency: tcpLatency},
}

// LinkForm is the syntax of a link.
const LinkForm = "rdma (a Thunderbolt 5 cable), roce-25g, roce-100g, TCP over 1g, 2.5g, 10g, 25g, 40g, 100g, 200g or 400g, or a rate such as 3GB/s, with the latency of an exchange 3GB/s,20us"

// ParseLink reads a link by its name, a rate such as 3GB/s, or a rate and the latency of
// an exchange, such as 3GB/s,20us.
func ParseLink(s string) (Link, error) {
	if l, ok := links[s]; ok {
		l.text = s
		return l, nil
	}
	text, latency, given := strings.Cut(s, ",")
	rate, ok := positive(strings.TrimSuffix(text, "GB/s"))
	l := Link{Rate: rate * 1e9, Latency: tcpLatency, text: s}
	if given {
		d, err := time.ParseDuration(latency)
		ok = ok && err == nil && d > 0 && d <= time.Minute
		l.Latency = d.Seconds()
	}
	if !ok || !strings.HasSuffix(text, "GB/s") {
		return Link{}, fmt.Errorf("expected %s", LinkForm)
	}
	return l, nil
}

// LinksForm is the syntax of ParseLinks.
const LinksForm = LinkForm + "; rdma+1g: the first between the hosts of one --host, the second between the others"

// ParseLinks reads a link of all hosts, or two joined by a plus sign: that between the hosts of
// one value of --host, and that between the others.
func ParseLinks(s string) (Link, error) {
	first, second, islands := strings.Cut(s, "+")
	inside, err := ParseLink(first)
	if err != nil || !islands {
		return inside, err
	}
	across, err := ParseLink(second)
	if err != nil {
		return Link{}, err
	}
	across.Inside, across.text = &inside, s
	return across, nil
}

// positive reads a positive number of at most a million.
func positive(s string) (float64, bool) {
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil && x > 0 && x <= 1e6
}
