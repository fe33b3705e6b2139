package distributed

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The records that ranks exchange in a split.

// The record lengths of the exchanges with fixed-size records.
const (
	proposalSize = 48
	voteSize     = 512
	proposalMark = 0x31734d52 // "RMs1"
	mostOffer    = 1 << 20
)

// proposal is the first record that a rank sends, little-endian:
//
//	mark u32, 0 u32, id of the group u64, number of the split u64,
//	color i64, key i64, length of its offer u64
type proposal struct {
	id, number uint64
	color, key int
	offer      int
}

func (p *proposal) bytes() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(make([]byte, 0, proposalSize), proposalMark)
	b = le.AppendUint64(b, p.id)
	b = le.AppendUint64(b, p.number)
	b = le.AppendUint64(b, uint64(p.color))
	b = le.AppendUint64(b, uint64(p.key))
	return le.AppendUint64(b, uint64(p.offer))
}

// parse reads the record of rank r. Every rank that reads it in the same split
// gets the same error.
func (p *proposal) parse(b []byte, r int, id, number uint64) error {
	le := binary.LittleEndian
	mark, length := le.Uint64(b), le.Uint64(b[40:])
	*p = proposal{le.Uint64(b[8:]), le.Uint64(b[16:]), int(le.Uint64(b[24:])), int(le.Uint64(b[32:])), int(length)}
	if mark != proposalMark || p.id != id || p.number != number || length > mostOffer {
		return fmt.Errorf("%w: rank %d is not in split %d of this group", ErrDesync, r, number)
	}
	return nil
}

// readProposals reads the records of all ranks; wrong is the first rank with an
// invalid color, or -1.
func readProposals(records []byte, id, number uint64) (proposals []proposal, wrong int, err error) {
	proposals, wrong = make([]proposal, len(records)/proposalSize), -1
	for r := range proposals {
		if err := proposals[r].parse(records[r*proposalSize:], r, id, number); err != nil {
			return nil, -1, err
		}
		if c := proposals[r].color; wrong < 0 && (c < Undefined || c > math.MaxInt32) {
			wrong = r
		}
	}
	return proposals, wrong, nil
}
