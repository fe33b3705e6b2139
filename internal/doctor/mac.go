package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"ringmaster/internal/units"
)

// The GPU of a Mac may use about three quarters of the memory by default; leaveFree is
// what the system needs beside a raised limit.
const leaveFree = 8 << 30

// checkMac checks what only a Mac has. None of these checks has been tried on one, and
// each finding says so.
func checkMac(h *Facts) (out []Finding) {
	m := h.Mac
	if m == nil {
		return nil
	}
	add := func(s Severity, cure, format string, args ...any) {
		f := finding(s, cure, format, args...)
		f.Unproven = true
		out = append(out, f)
	}
	if m.Translated {
		add(Error, "use the build for arm64", "the program is translated by Rosetta: no Metal, and a slow processor")
	}
	if h.Arch == "amd64" && !m.Translated {
		add(Warning, "use --backend cpu", "a Mac with an Intel processor: its GPU cannot run the kernels, and macOS 27 does not run on it")
	}
	macRDMA(h, add)
	macMemory(h, add)
	if m.LowPower {
		add(Warning, "pmset -a lowpowermode 0", "low power mode is on")
	}
	if strings.Contains(m.Firewall, "enabled") {
		add(Note, "allow the program in System Settings, Network, Firewall", "the application firewall is on")
	}
	add(Note, "allow Terminal (or what starts the program) in System Settings, Privacy & Security, Local Network; ssh is not bound by it",
		"whether the program may reach the local network cannot be read; where it may not, connections fail with \"no route to host\"")
	return out
}

func macRDMA(h *Facts, add func(Severity, string, string, ...any)) {
	major, minor := macVersion(h.Release)
	switch {
	case h.Arch == "amd64":
	case major < 26 || major == 26 && minor < 2:
		add(Note, "use macOS 26.2 or later for RDMA over Thunderbolt 5; until then the group exchanges over TCP", "macOS %s has no RDMA", h.Release)
	case h.Mac.RDMA == "disabled":
		add(Warning, "start recoveryOS (hold the power button), in its Terminal rdma_ctl enable, then restart", "RDMA is disabled")
	case h.Mac.RDMA == "enabled" && len(h.RDMA.Devices) == 0:
		add(Note, "connect Macs by Thunderbolt 5 cables directly; a Thunderbolt 4 Mac never has a device", "RDMA is enabled, and there is no device")
	case h.Mac.RDMA == "":
		add(Note, "run rdma_ctl status by hand", "what rdma_ctl says is unknown")
	}
	if major == 26 && minor == 2 && len(h.RDMA.Devices) > 0 {
		add(Note, "update to macOS 26.3 or later", "macOS 26.2 takes one frame of 4 KiB a message: RDMA is slower than later")
	}
}

func macMemory(h *Facts, add func(Severity, string, string, ...any)) {
	m := h.Mac
	switch {
	case m.Physical == 0:
	case m.WiredLimit == 0:
		add(Note, fmt.Sprintf("sudo sysctl iogpu.wired_limit_mb=%d for a host that runs nothing else; it is lost at a restart", max(m.Physical-leaveFree, m.Physical/2)>>20),
			"iogpu.wired_limit_mb is 0: the GPU may use about three quarters of %s", units.Bytes(m.Physical))
	case m.WiredLimit > m.Physical-leaveFree/2:
		add(Warning, fmt.Sprintf("sudo sysctl iogpu.wired_limit_mb=%d", max(m.Physical-leaveFree, m.Physical/2)>>20),
			"the GPU may wire %s of %s: the system has too little beside it and may panic", units.Bytes(m.WiredLimit), units.Bytes(m.Physical))
	default:
		add(OK, "", "the GPU may wire %s of %s", units.Bytes(m.WiredLimit), units.Bytes(m.Physical))
	}
}

// macVersion reads a version such as 26.3.1.
func macVersion(s string) (major, minor int) {
	parts := strings.Split(s, ".")
	major, _ = strconv.Atoi(parts[0]) // 0 if not a number: the oldest possible
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	return major, minor
}
