//go:build unix

package cluster

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// flipDigest flips a bit in the last digest of a piece of the control connection that consists
// of whole frames; false if the piece has none.
func flipDigest(b []byte) bool {
	const header, done, doneHeader = 12, 10, 12
	at := -1
	for rest := b; len(rest) > 0; {
		if len(rest) < header {
			return false
		}
		n := int(binary.LittleEndian.Uint32(rest))
		if n > len(rest)-header {
			return false
		}
		if binary.LittleEndian.Uint16(rest[4:]) == done && n > doneHeader {
			at = len(b) - len(rest) + header + n - 1
		}
		rest = rest[header+n:]
	}
	if at < 0 {
		return false
	}
	b[at] ^= 1
	return true
}

// TestFlippedDigest: one flipped bit in a follower's report of a step ends the epoch and no
// process. Of three ranks the different one is excluded; with two ranks the step runs again.
// The answer is that of one rank.
func TestFlippedDigest(t *testing.T) {
	rest := testenv.Rest(t, testenv.Full, "a digest flipped on three ranks")
	for _, size := range []int{2, 3} {
		if size > 2 && !rest {
			continue
		}
		t.Run(fmt.Sprint(size, " ranks"), func(t *testing.T) {
			t.Parallel()
			b, p := viaProxy(t, size, continueFlags)
			b.form()
			var flipped atomic.Bool
			u := b.begin(phases[2])
			p.Alter(func(piece []byte, back bool) []byte {
				if !back && !flipped.Load() && flipDigest(piece) {
					flipped.Store(true)
				}
				return piece
			})
			line := b.waitLog(0, 0, `epoch 1 has ended: .*`)
			requireRank(t, line, 1)
			require.Contains(t, line, "differs from "+hostName(0)+" in work")
			b.requireWhole(u, longAnswer)
			require.True(t, flipped.Load())
			if size == 2 {
				require.Contains(t, line, "which of them is wrong is not known")
			} else {
				b.waitLog(0, 0, named(1)+" stays out until the leader is restarted")
			}
			b.untilRanks(2)
			b.requireAnswer(brief)
			b.othersRun(-1)
		})
	}
}
