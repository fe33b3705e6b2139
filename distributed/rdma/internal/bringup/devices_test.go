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

// Soft-RoCE has longer timeouts than a card, because a busy processor makes its
// packets.
func TestRetries(t *testing.T) {
	soft := &device{attr: verbs.DeviceAttr{VendorID: verbs.VendorSoftRoCE}}
	card := &device{attr: verbs.DeviceAttr{VendorID: 0x02c9}}
	require.Equal(t, verbs.SoftRetries, soft.retries())
	require.Equal(t, verbs.DefaultRetries, card.retries())
	require.Greater(t, verbs.SoftRetries.Timeout, verbs.DefaultRetries.Timeout)
}

// A refusal or a listener answers a datagram to a neighbour. Without an answer
// the limit ends the wait, and without an interface no datagram is sent.
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

// The greatest format whose messages fit in a depth of frames.
func TestWithin(t *testing.T) {
	b := &bringup{tagged: true}
	for _, c := range []struct {
		depth int
		want  format
		ok    bool
	}{{1023, wide(7), true}, {258, wide(7), true}, {257, wide(6), true}, {32, wide(3), true}, {4, wide(0), true}, {3, wide(0), false}} {
		f, ok := b.within(wide(7), c.depth)
		require.Equal(t, c.ok, ok, c.depth)
		require.Equal(t, c.want, f, c.depth)
	}
	for _, c := range []struct {
		class, depth int
		want         format
		ok           bool
	}{{0, 60, b.tight(0), true}, {0, 10, format{0, true, 10}, true}, {0, 1, format{0, true, 1}, true}, {0, 0, b.tight(0), false},
		{2, 32, b.tight(2), true}, {2, 31, format{2, true, 7}, true}, {2, 7, format{1, true, 3}, true}, {7, 256, b.tight(7), true}, {7, 255, b.tight(6), true}} {
		f, ok := b.within(b.tight(c.class), c.depth)
		require.Equal(t, c.ok, ok, c)
		require.Equal(t, c.want, f, c)
	}
	require.Equal(t, []int{516 << 10, 512 << 10, 4096}, []int{b.bytes(wide(7)), b.bytes(b.tight(7)), b.bytes(b.tight(0))})
}

// The lengths of tokens, and the messages that follow from them.
func TestLadder(t *testing.T) {
	b := &bringup{tagged: true, frames: true, format: wide(7)}
	require.Equal(t, []int{4096, 8192, 516 << 10}, b.ladder(b.format, true))
	require.Equal(t, []int{4096}, b.ladder(b.format, false))
	require.True(t, b.between(8192))
	require.False(t, b.between(4096))
	b.ladderComplete = true
	require.False(t, b.between(8192))
	require.Equal(t, []int{4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 516 << 10}[:8], b.ladder(b.format, true)[:8])
	b.shorten(65536)
	require.Equal(t, format{4, true, 2}, b.format)
	require.Equal(t, []int{65536}, b.ladder(b.format, true), "was shown")
	require.Equal(t, []int{8192}, (&bringup{tagged: true}).ladder(wide(0), true), "without frames")
}

func TestInterfaceOf(t *testing.T) {
	b := &bringup{Config: Config{Tools: matrix.Host{Devices: []matrix.Device{{Name: "rdma_en3", Interface: "en9"}}}}}
	require.Equal(t, []string{"en9", "en4", ""}, []string{b.interfaceOf("rdma_en3"), b.interfaceOf("rdma_en4"), b.interfaceOf("mlx5_0")})
}
