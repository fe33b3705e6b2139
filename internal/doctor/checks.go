package doctor

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"ringmaster/internal/safetext"
	"ringmaster/internal/units"
)

// check is one examination of a host.
type check struct {
	name string
	find func(*Facts) []Finding
}

// hostChecks run on each host, in this order.
var hostChecks = []check{
	{"facts", checkErrors},
	{"processor", checkProcessor},
	{"memory", checkMemory},
	{"limits", checkLimits},
	{"clock", checkClock},
	{"network", checkNetwork},
	{"ports", checkPorts},
	{"model", checkModel},
	{"rdma", checkRDMA},
	{"vulkan", checkVulkan},
	{"mac", checkMac},
}

// maxEvidence bounds each text of a finding, in bytes, because a host's report may have
// any length.
const maxEvidence = 800

func finding(s Severity, cure, format string, args ...any) Finding {
	return Finding{Severity: s, Cure: safetext.Line(cure, maxEvidence), Evidence: safetext.Line(fmt.Sprintf(format, args...), maxEvidence)}
}

func checkErrors(h *Facts) (out []Finding) {
	for _, e := range h.Errors {
		out = append(out, finding(Note, "", "not determined: %s", e))
	}
	return out
}

// slowLevels are the instruction sets that have a faster one on the same architecture.
var slowLevels = map[string]string{
	"portable": "on x86 a processor with AVX2 is several times as fast; in a virtual machine, pass the host's processor through (QEMU: -cpu host)",
}

func checkProcessor(h *Facts) (out []Finding) {
	best := "none"
	if len(h.Levels) > 0 {
		best = h.Levels[0]
	}
	kind := OK
	cure := slowLevels[best]
	if cure != "" {
		kind = Warning
	}
	if best == "none" {
		kind, cure = Error, "build with cgo: the kernels are C"
	}
	out = append(out, finding(kind, cure, "%s, %d processors, instruction sets: %s", h.Arch, h.Processors, orNone(h.Levels)))
	if h.Quota > 0 && h.Quota < h.Processors {
		out = append(out, finding(Note, "raise the quota of the control group if the host is for the model alone", "a CPU quota allows %d of %d processors", h.Quota, h.Processors))
	}
	if h.Governor == "powersave" || h.Governor == "conservative" {
		out = append(out, finding(Note, "cpupower frequency-set -g performance", "the frequency governor is %s: short steps may run at a low clock", h.Governor))
	}
	return out
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

func checkMemory(h *Facts) (out []Finding) {
	if h.Memory == 0 {
		return []Finding{finding(Warning, "give --memory by hand", "the memory of this host is unknown")}
	}
	text := fmt.Sprintf("%s, %s free", units.Bytes(h.Memory), units.Bytes(h.Free))
	if h.GPUMemory > 0 {
		text += fmt.Sprintf(", and the GPU may use %s", units.Bytes(h.GPUMemory))
	}
	if h.MemoryRate > 0 {
		text += fmt.Sprintf(", read at %.1f GB/s", h.MemoryRate/1e9)
	}
	out = append(out, finding(OK, "", "%s", text))
	if h.Free < h.Memory/4 {
		out = append(out, finding(Warning, "stop other programs on this host, because the model only gets what is free", "only %s of %s are free", units.Bytes(h.Free), units.Bytes(h.Memory)))
	}
	if h.Swap > 256<<20 {
		out = append(out, finding(Note, "stop other programs, then swapoff -a and swapon -a", "%s of swap are in use: parts of the running programs wait for a disk", units.Bytes(h.Swap)))
	}
	// A single DIMM of DDR4-2400 reaches 19 GB/s.
	if h.MemoryRate > 0 && h.MemoryRate < 10e9 {
		out = append(out, finding(Warning, "check whether other programs run, and whether all memory channels are populated (dmidecode -t memory)", "memory is read at %.1f GB/s, less than one module delivers; decoding is bound by it", h.MemoryRate/1e9))
	}
	return out
}

// leastFiles is what the default of 512 connections, the group and the parts of a model
// need.
const leastFiles = 2048

func checkLimits(h *Facts) (out []Finding) {
	if h.Files.Soft > 0 && h.Files.Soft < leastFiles {
		out = append(out, finding(Note, fmt.Sprintf("ulimit -n %d, or LimitNOFILE=%d in a unit", leastFiles*2, leastFiles*2), "%d open files at most: --max-connections becomes half of that", h.Files.Soft))
	}
	// Registered memory is locked; a slab of a rail has some tens of megabytes.
	if len(h.RDMA.Devices) > 0 && h.System == "linux" && h.Locked.Soft > 0 && h.Locked.Soft < 1<<30 {
		out = append(out, finding(Error, "ulimit -l unlimited, memlock unlimited in /etc/security/limits.conf, or LimitMEMLOCK=infinity in a unit", "%s of memory may be locked, too little for RDMA, which registers its buffers", units.Bytes(int64(h.Locked.Soft))))
	}
	return out
}

func checkClock(h *Facts) []Finding {
	if h.Synchronized == "no" {
		return []Finding{finding(Warning, "timedatectl set-ntp true, or start chrony", "the clock is not synchronized: certificates, logs and Retry-After may be wrong")}
	}
	return nil
}

func checkNetwork(h *Facts) (out []Finding) {
	if len(h.Interfaces) == 0 {
		return []Finding{finding(Warning, "bring one up to reach other hosts", "only the loopback interface is up")}
	}
	var names []string
	for _, i := range h.Interfaces {
		names = append(names, fmt.Sprintf("%s mtu %d %s", i.Name, i.MTU, strings.Join(i.Addresses, " ")))
	}
	out = append(out, finding(OK, "", "%s", strings.Join(names, "; ")))
	if len(h.Addresses) > 0 && !slices.ContainsFunc(h.Addresses, usableAddress) {
		out = append(out, finding(Note, "in a group give --coordinator an address of the network, or correct /etc/hosts (Debian puts the name at 127.0.1.1)", "the name of this host resolves to %s only, which other hosts cannot reach", strings.Join(h.Addresses, ", ")))
	}
	return out
}

func usableAddress(a string) bool {
	ip := net.ParseIP(a)
	return ip != nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast()
}

func checkPorts(h *Facts) (out []Finding) {
	for _, p := range h.Ports {
		if p.Error != "" {
			out = append(out, finding(Error, "stop the program that listens there (ss -ltnp, on a Mac lsof -iTCP -sTCP:LISTEN), or choose another address", "%s, for %s: %s", p.Address, p.Use, p.Error))
		}
	}
	if len(h.Firewalls) > 0 {
		out = append(out, finding(Note, "allow TCP between the hosts of the group: the coordinator's port, and the data connections' (give --data-port; without it the system chooses)", "a firewall is active: %s", strings.Join(h.Firewalls, ", ")))
	}
	return out
}

func checkModel(h *Facts) (out []Finding) {
	m := h.Model
	if m == nil {
		return nil
	}
	if m.Error != "" && m.Other {
		return []Finding{finding(Error, "give the file of a model that Ringmaster runs, in types that it computes with (docs/models.md)", "%s", m.Error)}
	}
	if m.Error != "" {
		return []Finding{finding(Error, "fetch it again with ringmaster pull, which checks the SHA-256, or give the first part of a split file", "%s: %s", m.Path, m.Error)}
	}
	text := fmt.Sprintf("%s: %s in %s, on %s", m.Path, units.Bytes(m.Bytes), units.Count(m.Parts, "part"), m.FileSystem)
	if m.Cached >= 0 {
		text += fmt.Sprintf(", %.0f%% in the page cache", 100*m.Cached)
	}
	checked := "header, vocabulary and tensors are those of a model that runs; --check-weights reads the weights too"
	if m.Checked {
		checked = "all weights were read and are finite"
	}
	out = append(out, finding(OK, "", "%s; %s", text, checked))
	if m.Network {
		out = append(out, finding(Warning, "copy it to a local disk: weights are read from the mapped file whenever the page cache has lost them", "the file is on a network file system (%s)", m.FileSystem))
	}
	if m.FileSystem == "tmpfs" || m.FileSystem == "ramfs" {
		out = append(out, finding(Note, "", "the file is in memory (%s) already: its bytes count as used, not as cache", m.FileSystem))
	}
	if h.Memory > 0 && m.Bytes > h.Memory {
		out = append(out, finding(Note, "divide it among hosts: ringmaster plan says how", "the file has %s and this host %s of memory: alone it would read from disk for every token", units.Bytes(m.Bytes), units.Bytes(h.Memory)))
	}
	return out
}

func checkRDMA(h *Facts) (out []Finding) {
	for _, d := range h.RDMA.Devices {
		if d.Why != "" {
			out = append(out, finding(Warning, d.Why, "%s is %s and cannot be used", d.Name, d.State))
		} else {
			out = append(out, finding(OK, "", "%s is %s", d.Name, d.State))
		}
	}
	if len(h.RDMA.Devices) == 0 {
		return []Finding{finding(Note, "", "no RDMA device: the group exchanges over TCP")}
	}
	for _, n := range h.RDMA.Notes {
		out = append(out, finding(Warning, "", "%s", n))
	}
	return out
}
