package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTruncated(t *testing.T) {
	s := Step{Entries: []Entry{
		{Seq: 1, Tokens: []int32{1, 2, 3}, Want: WantAll},
		{Seq: 2, Tokens: []int32{4, 5}, Want: WantLast},
		{Seq: 3, Tokens: []int32{6, 7}, Want: WantAll},
	}}
	cut, err := s.Truncated([]int{1, 2, 2})
	require.NoError(t, err)
	require.Equal(t, []int32{1}, cut.Entries[0].Tokens)
	require.Equal(t, []int32{1, 2, 3}, s.Entries[0].Tokens)
	require.Equal(t, []int{1, 2, 2}, s.Kept(cut))
	cut, err = s.Truncated([]int{3, 2, 1})
	require.NoError(t, err)
	require.Equal(t, []int{3, 2, 1}, s.Kept(cut))
	require.Nil(t, s.Kept(s))
	for what, kept := range map[string][]int{
		"3 entries, but 2": {3, 2}, "0 of 3": {0, 2, 2}, "4 of 3": {4, 2, 2}, "does not want all": {3, 1, 2},
	} {
		_, err := s.Truncated(kept)
		require.ErrorContains(t, err, what)
	}
}
