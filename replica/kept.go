package replica

import (
	"encoding/binary"
	"fmt"
	"math"

	"ringmaster/model"
)

// Byte 1 of a payload says what became of the step before: it was abandoned, committed, or
// committed without some of its tokens (model.Step.Truncated). In the last case the header
// is followed by the number of tokens that each entry keeps:
//
//	u32 entries
//	entries times: u32 tokens
const (
	abandonedStep = 0
	wholeStep     = 1
	truncatedStep = 2
)

// fate returns byte 1 of a payload. kept is nil for a step that keeps all its tokens.
func fate(committed bool, kept []int) byte {
	switch {
	case !committed:
		return abandonedStep
	case kept == nil:
		return wholeStep
	}
	return truncatedStep
}

// appendKept appends what follows the header of a payload with this fate.
func appendKept(b []byte, committed bool, kept []int) []byte {
	if fate(committed, kept) != truncatedStep {
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(kept)))
	for _, n := range kept {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// parseFate reads byte 1 of a payload, and what follows the header from b.
func parseFate(flag byte, b []byte) (committed bool, kept []int, rest []byte, err error) {
	if flag > truncatedStep {
		return false, nil, nil, fmt.Errorf("commit flag is %d, expected at most %d", flag, truncatedStep)
	}
	if flag != truncatedStep {
		return flag == wholeStep, nil, b, nil
	}
	if len(b) < 4 {
		return false, nil, nil, errShort
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if b = b[4:]; uint64(len(b)) < 4*n {
		return false, nil, nil, errShort
	}
	if n == 0 {
		return false, nil, nil, fmt.Errorf("a step without entries cannot be committed without some tokens")
	}
	kept = make([]int, n)
	for i := range kept {
		k := binary.LittleEndian.Uint32(b[4*i:])
		if k < 1 || k > math.MaxInt32 {
			return false, nil, nil, fmt.Errorf("entry %d of the step before keeps %d tokens", i, k)
		}
		kept[i] = int(k)
	}
	return true, kept, b[4*n:], nil
}

// commitKept commits a step with the tokens that it keeps, all of them if kept is nil. The
// caller has the turn.
func (h *resident) commitKept(s model.Step, kept []int) error {
	if kept != nil {
		var err error
		if s, err = s.Truncated(kept); err != nil {
			return fmt.Errorf("what the leader committed of the step before: %w", err)
		}
	}
	h.commit(s)
	return nil
}
