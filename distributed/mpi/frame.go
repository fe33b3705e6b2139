package mpi

import (
	"encoding/binary"
	"fmt"

	"ringmaster/distributed"
)

// What an operation sends to a peer begins with a message that holds a header
// and the first bytes; the rest follows in pieces without a header. The header
// comes first so that every receive can be posted with room for the longest
// first message, and the peer's operation is known before more of its data is
// received.

const (
	headerSize = 40
	magic      = 0x31504d52 // "RMP1"
)

// header is the start of a first message, little-endian: magic, kind, dtype,
// root, phase, epoch, seq, total, 16 bytes of 0.
type header struct {
	kind  distributed.Kind
	dtype distributed.DType
	root  uint8
	phase uint8 // 1 in the all-gather of a scattered reduction, else 0
	epoch uint32
	seq   uint64 // counts collective operations; 0 for messages
	total uint64 // bytes of the part
}

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	b[4], b[5], b[6], b[7] = byte(h.kind), byte(h.dtype), h.root, h.phase
	le.PutUint32(b[8:], h.epoch)
	le.PutUint32(b[12:], 0)
	le.PutUint64(b[16:], h.seq)
	le.PutUint64(b[24:], h.total)
	le.PutUint64(b[32:], 0)
}

// parseHeader reads the header of a message from a peer.
func parseHeader(b []byte, peer int) (header, error) {
	le := binary.LittleEndian
	if len(b) < headerSize || le.Uint32(b) != magic {
		return header{}, fmt.Errorf("%w: rank %d sent %d bytes that are not a message of this program", distributed.ErrDesync, peer, len(b))
	}
	return header{
		kind: distributed.Kind(b[4]), dtype: distributed.DType(b[5]), root: b[6], phase: b[7],
		epoch: le.Uint32(b[8:]), seq: le.Uint64(b[16:]), total: le.Uint64(b[24:]),
	}, nil
}

func (h *header) String() string {
	s := h.kind.String()
	if h.kind != distributed.Send {
		s = fmt.Sprintf("%s #%d", s, h.seq)
	}
	s += fmt.Sprintf(" of %d bytes", h.total)
	if h.dtype != distributed.NoDType {
		s += " of " + h.dtype.String()
	}
	if h.kind == distributed.Broadcast || h.kind == distributed.Gather {
		s += fmt.Sprintf(" at root %d", h.root)
	}
	if h.phase != 0 {
		s += ", gathering"
	}
	return s
}

// check compares the header received from a peer with want. got is the length
// of the message after the header, first the maximum of that length.
func (h *header) check(want *header, peer, got, first int) error {
	if *h != *want {
		return fmt.Errorf("%w: this rank runs %v, rank %d runs %v", distributed.ErrDesync, want, peer, h)
	}
	if most := min(want.total, uint64(first)); uint64(got) != most {
		return fmt.Errorf("%w: rank %d sent %d bytes of %v; expected %d", distributed.ErrDesync, peer, got, h, most)
	}
	return nil
}
