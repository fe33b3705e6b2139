package bringup

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/matrix"
	"ringmaster/distributed/rdma/verbs"
)

// Soft-RoCE has longer timeouts than a card: a busy processor makes its packets.
func TestRetries(t *testing.T) {
	soft := &device{attr: verbs.DeviceAttr{VendorID: verbs.VendorSoftRoCE}}
	card := &device{attr: verbs.DeviceAttr{VendorID: 0x02c9}}
	require.Equal(t, verbs.SoftRetries, soft.retries())
	require.Equal(t, verbs.DefaultRetries, card.retries())
	require.Greater(t, verbs.SoftRetries.Timeout, verbs.DefaultRetries.Timeout)
}

// A datagram to a neighbour is answered by its refusal, or by the one who
// listens; without either the limit ends the wait, and without an interface
// nothing is sent.
func TestMeet(t *testing.T) {
	g := verbs.GID(netip.MustParseAddr("::ffff:127.0.0.1").As16())
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	port := c.LocalAddr().(*net.UDPAddr).Port
	came := make(chan error, 1)
	go func() {
		_, from, err := c.ReadFrom(make([]byte, 8))
		if err == nil {
			_, err = c.WriteTo([]byte{1}, from)
		}
		came <- err
	}()
	const never = time.Hour // only an answer ends the wait
	meet(t.Context(), "lo", g, port, never)
	require.NoError(t, <-came)
	require.NoError(t, c.Close())
	meet(t.Context(), "lo", g, port, never)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	meet(over, "lo", g, port, never)
	meet(t.Context(), "", g, port, never)
	meet(t.Context(), "nonesuch0", verbs.GID(netip.MustParseAddr("fe80::1").As16()), port, never)
}

func TestInterfaceOf(t *testing.T) {
	b := &bringup{Config: Config{Tools: matrix.Host{Devices: []matrix.Device{{Name: "rdma_en3", Interface: "en9"}}}}}
	require.Equal(t, []string{"en9", "en4", ""}, []string{b.interfaceOf("rdma_en3"), b.interfaceOf("rdma_en4"), b.interfaceOf("mlx5_0")})
}
