package verbs

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

func TestStatusTable(t *testing.T) {
	require.Equal(t, 24, Statuses)
	names := map[string]bool{}
	for s := range Status(Statuses) {
		require.NotEmpty(t, s.String())
		require.NotEmpty(t, s.Meaning())
		require.False(t, names[s.String()], "%v twice", s)
		names[s.String()] = true
	}
	require.Equal(t, "UNKNOWN_STATUS_24", Status(24).String())
	require.Equal(t, "UNKNOWN_STATUS_4294967295", Status(1<<32-1).String())
	require.NotEmpty(t, Status(99).Meaning())
}

func TestCompletionErrorIsOneLine(t *testing.T) {
	e := &CompletionError{Op: "all_sum", Seq: 7, Rank: 1, Peer: 2, Rail: 0, Device: "rdma_en5", QPN: 0x11, WRID: 0xabc, Status: 12, VendorErr: 0x81}
	require.Equal(t, "all_sum #7 on rank 1 with rank 2 on rail 0 (rdma_en5) completed with RETRY_EXC_ERR (12): "+
		"no answer after all retries: the peer is dead or the link is down [qp 0x11, wr_id 0xabc, vendor_err 0x81]", e.Error())
	e = NewCompletionError(WC{ID: 5, Status: 77, QPN: 3})
	require.Equal(t, "completed with UNKNOWN_STATUS_77 (77): a status that this program does not know [qp 0x3, wr_id 0x5, vendor_err 0x0]", e.Error())
}

// TestCauseIsNoFlush: whatever the order, a flush never hides another failure.
func TestCauseIsNoFlush(t *testing.T) {
	_, ok := Cause([]WC{{}, {}})
	require.False(t, ok)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		batch := []WC{{ID: 1}, {ID: 2, Status: StatusFlush}, {ID: 3, Status: StatusFlush}, {ID: 4, Status: StatusLocLen}, {ID: 5}}
		rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		wc, ok := Cause(batch)
		require.True(t, ok)
		require.EqualValues(t, 4, wc.ID)
	}
	wc, ok := Cause([]WC{{ID: 8, Status: StatusFlush}, {ID: 9, Status: StatusFlush}})
	require.True(t, ok)
	require.EqualValues(t, 8, wc.ID, "the first flush")
}

func TestCallErrors(t *testing.T) {
	e := callError("create_qp", "rdma_en5", -16, "no UC queue pair")
	require.ErrorIs(t, e, syscall.EBUSY)
	require.ErrorIs(t, e, distributed.ErrBootstrap)
	require.Equal(t, "create_qp on rdma_en5: no UC queue pair (errno 16, device or resource busy); "+cures["create_qp"][16], e.Error())
	require.ErrorIs(t, callError("alloc_pd", "d", 5, ""), distributed.ErrUnavailable)
	require.ErrorIs(t, limitError("dealloc_pd", "d", "hangs"), distributed.ErrTimeout)
	for call, byErrno := range cures {
		for errno, cure := range byErrno {
			require.NotEmpty(t, cure, "%s %d", call, errno)
		}
	}
}

func TestSlab(t *testing.T) {
	for _, n := range []int{1, SlabAlign, SlabAlign + 1, 5 << 20} {
		s, err := NewSlab(n)
		require.NoError(t, err)
		b := s.Bytes()
		at := uint64(uintptr(unsafe.Pointer(&b[0])))
		require.Zero(t, at%SlabAlign)
		require.Zero(t, len(b)%SlabAlign)
		require.GreaterOrEqual(t, len(b), n)
		require.Equal(t, at/boundary, (at+uint64(len(b))-1)/boundary)
		b[0], b[len(b)-1] = 1, 2
		require.NoError(t, s.Free())
		require.NoError(t, s.Free())
		require.Nil(t, s.Bytes())
	}
	for _, n := range []int{0, -1, boundary + 1} {
		_, err := NewSlab(n)
		require.ErrorIs(t, err, distributed.ErrArgument)
	}
}

// TestSlabOffset: the offset in a mapping is aligned and on one side of the
// boundary, or does not exist.
func TestSlabOffset(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		base, have, n uint64
		off           uint64
		ok            bool
	}{
		{0x7f0000004000, 2 * mib, mib, 0, true},
		{0x7f0000005000, 2 * mib, mib, 0x3000, true},
		{7<<32 - mib/2, mib + SlabAlign, mib, 0, false},        // across, and no room behind
		{7<<32 - mib/2, 2*mib + SlabAlign, mib, mib / 2, true}, // behind the boundary
		{7<<32 - mib, mib, mib, 0, true},                       // up to it
		{5<<32 - 4096, boundary + SlabAlign, boundary, 4096, true},
	} {
		off, ok := slabOffset(c.base, c.have, c.n)
		require.Equal(t, c.ok, ok, "%#x", c.base)
		require.Equal(t, c.off, off, "%#x", c.base)
	}
}

func TestGIDs(t *testing.T) {
	v4 := func(a string) (g GID) {
		g = netip.MustParseAddr("::ffff:" + a).As16()
		return g
	}
	ll := GID(netip.MustParseAddr("fe80::1").As16())
	table := []GIDEntry{{0, ll, GIDRoCEv1}, {1, ll, GIDRoCEv2}, {2, v4("10.0.0.1"), GIDRoCEv1}, {3, v4("10.0.0.1"), GIDRoCEv2}, {5, v4("10.0.1.1"), GIDUnknown}}
	e, err := FindIPv4GID(table)
	require.NoError(t, err)
	require.Equal(t, 3, e.Index)
	e, err = FindGID(table, netip.MustParseAddr("10.0.1.1"))
	require.NoError(t, err)
	require.Equal(t, 5, e.Index)
	e, err = FindGID(table, netip.MustParseAddr("fe80::1%eth0"))
	require.NoError(t, err)
	require.Equal(t, 1, e.Index)
	_, err = FindGID(table, netip.MustParseAddr("10.0.0.9"))
	require.ErrorIs(t, err, ErrNoGID)
	_, err = FindIPv4GID(table[:2])
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "0: fe80::1 (RoCE v1)")
	_, err = FindIPv4GID(nil)
	require.ErrorContains(t, err, "it holds nothing")

	// A Thunderbolt port: IPv4 first, then link-local; a UUID is neither, also one
	// that begins like an address.
	uuid, odd := GID(netip.MustParseAddr("a00:0:0:4000:8000::1").As16()), GID(netip.MustParseAddr("fe80:1234:0:4000:8000::1").As16())
	for _, c := range []struct{ table, want []GIDEntry }{
		{table[:2], table[:1]},
		{table, []GIDEntry{table[3], table[0]}},
		{[]GIDEntry{{0, uuid, 0}, {1, odd, 0}, {2, ll, 0}, {3, v4("10.0.0.1"), 0}}, []GIDEntry{{3, v4("10.0.0.1"), 0}, {2, ll, 0}}},
	} {
		got, err := Addresses(c.table)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err = Addresses([]GIDEntry{{0, uuid, 0}, {1, odd, 0}})
	require.ErrorIs(t, err, ErrNoGID)
	mine, peer, err := MatchGIDs([]GIDEntry{{3, v4("10.0.0.1"), 0}, {2, ll, 0}}, []GID{v4("10.0.0.2"), ll})
	require.NoError(t, err)
	require.Equal(t, []any{3, v4("10.0.0.2")}, []any{mine.Index, peer})
	mine, peer, err = MatchGIDs([]GIDEntry{{3, v4("10.0.0.1"), 0}, {2, ll, 0}}, []GID{ll})
	require.NoError(t, err)
	require.Equal(t, []any{2, ll}, []any{mine.Index, peer})
	_, _, err = MatchGIDs([]GIDEntry{{2, ll, 0}}, []GID{v4("10.0.0.2")})
	require.ErrorIs(t, err, ErrNoGID)
	require.ErrorContains(t, err, "(::ffff:10.0.0.2); it holds 2: fe80::1")

	text, err := table[2].GID.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "00000000000000000000ffff0a000001", string(text))
	var g GID
	require.NoError(t, g.UnmarshalText(text))
	require.Equal(t, table[2].GID, g)
	require.Error(t, g.UnmarshalText([]byte("00")))
	require.Error(t, g.UnmarshalText([]byte("0000000000000000000ffff0a00000zz")))
}

// Apple's ports are identified by their link layer, and by the device's name only
// if the number says nothing.
func TestThunderbolt(t *testing.T) {
	for _, c := range []struct {
		device string
		link   LinkLayer
		want   bool
	}{
		{"r0to1", 100, true},
		{"rdma_en3", 0, true},
		{"rdma_en12", 77, true},
		{"rdma_en3", 1, false},
		{"rdma_en3", 2, false},
		{"rdma_en", 0, false},
		{"rdma_mcrdma0", 0, false},
		{"mlx5_0", 0, false},
	} {
		require.Equal(t, c.want, Thunderbolt(c.device, c.link), "%s, %v", c.device, c.link)
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, "unknown InfiniBand Ethernet Thunderbolt link layer 9",
		fmt.Sprint(LinkUnspecified, LinkInfiniBand, LinkEthernet, LinkLayer(100), LinkLayer(9)))
	require.Equal(t, "UC RC QP type 9", fmt.Sprint(UC, RC, QPType(9)))
	require.Equal(t, "RESET INIT RTR RTS ERR state 4", fmt.Sprint(StateReset, StateInit, StateRTR, StateRTS, StateErr, QPState(4)))
	require.Equal(t, []int{0, 256, 512, 1024, 2048, 4096, 0}, []int{MTU(0).Bytes(), MTU(1).Bytes(), MTU(2).Bytes(), MTU(3).Bytes(), MTU(4).Bytes(), MTU(5).Bytes(), MTU(6).Bytes()})
}

// TestAbsentLibrary: a missing library is an error, not a crash.
func TestAbsentLibrary(t *testing.T) {
	_, err := Open("/no/such/librdma.so")
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "/no/such/librdma.so")
	t.Setenv(LibraryVariable, "/another/path.so")
	_, err = Open("")
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "/another/path.so")
	require.ErrorContains(t, err, "install the verbs library")
}
