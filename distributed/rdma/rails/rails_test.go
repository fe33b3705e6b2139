package rails

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/internal/subprocess"
)

// fixtures has the outputs of tools that the tests of package matrix use.
// They are put together after published outputs, without a Mac or a card
// (see the README there).
const fixtures = "../matrix/testdata"

func fixture(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixtures, name))
	require.NoError(t, err)
	return string(text)
}

// macProbe is a probe of a Mac of the fixtures. answers replace the fixtures of
// some programs.
func macProbe(t testing.TB, name string, answers map[string]func(ctx context.Context) (string, error)) *probe {
	files := map[string]string{"ibv_devices": ".ibv_devices", "ibv_devinfo": ".ibv_devinfo", "networksetup": ".ports",
		"system_profiler": ".thunderbolt.json", "ifconfig": ".ifconfig"}
	texts := map[string]string{"rdma_ctl": "enabled\n"}
	for program, file := range files {
		text, err := os.ReadFile(filepath.Join(fixtures, name+file))
		if !errors.Is(err, os.ErrNotExist) { // only one has ibv_devinfo
			require.NoError(t, err)
		}
		texts[program] = string(text)
	}
	devices := matrix.ParseIBVDevices(texts["ibv_devices"])
	return &probe{
		system: "darwin", name: name, limit: time.Minute,
		run: func(ctx context.Context, program string, args ...string) (string, error) {
			if f := answers[program]; f != nil {
				return f(ctx)
			}
			return texts[program], nil
		},
		library: func() (string, []string, error) {
			var names []string
			for _, d := range devices {
				names = append(names, d.Name)
			}
			return "/usr/lib/librdma.dylib", names, nil
		},
	}
}

// printing is an answer of macProbe: a program that prints text and ends with err.
func printing(text string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return text, err }
}

// sysfsOf returns the tree of files that a listing of the fixtures describes.
func sysfsOf(listing string) fstest.MapFS {
	tree := fstest.MapFS{}
	for line := range strings.Lines(listing) {
		name, content, file := strings.Cut(strings.TrimSpace(line), ":")
		if name = strings.TrimPrefix(name, "/"); file {
			tree[name] = &fstest.MapFile{Data: []byte(content + "\n")}
		} else {
			tree[name+"/address"] = &fstest.MapFile{}
		}
	}
	return tree
}

// linuxInterfaces are the network interfaces of the host of linux.sysfs.
var linuxInterfaces = []matrix.Interface{
	{Name: "lo", Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
	{Name: "eth0", MAC: "52:54:00:12:34:56", Addrs: []netip.Prefix{
		netip.MustParsePrefix("10.1.0.7/24"), netip.MustParsePrefix("fe80::5054:ff:fe12:3456/64")}},
	{Name: "enp1s0f0np0", MAC: "50:6b:4b:c0:ff:ee", Addrs: []netip.Prefix{
		netip.MustParsePrefix("10.20.0.1/30"), netip.MustParsePrefix("fd00:20::1/64")}},
}

func linuxProbe(t *testing.T) *probe {
	tree := sysfsOf(fixture(t, "linux.sysfs"))
	tree["sys/class/infiniband/mlx5_0/ports/1/rate"] = &fstest.MapFile{Data: []byte("100 Gb/sec (4X EDR)\n")}
	return &probe{
		system: "linux", name: "one", limit: time.Minute, root: tree,
		interfaces: func() ([]matrix.Interface, error) { return linuxInterfaces, nil },
		library:    func() (string, []string, error) { return "libibverbs.so.1", []string{"mlx5_0", "rxe0"}, nil },
	}
}

func TestReportOfLinux(t *testing.T) {
	p := linuxProbe(t)
	r := p.report(t.Context())
	require.Empty(t, r.Notes)
	require.Equal(t, "libibverbs.so.1", r.Library)
	// Reading the tree gives the same as parsing its listing.
	want := matrix.LinuxHost("one", matrix.ParseSysfs(fixture(t, "linux.sysfs")), nil, linuxInterfaces)
	require.Equal(t, "mlx5_0", want.Devices[0].Name)
	want.Devices[0].Speed = "100 Gb/sec (4X EDR)"
	require.Equal(t, want, r.Host)
	require.Contains(t, r.Text(), "mlx5_0, enp1s0f0np0, Ethernet, ACTIVE, 100 Gb/sec (4X EDR), 10.20.0.1/30")
	require.Contains(t, r.Text(), "note: rxe0: its port is DOWN; check the cable")

	p.library = func() (string, []string, error) { return "libibverbs.so.1", []string{"mlx5_0"}, nil }
	require.Equal(t, []string{"libibverbs.so.1 does not list rxe0, only [mlx5_0]; install its userspace driver (Debian: ibverbs-providers)"}, p.report(t.Context()).Notes)
	p.library = func() (string, []string, error) { return "", nil, errors.New("cannot be loaded; install it") }
	require.Equal(t, []string{"verbs library: cannot be loaded; install it"}, p.report(t.Context()).Notes)

	p = linuxProbe(t)
	p.root = sysfsOf(strings.ReplaceAll(fixture(t, "linux.sysfs"), "4: ACTIVE", "1: DOWN"))
	require.Equal(t, []string{"no device is ACTIVE; check the cables, and that RDMA is enabled on both hosts"}, p.report(t.Context()).Notes)

	p.root = fstest.MapFS{}
	r = p.report(t.Context())
	require.Empty(t, r.Devices)
	require.Len(t, r.Notes, 1)
	require.Contains(t, r.Notes[0], "the kernel has no RDMA device: /sys/class/infiniband is empty; load the driver")

	p = linuxProbe(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.Contains(t, p.report(over).Notes, "/sys/class/infiniband: reading took longer than 1m0s")

	p.system = "plan9"
	require.Equal(t, []string{"RDMA is not supported on plan9; use --transport tcp"}, p.report(t.Context()).Notes)
}

func TestReportOfMac(t *testing.T) {
	r := macProbe(t, "mac1", nil).report(t.Context())
	require.Empty(t, r.Notes)
	require.Equal(t, "/usr/lib/librdma.dylib", r.Library)
	require.Len(t, r.Devices, 3)
	d := r.Devices[0]
	require.Equal(t, []any{"rdma_en3", "en3", "Thunderbolt 1", "Thunderbolt", "ACTIVE"}, []any{d.Name, d.Interface, d.Port, d.Link, d.State})
	require.NotEmpty(t, d.Domain)
	require.NotEmpty(t, d.FarDomain)
	require.Contains(t, r.Text(), "note: rdma_en4: its port is DOWN")

	bridged := strings.ReplaceAll(fixture(t, "mac2.ifconfig"), "member: en6", "member: en3")
	require.Contains(t, bridged, "member: en3", "the fixture has a bridge")
	for _, c := range []struct {
		name    string
		answers map[string]func(context.Context) (string, error)
		notes   []string // the start of each
	}{
		{"before 26.2", map[string]func(context.Context) (string, error){"ibv_devices": printing("", exec.ErrNotFound)},
			[]string{"this Mac has no ibv_devices; RDMA over Thunderbolt needs macOS 26.2"}},
		{"disabled", map[string]func(context.Context) (string, error){"rdma_ctl": printing("disabled\n", nil), "ibv_devices": printing("", nil)},
			[]string{"RDMA is disabled; start the Mac in Recovery, run rdma_ctl enable"}},
		{"no device", map[string]func(context.Context) (string, error){"ibv_devices": printing("    device          	   node GUID\n", nil)},
			[]string{"ibv_devices lists no device; start the Mac in Recovery, run rdma_ctl enable"}},
		{"a tool fails", map[string]func(context.Context) (string, error){"ifconfig": printing("", errors.New("exit status 1: no"))},
			[]string{"ifconfig -a: exit status 1: no"}},
		{"no JSON", map[string]func(context.Context) (string, error){"system_profiler": printing("{", nil)},
			[]string{"system_profiler SPThunderboltDataType -json: system_profiler SPThunderboltDataType: unexpected end"}},
		{"in a bridge", map[string]func(context.Context) (string, error){"ifconfig": printing(bridged, nil)},
			[]string{"rdma_en3: its interface en3 is a member of bridge0; remove it from the bridge"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := macProbe(t, "mac2", c.answers).report(t.Context()).Notes
			require.Len(t, got, len(c.notes), "%q", got)
			for i, n := range c.notes {
				require.True(t, strings.HasPrefix(got[i], n), "%q", got[i])
			}
		})
	}
	// A program that does not end is abandoned after the limit.
	p := macProbe(t, "mac2", map[string]func(context.Context) (string, error){"system_profiler": func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}})
	p.limit = time.Millisecond
	require.Contains(t, p.report(t.Context()).Notes, "system_profiler SPThunderboltDataType -json: no answer within 1ms")
	// One that hangs in the driver is left behind, with what that means.
	left := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", fmt.Errorf("process 7: %w", subprocess.ErrLeftBehind)
	}
	p = macProbe(t, "mac2", map[string]func(context.Context) (string, error){"ibv_devinfo": left, "ifconfig": left})
	p.limit = time.Millisecond
	notes := strings.Join(p.report(t.Context()).Notes, "\n")
	require.Contains(t, notes, "ibv_devinfo -v: no answer within 1ms; process 7: it does not end on SIGTERM and is left running: the driver hangs")
	require.Contains(t, notes, "only a power cycle helps")
	require.Contains(t, notes, "ifconfig -a: no answer within 1ms; process 7: it does not end on SIGTERM and is left running")
	require.Equal(t, 1, strings.Count(notes, "power cycle"))
}

// macReports are the reports of the Macs of the fixtures: crossed cables between
// the first two, a hub, and with down a port of the first that is DOWN according
// to ibv_devinfo.
func macReports(t testing.TB, down bool) []Report {
	answers := map[string]func(context.Context) (string, error){}
	if !down {
		answers["ibv_devinfo"] = printing("", nil)
	}
	return []Report{macProbe(t, "mac1", answers).report(t.Context()),
		macProbe(t, "mac2", nil).report(t.Context()), macProbe(t, "mac3", nil).report(t.Context())}
}

func TestPlanLeavesOut(t *testing.T) {
	reports := macReports(t, true)
	reports[2].note("ibv_devinfo -v: no answer within 20s")
	require.Equal(t, "rdma_en3", reports[1].Devices[0].Name)
	plan, err := MakePlan(reports, false, false)
	require.NoError(t, err)
	out := plan.Map
	require.Contains(t, out, "note: rank 0 mac1 rdma_en4 is not used: its port is DOWN; check the cable, and that RDMA is enabled on both hosts\n")
	require.Contains(t, out, "note: rank 1 mac2 rdma_en3: no cable to another rank was found\n")
	require.Contains(t, out, "note: rank 2 mac3: ibv_devinfo -v: no answer within 20s\n")
	require.Contains(t, out, "mesh: all ranks are connected; 1 cable per pair\n")

	// A Thunderbolt port without an IPv4 address is reached by the link-local one;
	// without either it cannot be reached. What macOS 27 has first is no address.
	uuid, ll := netip.MustParseAddr("a00:0:0:4000:8000::1"), netip.MustParseAddr("fe80::345c:1dff:fee0:4102")
	for _, c := range []struct {
		gids  []netip.Addr
		addrs []netip.Prefix
		used  []string
	}{
		{nil, []netip.Prefix{netip.PrefixFrom(ll, 64)}, []string{"rdma_en3", "rdma_en4"}},
		{[]netip.Addr{uuid, ll}, nil, []string{"rdma_en3", "rdma_en4"}},
		{nil, nil, []string{"rdma_en3"}},
		{[]netip.Addr{uuid}, []netip.Prefix{netip.PrefixFrom(ll, 64)}, []string{"rdma_en3"}},
	} {
		reports = macReports(t, false)
		reports[0].Devices[1].GIDs, reports[0].Devices[1].Addrs = c.gids, c.addrs
		plan, err := MakePlan(reports, false, false)
		require.NoError(t, err)
		require.Equal(t, c.used, plan.Matrix[0][1])
		if len(c.used) == 1 {
			require.Contains(t, plan.Map, "rank 0 mac1 rdma_en4 is not used: its interface en4 has neither an IPv4 address nor a link-local IPv6 one; addresses may appear only minutes after boot; otherwise assign it one of its own, outside any bridge: ifconfig en4 inet")
		}
	}

	// A pair with more cables than are used.
	many := []Report{{System: "linux"}, {System: "linux"}}
	for i := range many {
		many[i].Name = string(rune('a' + i))
		for k := range 6 {
			many[i].Devices = append(many[i].Devices, matrix.Device{Name: "mlx5_" + string(rune('0'+k)),
				Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(k), byte(i + 1)}), 30)}})
		}
	}
	plan, err = MakePlan(many, false, false)
	require.NoError(t, err)
	require.Equal(t, []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, plan.Matrix[0][1])
	require.Equal(t, 4, strings.Count(plan.Map, ", by subnet"), "%s", plan.Map)
	require.Contains(t, plan.Map, "note: rank 0 mlx5_5 <-> rank 1 mlx5_5 is not used: a pair uses at most 4 cables")
}

// TestCannedReports checks that the reports in the tests of launch.sh are what
// rails here prints.
func TestCannedReports(t *testing.T) {
	for _, r := range macReports(t, false) {
		text, err := json.Marshal(r)
		require.NoError(t, err)
		canned, err := os.ReadFile("../../../tests/cluster/testdata/rails/" + r.Name + ".json")
		require.NoError(t, err)
		require.JSONEq(t, string(canned), string(text))
	}
}
