package matrix

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func fixture(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(text)
}

func prefixes(s ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, x := range s {
		all = append(all, netip.MustParsePrefix(x))
	}
	return all
}

func TestParseIBVDevices(t *testing.T) {
	require.Equal(t, []Device{
		{Name: "rdma_en3", PortGUID: "a0c0d1410100ac05"},
		{Name: "rdma_en4", PortGUID: "a1c0d1410100ac05"},
		{Name: "rdma_en5", PortGUID: "a2c0d1410100ac05"},
	}, ParseIBVDevices(fixture(t, "mac1.ibv_devices")))
	require.Empty(t, ParseIBVDevices("bash: ibv_devices: command not found\n"))
}

func TestParseIBVDevinfo(t *testing.T) {
	addr := netip.MustParseAddr
	require.Equal(t, []Device{
		{Name: "mlx5_0", PortGUID: "506b4b0300c0ffee", State: "ACTIVE", Link: "Ethernet", GIDs: []netip.Addr{
			addr("fe80::526b:4bff:fec0:ffee"), addr("fe80::526b:4bff:fec0:ffee"), {}, addr("::ffff:10.20.0.1")}},
		{Name: "mlx5_1", PortGUID: "506b4b0300c0ffef", State: "DOWN", Link: "InfiniBand", GIDs: []netip.Addr{
			addr("fe80::506b:4b03:c0:ffef")}},
	}, ParseIBVDevinfo(fixture(t, "linux.ibv_devinfo")), "port 2 is ignored")
	mac := ParseIBVDevinfo(fixture(t, "mac1.ibv_devinfo"))
	require.Len(t, mac, 3)
	require.Equal(t, Device{Name: "rdma_en3", PortGUID: "a0c0d1410100ac05", State: "ACTIVE", Link: "Thunderbolt", GIDs: []netip.Addr{
		addr("fe80::345c:1dff:fee0:4101"), addr("::ffff:192.168.10.1"), addr("fe80::10c2:7f3e:51a9:d684")}}, mac[0])
	require.Equal(t, "DOWN", mac[1].State)
	mac = ParseIBVDevinfo(fixture(t, "mac3.ibv_devinfo"))
	require.Len(t, mac, 2)
	require.Equal(t, []netip.Addr{addr("a000:3001:0:4000:8000::1"), addr("fe80::345c:1dff:fee0:4301")}, mac[0].GIDs)
	require.True(t, mac[0].LinkLocalGID())
	mac[0].GIDs = mac[0].GIDs[:1]
	require.False(t, mac[0].LinkLocalGID(), "a UUID is no address")
}

func TestParseSysfs(t *testing.T) {
	addr := netip.MustParseAddr
	require.Equal(t, []Device{
		{Name: "mlx5_0", PortGUID: "506b4b0300c0ffee", Interface: "enp1s0f0np0", State: "ACTIVE", Link: "Ethernet",
			GIDs: []netip.Addr{addr("fe80::526b:4bff:fec0:ffee"), addr("::ffff:10.20.0.1")}},
		{Name: "rxe0", PortGUID: "505400fffe123456", Interface: "eth0", State: "DOWN", Link: "Ethernet",
			GIDs: []netip.Addr{addr("fe80::5054:ff:fe12:3456")}},
	}, ParseSysfs(fixture(t, "linux.sysfs")))
}

func TestParseInterfaces(t *testing.T) {
	mac := ParseIfconfig(fixture(t, "mac1.ifconfig"))
	byName := map[string]Interface{}
	for _, i := range mac {
		byName[i.Name] = i
	}
	require.Equal(t, Interface{Name: "en3", MAC: "36:5c:1d:e0:41:01",
		Addrs: prefixes("fe80::345c:1dff:fee0:4101/64", "192.168.10.1/30")}, byName["en3"])
	require.Equal(t, []string{"en6"}, byName["bridge0"].Members)
	require.Equal(t, prefixes("127.0.0.1/8", "::1/128", "fe80::1/64"), byName["lo0"].Addrs)

	require.Equal(t, []Interface{{Name: "eth0", MAC: "52:54:00:12:34:57", Addrs: prefixes("10.20.0.2/30", "fd00:20::2/64")}},
		ParseIfconfig(fixture(t, "linux.ifconfig")))
	require.Equal(t, -1, maskLength(0xff00ff00))
}

func TestParsePortsAndThunderbolt(t *testing.T) {
	ports := ParseHardwarePorts(fixture(t, "mac1.ports"))
	require.Contains(t, ports, HardwarePort{Port: "Thunderbolt 2", Interface: "en4", MAC: "36:5c:1d:e0:41:02"})
	sockets, err := ParseThunderbolt([]byte(fixture(t, "mac2.thunderbolt.json")))
	require.NoError(t, err)
	require.Equal(t, []ThunderboltPort{ // in the order of the buses
		{"4", "A0002004-0000-4000-8000-000000000004", nil, "Up to 120 Gb/s", nil},
		{"3", "A0002003-0000-4000-8000-000000000003", []string{"A0003002-0000-4000-8000-000000000002"}, "80 Gb/s", nil},
		{"2", "A0002002-0000-4000-8000-000000000002", []string{"A0001001-0000-4000-8000-000000000001"}, "80 Gb/s", nil},
		{"1", "A0002001-0000-4000-8000-000000000001", []string{"A0001002-0000-4000-8000-000000000002"}, "80 Gb/s", nil},
	}, sockets)
	sockets, err = ParseThunderbolt([]byte(fixture(t, "mac3.thunderbolt.json")))
	require.NoError(t, err)
	require.Equal(t, ThunderboltPort{"3", "A0003003-0000-4000-8000-000000000003", []string{"A0004001-0000-4000-8000-000000000001"}, "40 Gb/s",
		[]string{"Mac16,5"}}, sockets[1], "a Mac behind a dock")
	// Lower case, and a Mac that lists no services, so its RDMA is unknown.
	sockets, err = ParseThunderbolt([]byte(`{"SPThunderboltDataType": [{"domain_uuid_key": "a1", "_items": [{"domain_uuid_key": "b2"}]}]}`))
	require.NoError(t, err)
	require.Equal(t, []ThunderboltPort{{Domain: "A1", Far: []string{"B2"}}}, sockets)
	_, err = ParseThunderbolt([]byte("system_profiler: not found"))
	require.ErrorContains(t, err, "SPThunderboltDataType")
}

// macs are the three hosts of the fixtures. With cut the Thunderbolt data is
// left out, so that only the subnets remain.
func macs(t *testing.T, cut bool) []Host {
	var hosts []Host
	for _, name := range []string{"mac1", "mac2", "mac3"} {
		sockets, err := ParseThunderbolt([]byte(fixture(t, name+".thunderbolt.json")))
		require.NoError(t, err)
		if cut {
			sockets = nil
		}
		hosts = append(hosts, MacHost(name, ParseIBVDevices(fixture(t, name+".ibv_devices")), nil,
			ParseHardwarePorts(fixture(t, name+".ports")), sockets, ParseIfconfig(fixture(t, name+".ifconfig"))))
	}
	return hosts
}

func TestDiscoverMacs(t *testing.T) {
	want := `[
  [null, ["rdma_en3", "rdma_en4"], "rdma_en5"],
  [["rdma_en4", "rdma_en3"], null, "rdma_en5"],
  ["rdma_en3", "rdma_en4", null]
]
`
	for _, cut := range []bool{false, true} {
		hosts := macs(t, cut)
		n := Discover(hosts, false)
		require.JSONEq(t, want, string(n.Matrix.Format()))
		require.Empty(t, n.Notes)
		require.NoError(t, n.Matrix.Check("", Rules{}))
		topo, err := n.Matrix.Choose(Preference{})
		require.NoError(t, err)
		require.True(t, topo.Mesh())
		require.Equal(t, "1 to 2", topo.Count())
		back, err := Parse("matrix.json", n.Matrix.Format())
		require.NoError(t, err)
		require.Equal(t, n.Matrix.Clone(), back.Clone())
	}
	hosts := macs(t, false)
	require.Equal(t, `rank 0 mac1 rdma_en3 (Thunderbolt 1) <-> rank 1 mac2 rdma_en4 (Thunderbolt 2), 80 Gb/s, by domain
rank 0 mac1 rdma_en4 (Thunderbolt 2) <-> rank 1 mac2 rdma_en3 (Thunderbolt 1), 80 Gb/s, by domain
rank 0 mac1 rdma_en5 (Thunderbolt 3) <-> rank 2 mac3 rdma_en3 (Thunderbolt 1), 80 Gb/s, by domain
rank 1 mac2 rdma_en5 (Thunderbolt 3) <-> rank 2 mac3 rdma_en4 (Thunderbolt 2), 80 Gb/s, by domain
`, Discover(hosts, false).Map(hosts))
	hosts[0].Devices[2].State = "DOWN"
	n := Discover(hosts, false)
	require.Equal(t, []string{"rank 0 mac1 rdma_en5: its port is DOWN", "rank 2 mac3 rdma_en3: no cable to another rank was found"}, n.Notes)
	require.Contains(t, n.Map(hosts), "note: rank 0 mac1 rdma_en5: its port is DOWN")
	require.Contains(t, Discover(hosts[:1], false).Map(hosts), "no cables found")
}

func TestDiscoverLinux(t *testing.T) {
	a := LinuxHost("one", ParseSysfs(fixture(t, "linux.sysfs")), ParseIBVDevinfo(fixture(t, "linux.ibv_devinfo")), []Interface{
		{Name: "lo", Addrs: prefixes("127.0.0.1/8")},
		{Name: "eth0", MAC: "52:54:00:12:34:56", Addrs: prefixes("10.1.0.7/24", "fe80::5054:ff:fe12:3456/64")},
		{Name: "enp1s0f0np0", MAC: "50:6b:4b:c0:ff:ee", Addrs: prefixes("10.20.0.1/30", "fd00:20::1/64")},
	})
	require.Equal(t, prefixes("10.20.0.1/30", "fd00:20::1/64"), a.Devices[0].Addrs)
	require.Equal(t, "50:6b:4b:c0:ff:ee", a.Devices[0].MAC)
	b := LinuxHost("two", []Device{{Name: "rxe1", Interface: "eth0"}}, nil, ParseIfconfig(fixture(t, "linux.ifconfig")))
	n := Discover([]Host{a, b}, false)
	require.Equal(t, []Cable{{Attempt{0, "mlx5_0", 1, "rxe1"}, "subnet"}}, n.Cables)
	n = Discover([]Host{a, b}, true)
	require.Equal(t, []Cable{{Attempt{0, "mlx5_0", 1, "rxe1"}, "order"}}, n.Cables)
}

// FuzzParsers: any text is safe.
func FuzzParsers(f *testing.F) {
	for _, name := range []string{"mac1.ibv_devices", "linux.ibv_devinfo", "linux.sysfs", "mac1.ports", "mac1.ifconfig",
		"linux.ifconfig", "mac2.thunderbolt.json"} {
		f.Add(fixture(f, name))
	}
	f.Add("GID[9999]: ::1\nhca_id: x\n\t: \nether\n inet\n")
	f.Fuzz(func(t *testing.T, text string) {
		devices := append(ParseIBVDevices(text), ParseIBVDevinfo(text)...)
		devices = append(devices, ParseSysfs(text)...)
		interfaces := ParseIfconfig(text)
		sockets, err := ParseThunderbolt([]byte(text))
		if err != nil {
			require.Nil(t, sockets)
		}
		for _, d := range devices {
			require.NotEmpty(t, d.Name)
			require.LessOrEqual(t, len(d.GIDs), maxGIDs)
		}
		for _, i := range interfaces {
			for _, p := range i.Addrs {
				require.True(t, p.IsValid())
			}
		}
		a := MacHost("a", devices, devices, ParseHardwarePorts(text), sockets, interfaces)
		b := LinuxHost("b", devices, nil, interfaces)
		_ = Discover([]Host{a, b}, false).Map([]Host{a, b})
	})
}

func FuzzMatrix(f *testing.F) {
	f.Add([]byte(`[[null,["rdma_en6","rdma_en7"]],[["rdma_en7","rdma_en6"],null]]`))
	f.Add([]byte(`[[[],"a"],["b",[]]]`))
	f.Add([]byte(`[[null,1],[{},null]] x`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Parse("f", text)
		if err != nil {
			var p *Problem
			require.ErrorAs(t, err, &p)
			return
		}
		again, err := Parse("f", m.Format())
		require.NoError(t, err)
		require.Equal(t, m.Clone(), again.Clone())
		if m.Check("f", Rules{}) == nil && len(m) <= 5 {
			if topo, err := m.Choose(Preference{}); err == nil {
				require.NoError(t, m.Trim(topo).Check("f", Rules{Normalize: true}))
			}
		}
	})
}

func TestMappedGID(t *testing.T) {
	h := MacHost("mac1", ParseIBVDevices(fixture(t, "mac1.ibv_devices")), ParseIBVDevinfo(fixture(t, "mac1.ibv_devinfo")), nil, nil, nil)
	i, addr := h.Devices[0].MappedGID()
	require.Equal(t, 1, i)
	require.Equal(t, netip.MustParseAddr("192.168.10.1"), addr)
	h.Devices[0].GIDs = h.Devices[0].GIDs[:1]
	i, _ = h.Devices[0].MappedGID()
	require.Equal(t, -1, i)
}
