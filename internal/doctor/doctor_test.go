package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// sound returns a host without anything worse than a note.
func sound(name string) Facts {
	return Facts{
		Version: FactsVersion, Host: name, System: "linux", Arch: "amd64", Release: "6.1.0", Build: "abc", Program: "p", Math: "m", Backend: "cpu avx512",
		Levels: []string{"amx", "avx512", "avx2", "portable"}, Processors: 8, Memory: 64 << 30, Free: 60 << 30, MemoryRate: 40e9,
		Files: Limit{1 << 20, 1 << 20}, Locked: Limit{8 << 20, 8 << 20}, Synchronized: "yes", Addresses: []string{"10.0.0.1"},
		Interfaces: []Interface{{"eth0", 1500, []string{"10.0.0.1/24", "fe80::1/64"}}}, Ports: []Port{{Address: "0.0.0.0:9000"}},
		Model: &Model{Path: "/m.gguf", Bytes: 8 << 30, Parts: 2, Fingerprint: "f", FileSystem: "ext4", Cached: 0.5},
		RDMA:  RDMA{Devices: []RDMADevice{}},
	}
}

// mac returns a sound Mac with RDMA.
func mac() Facts {
	h := sound("mac")
	h.System, h.Arch, h.Release, h.Backend, h.Levels = "darwin", "arm64", "26.4.1", "Apple M5", []string{"neon", "portable"}
	h.Mac = &Mac{RDMA: "enabled", Physical: 128 << 30, WiredLimit: 112 << 30}
	h.RDMA.Devices = []RDMADevice{{Name: "rdma_en2", State: "PORT_ACTIVE"}}
	h.GPUMemory = 100 << 30
	return h
}

// withVulkan returns a sound GPU of a kind.
func withVulkan(kind string) *Vulkan {
	return &Vulkan{Chosen: "0, GPU", Devices: []VulkanDevice{{
		Name: "GPU", Kind: kind, Driver: "d 1", Version: "1.3.0", Heaps: []VulkanHeap{{24 << 30, 23 << 30, true}, {32 << 30, 32 << 30, false}}, Free: true, Visible: 24 << 30,
		LargestBuffer: 4 << 30, Workgroup: 1024, SharedMemory: 48 << 10, Subgroups: [2]int{32, 32},
	}}}
}

// TestEachFinding changes one fact of a sound host at a time: the finding comes with its
// severity, evidence and, if something needs doing, a cure.
func TestEachFinding(t *testing.T) {
	for _, tt := range []struct {
		check    string
		severity Severity
		evidence string
		base     func() Facts
		change   func(*Facts)
	}{
		{"facts", Note, "not determined: limits: no such thing", nil, func(h *Facts) { h.Errors = []string{"limits: no such thing"} }},
		{"processor", Warning, "instruction sets: portable", nil, func(h *Facts) { h.Levels = []string{"portable"} }},
		{"processor", Error, "instruction sets: none", nil, func(h *Facts) { h.Levels = nil }},
		{"processor", Note, "allows 2 of 8", nil, func(h *Facts) { h.Quota = 2 }},
		{"processor", Note, "powersave", nil, func(h *Facts) { h.Governor = "powersave" }},
		{"memory", Warning, "unknown", nil, func(h *Facts) { h.Memory = 0 }},
		{"memory", Warning, "only 8.00 GiB of 64.00 GiB", nil, func(h *Facts) { h.Free = 8 << 30 }},
		{"memory", Note, "1.00 GiB of swap", nil, func(h *Facts) { h.Swap = 1 << 30 }},
		{"memory", Warning, "read at 3.0 GB/s", nil, func(h *Facts) { h.MemoryRate = 3e9 }},
		{"limits", Note, "1024 open files", nil, func(h *Facts) { h.Files.Soft = 1024 }},
		{"limits", Error, "8.0 MiB of memory may be locked", nil, func(h *Facts) { h.RDMA.Devices = []RDMADevice{{Name: "mlx5_0"}} }},
		{"clock", Warning, "not synchronized", nil, func(h *Facts) { h.Synchronized = "no" }},
		{"network", Warning, "only the loopback interface", nil, func(h *Facts) { h.Interfaces = nil }},
		{"network", Note, "resolves to 127.0.1.1 only", nil, func(h *Facts) { h.Addresses = []string{"127.0.1.1"} }},
		{"ports", Error, "0.0.0.0:9000, for --listen: address already in use", nil, func(h *Facts) { h.Ports = []Port{{"0.0.0.0:9000", "--listen", "address already in use"}} }},
		{"ports", Note, "firewall is active: ufw", nil, func(h *Facts) { h.Firewalls = []string{"ufw"} }},
		{"model", Error, "/m.gguf: truncated", nil, func(h *Facts) { h.Model.Error = "truncated" }},
		{"model", Warning, "network file system (nfs)", nil, func(h *Facts) { h.Model.FileSystem, h.Model.Network = "nfs", true }},
		{"model", Note, "in memory (tmpfs)", nil, func(h *Facts) { h.Model.FileSystem = "tmpfs" }},
		{"model", Note, "80.00 GiB and this host 64.00 GiB", nil, func(h *Facts) { h.Model.Bytes = 80 << 30 }},
		{"model", OK, "all weights were read", nil, func(h *Facts) { h.Model.Checked = true }},
		{"rdma", Note, "no RDMA device", nil, func(h *Facts) {}},
		{"rdma", Warning, "rdma_en2 is PORT_DOWN and cannot", mac, func(h *Facts) { h.RDMA.Devices = []RDMADevice{{"rdma_en2", "PORT_DOWN", "check the cable"}} }},
		{"rdma", Warning, "no driver", mac, func(h *Facts) { h.RDMA.Notes = []string{"no driver"} }},
		{"vulkan", Note, "only devices in software", nil, func(h *Facts) { h.Vulkan = withVulkan("software") }},
		{"vulkan", Note, "Vulkan shows no device, and the PCI bus has a GPU of Intel", nil, func(h *Facts) { h.Vulkan = &Vulkan{Cards: []string{"Intel"}} }},
		{"vulkan", Warning, "no loader, and the PCI bus has a GPU of AMD", nil, func(h *Facts) { h.Vulkan = &Vulkan{Error: "no loader", Cards: []string{"AMD"}} }},
		{"vulkan", Note, "VK_DRIVER_FILES=/x.json chooses the drivers", nil, func(h *Facts) { h.Vulkan = withVulkan("software"); h.Vulkan.Drivers = "VK_DRIVER_FILES=/x.json" }},
		{"vulkan", OK, "0: GPU, discrete, driver d 1, Vulkan 1.3.0; heaps: 24.00 GiB (23.00 GiB free), 32.00 GiB (32.00 GiB free) of the host; largest buffer 4.00 GiB, workgroups of 1024, 48.0 KiB of shared memory, subgroups of 32", nil, func(h *Facts) { h.Vulkan = withVulkan("discrete") }},
		{"vulkan", OK, "takes device 0, GPU", nil, func(h *Facts) { h.Vulkan = withVulkan("discrete") }},
		{"vulkan", Warning, "device 0, which has no shaderInt8", nil, func(h *Facts) { h.Vulkan = withVulkan("discrete"); h.Vulkan.Devices[0].Missing = "shaderInt8" }},
		{"vulkan", Warning, "no device can be taken: no such name", nil, func(h *Facts) { h.Vulkan = withVulkan("discrete"); h.Vulkan.Refused = "no such name" }},
		{"vulkan", Note, "the host sees 256.0 MiB of device 0's memory", nil, func(h *Facts) { h.Vulkan = withVulkan("discrete"); h.Vulkan.Devices[0].Visible = 256 << 20 }},
		{"vulkan", Note, "only 4.00 GiB of 24.00 GiB of device 0 are free", nil, func(h *Facts) { h.Vulkan = withVulkan("discrete"); h.Vulkan.Devices[0].Heaps[0].Free = 4 << 30 }},
		{"vulkan", Note, "device 0 may use 24.00 GiB of this host's 64.00 GiB", nil, func(h *Facts) { h.Vulkan = withVulkan("integrated") }},
		{"mac", Error, "Rosetta", mac, func(h *Facts) { h.Arch, h.Mac.Translated = "amd64", true }},
		{"mac", Warning, "Intel", mac, func(h *Facts) { h.Arch = "amd64" }},
		{"mac", Note, "macOS 15.6 has no RDMA", mac, func(h *Facts) { h.Release = "15.6" }},
		{"mac", Note, "one frame of 4 KiB", mac, func(h *Facts) { h.Release = "26.2" }},
		{"mac", Warning, "RDMA is disabled", mac, func(h *Facts) { h.Mac.RDMA = "disabled" }},
		{"mac", Note, "there is no device", mac, func(h *Facts) { h.RDMA.Devices = nil }},
		{"mac", Note, "rdma_ctl says is unknown", mac, func(h *Facts) { h.Mac.RDMA = "" }},
		{"mac", Note, "wired_limit_mb is 0", mac, func(h *Facts) { h.Mac.WiredLimit = 0 }},
		{"mac", Warning, "126.00 GiB of 128.00 GiB", mac, func(h *Facts) { h.Mac.WiredLimit = 126 << 30 }},
		{"mac", Warning, "low power", mac, func(h *Facts) { h.Mac.LowPower = true }},
		{"mac", Note, "application firewall", mac, func(h *Facts) { h.Mac.Firewall = "Firewall is enabled. (State = 1)" }},
		{"mac", Note, "local network cannot be read", mac, func(h *Facts) {}},
	} {
		base := tt.base
		if base == nil {
			base = func() Facts { return sound("h") }
		}
		h := base()
		require.LessOrEqual(t, Examine([]Facts{h}).Worst(), Note, "the host before the change")
		tt.change(&h)
		r := Examine([]Facts{h})
		var found *Finding
		for i := range r.Findings {
			if strings.Contains(r.Findings[i].Evidence, tt.evidence) && r.Findings[i].Severity == tt.severity {
				found = &r.Findings[i]
			}
		}
		require.NotNil(t, found, "%s in %v", tt.evidence, r.Findings)
		require.Equal(t, tt.check, found.Check)
		require.Equal(t, h.Host, found.Host)
		require.Equal(t, tt.check == "mac", found.Unproven)
		if tt.severity > Note && tt.evidence != "no driver" { // a note of rails names its cure itself
			require.NotEmpty(t, found.Cure, tt.evidence)
		}
	}
}

// TestGroupFindings does the same for what must agree between hosts.
func TestGroupFindings(t *testing.T) {
	two := func() []Facts { return []Facts{sound("a"), sound("b")} }
	r := Examine(two())
	require.LessOrEqual(t, r.Worst(), Note)
	text := fmt.Sprint(r.Findings)
	for _, want := range []string{"all hosts have the build abc on a, b", "2 hosts offer 120.00 GiB together", "all hosts are in 10.0.0.0/24"} {
		require.Contains(t, text, want)
	}
	for _, tt := range []struct {
		check    string
		severity Severity
		evidence string
		cure     string
		change   func(*Facts)
	}{
		{"builds", Error, "builds differ: abc on a; def on b", "same build", func(h *Facts) { h.Build = "def" }},
		{"builds", Error, "builds of version abc differ: linux/amd64 with hash p on a; linux/amd64 with hash q on b", "copy one program", func(h *Facts) { h.Program = "q" }},
		{"builds", Error, "linux/amd64 with hash p on a; darwin/arm64 with hash q on b", "clean clone", func(h *Facts) { h.System, h.Arch, h.Program = "darwin", "arm64", "q" }},
		{"processor", Error, "return different bits: m on a; n on b", "glibc", func(h *Facts) { h.Math = "n" }},
		{"processor", Warning, "cpu avx512 on a; cpu avx2 on b", "--simd avx2", func(h *Facts) { h.Backend, h.Levels = "cpu avx2", []string{"avx2", "portable"} }},
		{"processor", Error, "cpu avx512 on a; Apple M5 on b", "--backend cpu", func(h *Facts) { h.Backend = "Apple M5" }},
		{"model", Error, "files differ: f on a; g on b", "SHA-256", func(h *Facts) { h.Model.Fingerprint = "g" }},
		{"memory", Note, "from 30.00 GiB to 60.00 GiB", "--share experts:memory", func(h *Facts) { h.Free = 30 << 30 }},
		{"clock", Warning, "b is 1m0s ahead of a", "synchronize", func(h *Facts) { h.Ahead = time.Minute }},
		{"clock", Warning, "a is 1m0s ahead of b", "synchronize", func(h *Facts) { h.Ahead = -time.Minute }},
		{"network", Warning, "10.0.0.0/24: 9000 on b, 1500 on a", "same MTU", func(h *Facts) { h.Interfaces = []Interface{{"e", 9000, []string{"10.0.0.2/24"}}} }},
		{"network", Note, "share no network", "--coordinator", func(h *Facts) { h.Interfaces = []Interface{{"e", 1500, []string{"10.9.0.2/24", "fe80::2/64"}}} }},
	} {
		hosts := two()
		tt.change(&hosts[1])
		var found bool
		for _, f := range Examine(hosts).Findings {
			if f.Host == "" && f.Check == tt.check && f.Severity == tt.severity && strings.Contains(f.Evidence, tt.evidence) {
				require.Contains(t, f.Cure, tt.cure)
				found = true
			}
		}
		require.True(t, found, "%s in %v", tt.evidence, Examine(hosts).Findings)
	}
}

// TestReport: exit codes follow the worst finding, and the report is the same as text and
// as JSON.
func TestReport(t *testing.T) {
	for worst, code := range map[Severity]int{OK: 0, Note: 0, Warning: 3, Error: 4} {
		r := Report{Findings: []Finding{{Severity: OK}, {Severity: worst}, {Severity: OK}}}
		require.Equal(t, worst, r.Worst())
		require.Equal(t, code, r.ExitCode())
	}
	h := mac()
	h.Mac.LowPower = true
	r := Examine([]Facts{h, sound("b")})
	r.Findings = append(r.Findings, Finding{Host: "gone", Check: "ssh", Severity: Error, Evidence: "no route"})
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	for _, want := range []string{"mac\n", "b\n", "gone\n  error    ssh        no route", "all hosts together\n", "worst: error",
		"low power mode is on (unproven", "-> pmset -a lowpowermode 0"} {
		require.Contains(t, b.String(), want)
	}
	text := testenv.JSON(t, r)
	back := testenv.FromJSON[Report](t, text)
	require.Equal(t, *r, back)
	require.Error(t, json.Unmarshal([]byte(`{"findings":[{"severity":"bad"}]}`), &back))
}

// source returns a host of a system with programs that print the given texts.
func source(system string, files map[string]string, programs map[string]string) *Source {
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return &Source{
		System: system, Arch: "arm64", Build: "abc", Root: root, Limit: time.Minute, Now: func() time.Time { return time.Unix(100, 0) },
		Hostname: func() (string, error) { return "box", nil }, Interfaces: func() ([]Interface, error) { return []Interface{{Name: "e"}}, nil },
		Resolve: func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") },
		Listen:  func(a string) error { return map[string]error{"taken:1": errors.New("in use")}[a] },
		Run: func(_ context.Context, name string, args ...string) (string, error) {
			text, ok := programs[strings.Join(append([]string{name}, args...), " ")]
			if !ok {
				return "", exec.ErrNotFound
			}
			return text, nil
		},
		Limits:    func() (Limit, Limit, error) { return Limit{5, 6}, Limit{7, Unlimited}, nil },
		Memory:    func() (int64, int64, bool) { return 10, 9, true },
		Compute:   func() (string, []string, int, int, error) { return "cpu neon", []string{"neon"}, 4, 0, nil },
		GPUMemory: func() int64 { return 8 },
		Rate:      func(context.Context) (float64, error) { return 0, errors.New("too little memory") },
		Model:     func(_ context.Context, p string) Model { return Model{Path: p} },
		RDMA:      func(context.Context) RDMA { return RDMA{Library: "l"} },
		Vulkan:    func() *Vulkan { return map[string]*Vulkan{"linux": {Chosen: "v"}}[system] },
	}
}

// TestGather reads what Linux and a Mac report; what cannot be read is listed.
func TestGather(t *testing.T) {
	h := Gather(t.Context(), source("linux", map[string]string{
		"proc/sys/kernel/osrelease": "6.1\n", "proc/meminfo": "MemTotal: 5 kB\nSwapTotal: 30 kB\nSwapFree: 10 kB\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
		"sys/bus/pci/devices/0000:00:02.0/class":               "0x030000\n", "sys/bus/pci/devices/0000:00:02.0/vendor": "0x1a03\n",
		"sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n", "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
		"sys/bus/pci/devices/0000:02:00.0/class": "0x020000\n", "sys/bus/pci/devices/0000:02:00.0/vendor": "0x8086\n",
	}, map[string]string{"timedatectl show --property=NTPSynchronized --value": "no\n", "systemctl is-active ufw": "active\n", "systemctl is-active nftables": "inactive\n"}),
		Ask{Model: "m", Ports: []Port{{Address: "taken:1"}, {Address: "free:1"}}})
	require.Equal(t, Facts{
		Version: FactsVersion, Host: "box", System: "linux", Arch: "arm64", Release: "6.1", Build: "abc", Backend: "cpu neon", Levels: []string{"neon"}, Processors: 4,
		Governor: "performance", Memory: 10, Free: 9, GPUMemory: 8, Swap: 20 << 10, Files: Limit{5, 6}, Locked: Limit{7, Unlimited}, Clock: time.Unix(100, 0).UTC(), Synchronized: "no",
		Interfaces: []Interface{{Name: "e"}}, Ports: []Port{{Address: "taken:1", Error: "in use"}, {Address: "free:1"}}, Firewalls: []string{"ufw"},
		Model: &Model{Path: "m"}, RDMA: RDMA{Library: "l"}, Vulkan: &Vulkan{Chosen: "v", Cards: []string{"NVIDIA"}}, Errors: []string{"addresses of box: no such host", "memory rate: too little memory"},
	}, h)
	h = Gather(t.Context(), source("linux", map[string]string{"run/systemd/timesync/synchronized": ""}, nil), Ask{})
	require.Equal(t, "yes", h.Synchronized)
	require.Nil(t, h.Model)

	h = Gather(t.Context(), source("darwin", nil, map[string]string{
		"sw_vers -productVersion": "26.3\n", "rdma_ctl status": "disabled\n", "sysctl -n iogpu.wired_limit_mb": "1024\n", "sysctl -n hw.memsize": "68719476736\n",
		"pmset -g": "System-wide power settings:\n lowpowermode         1\n", "/usr/libexec/ApplicationFirewall/socketfilterfw --getglobalstate": "Firewall is disabled. (State = 0)\n",
	}), Ask{})
	require.Equal(t, &Mac{RDMA: "disabled", WiredLimit: 1 << 30, Physical: 64 << 30, LowPower: true, Firewall: "Firewall is disabled. (State = 0)"}, h.Mac)
	require.Equal(t, "26.3", h.Release)
	require.NotPanics(t, func() { Examine([]Facts{Gather(t.Context(), source("darwin", nil, nil), Ask{})}) })
}

// TestRemote: facts pass through a login shell's noise; a host that cannot be asked,
// answers nonsense or has another version is a finding of its own.
func TestRemote(t *testing.T) {
	clock := time.Unix(1000, 0)
	facts := func(change func(*Facts)) string {
		h := sound("own name")
		h.Clock = clock.Add(time.Hour + time.Second)
		change(&h)
		text := testenv.JSON(t, h)
		return "Welcome!\n" + string(text)
	}
	var asked []string
	answers := map[string]string{"good": facts(func(*Facts) {}), "old": facts(func(h *Facts) { h.Version = 0 }), "noise": "motd {", "half": `{"version"`}
	ticks := 0
	r := &Remote{Command: []string{"ssh", "-o", "BatchMode=yes"}, Program: "/opt/it's/ringmaster", Args: []string{"--model=a b"}, Limit: time.Minute,
		Now: func() time.Time { ticks++; return clock.Add(time.Duration(ticks-1) * 2 * time.Second) },
		Run: func(_ context.Context, name string, args ...string) (string, error) {
			asked = append([]string{name}, args...)
			if text, ok := answers[args[len(args)-2]]; ok {
				return text, nil
			}
			return "", errors.New("exit status 255: Permission denied")
		}}
	all, failed := r.Gather(t.Context(), []string{"good"})
	require.Empty(t, failed)
	require.Equal(t, "good", all[0].Host, "as it was addressed")
	require.Equal(t, time.Hour-time.Second, all[0].Ahead, "less the two seconds of asking")
	require.Equal(t, []string{"ssh", "-o", "BatchMode=yes", "good", `'/opt/it'\''s/ringmaster' doctor --facts '--model=a b'`}, asked)
	for host, want := range map[string]string{"old": "another version", "noise": "is not a report", "half": "is not a report", "gone": "Permission denied"} {
		all, failed = r.Gather(t.Context(), []string{host})
		require.Empty(t, all)
		require.Len(t, failed, 1)
		require.Equal(t, host, failed[0].Host)
		require.Equal(t, Error, failed[0].Severity)
		require.Contains(t, failed[0].Evidence, want)
		require.NotEmpty(t, failed[0].Cure)
	}
	r.Limit = time.Nanosecond
	r.Run = func(ctx context.Context, _ string, _ ...string) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	_, failed = r.Gather(t.Context(), []string{"slow"})
	require.Contains(t, failed[0].Evidence, "no answer within 1ns")
}
