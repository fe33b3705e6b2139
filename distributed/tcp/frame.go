package tcp

import (
	"encoding/binary"
	"fmt"

	"ringmaster/distributed"
)

// headerSize is the length of a header, frameMagic its first four bytes.
const (
	headerSize = 40
	frameMagic = 0x31664d52 // "RMf1"
)

// header precedes the payload of every frame, little-endian:
//
//	0 u32 magic      16 u8 operation   20 u32 bytes of payload
//	4 u32 epoch      17 u8 dtype       24 u64 offset of the payload in the part
//	8 u64 sequence   18 u8 phase       32 u64 bytes of the whole part
//	                 19 u8 root
//
// A part is what one rank sends to another in one phase of one operation. A part
// of no bytes has one frame, or none where both sides know its length.
type header struct {
	epoch  uint32
	seq    uint64 // counts collective operations; for a message, the messages from sender to receiver
	op     distributed.Kind
	dtype  distributed.DType
	phase  uint8 // 1 in the all-gather of a scattered reduction, else 0
	root   uint8
	length uint32
	offset uint64
	total  uint64
}

// put writes h to b [headerSize].
func (h *header) put(b []byte) {
	le := binary.LittleEndian
	_ = b[headerSize-1]
	le.PutUint32(b, frameMagic)
	le.PutUint32(b[4:], h.epoch)
	le.PutUint64(b[8:], h.seq)
	b[16], b[17], b[18], b[19] = byte(h.op), byte(h.dtype), h.phase, h.root
	le.PutUint32(b[20:], h.length)
	le.PutUint64(b[24:], h.offset)
	le.PutUint64(b[32:], h.total)
}

// parseHeader reads a header from b [headerSize]. It rejects impossible values;
// check compares the header with the operation.
func parseHeader(b []byte) (header, error) {
	le := binary.LittleEndian
	_ = b[headerSize-1]
	h := header{
		epoch: le.Uint32(b[4:]), seq: le.Uint64(b[8:]),
		op: distributed.Kind(b[16]), dtype: distributed.DType(b[17]), phase: b[18], root: b[19],
		length: le.Uint32(b[20:]), offset: le.Uint64(b[24:]), total: le.Uint64(b[32:]),
	}
	switch {
	case le.Uint32(b) != frameMagic:
		return h, fmt.Errorf("%w: %x does not begin a frame", distributed.ErrDesync, b[:4])
	case !h.op.Known() || h.phase > 1:
		return h, fmt.Errorf("%w: %v, phase %d", distributed.ErrDesync, h.op, h.phase)
	case h.offset > h.total || uint64(h.length) > h.total-h.offset:
		return h, fmt.Errorf("%w: a frame claims bytes %d to %d of %d", distributed.ErrDesync, h.offset, h.offset+uint64(h.length), h.total)
	}
	return h, nil
}

// String names the operation, as in "all_sum #7 of float16, 4096 bytes".
func (h header) String() string {
	s := fmt.Sprintf("%v #%d", h.op, h.seq)
	if h.dtype != distributed.NoDType {
		s += fmt.Sprintf(" of %v", h.dtype)
	}
	if h.op == distributed.Broadcast || h.op == distributed.Gather {
		s += fmt.Sprintf(" at root %d", h.root)
	}
	return s + fmt.Sprintf(", %d bytes", h.total)
}

// check compares a received frame with want, the operation of this rank, whose
// offset and total say how much of the part has been received. peer sent the
// frame.
func (h *header) check(want *header, peer int) error {
	switch {
	case h.epoch != want.epoch:
		return fmt.Errorf("%w: rank %d is in epoch %d, this rank in %d", distributed.ErrDesync, peer, h.epoch, want.epoch)
	case h.op != want.op || h.seq != want.seq || h.dtype != want.dtype || h.root != want.root || h.total != want.total:
		return desync(*h, *want, peer)
	case h.phase != want.phase || h.offset != want.offset:
		return fmt.Errorf("%w: rank %d is at byte %d of phase %d of %v, this rank at byte %d of phase %d",
			distributed.ErrDesync, peer, h.offset, h.phase, *h, want.offset, want.phase)
	case h.length == 0 && h.total != h.offset && h.offset != 0:
		return fmt.Errorf("%w: rank %d sends an empty frame of %v", distributed.ErrDesync, peer, *h)
	}
	return nil
}

// desync returns the error for two operations that do not match.
func desync(got, want header, peer int) error {
	return fmt.Errorf("%w: rank %d runs %v, this rank runs %v", distributed.ErrDesync, peer, got, want)
}
