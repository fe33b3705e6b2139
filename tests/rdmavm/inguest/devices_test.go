//go:build linux && cgo

package inguest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/tests/rdmavm/job"
)

// fabric describes the devices of this guest.
func fabric(t *testing.T) (rails, ports int) {
	t.Helper()
	rails, err := strconv.Atoi(os.Getenv(job.RailsVariable))
	require.NoError(t, err)
	ports, err = strconv.Atoi(os.Getenv(job.PortsVariable))
	require.NoError(t, err)
	return rails, ports
}

// TestDevices: what package verbs reads of a device through its own struct
// layouts agrees with what the tool of libibverbs prints.
func TestDevices(t *testing.T) {
	lib, err := verbs.Open("")
	require.NoError(t, err)
	defer func() { require.NoError(t, lib.Close()) }()
	devices, err := lib.Devices()
	require.NoError(t, err)
	rails, ports := fabric(t)
	require.Len(t, devices, rails*ports)
	for r := range rails {
		for p := range ports {
			name := job.Device(r, p)
			dev, err := lib.Device(name)
			require.NoError(t, err)
			probe(t, dev, netip.MustParseAddr(job.Address(r, p)))
		}
	}
	_, err = lib.Device("mlx5_0")
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "this host has")
}

// probe compares the two for one device.
func probe(t *testing.T, dev verbs.Device, addr netip.Addr) {
	out, err := exec.Command("/bin/ibv_devinfo", "-v", "-d", dev.Name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	said := func(key string) string {
		m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(key) + `:\s+(.*?)\s*$`).FindSubmatch(out)
		require.NotNil(t, m, "ibv_devinfo says nothing of %s", key)
		return string(m[1])
	}
	ctx, err := dev.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	a, err := ctx.Query()
	require.NoError(t, err)
	require.Equal(t, uint32(verbs.VendorSoftRoCE), a.VendorID, "by it a transport knows soft-RoCE, and gives it time")
	g := fmt.Sprintf("%016x", a.NodeGUID)
	for key, ours := range map[string]string{
		"node_guid":      g[:4] + ":" + g[4:8] + ":" + g[8:12] + ":" + g[12:],
		"vendor_id":      fmt.Sprintf("0x%04x", a.VendorID),
		"vendor_part_id": fmt.Sprint(a.VendorPart),
		"max_mr_size":    fmt.Sprintf("0x%x", a.MaxMRSize),
		"page_size_cap":  fmt.Sprintf("0x%x", a.PageSizes),
		"max_qp":         fmt.Sprint(a.MaxQP),
		"max_qp_wr":      fmt.Sprint(a.MaxQPWR),
		"max_sge":        fmt.Sprint(a.MaxSGE),
		"max_cq":         fmt.Sprint(a.MaxCQ),
		"max_cqe":        fmt.Sprint(a.MaxCQE),
		"max_mr":         fmt.Sprint(a.MaxMR),
		"max_pd":         fmt.Sprint(a.MaxPD),
		"phys_port_cnt":  fmt.Sprint(a.Ports),
	} {
		require.Equal(t, said(key), ours, "%s of %s", key, dev.Name)
	}
	p, err := ctx.Port(1)
	require.NoError(t, err)
	require.Equal(t, verbs.PortActive, p.State)
	for key, ours := range map[string]string{
		"max_mtu":     fmt.Sprintf("%d (%d)", p.MaxMTU.Bytes(), p.MaxMTU),
		"active_mtu":  fmt.Sprintf("%d (%d)", p.ActiveMTU.Bytes(), p.ActiveMTU),
		"port_lid":    fmt.Sprint(p.LID),
		"link_layer":  p.LinkLayer.String(),
		"max_msg_sz":  fmt.Sprintf("0x%x", p.MaxMsg),
		"gid_tbl_len": fmt.Sprint(p.GIDs),
	} {
		require.Equal(t, said(key), ours, "%s of %s", key, dev.Name)
	}
	gids, err := ctx.GIDs(1)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(gids), 1)
	for _, g := range gids {
		require.Equal(t, g.GID.String()+", "+g.Type.String(), said(fmt.Sprintf("GID[%3d]", g.Index)))
	}
	e, err := verbs.FindIPv4GID(gids)
	require.NoError(t, err)
	require.Equal(t, addr, e.GID.Addr(), "the table is that of its own interface")
	require.Equal(t, verbs.GIDRoCEv2, e.Type)
	require.True(t, e.GID.IPv4Mapped())
}
