package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringmaster/internal/network"
)

// Source is where facts come from. Its functions access the host; tests replace them. A
// nil function returns nothing.
type Source struct {
	System, Arch, Build, Program, Commit, Math string
	Root                                       fs.FS         // the file system, paths without the leading /
	Limit                                      time.Duration // for each program and lookup
	Now                                        func() time.Time

	Hostname   func() (string, error)
	Resolve    func(ctx context.Context, host string) ([]string, error)
	Interfaces func() ([]Interface, error)
	Listen     func(address string) error // returns whether an address can be listened on
	Run        func(ctx context.Context, name string, args ...string) (string, error)
	Limits     func() (files, locked Limit, err error)
	Memory     func() (total, free int64, known bool)
	Compute    func() (backend string, levels []string, processors, quota int, err error)
	GPUMemory  func() int64
	Rate       func(ctx context.Context) (float64, error)
	Model      func(ctx context.Context, path string) Model
	RDMA       func(ctx context.Context) RDMA
	Vulkan     func() *Vulkan // without cards
}

// Ask says what to examine besides the host itself.
type Ask struct {
	Model string // its file; "": none
	Ports []Port // to listen on
}

// Gather collects the facts of this host. Errors lists what cannot be determined.
func Gather(ctx context.Context, s *Source, ask Ask) Facts {
	h := Facts{Version: FactsVersion, System: s.System, Arch: s.Arch, Build: s.Build, Program: s.Program, Commit: s.Commit, Math: s.Math, Clock: s.Now().UTC(), Ports: []Port{}, Interfaces: []Interface{}}
	fail := func(what string, err error) {
		if err != nil {
			h.Errors = append(h.Errors, fmt.Sprintf("%s: %v", what, err))
		}
	}
	var err error
	h.Host, err = s.Hostname()
	fail("host name", err)
	h.Backend, h.Levels, h.Processors, h.Quota, err = s.Compute()
	fail("kernels", err)
	h.Memory, h.Free, _ = s.Memory()
	h.GPUMemory = s.GPUMemory()
	h.Files, h.Locked, err = s.Limits()
	fail("limits", err)
	h.Interfaces, err = s.Interfaces()
	fail("network interfaces", err)
	bounded, cancel := context.WithTimeout(ctx, s.Limit)
	h.Addresses, err = s.Resolve(bounded, h.Host)
	cancel()
	fail("addresses of "+h.Host, err)
	for _, p := range ask.Ports {
		if err := s.Listen(p.Address); err != nil {
			p.Error = err.Error()
		}
		h.Ports = append(h.Ports, p)
	}
	if ask.Model != "" {
		m := s.Model(ctx, ask.Model)
		h.Model = &m
	}
	h.RDMA = s.RDMA(ctx)
	if h.Vulkan = s.Vulkan(); h.Vulkan != nil {
		h.Vulkan.Cards = s.cards()
	}
	switch s.System {
	case "linux":
		s.linux(ctx, &h)
	case "darwin":
		s.mac(ctx, &h)
	}
	if s.Rate != nil {
		h.MemoryRate, err = s.Rate(ctx)
		fail("memory rate", err)
	}
	return h
}

// read returns the trimmed text of a file, "" if it cannot be read.
func (s *Source) read(path string) string {
	text, err := fs.ReadFile(s.Root, path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// program runs a program in bounded time; "" if it fails or is missing.
func (s *Source) program(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	text, err := s.Run(ctx, name, args...)
	if err != nil && text == "" {
		return ""
	}
	return strings.TrimSpace(text)
}

// firewallUnits are the services of Linux that filter incoming traffic.
var firewallUnits = []string{"firewalld", "ufw", "nftables"}

func (s *Source) linux(ctx context.Context, h *Facts) {
	h.Release = s.read("proc/sys/kernel/osrelease")
	h.Governor = s.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	h.Swap = (meminfo(s.read("proc/meminfo"), "SwapTotal:") - meminfo(s.read("proc/meminfo"), "SwapFree:")) << 10
	if _, err := fs.Stat(s.Root, "run/systemd/timesync/synchronized"); err == nil {
		h.Synchronized = "yes"
	} else if v := s.program(ctx, "timedatectl", "show", "--property=NTPSynchronized", "--value"); v == "yes" || v == "no" {
		h.Synchronized = v
	}
	h.Firewalls = s.firewalls(ctx)
}

// firewalls returns the active ones of firewallUnits.
func (s *Source) firewalls(ctx context.Context) (active []string) {
	for _, unit := range firewallUnits {
		if s.program(ctx, "systemctl", "is-active", unit) == "active" {
			active = append(active, unit)
		}
	}
	return active
}

// cardVendors are the PCI numbers of vendors of GPUs; others make the displays of servers' firmware.
var cardVendors = map[string]string{"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}

// cards lists the vendors of GPUs on the PCI bus, each once.
func (s *Source) cards() []string {
	found := []string{}
	classes, _ := fs.Glob(s.Root, "sys/bus/pci/devices/*/class") // the pattern is valid
	for _, class := range classes {
		vendor := cardVendors[s.read(strings.TrimSuffix(class, "class")+"vendor")]
		if strings.HasPrefix(s.read(class), "0x03") && vendor != "" && !slices.Contains(found, vendor) {
			found = append(found, vendor)
		}
	}
	return found
}

// meminfo returns a number of /proc/meminfo in KiB, 0 without it.
func meminfo(text, key string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

func (s *Source) mac(ctx context.Context, h *Facts) {
	number := func(name string) int64 {
		n, err := strconv.ParseInt(s.program(ctx, "sysctl", "-n", name), 10, 64)
		if err != nil {
			return 0 // this system does not have it
		}
		return n
	}
	h.Release = s.program(ctx, "sw_vers", "-productVersion")
	h.Mac = &Mac{
		RDMA:       s.program(ctx, "rdma_ctl", "status"),
		WiredLimit: number("iogpu.wired_limit_mb") << 20,
		Physical:   number("hw.memsize"),
		Translated: number("sysctl.proc_translated") == 1,
		Firewall:   s.program(ctx, "/usr/libexec/ApplicationFirewall/socketfilterfw", "--getglobalstate"),
	}
	for line := range strings.Lines(s.program(ctx, "pmset", "-g")) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "lowpowermode" {
			h.Mac.LowPower = f[1] == "1"
		}
	}
}

// SystemInterfaces returns the interfaces that are up, except the loopback.
func SystemInterfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	out := []Interface{}
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			return out, fmt.Errorf("%s: %w", i.Name, err)
		}
		one := Interface{Name: i.Name, MTU: i.MTU, Addresses: []string{}}
		for _, a := range addresses {
			one.Addresses = append(one.Addresses, a.String())
		}
		out = append(out, one)
	}
	return out, nil
}

// Listen reports whether an address can be listened on now.
func Listen(address string) error {
	l, err := network.Listen(context.Background(), address, net.KeepAliveConfig{}, nil)
	if err != nil {
		return err
	}
	return l.Close()
}
