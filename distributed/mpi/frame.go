package mpi

import (
	"encoding/binary"
	"fmt"

	"ringmaster/distributed"
)

// What an operation has for a peer begins with a message of a header and the
// first bytes; the rest follows in pieces without one. So every receive can be
// posted with room for the longest first message, and what the peer does is
// known before more is taken from it.

// opCode is the kind of an operation. Messages between two ranks have one code
// for Send, Recv and SendRecv: one side's send meets the other's receive.
type opCode uint8

const (
	opHello opCode = iota + 1
	opAllSum
	opAllMax
	opAllMin
	opAllGather
	opAllGatherV
	opSumScatter
	opP2P
	opBroadcast
	opBarrier
	opSplit
)

func (c opCode) String() string {
	names := [...]string{"", "hello", "all_sum", "all_max", "all_min", "all_gather", "all_gather_v", "sum_scatter", "send", "broadcast", "barrier", "split"}
	if int(c) < len(names) && c > 0 {
		return names[c]
	}
	return fmt.Sprintf("operation %d", uint8(c))
}

// noDType stands where an operation has no elements.
const noDType = distributed.DType(255)

const (
	headerSize = 40
	magic      = 0x31504d52 // "RMP1"
)

// header is what a first message begins with, little-endian: magic, code,
// dtype, root, phase, epoch, seq, total, 16 bytes of 0.
type header struct {
	code  opCode
	dtype distributed.DType
	root  uint8
	phase uint8 // 1 in the gathering after a scattered reduction
	epoch uint32
	seq   uint64 // of the collective operations, 0 for messages between two
	total uint64 // bytes of the part
}

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	b[4], b[5], b[6], b[7] = byte(h.code), byte(h.dtype), h.root, h.phase
	le.PutUint32(b[8:], h.epoch)
	le.PutUint32(b[12:], 0)
	le.PutUint64(b[16:], h.seq)
	le.PutUint64(b[24:], h.total)
	le.PutUint64(b[32:], 0)
}

// parseHeader reads the header of a message of a peer.
func parseHeader(b []byte, peer int) (header, error) {
	le := binary.LittleEndian
	if len(b) < headerSize || le.Uint32(b) != magic {
		return header{}, fmt.Errorf("%w: rank %d sent %d bytes that are no message of this program", distributed.ErrDesync, peer, len(b))
	}
	return header{
		code: opCode(b[4]), dtype: distributed.DType(b[5]), root: b[6], phase: b[7],
		epoch: le.Uint32(b[8:]), seq: le.Uint64(b[16:]), total: le.Uint64(b[24:]),
	}, nil
}

func (h *header) String() string {
	s := h.code.String()
	if h.code != opP2P {
		s = fmt.Sprintf("%s #%d", s, h.seq)
	}
	s += fmt.Sprintf(" of %d bytes", h.total)
	if h.dtype != noDType {
		s += " of " + h.dtype.String()
	}
	if h.code == opBroadcast {
		s += fmt.Sprintf(" from rank %d", h.root)
	}
	if h.phase != 0 {
		s += ", gathering"
	}
	return s
}

// check compares what has come from a peer with what should; got is the length
// of the message after the header, first the most it may be.
func (h *header) check(want *header, peer, got, first int) error {
	if *h != *want {
		return fmt.Errorf("%w: this rank does %v, rank %d does %v", distributed.ErrDesync, want, peer, h)
	}
	if most := min(want.total, uint64(first)); uint64(got) != most {
		return fmt.Errorf("%w: rank %d sent %d bytes of %v, not %d", distributed.ErrDesync, peer, got, h, most)
	}
	return nil
}
