package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ringmaster/internal/units"
)

// groupCheck is a check of all hosts together.
type groupCheck struct {
	name string
	find func([]Facts) []Finding
}

var groupChecks = []groupCheck{
	{"builds", checkBuilds},
	{"processor", checkSameBits},
	{"model", checkSameModel},
	{"memory", checkShares},
	{"clock", checkClocks},
	{"network", checkNetworks},
}

// byValue lists which hosts have which value, without "".
func byValue(hosts []Facts, of func(*Facts) string) (values []string, text string) {
	names := map[string][]string{}
	for i := range hosts {
		v := of(&hosts[i])
		if v == "" {
			continue
		}
		if names[v] == nil {
			values = append(values, v)
		}
		names[v] = append(names[v], hosts[i].Host)
	}
	var parts []string
	for _, v := range values {
		parts = append(parts, fmt.Sprintf("%s on %s", v, strings.Join(names[v], ", ")))
	}
	return values, strings.Join(parts, "; ")
}

func checkBuilds(hosts []Facts) []Finding {
	values, text := byValue(hosts, func(h *Facts) string { return h.Build })
	if len(values) > 1 {
		return []Finding{finding(Error, "install the same build on all hosts: ranks of different ones refuse each other", "builds differ: %s", text)}
	}
	if other := otherPrograms(hosts); other != "" {
		return []Finding{finding(Error, "copy one program file to all hosts of a platform, built in a clean clone of one commit: ranks of different programs refuse each other", "builds of version %s differ: %s", values[0], other)}
	}
	return []Finding{finding(OK, "", "all hosts have the build %s", text)}
}

// otherPrograms lists the programs if they differ, "" if they are equal or that is
// unknown: all files for one platform must be equal, and files for several must have one
// known commit.
func otherPrograms(hosts []Facts) string {
	_, text := byValue(hosts, func(h *Facts) string {
		if h.Program == "" {
			return ""
		}
		return fmt.Sprintf("%s/%s with hash %.12s", h.System, h.Arch, h.Program)
	})
	for _, h := range hosts[1:] {
		a := hosts[0]
		same := h.Commit != "" && h.Commit == a.Commit
		if h.System == a.System && h.Arch == a.Arch {
			same = h.Program == a.Program
		}
		if h.Program != "" && a.Program != "" && !same {
			return text
		}
	}
	return ""
}

// checkSameBits checks the instruction sets or GPUs, because ranks must compute the same
// bits.
func checkSameBits(hosts []Facts) []Finding {
	values, text := byValue(hosts, func(h *Facts) string { return h.Backend })
	if len(values) < 2 {
		if values, text = byValue(hosts, func(h *Facts) string { return h.Math }); len(values) > 1 && strings.HasPrefix(hosts[0].Backend, "cpu") {
			return []Finding{finding(Error, "install the same release of the system (of glibc) on all hosts, or run all ranks in the same container image", "the mathematical functions of the C library return different bits: %s", text)}
		}
		return nil
	}
	if level := bestCommon(hosts); level != "" {
		return []Finding{finding(Warning, "give every rank --simd "+level, "instruction sets differ, and with them the last bits of results: %s", text)}
	}
	return []Finding{finding(Error, "give every rank --backend cpu, or group hosts of one kind", "processors or GPUs differ: %s; ranks must compute the same bits", text)}
}

// bestCommon returns the best instruction set that all hosts have, "" without one or if a
// GPU computes.
func bestCommon(hosts []Facts) string {
	for _, level := range hosts[0].Levels {
		if !slices.ContainsFunc(hosts, func(h Facts) bool {
			return !slices.Contains(h.Levels, level) || !strings.HasPrefix(h.Backend, "cpu")
		}) {
			return level
		}
	}
	return ""
}

func checkSameModel(hosts []Facts) (out []Finding) {
	values, text := byValue(hosts, func(h *Facts) string {
		if h.Model == nil {
			return ""
		}
		return h.Model.Fingerprint
	})
	if len(values) > 1 {
		out = append(out, finding(Error, "copy one file to all hosts and compare its SHA-256", "the model's files differ: %s", text))
	}
	return out
}

// checkShares reports that an even division wastes memory of a larger host.
func checkShares(hosts []Facts) []Finding {
	least, most := offer(&hosts[0]), offer(&hosts[0])
	var sum int64
	for i := range hosts {
		n := offer(&hosts[i])
		if n == 0 {
			return nil
		}
		sum += n
		least, most = min(least, n), max(most, n)
	}
	out := []Finding{finding(OK, "", "%d hosts offer %s together", len(hosts), units.Bytes(sum))}
	if float64(most) > 1.25*float64(least) {
		out = append(out, finding(Note, "--share experts:memory divides in proportion to what each offers", "the hosts offer from %s to %s: an even division fits the smallest", units.Bytes(least), units.Bytes(most)))
	}
	return out
}

func offer(h *Facts) int64 {
	if h.GPUMemory > 0 {
		return min(h.GPUMemory, h.Free)
	}
	return h.Free
}

// mostSkew is a difference of clocks that the delay of ssh cannot explain.
const mostSkew = 5 * time.Second

func checkClocks(hosts []Facts) []Finding {
	byClock := func(a, b Facts) int { return cmp.Compare(a.Ahead, b.Ahead) }
	first, last := slices.MinFunc(hosts, byClock), slices.MaxFunc(hosts, byClock)
	if d := last.Ahead - first.Ahead; d > mostSkew {
		return []Finding{finding(Warning, "synchronize the clocks (timedatectl set-ntp true, or chrony)", "%s is %v ahead of %s, not counting the delay of asking", last.Host, d.Round(time.Second), first.Host)}
	}
	return nil
}

// checkNetworks looks for networks that all hosts share, and for different MTUs in one,
// because a frame that is too long for one end is lost.
func checkNetworks(hosts []Facts) (out []Finding) {
	type end struct {
		host string
		mtu  int
	}
	ends := map[netip.Prefix][]end{}
	for _, h := range hosts {
		for _, i := range h.Interfaces {
			for _, a := range i.Addresses {
				p, err := netip.ParsePrefix(a)
				if err != nil || p.Addr().IsLinkLocalUnicast() || p.Bits() == p.Addr().BitLen() {
					continue
				}
				ends[p.Masked()] = append(ends[p.Masked()], end{h.Host, i.MTU})
			}
		}
	}
	common := []string{}
	for network, list := range ends {
		byMTU := func(a, b end) int { return cmp.Compare(a.mtu, b.mtu) }
		least, most := slices.MinFunc(list, byMTU), slices.MaxFunc(list, byMTU)
		names := map[string]bool{}
		for _, e := range list {
			names[e.host] = true
		}
		if len(names) == len(hosts) {
			common = append(common, network.String())
		}
		if len(names) > 1 && least.mtu != most.mtu {
			out = append(out, finding(Warning, "give all interfaces of a network the same MTU (ip link set DEV mtu N)", "MTUs differ in %v: %d on %s, %d on %s", network, most.mtu, most.host, least.mtu, least.host))
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.Evidence, b.Evidence) })
	slices.Sort(common)
	if len(common) == 0 {
		return append(out, finding(Note, "give --coordinator an address that all hosts reach", "the hosts share no network that their addresses show; they may be routed"))
	}
	return append(out, finding(OK, "", "all hosts are in %s", strings.Join(common, ", ")))
}
