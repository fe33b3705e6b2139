package distributed

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzProposals: any records of a split are refused or decode to themselves,
// and every length in them is bounded.
func FuzzProposals(f *testing.F) {
	p := proposal{id: 1, number: 2, color: 3, key: -4, offer: 5}
	f.Add(append(p.bytes(), p.bytes()...))
	f.Add((&proposal{id: 1, number: 2, color: math.MinInt, offer: mostOffer + 1}).bytes())
	f.Add(make([]byte, proposalSize))
	f.Fuzz(func(t *testing.T, records []byte) {
		proposals, wrong, err := readProposals(records, 1, 2)
		if err != nil {
			require.ErrorIs(t, err, ErrDesync)
			return
		}
		require.Len(t, proposals, len(records)/proposalSize)
		for r, p := range proposals {
			require.True(t, p.offer >= 0 && p.offer <= mostOffer)
			require.Equal(t, records[r*proposalSize:(r+1)*proposalSize], p.bytes())
			if wrong < 0 {
				require.True(t, p.color >= Undefined && p.color <= math.MaxInt32)
			}
		}
	})
}
