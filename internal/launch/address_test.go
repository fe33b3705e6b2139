package launch

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestCoordinatorAddress: which address of rank 0 is chosen, given what probe.sh prints on
// the hosts, and why the others are not.
func TestCoordinatorAddress(t *testing.T) {
	for _, c := range []struct {
		hosts  string
		choose string            // "" for none
		skip   map[string]string // the reasons against the others
	}{
		{"linux-desktop", "192.168.1.10 enp4s0 the best address of rank 0", map[string]string{
			"127.0.0.1 on lo": "loopback", "::1 on lo": "loopback", "10.10.10.1 on thunderbolt0": "a Thunderbolt cable",
			"169.254.7.8 on enp5s0": "link-local", "192.168.1.30 on wlp3s0": "another is preferred",
			"2001:db8:1::10 on enp4s0": "not permanent", "fe80::5054:ff:fe12:3456 on enp4s0": "link-local",
			"172.17.0.1 on docker0": "virtual or a bridge", "172.18.0.1 on br-3fa9c1d2": "virtual or a bridge",
			"100.101.102.103 on tailscale0": "a tunnel", "10.8.0.6 on tun0": "a tunnel", "10.5.0.1 on veth12ab": "virtual or a bridge",
		}},
		{"mac-studio", "192.168.50.20 en0 the best address of rank 0", map[string]string{
			"127.0.0.1 on lo0": "loopback", "::1 on lo0": "loopback", "fe80::1 on lo0": "loopback",
			"192.168.0.1 on en2": "a Thunderbolt cable", "10.44.0.1 on en3": "a Thunderbolt cable",
			"169.254.88.1 on bridge0": "link-local", "192.168.50.21 on en1": "another is preferred",
			"fe80::1c2a:3b4c:5d6e:7f80 on en1": "link-local", "fe80::4a2:1 on en0": "link-local",
			"2001:db8:2::20 on en0": "another is preferred", "100.90.1.2 on utun3": "a tunnel",
		}},
		{"mac-wireless", "192.168.50.33 en0 the best address of rank 0", map[string]string{"127.0.0.1 on lo0": "loopback"}},
		{"linux-wireless", "192.168.1.44 wlan0 the best address of rank 0", nil},
		{"linux-v6", "fd12:3456::6 eth0 the best address of rank 0", map[string]string{"2001:db8:1::5 on eth0": "not permanent"}},
		{"linux-none", "", map[string]string{"192.168.200.1 on thunderbolt0": "a Thunderbolt cable", "192.168.201.1 on eth1": "point-to-point (/31)"}},
		// A network of all hosts comes before one of rank 0 only.
		{"linux-two-lans", "192.168.1.10 eno1 the best address of rank 0", nil},
		{"linux-two-lans linux-second-lan", "10.20.0.1 eno2 every host is on its network", nil},
		{"mac-studio mac-wireless", "192.168.50.20 en0 every host is on its network", nil},
		{"mac-wireless mac-studio", "192.168.50.33 en0 every host is on its network", nil},
	} {
		t.Run(c.hosts, func(t *testing.T) {
			var hosts []facts
			for h := range strings.FieldsSeq(c.hosts) {
				hosts = append(hosts, facts(testenv.ReadFile(t, filepath.Join("testdata", "addresses", h+".txt"))))
			}
			got := coordinatorOf(hosts)
			chosen := ""
			if got.best != nil {
				chosen = got.best.prefix.Addr().String() + " " + got.best.iface + " " + got.why
			}
			require.Equal(t, c.choose, chosen)
			skipped := map[string]string{}
			for _, line := range got.skipped {
				address, why, ok := strings.Cut(line, ": ")
				require.True(t, ok)
				skipped[address] = why
			}
			for a, why := range c.skip {
				require.Equal(t, why, skipped[a], "%s", a)
			}
			if strings.Contains(c.hosts, "desktop") || c.hosts == "mac-studio" {
				require.Len(t, skipped, len(c.skip))
			}
		})
	}
}

// TestMaskLength: masks as ifconfig of a Mac and of others prints them.
func TestMaskLength(t *testing.T) {
	for mask, want := range map[string]int{"0xffffff00": 24, "0xfffffffc": 30, "255.255.0.0": 16, "0x0": 0, "no mask": 32} {
		require.Equal(t, want, maskLength(mask), mask)
	}
}
