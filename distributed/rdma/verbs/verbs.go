// Package verbs is libibverbs loaded at run time: devices, their limits and
// addresses, memory, queues and queue pairs, and the meaning of their errors. It
// knows nothing of groups. Open loads the library, Library.Device and Device.Open
// open a device, and the methods of Context make the other objects.
//
// The package links nothing and needs no header of the system. On a host without the
// library, or in a build without cgo, Open returns an error that wraps
// distributed.ErrUnavailable. The struct layouts are in rm_verbs.h, where their
// sizes and offsets are asserted.
//
// The hot path is not here. Code that posts and polls in a loop includes rm_verbs.h
// (#cgo CFLAGS: -I${SRCDIR}/…/verbs) and uses QP.Handle and CQ.Handle. PostSend,
// PostRecv and Poll of this package are for bring-up and tests, because each costs a
// call into C.
//
// Calls that enter the kernel run on their own threads, and the caller waits at most
// Library.Limit, because some drivers block forever, above all in teardown. Such a
// thread cannot be ended, so it is reported and left behind.
package verbs

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// QPType is the transport service of a queue pair.
type QPType int

// The services in use: reliable on InfiniBand and RoCE, unreliable on Apple's
// Thunderbolt, which has no other.
const (
	RC QPType = 2
	UC QPType = 3
)

func (t QPType) String() string {
	return nameOf(t, "QP type", map[QPType]string{RC: "RC", UC: "UC"})
}

// QPState is the state of a queue pair.
type QPState int

// The states that a queue pair passes through.
const (
	StateReset QPState = 0
	StateInit  QPState = 1
	StateRTR   QPState = 2 // ready to receive
	StateRTS   QPState = 3 // ready to send
	StateErr   QPState = 6
)

func (s QPState) String() string {
	return nameOf(s, "state", map[QPState]string{
		StateReset: "RESET", StateInit: "INIT", StateRTR: "RTR", StateRTS: "RTS", StateErr: "ERR"})
}

// nameOf returns the name of a number, or for one without a name its kind and the number.
func nameOf[T ~int](v T, kind string, names map[T]string) string {
	if name, ok := names[v]; ok {
		return name
	}
	return kind + " " + strconv.Itoa(int(v))
}

// PortState is the state of a port.
type PortState int

// The states that matter.
const (
	PortDown   PortState = 1
	PortActive PortState = 4
)

func (s PortState) String() string {
	return nameOf(s, "state", map[PortState]string{
		PortDown: "down", 2: "initializing", 3: "armed", PortActive: "active", 5: "active, deferred"})
}

// LinkLayer is what a port's packets travel in.
type LinkLayer int

// The link layers of the specification, and Apple's: 100 is the
// IBV_LINK_LAYER_THUNDERBOLT of the header in the macOS SDK. Unspecified says
// nothing; see Thunderbolt.
const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
	LinkThunderbolt LinkLayer = 100
)

func (l LinkLayer) String() string {
	return nameOf(l, "link layer", map[LinkLayer]string{
		LinkUnspecified: "unknown", LinkInfiniBand: "InfiniBand", LinkEthernet: "Ethernet", LinkThunderbolt: "Thunderbolt"})
}

// Thunderbolt reports whether the port of a device belongs to Apple's provider,
// which has only unreliable queue pairs and counts frames in their queues. The link
// layer decides. If the library reports an unknown one, the name decides, because
// Apple's devices are called rdma_enN after the IP interface enN of the port.
func Thunderbolt(device string, l LinkLayer) bool {
	switch l {
	case LinkInfiniBand, LinkEthernet:
		return false
	case LinkThunderbolt:
		return true
	}
	n, ok := strings.CutPrefix(device, "rdma_en")
	_, err := strconv.ParseUint(n, 10, 16)
	return ok && err == nil
}

// MTU is a packet size in the numbering of verbs: 1 is 256 bytes, 5 is 4096.
type MTU int

// Bytes returns the size that m stands for, 0 for none.
func (m MTU) Bytes() int {
	if m < 1 || m > 5 {
		return 0
	}
	return 128 << m
}

// DeviceAttr has the limits of a device. They are queried, never assumed. Less may
// be available, because other processes share the device.
type DeviceAttr struct {
	NodeGUID   uint64 // in host order
	MaxMRSize  uint64 // bytes; some drivers do not enforce the number they report
	MaxQP      int
	MaxQPWR    int // requests outstanding in one queue
	MaxSGE     int
	MaxCQ      int
	MaxCQE     int // completions in one queue
	MaxMR      int
	MaxPD      int
	Ports      int
	PageSizes  uint64 // bit k: pages of 1<<k bytes
	VendorID   uint32
	VendorPart uint32
}

// PortAttr is the state of a port.
type PortAttr struct {
	State     PortState
	MaxMTU    MTU
	ActiveMTU MTU
	GIDs      int // length of the GID table
	MaxMsg    uint32
	LID       uint16
	LinkLayer LinkLayer
}

// GIDType is the encapsulation of a GID's packets.
type GIDType int

// The types; Unknown if the library cannot tell.
const (
	GIDUnknown GIDType = -1
	GIDIB      GIDType = 0
	GIDRoCEv1  GIDType = 1
	GIDRoCEv2  GIDType = 2
)

func (t GIDType) String() string {
	switch t {
	case GIDIB:
		return "IB"
	case GIDRoCEv1:
		return "RoCE v1"
	case GIDRoCEv2:
		return "RoCE v2"
	}
	return "unknown type"
}

// GID is the address of a port, in network byte order.
type GID [16]byte

// Addr returns g as an IP address; a mapped IPv4 address is unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IPv4Mapped reports whether g is an IPv4 address: ten zero bytes, then ff ff.
func (g GID) IPv4Mapped() bool { return netip.AddrFrom16(g).Is4In6() }

// LinkLocal reports whether g is a link-local IPv6 address: fe80::/10 with the 54
// zero bits that RFC 4291 prescribes. No UUID passes, because its version digit is
// among these bits.
func (g GID) LinkLocal() bool { return g[0] == 0xfe && g[1] == 0x80 && [6]byte(g[2:8]) == [6]byte{} }

// IsZero reports whether the entry of the table is empty.
func (g GID) IsZero() bool { return g == GID{} }

func (g GID) String() string {
	if g.IPv4Mapped() {
		return "::ffff:" + g.Addr().String()
	}
	return g.Addr().String()
}

// MarshalText writes 32 hex digits.
func (g GID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(g[:])), nil }

// UnmarshalText reads 32 hex digits.
func (g *GID) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(g) {
		return fmt.Errorf("a GID is 32 hex digits, not %q", text)
	}
	copy(g[:], b)
	return nil
}

// GIDEntry is one filled entry of a port's GID table.
type GIDEntry struct {
	Index int
	GID   GID
	Type  GIDType
}

// Caps has the requested or granted depths of a queue pair.
type Caps struct {
	SendWR int // requests; on Thunderbolt frames of 4 KiB
	RecvWR int
	Inline int // bytes that a send may carry in the request
}

// Route is what a queue pair must know about its peer and the path to it.
type Route struct {
	PeerQPN   uint32
	PeerPSN   uint32 // first packet number of the peer: its RTS
	PeerLID   uint16
	PeerGID   GID
	SGIDIndex int // index of OUR GID of the same family, from FindGID
	Global    bool
	HopLimit  int // 0: 1 for UC, 64 for RC
	PathMTU   MTU // the smaller of both active MTUs
	Port      int // 0: 1
}

// Retries says how often RC retries before it gives up on a request. UC has none.
type Retries struct {
	Timeout int // of an acknowledgement: 4.096 µs << Timeout
	Retry   int // 0 to 7
	RNR     int // while the peer has no receive posted: 0 to 6, or 7 without limit
}

// DefaultRetries waits 67 ms, seven times, and waits for a late receiver without
// limit (the deadline of the operation ends that).
var DefaultRetries = Retries{Timeout: 14, Retry: 7, RNR: 7}

// SoftRetries is for devices with the VendorID VendorSoftRoCE: 2.1 s, seven times.
// The timeout is long because the processor makes the packets, and on a busy one a
// message takes longer than a card's timeout allows. Retransmitting a message that
// was only late does harm there: in Linux 6.1 the driver's sender and the reader of
// its acknowledgements run concurrently, and an acknowledgement that arrives while a
// message is resumed in its middle seems to put wrong bytes into the packets. The
// peer then finds the message longer than its receive.
var SoftRetries = Retries{Timeout: 19, Retry: 7, RNR: 7}

// VendorSoftRoCE is the vendor id of the kernel's soft-RoCE driver
// (RXE_VENDOR_ID of its rxe_param.h).
const VendorSoftRoCE = 0xffffff

// Request is a message to send, or a buffer to receive one.
type Request struct {
	ID   uint64
	Addr uintptr // in a registered region, see MR.Request
	Len  uint32
	LKey uint32
}

// WC is a completion. If Status is not 0 only ID, Status, QPN and VendorErr are
// valid. The layout is that of struct rmv_wc.
type WC struct {
	ID        uint64
	Status    Status
	Opcode    uint32
	VendorErr uint32
	ByteLen   uint32
	_         uint32
	QPN       uint32
	_         uint32
	Flags     uint32
	_         [8]byte
}

// The opcodes of successful completions.
const (
	OpSend uint32 = 0
	OpRecv uint32 = 128
)
