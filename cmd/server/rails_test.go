package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/rails"
	"ringmaster/internal/cli"
	"ringmaster/internal/testenv"
)

// TestRailsHereCommand runs the command on this host, whatever it is.
func TestRailsHereCommand(t *testing.T) {
	out, err := command(t, "rails", "here", "--json", "--name", "desk")
	require.NoError(t, err)
	r := testenv.FromJSON[rails.Report](t, out)
	require.Equal(t, "desk", r.Name)
	require.NotEmpty(t, r.System)
	if len(r.Devices) == 0 {
		require.NotEmpty(t, r.Notes, "a host without devices must have a note")
	}
	out, err = command(t, "rails", "here")
	require.NoError(t, err)
	require.Contains(t, out, "("+r.System+")")
}

// reported writes the reports to files as rails here --json prints them.
func reported(t *testing.T, reports ...rails.Report) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for _, r := range reports {
		text, err := json.MarshalIndent(r, "", "  ")
		require.NoError(t, err)
		file := filepath.Join(dir, r.Name+".json")
		// A login shell may print something before.
		require.NoError(t, os.WriteFile(file, append([]byte("Welcome to {this} host\n"), text...), 0o644))
		files = append(files, file)
	}
	return files
}

// macReports are reports of three Macs: crossed cables between the first two, and a hub.
func macReports(t *testing.T) []rails.Report {
	t.Helper()
	var reports []rails.Report
	for _, name := range []string{"mac1", "mac2", "mac3"} {
		r, err := rails.ReadReport("../../tests/cluster/testdata/rails/" + name + ".json")
		require.NoError(t, err)
		reports = append(reports, r)
	}
	return reports
}

func TestRailsPlan(t *testing.T) {
	files := reported(t, macReports(t)...)
	file := filepath.Join(t.TempDir(), "matrix.json")
	out, err := command(t, append([]string{"rails", "plan", "--out", file}, files...)...)
	require.NoError(t, err)
	require.Equal(t, `rank 0 mac1 rdma_en3 (Thunderbolt 1) <-> rank 1 mac2 rdma_en4 (Thunderbolt 2), 80 Gb/s, by domain
rank 0 mac1 rdma_en4 (Thunderbolt 2) <-> rank 1 mac2 rdma_en3 (Thunderbolt 1), 80 Gb/s, by domain
rank 0 mac1 rdma_en5 (Thunderbolt 3) <-> rank 2 mac3 rdma_en3 (Thunderbolt 1), 80 Gb/s, by domain
rank 1 mac2 rdma_en5 (Thunderbolt 3) <-> rank 2 mac3 rdma_en4 (Thunderbolt 2), 80 Gb/s, by domain
note: rank 2 mac3: Thunderbolt 3: its link to a Mac runs at 40 Gb/s, which carries no RDMA; both Macs and the cable must be Thunderbolt 5, with no dock between
note: rank 2 mac3: Thunderbolt 3: the Mac at its other end (Mac16,5) does not offer RDMA; start that one in Recovery, run rdma_ctl enable, and restart; it must have Thunderbolt 5 and macOS 26.2 or later
mesh: all ranks are connected; 1 to 2 cables per pair
`, out)
	want := `[[null, ["rdma_en3", "rdma_en4"], "rdma_en5"],
		[["rdma_en4", "rdma_en3"], null, "rdma_en5"], ["rdma_en3", "rdma_en4", null]]`
	text := testenv.ReadFile(t, file)
	require.JSONEq(t, want, string(text))
	m, err := matrix.Parse(file, text)
	require.NoError(t, err)
	require.NoError(t, m.Check(file, matrix.Rules{}))
	n, err := cli.Entries(file)
	require.NoError(t, err)
	require.Equal(t, 3, n, "the file also determines the number of ranks")

	// Without --out the matrix follows the map.
	out, err = command(t, append([]string{"rails", "plan"}, files[:2]...)...)
	require.NoError(t, err)
	at := strings.Index(out, "\n[")
	require.Positive(t, at, "%s", out)
	require.JSONEq(t, `[[null, ["rdma_en3", "rdma_en4"]], [["rdma_en4", "rdma_en3"], null]]`, out[at:])
	require.Contains(t, out[:at], "mesh: all ranks are connected; 2 cables per pair")
}

func TestRailsPlanFails(t *testing.T) {
	reports := macReports(t)
	reports[1].Devices = nil
	reports[1].Notes = append(reports[1].Notes, "RDMA is disabled; start the Mac in Recovery")
	out, err := command(t, append([]string{"rails", "plan"}, reported(t, reports...)...)...)
	require.EqualError(t, err, "the hosts are not connected for RDMA: neither a ring nor a mesh: rank 1 has cables to 0 others, and ranks 0 and 1 have no cable; join every rank to two others so that the cables close a ring, or all to all")
	require.Contains(t, out, "note: rank 1 mac2: RDMA is disabled", "the map is printed in spite of the error")

	// Linux hosts on a switch: their subnet is not that of a cable.
	apart := []rails.Report{{System: "linux"}, {System: "linux"}}
	for i := range apart {
		apart[i].Name = string(rune('a' + i))
		apart[i].Devices = []matrix.Device{{Name: "mlx5_0", State: "ACTIVE",
			Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24)}}}
	}
	files := reported(t, apart...)
	_, err = command(t, append([]string{"rails", "plan"}, files...)...)
	require.ErrorContains(t, err, "if the ports are on a switch, use --switched")
	out, err = command(t, append([]string{"rails", "plan", "--switched"}, files...)...)
	require.NoError(t, err)
	require.Contains(t, out, "rank 0 a mlx5_0 <-> rank 1 b mlx5_0, by order\n")

	reports = macReports(t)
	twice := reported(t, reports[0])[0]
	_, err = command(t, "rails", "plan", twice, twice)
	require.ErrorContains(t, err, "rank 0 (mac1) and rank 1 (mac1) are the same host: both have ")

	for name, text := range map[string]string{"empty": "", "no JSON": "bash: ringmaster: command not found\n",
		"another": `{"name": "a"}`, "cut": `{"name": "a", "system": "linux", "devices": [{"na`,
		"nameless": `{"name": "a", "system": "linux", "devices": [{}]}`} {
		file := written(t, text)
		_, err = command(t, "rails", "plan", files[0], file)
		require.ErrorContains(t, err, file)
		require.ErrorContains(t, err, "ringmaster rails here --json", name)
	}
	_, err = command(t, "rails", "plan", files[0])
	require.Error(t, err)
	_, err = command(t, "rails", "plan", files[0], filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = command(t, "rails", "plan", "--out", filepath.Join(t.TempDir(), "no", "dir"), "--switched", files[0], files[1])
	require.ErrorIs(t, err, os.ErrNotExist)
}
